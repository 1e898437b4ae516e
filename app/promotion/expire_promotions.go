// Package promotion holds the use cases of the promotion context: the job expire-promotions, and
// the operations that it races against.
package promotion

import (
	"context"
	"fmt"
	"time"

	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/app/plan"
	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/domain/promotion"
	"github.com/pin-platform/pinworker/ports"
)

// Expire is the rule of expire-promotions (INV-6).
var Expire = ports.Rule[promotion.PromotionPurchase, promotion.Event]{
	Decide:   promotion.PromotionPurchase.Expire,
	Announce: published.PurchaseChanged,
}

// Foresee foresees the job's cycles.
func Foresee(purchases ports.PurchasePreview) plan.Foreseer {
	return plan.Of(purchases, Expire, func(after promotion.PromotionPurchase) (becomes, why string) {
		return string(after.Snapshot().Status), "its time is up"
	})
}

// ExpirePromotions is the job expire-promotions: it ends purchases whose time is up and tells those
// who have to take the boost off (spec: expire-promotions).
type ExpirePromotions struct {
	Purchases ports.DuePurchases
	Limits    cycle.Limits
	Clock     func() time.Time
}

// PromotionsExpired is the result of one cycle, in the specification's words, and what it left.
type PromotionsExpired struct {
	ExpiredCount       int
	SkippedLockedCount int // purchases that someone else was working on
	Duration           time.Duration

	FailedCount int // purchases left as they were by their own fault; they fail no cycle
	FaultCount  int // units that the infrastructure rolled back
	cycle.Followed
}

// Run is one cycle: one batch. The result is good beside an error too: an infrastructure fault that
// left no claim to be had, the end of ctx, or a cycle.LimitError.
func (job ExpirePromotions) Run(ctx context.Context, tick cycle.Tick) (PromotionsExpired, error) {
	began := job.Clock()
	done, err := cycle.Drain(ctx, job.Purchases, Expire, tick, job.Limits, nil)
	result := PromotionsExpired{
		ExpiredCount: done.Applied, SkippedLockedCount: done.SkippedLocked, Duration: job.Clock().Sub(began),
		FailedCount: done.Failed, FaultCount: done.Faults, Followed: cycle.Followed{Full: done.Full, Next: done.Next},
	}
	if err != nil {
		return result, fmt.Errorf("expire promotions: %w", err)
	}
	return result, nil
}
