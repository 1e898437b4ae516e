// Package calendar decides what may happen to an agent's time: slots that investors book, the
// appointments that come of it, the events in the calendar, and their reminders.
//
//	slot         publish ▶ Available ── book ──▶ Booked ── release ──▶ Available, or Expired
//	appointment     book ▶ Pending ─┬─ confirm ▶ Confirmed ─┬─ complete ▶ Completed
//	                                │                       └─ cancel ──▶ Cancelled
//	                                ├─ decline ▶ Declined
//	                                ├─ cancel ─▶ Cancelled
//	                                └─ time out ▶ Expired
//	event       schedule ▶ Planned ── start ▶ InProgress ── complete ▶ Completed
//	                          └────────────────┴── cancel ▶ Cancelled
//	reminder    schedule ▶ Pending ─┬─ dispatch ▶ Sent
//	                                └─ skip ────▶ Skipped
//
// A slot, its appointment, the appointment's event and that event's reminders change together:
// see Booking. They are locked in that order, everywhere.
package calendar

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/ids"
)

type (
	// SlotID identifies an availability slot.
	SlotID = ids.ID[AvailabilitySlot]
	// AppointmentID identifies an appointment.
	AppointmentID = ids.ID[Appointment]
	// EventID identifies a calendar event.
	EventID = ids.ID[CalendarEvent]
	// ReminderID identifies a reminder.
	ReminderID = ids.ID[EventReminder]

	lead struct{}
	// LeadID identifies the crm context's lead that an appointment belongs to.
	LeadID = ids.ID[lead]
)

// Kind names one of the context's aggregates.
type Kind string

// The aggregates.
const (
	KindSlot        Kind = "AvailabilitySlot"
	KindAppointment Kind = "Appointment"
	KindEvent       Kind = "CalendarEvent"
	KindReminder    Kind = "EventReminder"
)

// InvalidError says that an aggregate cannot be in the state that was given.
type InvalidError struct {
	Kind  Kind
	ID    uuid.UUID
	Field string
	Why   string
}

func (e InvalidError) Error() string {
	return fmt.Sprintf("%s %s: %s %s", e.Kind, e.ID, e.Field, e.Why)
}

// MissingError says that nothing can happen to an aggregate that does not exist.
type MissingError struct{ Kind Kind }

func (e MissingError) Error() string { return fmt.Sprintf("the %s does not exist", e.Kind) }

// ExistsError says that an id is taken by an aggregate with other data.
type ExistsError struct {
	Kind Kind
	ID   uuid.UUID
}

func (e ExistsError) Error() string {
	return fmt.Sprintf("%s %s exists already, with other data", e.Kind, e.ID)
}

// StateError says that an aggregate's state forbids what was asked for, and which rule says so.
type StateError struct {
	Kind      Kind
	ID        uuid.UUID
	Status    string
	Act       string
	Invariant string // "" where it is the state diagram alone
}

func (e StateError) Error() string {
	text := fmt.Sprintf("%s %s is %s: it cannot %s", e.Kind, e.ID, e.Status, e.Act)
	if e.Invariant != "" {
		return e.Invariant + ": " + text
	}
	return text
}

// NotDueError says that an aggregate's moment has not passed.
type NotDueError struct {
	Kind Kind
	ID   uuid.UUID
	Due  time.Time // zero: it has none
	At   time.Time
}

func (e NotDueError) Error() string {
	if e.Due.IsZero() {
		return fmt.Sprintf("%s %s has no moment to come due", e.Kind, e.ID)
	}
	return fmt.Sprintf("%s %s is due at %s, which is not before %s",
		e.Kind, e.ID, e.Due.Format(time.RFC3339Nano), e.At.Format(time.RFC3339Nano))
}

// TooLateError says that a slot can be booked no more: its lead time has begun.
type TooLateError struct {
	Slot  SlotID
	Until time.Time
	At    time.Time
}

func (e TooLateError) Error() string {
	return fmt.Sprintf("slot %s could be booked until %s: it is %s",
		e.Slot, e.Until.Format(time.RFC3339Nano), e.At.Format(time.RFC3339Nano))
}

// MismatchError says that two aggregates that should belong together do not (INV-CAL-3).
type MismatchError struct {
	Kind Kind // whose partner is another one
	ID   uuid.UUID
	Why  string
}

func (e MismatchError) Error() string { return fmt.Sprintf("INV-CAL-3: %s %s %s", e.Kind, e.ID, e.Why) }

// check is one thing that must hold of a stored state.
type check struct {
	field string
	holds bool
	why   string
}

const missing = "is missing"

// firstBroken returns the InvalidError of the first check that does not hold.
func firstBroken(kind Kind, id uuid.UUID, checks ...check) error {
	for _, c := range checks {
		if !c.holds {
			return InvalidError{kind, id, c.field, c.why}
		}
	}
	return nil
}

// forward returns an InvalidError where an operation would have something end before it has begun
// or at once. Of a stored state it is not asked: a deadline has no length, and is reminded of.
func forward(kind Kind, id uuid.UUID, start, end time.Time) error {
	switch {
	case start.IsZero():
		return InvalidError{kind, id, "StartAt", missing}
	case !end.After(start):
		return InvalidError{kind, id, "EndAt", "is not after StartAt"}
	}
	return nil
}

func minutes(n int) time.Duration { return time.Duration(n) * time.Minute }
