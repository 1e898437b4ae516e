package telemetry

import (
	"context"
	"log/slog"

	"github.com/pin-platform/pinworker/app/cycle"
	apppromotion "github.com/pin-platform/pinworker/app/promotion"
	"github.com/pin-platform/pinworker/domain/promotion"
	"github.com/pin-platform/pinworker/ports"
)

// ExpirePromotions observes the job expire-promotions and returns its cycle (spec:
// expire-promotions, observability).
func ExpirePromotions(s Sinks, job apppromotion.ExpirePromotions) func(context.Context, cycle.Tick) (apppromotion.PromotionsExpired, error) {
	m := metrics{s.Registry}
	runs := m.counter("promotion_expire_run_total", "Cycles that no infrastructure fault ended.")
	expired := m.counters("promotion_expire_items_total", "Purchases that ended.", "outcome").WithLabelValues("expired")
	duration := m.histogram("promotion_expire_cycle_duration_seconds", "How long a cycle took; the target is below 30 s.", cycleBuckets...)
	o := &observer[promotion.PromotionPurchase, promotion.Event]{
		job: ports.ExpirePromotions, sinks: s, words: pollers,
		backlog: m.gauge("promotion_expire_backlog", "Active purchases whose EndsAt has passed."),
		errors:  m.counter("promotion_expire_errors_total", "Purchases that failed, and units rolled back by an infrastructure fault."),
		skipped: m.counter("promotion_expire_skip_locked_total", "Purchases passed over because they were held elsewhere."),
		failed:  func(f ports.Failure) []field { return []field{id("PurchaseId", f.Item)} },
		applied: func(tell tellItem, t ports.Transitioned[promotion.PromotionPurchase, promotion.Event]) {
			p := t.After.Snapshot()
			expired.Inc()
			tell(slog.LevelInfo, "promotion expired", p.TenantID, id("PurchaseId", p.ID), term("PackageKind", p.PackageKind),
				count("TargetsCount", len(p.Targets)))
		},
	}
	job.Purchases = observed[promotion.PromotionPurchase, promotion.Event]{job.Purchases, o, nil}
	return func(ctx context.Context, tick cycle.Tick) (result apppromotion.PromotionsExpired, err error) {
		err = o.cycle(ctx, tick, job.Purchases, func(ctx context.Context) ([]field, error) {
			result, err = job.Run(ctx, tick)
			duration.Observe(result.Duration.Seconds())
			if err == nil {
				runs.Inc()
			}
			return []field{
				count("ExpiredCount", result.ExpiredCount), millis("DurationMs", result.Duration),
				count("SkippedLocked", result.SkippedLockedCount),
			}, err
		})
		return result, err
	}
}
