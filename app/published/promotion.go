package published

import (
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/domain/promotion"
	"github.com/pin-platform/pinworker/ports"
)

// TopicPurchaseChanged carries PromotionPurchaseChangedKafkaEvent, keyed by the purchase.
const TopicPurchaseChanged = "pin.promotion.purchase-changed.v1"

// PromotionPurchaseChangedKafkaEvent tells catalog and news what a purchase is now: they put the
// boost on or take it off.
type PromotionPurchaseChangedKafkaEvent struct {
	ContractVersion int                  // 1
	PurchaseID      promotion.PurchaseID `json:"PurchaseId"`
	TenantID        ids.TenantID         `json:"TenantId"`
	PackageKind     promotion.PackageKind
	Status          promotion.Status
	PaymentStatus   promotion.PaymentStatus
	StartsAt        time.Time
	EndsAt          time.Time
	Targets         []PromotionTarget
	Version         int
	OccurredAt      time.Time
}

// PromotionTarget is one of the purchase's targets.
type PromotionTarget struct {
	TargetType promotion.TargetType
	TargetID   uuid.UUID `json:"TargetId"`
}

// PurchaseChanged announces what a purchase has become.
func PurchaseChanged(after promotion.PromotionPurchase, _ []promotion.Event) ([]ports.Message, error) {
	p := after.Snapshot()
	var due time.Time
	if p.Status == promotion.Expired {
		due = p.EndsAt
	}
	targets := make([]PromotionTarget, len(p.Targets))
	for i, target := range p.Targets {
		targets[i] = PromotionTarget{target.Type, target.ID}
	}
	m, err := message("PromotionPurchaseChangedKafkaEvent", ports.Message{
		Topic:            TopicPurchaseChanged,
		Key:              p.ID.String(),
		Subject:          uuid.UUID(p.ID),
		Tenant:           p.TenantID,
		AggregateType:    "PromotionPurchase",
		AggregateVersion: p.Version,
		ContractVersion:  1,
		OccurredAt:       p.UpdatedAt,
		DueAt:            due,
	}, PromotionPurchaseChangedKafkaEvent{
		ContractVersion: 1,
		PurchaseID:      p.ID,
		TenantID:        p.TenantID,
		PackageKind:     p.PackageKind,
		Status:          p.Status,
		PaymentStatus:   p.PaymentStatus,
		StartsAt:        p.StartsAt,
		EndsAt:          p.EndsAt,
		Targets:         targets,
		Version:         p.Version,
		OccurredAt:      p.UpdatedAt,
	})
	return []ports.Message{m}, err
}
