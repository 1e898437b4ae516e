package calendar

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/domain/ids"
)

// SlotStatus says where a slot is in its life (spec: domain, calendar).
type SlotStatus string

// The states of a slot. Withdrawn ones are the platform's doing: nothing here makes one.
const (
	SlotStatusAvailable SlotStatus = "Available"
	SlotStatusBooked    SlotStatus = "Booked"
	SlotStatusExpired   SlotStatus = "Expired"
	SlotStatusWithdrawn SlotStatus = "Withdrawn"
)

// AvailabilitySlot is an agent's time that an investor may book. Its zero value has not happened
// yet.
type AvailabilitySlot struct{ is SlotSnapshot }

// SlotSnapshot is a slot's whole state at a version.
type SlotSnapshot struct {
	ID                 SlotID
	TenantID           ids.TenantID
	AgentUserID        ids.UserID
	StartAt            time.Time
	EndAt              time.Time
	MinLeadTimeMinutes int
	AutoConfirm        bool // its appointments need no decision of the agent's
	Status             SlotStatus
	Version            int
	CreatedAt          time.Time
	UpdatedAt          time.Time
}

// RestoreSlot takes a slot out of its stored state, or returns an InvalidError.
func RestoreSlot(s SlotSnapshot) (AvailabilitySlot, error) {
	err := firstBroken(
		KindSlot, uuid.UUID(s.ID),
		check{"ID", !s.ID.IsZero(), missing},
		check{"TenantID", !s.TenantID.IsZero(), missing},
		check{"AgentUserID", !s.AgentUserID.IsZero(), missing},
		check{"StartAt", !s.StartAt.IsZero(), missing},
		check{"EndAt", !s.EndAt.IsZero(), missing},
		check{"MinLeadTimeMinutes", s.MinLeadTimeMinutes >= 0, "is negative"},
		check{"Status", slices.Contains([]SlotStatus{SlotStatusAvailable, SlotStatusBooked, SlotStatusExpired, SlotStatusWithdrawn}, s.Status), "is none that a slot can have"},
		check{"Version", s.Version >= 1, "is below 1"},
	)
	if err != nil {
		return AvailabilitySlot{}, err
	}
	return AvailabilitySlot{is: s}, nil
}

// Stream returns the slot's id.
func (s AvailabilitySlot) Stream() uuid.UUID { return uuid.UUID(s.is.ID) }

// Version returns the number of the slot's last transition, 0 before the first.
func (s AvailabilitySlot) Version() int { return s.is.Version }

// Snapshot returns the slot's whole state.
func (s AvailabilitySlot) Snapshot() SlotSnapshot { return s.is }

// Parts returns the slot: published, it is a unit by itself.
func (s AvailabilitySlot) Parts() []eventsourcing.Part[Event] {
	return []eventsourcing.Part[Event]{s}
}

// bookableUntil is the last moment at which the slot can be sold.
func (s AvailabilitySlot) bookableUntil() time.Time {
	return s.is.StartAt.Add(-minutes(s.is.MinLeadTimeMinutes))
}

// Publication is what a new slot begins with.
type Publication struct {
	Slot               SlotID
	Tenant             ids.TenantID
	Agent              ids.UserID
	StartAt            time.Time
	EndAt              time.Time
	MinLeadTimeMinutes int
	AutoConfirm        bool
}

// Publish decides that an agent offers a slot. Publishing the same again yields no event; it
// returns an ExistsError, or an InvalidError.
func (s AvailabilitySlot) Publish(p Publication, at time.Time) ([]Event, error) {
	published := SlotPublished{
		OfSlot: OfSlot{p.Slot, at}, Tenant: p.Tenant, Agent: p.Agent, StartAt: p.StartAt, EndAt: p.EndAt,
		MinLeadTimeMinutes: p.MinLeadTimeMinutes, AutoConfirm: p.AutoConfirm,
	}
	if s.is.Version > 0 {
		if s.is.ID == p.Slot && s.is.TenantID == p.Tenant && s.is.AgentUserID == p.Agent &&
			s.is.StartAt.Equal(p.StartAt) && s.is.EndAt.Equal(p.EndAt) &&
			s.is.MinLeadTimeMinutes == p.MinLeadTimeMinutes && s.is.AutoConfirm == p.AutoConfirm {
			return nil, nil
		}
		return nil, ExistsError{KindSlot, s.Stream()}
	}
	if _, err := RestoreSlot(s.Apply(published).is); err != nil {
		return nil, err
	}
	if err := forward(KindSlot, uuid.UUID(p.Slot), p.StartAt, p.EndAt); err != nil {
		return nil, err
	}
	return []Event{published}, nil
}

// book decides that the slot is taken: only an available one (INV-SLT-3), only before its lead
// time begins.
func (s AvailabilitySlot) book(at time.Time) ([]Event, error) {
	switch {
	case s.is.Version == 0:
		return nil, MissingError{KindSlot}
	case s.is.Status != SlotStatusAvailable:
		return nil, StateError{KindSlot, s.Stream(), string(s.is.Status), "be booked", "INV-SLT-3"}
	case at.After(s.bookableUntil()):
		return nil, TooLateError{s.is.ID, s.bookableUntil(), at}
	}
	return []Event{SlotBooked{OfSlot{s.is.ID, at}}}, nil
}

// release decides what becomes of a booked slot whose appointment has ended: it can be sold again
// up to its lead time, and has expired after it (INV-SLT-5).
func (s AvailabilitySlot) release(at time.Time) ([]Event, error) {
	switch {
	case s.is.Status != SlotStatusBooked:
		return nil, StateError{KindSlot, s.Stream(), string(s.is.Status), "be released", "INV-SLT-5"}
	case at.After(s.bookableUntil()):
		return []Event{SlotExpired{OfSlot{s.is.ID, at}}}, nil
	}
	return []Event{SlotReleased{OfSlot{s.is.ID, at}}}, nil
}

// Import is the baseline of a slot whose row was written outside of the journal.
func (s AvailabilitySlot) Import(at time.Time) Event { return SlotImported{OfSlot{s.is.ID, at}, s.is} }

// Apply records what happened and refuses nothing.
func (s AvailabilitySlot) Apply(event Event) AvailabilitySlot {
	next := s.is
	next.Version++
	next.UpdatedAt = event.OccurredAt()
	switch e := event.(type) {
	case SlotPublished:
		next.ID, next.TenantID, next.AgentUserID = e.Slot, e.Tenant, e.Agent
		next.StartAt, next.EndAt = e.StartAt, e.EndAt
		next.MinLeadTimeMinutes, next.AutoConfirm = e.MinLeadTimeMinutes, e.AutoConfirm
		next.Status, next.CreatedAt = SlotStatusAvailable, e.At
	case SlotBooked:
		next.Status = SlotStatusBooked
	case SlotReleased:
		next.Status = SlotStatusAvailable
	case SlotExpired:
		next.Status = SlotStatusExpired
	case SlotImported:
		next = e.State
	}
	return AvailabilitySlot{is: next}
}
