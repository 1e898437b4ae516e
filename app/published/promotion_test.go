package published_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/domain/promotion"
)

func TestPurchaseChanged_KeepsItsContract(t *testing.T) {
	for name, targets := range map[string][]promotion.Target{
		"PromotionPurchaseChangedKafkaEvent":           {{Type: "Complex", ID: uuid.UUID{1}}, {Type: "Property", ID: uuid.UUID{2}}},
		"PromotionPurchaseChangedKafkaEvent_OfNothing": nil, // a row of the platform's may have lost its targets
	} {
		purchase := must(promotion.Restore(promotion.Snapshot{
			ID: promotion.PurchaseID{0xEE, 1}, TenantID: ids.TenantID{0xBB, 2}, PackageKind: "Premium",
			Status: promotion.Active, PaymentStatus: "NotRequired", StartsAt: created, EndsAt: now, Targets: targets,
			Version: 2, CreatedAt: created, UpdatedAt: created,
		}))
		golden(t, name, only(t, announced(t, purchase, promotion.PromotionPurchase.Expire, published.PurchaseChanged)))
	}
}
