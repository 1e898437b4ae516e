package portstest

import (
	"testing"
	"time"

	"github.com/google/uuid"

	apppromotion "github.com/pin-platform/pinworker/app/promotion"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/domain/promotion"
	"github.com/pin-platform/pinworker/ports"
)

// PurchaseStore is an adapter under test, empty, with its hooks.
type PurchaseStore struct {
	Hooks
	Due       ports.DuePurchases
	Purchases ports.Purchases
	Ledger    ports.PurchaseLedger
}

// Order returns a purchase to make, of two targets, that ends at a moment.
func Order(endsAt time.Time) promotion.Order {
	return promotion.Order{
		Purchase: NewID[promotion.PromotionPurchase](), Tenant: ids.TenantID(uuid.New()),
		PackageKind: "Premium", PaymentStatus: "NotRequired", StartsAt: endsAt.AddDate(0, 0, -7), EndsAt: endsAt,
		Targets: []promotion.Target{{Type: "Property", ID: uuid.New()}, {Type: "Complex", ID: uuid.New()}},
	}
}

// Purchases runs the suite of expire-promotions; open returns a store of the test's own.
func Purchases(t *testing.T, open func(t *testing.T) PurchaseStore) {
	Promises(t, func(t *testing.T) Job[promotion.PromotionPurchase, promotion.Event] {
		s := open(t)
		operate := func(at time.Time) apppromotion.Operations {
			return apppromotion.Operations{Purchases: s.Purchases, Clock: func() time.Time { return at }}
		}
		return Job[promotion.PromotionPurchase, promotion.Event]{
			Hooks: s.Hooks, Name: ports.ExpirePromotions, Due: s.Due, Rule: apppromotion.Expire, Inclusive: true,
			Item: promotion.PromotionPurchase.Stream,
			Make: func(t *testing.T, due time.Time) uuid.UUID {
				order := Order(due)
				if err := operate(Noon.AddDate(0, -1, 0)).Purchase(t.Context(), "manager", order); err != nil {
					t.Fatal(err)
				}
				return uuid.UUID(order.Purchase)
			},
			Settle: func(t *testing.T, id uuid.UUID) {
				if err := operate(Noon).Cancel(t.Context(), "manager", promotion.PurchaseID(id)); err != nil {
					t.Fatal(err)
				}
			},
			Done: func(t *testing.T, id uuid.UUID) bool {
				return entry(t, s.Ledger, id).Row.Snapshot().Status == promotion.Expired
			},
			Verify: func(t *testing.T) int { return check[promotion.PromotionPurchase, promotion.Snapshot](t, s.Ledger) },
		}
	})
}
