package promotion

import (
	"context"
	"fmt"
	"time"

	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/domain/promotion"
	"github.com/pin-platform/pinworker/ports"
)

// Operations are what the platform's APIs do to purchases while the worker runs. They wait for a
// purchase that is held, and publish what it has become (spec: domain, operations in flight).
type Operations struct {
	Purchases ports.Purchases
	Clock     func() time.Time
}

// Purchase makes a purchase. Errors: promotion.AlreadyPurchasedError, promotion.InvalidError,
// ports.ErrConflict, an infrastructure fault.
func (o Operations) Purchase(ctx context.Context, by ports.Actor, order promotion.Order) error {
	order.StartsAt, order.EndsAt = ports.Stored(order.StartsAt), ports.Stored(order.EndsAt)
	return o.change(ctx, "make", order.Purchase, by, func(p promotion.PromotionPurchase, at time.Time) ([]promotion.Event, error) {
		return p.Purchase(order, at)
	})
}

// Cancel takes a purchase back. Errors: promotion.TerminalError, promotion.NotPurchasedError,
// ports.ErrConflict, an infrastructure fault.
func (o Operations) Cancel(ctx context.Context, by ports.Actor, id promotion.PurchaseID) error {
	return o.change(ctx, "cancel", id, by, promotion.PromotionPurchase.Cancel)
}

func (o Operations) change(
	ctx context.Context, act string, id promotion.PurchaseID, by ports.Actor,
	decide func(promotion.PromotionPurchase, time.Time) ([]promotion.Event, error),
) error {
	command := ports.Command[promotion.PurchaseID]{ID: id, At: ports.Stored(o.Clock()), By: by, Run: ports.NewRunID()}
	rule := ports.Rule[promotion.PromotionPurchase, promotion.Event]{Decide: decide, Announce: published.PurchaseChanged}
	if _, err := o.Purchases.Change(ctx, command, rule); err != nil {
		return fmt.Errorf("%s promotion purchase %s: %w", act, id, err)
	}
	return nil
}
