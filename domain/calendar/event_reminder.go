package calendar

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/domain/ids"
)

// ReminderStatus says where a reminder is in its life (spec: domain, calendar).
type ReminderStatus string

// The states of a reminder. Sent and Skipped are terminal (INV-REM-2).
const (
	ReminderStatusPending ReminderStatus = "Pending"
	ReminderStatusSent    ReminderStatus = "Sent"
	ReminderStatusSkipped ReminderStatus = "Skipped"
	// ReminderStatusDropped is a reminder that gave way to a new one when its event was rescheduled: it
	// has no row any more, and its stream ends.
	ReminderStatusDropped ReminderStatus = "Dropped"
)

// EventReminder tells somebody of an event, some minutes before it begins. Its zero value has not
// happened yet.
type EventReminder struct{ is ReminderSnapshot }

// ReminderSnapshot is a reminder's whole state at a version.
type ReminderSnapshot struct {
	ID            ReminderID
	EventID       EventID
	TenantID      ids.TenantID
	OffsetMinutes int       // before the event's StartAt
	DueAt         time.Time // the event's StartAt less OffsetMinutes
	Status        ReminderStatus
	SentAt        time.Time // zero: not sent
	Version       int
	CreatedAt     time.Time
	UpdatedAt     time.Time
}

// RestoreReminder takes a reminder out of its stored state, or returns an InvalidError.
func RestoreReminder(s ReminderSnapshot) (EventReminder, error) {
	err := firstBroken(
		KindReminder, uuid.UUID(s.ID),
		check{"ID", !s.ID.IsZero(), missing},
		check{"EventID", !s.EventID.IsZero(), missing},
		check{"TenantID", !s.TenantID.IsZero(), missing},
		check{"OffsetMinutes", s.OffsetMinutes >= 0, "is negative"},
		check{"DueAt", !s.DueAt.IsZero(), missing},
		check{"Status", slices.Contains([]ReminderStatus{ReminderStatusPending, ReminderStatusSent, ReminderStatusSkipped}, s.Status), "is none that a reminder can have"},
		check{"Version", s.Version >= 1, "is below 1"},
	)
	if err != nil {
		return EventReminder{}, err
	}
	return EventReminder{is: s}, nil
}

// Stream returns the reminder's id.
func (r EventReminder) Stream() uuid.UUID { return uuid.UUID(r.is.ID) }

// Version returns the number of the reminder's last transition, 0 before the first.
func (r EventReminder) Version() int { return r.is.Version }

// Snapshot returns the reminder's whole state.
func (r EventReminder) Snapshot() ReminderSnapshot { return r.is }

// Gone reports whether the reminder was dropped: it has a stream, and no row.
func (r EventReminder) Gone() bool { return r.is.Status == ReminderStatusDropped }

// skip is the event's own cascade: a pending reminder is not sent any more; on a terminal one it
// yields no event (INV-REM-2).
func (r EventReminder) skip(at time.Time) []Event {
	if r.is.Status != ReminderStatusPending {
		return nil
	}
	return []Event{ReminderSkipped{OfReminder{r.is.ID, at}}}
}

// drop is what rescheduling does to a pending reminder; a terminal one stays (INV-REM-2).
func (r EventReminder) drop(at time.Time) []Event {
	if r.is.Status != ReminderStatusPending {
		return nil
	}
	return []Event{ReminderDropped{OfReminder{r.is.ID, at}}}
}

// Import is the baseline of a reminder whose row was written outside of the journal.
func (r EventReminder) Import(at time.Time) Event {
	return ReminderImported{OfReminder{r.is.ID, at}, r.is}
}

// Apply records what happened and refuses nothing.
func (r EventReminder) Apply(event Event) EventReminder {
	next := r.is
	next.Version++
	next.UpdatedAt = event.OccurredAt()
	switch e := event.(type) {
	case ReminderScheduled:
		next.ID, next.EventID, next.TenantID = e.Reminder, e.CalendarEvent, e.Tenant
		next.OffsetMinutes, next.DueAt = e.OffsetMinutes, e.DueAt
		next.Status, next.CreatedAt = ReminderStatusPending, e.At
	case ReminderSent:
		next.Status, next.SentAt = ReminderStatusSent, e.At
	case ReminderSkipped:
		next.Status = ReminderStatusSkipped
	case ReminderDropped:
		next.Status = ReminderStatusDropped
	case ReminderImported:
		next = e.State
	}
	return EventReminder{is: next}
}

// DueReminder is a reminder beside its event: what reminder-dispatch decides on. The event only
// stands by, and is not changed.
type DueReminder struct {
	Reminder EventReminder
	Event    CalendarEvent
}

// Parts returns the reminder, which is all that changes.
func (d DueReminder) Parts() []eventsourcing.Part[Event] {
	return []eventsourcing.Part[Event]{d.Reminder}
}

// Apply records what happened to the reminder.
func (d DueReminder) Apply(event Event) DueReminder {
	d.Reminder = d.Reminder.Apply(event)
	return d
}

// Dispatch decides that a reminder goes out, or that its event has ended or been cancelled and it
// is skipped (spec: reminder-dispatch). Only a pending one, only strictly after DueAt, else a
// NotDueError; on a terminal one (a race that was lost) it yields no event (INV-REM-2).
func (d DueReminder) Dispatch(at time.Time) ([]Event, error) {
	r := d.Reminder
	switch {
	case r.is.Status != ReminderStatusPending:
		return nil, nil
	case !r.is.DueAt.Before(at):
		return nil, NotDueError{KindReminder, r.Stream(), r.is.DueAt, at}
	case r.is.EventID != d.Event.is.ID:
		return nil, MismatchError{KindReminder, r.Stream(), "is of another event"}
	case d.Event.goesOn():
		return []Event{ReminderSent{OfReminder{r.is.ID, at}}}, nil
	}
	return r.skip(at), nil
}
