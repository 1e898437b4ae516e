package calendar

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/ids"
)

// AppointmentStatus says where an appointment is in its life (spec: domain, calendar).
type AppointmentStatus string

// The states of an appointment.
const (
	AppointmentStatusPending   AppointmentStatus = "Pending"
	AppointmentStatusConfirmed AppointmentStatus = "Confirmed"
	AppointmentStatusDeclined  AppointmentStatus = "Declined"
	AppointmentStatusCancelled AppointmentStatus = "Cancelled"
	AppointmentStatusExpired   AppointmentStatus = "Expired"
	AppointmentStatusCompleted AppointmentStatus = "Completed"
)

// Appointment is what an investor has booked and an agent decides on. Its zero value has not
// happened yet.
type Appointment struct{ is AppointmentSnapshot }

// AppointmentSnapshot is an appointment's whole state at a version.
type AppointmentSnapshot struct {
	ID               AppointmentID
	TenantID         ids.TenantID
	SlotID           SlotID
	CalendarEventID  EventID
	LeadID           LeadID // zero: of no lead
	AgentUserID      ids.UserID
	InvestorUserID   ids.UserID
	Status           AppointmentStatus
	PendingExpiresAt time.Time  // zero: the slot confirmed it by itself
	CancelledBy      ids.UserID // zero: by nobody
	Version          int
	CreatedAt        time.Time
	UpdatedAt        time.Time
}

// RestoreAppointment takes an appointment out of its stored state, or returns an InvalidError.
func RestoreAppointment(s AppointmentSnapshot) (Appointment, error) {
	err := firstBroken(
		KindAppointment, uuid.UUID(s.ID),
		check{"ID", !s.ID.IsZero(), missing},
		check{"TenantID", !s.TenantID.IsZero(), missing},
		check{"SlotID", !s.SlotID.IsZero(), missing},
		check{"CalendarEventID", !s.CalendarEventID.IsZero(), missing},
		check{"AgentUserID", !s.AgentUserID.IsZero(), missing},
		check{"InvestorUserID", !s.InvestorUserID.IsZero(), missing},
		check{"Status", slices.Contains([]AppointmentStatus{
			AppointmentStatusPending, AppointmentStatusConfirmed, AppointmentStatusDeclined,
			AppointmentStatusCancelled, AppointmentStatusExpired, AppointmentStatusCompleted,
		}, s.Status), "is none that an appointment can have"},
		check{"Version", s.Version >= 1, "is below 1"},
	)
	if err != nil {
		return Appointment{}, err
	}
	return Appointment{is: s}, nil
}

// Stream returns the appointment's id.
func (a Appointment) Stream() uuid.UUID { return uuid.UUID(a.is.ID) }

// Version returns the number of the appointment's last transition, 0 before the first.
func (a Appointment) Version() int { return a.is.Version }

// Snapshot returns the appointment's whole state.
func (a Appointment) Snapshot() AppointmentSnapshot { return a.is }

// pendingFor is how long an agent has to decide.
const pendingFor = 24 * time.Hour

// pendingExpiresAt is when an appointment made at a moment times out: a day later, or when the
// slot's lead time begins, whichever comes first; zero where the slot confirms by itself.
func pendingExpiresAt(slot AvailabilitySlot, made time.Time) time.Time {
	if slot.is.AutoConfirm {
		return time.Time{}
	}
	if latest := slot.bookableUntil(); latest.Before(made.Add(pendingFor)) {
		return latest
	}
	return made.Add(pendingFor)
}

// confirm decides that the agent takes the appointment. It is legal for as long as the
// appointment is pending, also after PendingExpiresAt: who commits first wins.
func (a Appointment) confirm(at time.Time) ([]Event, error) {
	switch a.is.Status {
	case AppointmentStatusConfirmed:
		return nil, nil
	case AppointmentStatusPending:
		return []Event{AppointmentConfirmed{OfAppointment{a.is.ID, at}}}, nil
	}
	return nil, a.forbids("be confirmed")
}

func (a Appointment) decline(at time.Time) ([]Event, error) {
	switch a.is.Status {
	case AppointmentStatusDeclined:
		return nil, nil
	case AppointmentStatusPending:
		return []Event{AppointmentDeclined{OfAppointment{a.is.ID, at}}}, nil
	}
	return nil, a.forbids("be declined")
}

func (a Appointment) cancel(by ids.UserID, at time.Time) ([]Event, error) {
	switch a.is.Status {
	case AppointmentStatusCancelled:
		return nil, nil
	case AppointmentStatusPending, AppointmentStatusConfirmed:
		return []Event{AppointmentCancelled{OfAppointment{a.is.ID, at}, by}}, nil
	}
	return nil, a.forbids("be cancelled")
}

// expire decides that the agent did not decide in time: only a pending one, only strictly after
// PendingExpiresAt, only with the whole cascade (INV-APT-6). On any other it yields no event.
func (a Appointment) expire(at time.Time) ([]Event, error) {
	switch due := a.is.PendingExpiresAt; {
	case a.is.Status != AppointmentStatusPending:
		return nil, nil
	case due.IsZero() || !due.Before(at):
		return nil, NotDueError{KindAppointment, a.Stream(), due, at}
	}
	return []Event{AppointmentExpired{OfAppointment{a.is.ID, at}}}, nil
}

func (a Appointment) complete(at time.Time) ([]Event, error) {
	switch a.is.Status {
	case AppointmentStatusCompleted:
		return nil, nil
	case AppointmentStatusConfirmed:
		return []Event{AppointmentCompleted{OfAppointment{a.is.ID, at}}}, nil
	}
	return nil, a.forbids("be completed")
}

func (a Appointment) forbids(act string) error {
	if a.is.Version == 0 {
		return MissingError{KindAppointment}
	}
	return StateError{KindAppointment, a.Stream(), string(a.is.Status), act, ""}
}

// Import is the baseline of an appointment whose row was written outside of the journal.
func (a Appointment) Import(at time.Time) Event {
	return AppointmentImported{OfAppointment{a.is.ID, at}, a.is}
}

// Apply records what happened and refuses nothing.
func (a Appointment) Apply(event Event) Appointment {
	next := a.is
	next.Version++
	next.UpdatedAt = event.OccurredAt()
	switch e := event.(type) {
	case AppointmentBooked:
		next.ID, next.TenantID, next.SlotID = e.Appointment, e.Tenant, e.Slot
		next.CalendarEventID, next.LeadID = e.CalendarEvent, e.Lead
		next.AgentUserID, next.InvestorUserID = e.Agent, e.Investor
		next.PendingExpiresAt, next.CreatedAt = e.PendingExpiresAt, e.At
		next.Status = AppointmentStatusPending
		if e.PendingExpiresAt.IsZero() {
			next.Status = AppointmentStatusConfirmed
		}
	case AppointmentConfirmed:
		next.Status = AppointmentStatusConfirmed
	case AppointmentDeclined:
		next.Status = AppointmentStatusDeclined
	case AppointmentCancelled:
		next.Status, next.CancelledBy = AppointmentStatusCancelled, e.By
	case AppointmentExpired:
		next.Status = AppointmentStatusExpired
	case AppointmentCompleted:
		next.Status = AppointmentStatusCompleted
	case AppointmentImported:
		next = e.State
	}
	return Appointment{is: next}
}
