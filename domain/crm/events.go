package crm

import (
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/ids"
)

// Event is something that happened to a lead. It knows its stream; the set is closed.
type Event interface {
	Stream() uuid.UUID
	OccurredAt() time.Time
	event()
}

type (
	// LeadRegistered begins a lead.
	LeadRegistered struct {
		Lead      LeadID
		Tenant    ids.TenantID
		Executor  ids.UserID
		Investor  ids.UserID
		ExpiresAt time.Time
		At        time.Time
	}

	// LeadExtended gives a lead, active or expired, a later ExpiresAt.
	LeadExtended struct {
		Lead      LeadID
		ExpiresAt time.Time
		At        time.Time
	}

	// LeadExpired says that the lead's time was up (INV-LEAD-4).
	LeadExpired struct {
		Lead LeadID
		At   time.Time
	}

	// LeadArchived puts a lead away for good.
	LeadArchived struct {
		Lead LeadID
		At   time.Time
	}

	// LeadImported is the baseline of a lead that was written outside of the journal.
	LeadImported struct {
		Lead Snapshot
		At   time.Time // when the journal took it over
	}
)

// Stream returns the lead.
func (e LeadRegistered) Stream() uuid.UUID { return uuid.UUID(e.Lead) }

// Stream returns the lead.
func (e LeadExtended) Stream() uuid.UUID { return uuid.UUID(e.Lead) }

// Stream returns the lead.
func (e LeadExpired) Stream() uuid.UUID { return uuid.UUID(e.Lead) }

// Stream returns the lead.
func (e LeadArchived) Stream() uuid.UUID { return uuid.UUID(e.Lead) }

// Stream returns the lead.
func (e LeadImported) Stream() uuid.UUID { return uuid.UUID(e.Lead.ID) }

// OccurredAt returns At.
func (e LeadRegistered) OccurredAt() time.Time { return e.At }

// OccurredAt returns At.
func (e LeadExtended) OccurredAt() time.Time { return e.At }

// OccurredAt returns At.
func (e LeadExpired) OccurredAt() time.Time { return e.At }

// OccurredAt returns At.
func (e LeadArchived) OccurredAt() time.Time { return e.At }

// OccurredAt returns At.
func (e LeadImported) OccurredAt() time.Time { return e.At }

func (LeadRegistered) event() {}
func (LeadExtended) event()   {}
func (LeadExpired) event()    {}
func (LeadArchived) event()   {}
func (LeadImported) event()   {}
