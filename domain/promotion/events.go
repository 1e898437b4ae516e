package promotion

import (
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/ids"
)

// Event is something that happened to a purchase. It knows its stream; the set is closed.
type Event interface {
	Stream() uuid.UUID
	OccurredAt() time.Time
	event()
}

type (
	// Purchased begins a purchase, as Pending.
	Purchased struct {
		Purchase      PurchaseID
		Tenant        ids.TenantID
		PackageKind   PackageKind
		PaymentStatus PaymentStatus
		StartsAt      time.Time
		EndsAt        time.Time
		Targets       []Target
		At            time.Time
	}

	// Activated says that nothing stands in the purchase's way any more.
	Activated struct {
		Purchase PurchaseID
		At       time.Time
	}

	// PurchaseExpired says that the purchase's time was up (INV-6: for good).
	PurchaseExpired struct {
		Purchase PurchaseID
		At       time.Time
	}

	// PurchaseCancelled says that a manager took the purchase back (INV-6: for good).
	PurchaseCancelled struct {
		Purchase PurchaseID
		At       time.Time
	}

	// Imported is the baseline of a purchase that was written outside of the journal.
	Imported struct {
		Purchase Snapshot
		At       time.Time // when the journal took it over
	}
)

// Stream returns the purchase.
func (e Purchased) Stream() uuid.UUID { return uuid.UUID(e.Purchase) }

// Stream returns the purchase.
func (e Activated) Stream() uuid.UUID { return uuid.UUID(e.Purchase) }

// Stream returns the purchase.
func (e PurchaseExpired) Stream() uuid.UUID { return uuid.UUID(e.Purchase) }

// Stream returns the purchase.
func (e PurchaseCancelled) Stream() uuid.UUID { return uuid.UUID(e.Purchase) }

// Stream returns the purchase.
func (e Imported) Stream() uuid.UUID { return uuid.UUID(e.Purchase.ID) }

// OccurredAt returns At.
func (e Purchased) OccurredAt() time.Time { return e.At }

// OccurredAt returns At.
func (e Activated) OccurredAt() time.Time { return e.At }

// OccurredAt returns At.
func (e PurchaseExpired) OccurredAt() time.Time { return e.At }

// OccurredAt returns At.
func (e PurchaseCancelled) OccurredAt() time.Time { return e.At }

// OccurredAt returns At.
func (e Imported) OccurredAt() time.Time { return e.At }

func (Purchased) event()         {}
func (Activated) event()         {}
func (PurchaseExpired) event()   {}
func (PurchaseCancelled) event() {}
func (Imported) event()          {}
