package calendar

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/ids"
)

// EventStatus says where a calendar event is in its life (spec: domain, calendar).
type EventStatus string

// The states of a calendar event.
const (
	EventStatusPlanned    EventStatus = "Planned"
	EventStatusInProgress EventStatus = "InProgress"
	EventStatusCompleted  EventStatus = "Completed"
	EventStatusCancelled  EventStatus = "Cancelled"
)

// EventKind says what an event is for: an open vocabulary.
type EventKind string

// EventOrigin says what made an event: an open vocabulary, but for one word.
type EventOrigin string

// OriginAppointment marks an event that a booking made: only its appointment's cascade cancels it
// (INV-CAL-3).
const OriginAppointment EventOrigin = "Appointment"

// CancelReason says why an event was cancelled: a fixed text or none. What people write stays in
// the platform's tables.
type CancelReason string

// ReasonTimedOut is the reason of appointment-timeout, to the letter.
const ReasonTimedOut CancelReason = "Запись не подтверждена агентом в срок"

// TimeZone is a name of the IANA database.
type TimeZone string

// CalendarEvent is an entry in somebody's calendar. Its zero value has not happened yet.
type CalendarEvent struct{ is EventSnapshot } //nolint:revive // the customer's name

// EventSnapshot is a calendar event's whole state at a version.
type EventSnapshot struct {
	ID            EventID
	TenantID      ids.TenantID
	OwnerUserID   ids.UserID
	ClientUserID  ids.UserID // zero: without a client
	Kind          EventKind
	Origin        EventOrigin
	Status        EventStatus
	CancelReason  CancelReason // "": none
	StartAt       time.Time
	EndAt         time.Time
	TimeZone      TimeZone
	AppointmentID AppointmentID // zero: of no appointment
	Version       int
	CreatedAt     time.Time
	UpdatedAt     time.Time
}

// RestoreEvent takes a calendar event out of its stored state, or returns an InvalidError.
func RestoreEvent(s EventSnapshot) (CalendarEvent, error) {
	err := firstBroken(
		KindEvent, uuid.UUID(s.ID),
		check{"ID", !s.ID.IsZero(), missing},
		check{"TenantID", !s.TenantID.IsZero(), missing},
		check{"OwnerUserID", !s.OwnerUserID.IsZero(), missing},
		check{"Kind", s.Kind != "", missing},
		check{"Origin", s.Origin != "", missing},
		check{"Status", slices.Contains([]EventStatus{EventStatusPlanned, EventStatusInProgress, EventStatusCompleted, EventStatusCancelled}, s.Status), "is none that an event can have"},
		check{"StartAt", !s.StartAt.IsZero(), missing},
		check{"EndAt", !s.EndAt.IsZero(), missing},
		check{"TimeZone", s.TimeZone != "", missing},
		check{"Version", s.Version >= 1, "is below 1"},
	)
	if err != nil {
		return CalendarEvent{}, err
	}
	return CalendarEvent{is: s}, nil
}

// Stream returns the event's id.
func (c CalendarEvent) Stream() uuid.UUID { return uuid.UUID(c.is.ID) }

// Version returns the number of the event's last transition, 0 before the first.
func (c CalendarEvent) Version() int { return c.is.Version }

// Snapshot returns the event's whole state.
func (c CalendarEvent) Snapshot() EventSnapshot { return c.is }

// goesOn reports whether the event is still to come or under way: reminders are sent for no other.
func (c CalendarEvent) goesOn() bool {
	return c.is.Status == EventStatusPlanned || c.is.Status == EventStatusInProgress
}

func (c CalendarEvent) start(at time.Time) ([]Event, error) {
	switch c.is.Status {
	case EventStatusInProgress:
		return nil, nil
	case EventStatusPlanned:
		return []Event{EventStarted{OfEvent{c.is.ID, at}}}, nil
	}
	return nil, c.forbids("be started", "")
}

// complete decides that the event is over. An appointment's event ends with its appointment: ended
// by itself, it would keep a pending one from ever timing out.
func (c CalendarEvent) complete(at time.Time) ([]Event, error) {
	switch {
	case c.is.Status == EventStatusCompleted:
		return nil, nil
	case c.is.Status == EventStatusInProgress && c.is.Origin != OriginAppointment:
		return []Event{EventCompleted{OfEvent{c.is.ID, at}}}, nil
	case c.is.Status == EventStatusInProgress:
		return nil, c.forbids("be completed but with its appointment", "")
	}
	return nil, c.forbids("be completed", "")
}

// completeWith ends the event with its appointment.
func (c CalendarEvent) completeWith(a Appointment, at time.Time) ([]Event, error) {
	if err := c.belongsTo(a); err != nil {
		return nil, err
	}
	if c.is.Status != EventStatusInProgress {
		return nil, c.forbids("be completed", "")
	}
	return []Event{EventCompleted{OfEvent{c.is.ID, at}}}, nil
}

// belongsTo returns a MismatchError where the event is not the one that the appointment made.
func (c CalendarEvent) belongsTo(a Appointment) error {
	switch {
	case c.is.ID != a.is.CalendarEventID:
		return MismatchError{KindEvent, c.Stream(), "is another one than the appointment's"}
	case c.is.Origin != OriginAppointment || c.is.AppointmentID != a.is.ID:
		return MismatchError{KindEvent, c.Stream(), "is not the appointment's own"}
	}
	return nil
}

func (c CalendarEvent) reschedule(start, end, at time.Time) ([]Event, error) {
	switch {
	case c.is.Status == EventStatusPlanned && c.is.StartAt.Equal(start) && c.is.EndAt.Equal(end):
		return nil, nil
	case c.is.Status != EventStatusPlanned:
		return nil, c.forbids("be rescheduled", "")
	case c.is.Origin == OriginAppointment: // its time is its slot's
		return nil, c.forbids("be rescheduled but with its slot", "INV-CAL-3")
	}
	moved := EventRescheduled{OfEvent{c.is.ID, at}, start, end}
	if err := forward(KindEvent, c.Stream(), start, end); err != nil {
		return nil, err
	}
	return []Event{moved}, nil
}

// cancel decides that the event does not take place. An appointment's event is cancelled by its
// appointment's cascade only (INV-CAL-3).
func (c CalendarEvent) cancel(at time.Time) ([]Event, error) {
	switch {
	case c.is.Status == EventStatusCancelled:
		return nil, nil
	case c.is.Origin == OriginAppointment:
		return nil, c.forbids("be cancelled but by its appointment", "INV-CAL-3")
	case !c.goesOn():
		return nil, c.forbids("be cancelled", "")
	}
	return []Event{EventCancelled{OfEvent{c.is.ID, at}, ""}}, nil
}

// cancelWith is the sanctioned cascade: the event goes with its appointment (INV-CAL-3).
func (c CalendarEvent) cancelWith(a Appointment, reason CancelReason, at time.Time) ([]Event, error) {
	if err := c.belongsTo(a); err != nil {
		return nil, err
	}
	if !c.goesOn() {
		return nil, c.forbids("be cancelled", "INV-CAL-3")
	}
	return []Event{EventCancelled{OfEvent{c.is.ID, at}, reason}}, nil
}

func (c CalendarEvent) forbids(act, invariant string) error {
	if c.is.Version == 0 {
		return MissingError{KindEvent}
	}
	return StateError{KindEvent, c.Stream(), string(c.is.Status), act, invariant}
}

// Import is the baseline of an event whose row was written outside of the journal.
func (c CalendarEvent) Import(at time.Time) Event { return EventImported{OfEvent{c.is.ID, at}, c.is} }

// Apply records what happened and refuses nothing.
func (c CalendarEvent) Apply(event Event) CalendarEvent {
	next := c.is
	next.Version++
	next.UpdatedAt = event.OccurredAt()
	switch e := event.(type) {
	case EventScheduled:
		next.ID, next.TenantID = e.CalendarEvent, e.Tenant
		next.OwnerUserID, next.ClientUserID = e.Owner, e.Client
		next.Kind, next.Origin, next.AppointmentID = e.What, e.Origin, e.Appointment
		next.StartAt, next.EndAt, next.TimeZone = e.StartAt, e.EndAt, e.TimeZone
		next.Status, next.CreatedAt = EventStatusPlanned, e.At
	case EventRescheduled:
		next.StartAt, next.EndAt = e.StartAt, e.EndAt
	case EventStarted:
		next.Status = EventStatusInProgress
	case EventCompleted:
		next.Status = EventStatusCompleted
	case EventCancelled:
		next.Status, next.CancelReason = EventStatusCancelled, e.Reason
	case EventImported:
		next = e.State
	}
	return CalendarEvent{is: next}
}
