package telemetry_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/adapters/memory"
	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/adapters/telemetry"
	apppromotion "github.com/pin-platform/pinworker/app/promotion"
	"github.com/pin-platform/pinworker/domain/promotion"
	"github.com/pin-platform/pinworker/ports"
)

func expirePromotions(t *testing.T) *observed {
	t.Helper()
	o := observe(t, ports.ExpirePromotions, "promotion_expire_")
	purchases := memory.NewPromotion()
	operations := apppromotion.Operations{Purchases: purchases.Purchases, Clock: func() time.Time { return noon.AddDate(0, -1, 0) }}
	o.store = purchases
	o.cycle = alone(telemetry.ExpirePromotions(o.sinks, apppromotion.ExpirePromotions{
		Purchases: intercepted[promotion.PromotionPurchase, promotion.Event]{purchases.Due, o}, Limits: batchesOfTwo, Clock: o.clock,
	}))
	o.make = func(due time.Time) item {
		order := portstest.Order(due)
		o.must(operations.Purchase(o.Context(), "manager", order))
		return item{
			id: uuid.UUID(order.Purchase), lock: uuid.UUID(order.Purchase),
			name: "PurchaseId=" + order.Purchase.String(), tenant: "TenantId=" + order.Tenant.String(),
		}
	}
	o.spoil = func(i *item) string {
		s := row(o, purchases.Ledger, i.id).Snapshot()
		s.Version = 1 // and the stream is at 2
		stale, err := promotion.Restore(s)
		imports(o, purchases.World, stale, err)
		return "the stream is ahead of its row"
	}
	return o
}

func TestExpirePromotions_TellsACycleAsSpecified(t *testing.T) {
	o := expirePromotions(t)
	first, atTheMoment := o.make(noon.Add(-time.Minute)), o.make(noon)
	expired := func(i item) string {
		return "promotion expired " + i.name + " PackageKind=Premium TargetsCount=2 " + i.tenant
	}
	o.must(o.run(noon))
	o.wantLines(
		o.lines(),
		"INFO cycle started AsOf=2026-03-01T12:00:00Z", "INFO batch selected count=2", "INFO "+expired(first), "INFO "+expired(atTheMoment),
		"INFO cycle completed ExpiredCount=2 DurationMs=1000 SkippedLocked=0",
	)
	o.wantLines(o.told(), "expire-promotions batch", "  "+expired(first), "  "+expired(atTheMoment), "expire-promotions cycle")
	o.wantOnlyMetrics(map[string]float64{
		"promotion_expire_run_total":                      1,
		`promotion_expire_items_total{outcome="expired"}`: 2,
		"promotion_expire_cycle_duration_seconds_count":   1,
		"promotion_expire_cycle_duration_seconds_sum":     1,
		"promotion_expire_backlog":                        0,
		"promotion_expire_skip_locked_total":              0,
		"promotion_expire_errors_total":                   0,

		`job_oldest_due_age_seconds{job="expire-promotions"}`:         0,
		`job_quarantined{job="expire-promotions"}`:                    0,
		`job_last_success_timestamp_seconds{job="expire-promotions"}`: 1,
	})
}

func TestExpirePromotions_OnlyACycleThatNoFaultEndedIsARun(t *testing.T) {
	o := expirePromotions(t)
	o.spoil(new(o.make(noon)))
	o.must(o.run(noon))
	o.wantMetrics(map[string]float64{"promotion_expire_run_total": 1}) // poison ends none
	o.before = func() error { return errGone }
	if err := o.run(noon); !errors.Is(err, errGone) {
		t.Fatalf("error %v; want %v", err, errGone)
	}
	o.wantMetrics(map[string]float64{"promotion_expire_run_total": 1})
}
