package calendar

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/domain/ids"
)

// Schedule is a calendar event with its reminders: they change together.
type Schedule struct {
	Event     CalendarEvent
	Reminders []EventReminder
}

// Parts returns the event, then its reminders.
func (s Schedule) Parts() []eventsourcing.Part[Event] {
	parts := []eventsourcing.Part[Event]{s.Event}
	for _, r := range s.Reminders {
		parts = append(parts, r)
	}
	return parts
}

// Apply routes an event to the part that it happened to.
func (s Schedule) Apply(event Event) Schedule {
	if event.Kind() == KindReminder {
		s.Reminders = applyToReminders(s.Reminders, event)
	} else {
		s.Event = s.Event.Apply(event)
	}
	return s
}

// applyToReminders leaves the reminders that it is given as they are.
func applyToReminders(reminders []EventReminder, event Event) []EventReminder {
	next := slices.Clone(reminders)
	for i, r := range next {
		if r.Stream() == event.Stream() {
			next[i] = r.Apply(event)
			return next
		}
	}
	return append(next, EventReminder{}.Apply(event))
}

// ReminderPlan asks for a reminder, some minutes before an event begins.
type ReminderPlan struct {
	Reminder      ReminderID
	OffsetMinutes int // from 0
}

// EventPlan is what a new calendar event begins with.
type EventPlan struct {
	CalendarEvent EventID
	Tenant        ids.TenantID
	Owner         ids.UserID
	Client        ids.UserID // zero: without a client
	Kind          EventKind
	Origin        EventOrigin
	StartAt       time.Time
	EndAt         time.Time
	TimeZone      TimeZone
	Reminders     []ReminderPlan
}

// Schedule decides that an event is planned, with its reminders. Scheduling the same again yields
// no event; it returns an ExistsError (also of a reminder), or an InvalidError.
func (s Schedule) Schedule(p EventPlan, at time.Time) ([]Event, error) {
	if p.Origin == OriginAppointment {
		return nil, InvalidError{KindEvent, uuid.UUID(p.CalendarEvent), "Origin", "is Appointment: only a booking makes such an event"}
	}
	scheduled := EventScheduled{
		OfEvent: OfEvent{p.CalendarEvent, at}, Tenant: p.Tenant, Owner: p.Owner, Client: p.Client, What: p.Kind,
		Origin: p.Origin, StartAt: p.StartAt, EndAt: p.EndAt, TimeZone: p.TimeZone,
	}
	if is := s.Event.is; is.Version > 0 {
		if is.ID == p.CalendarEvent && is.TenantID == p.Tenant && is.OwnerUserID == p.Owner && is.ClientUserID == p.Client &&
			is.Kind == p.Kind && is.Origin == p.Origin && is.StartAt.Equal(p.StartAt) && is.EndAt.Equal(p.EndAt) && is.TimeZone == p.TimeZone {
			return nil, nil
		}
		return nil, ExistsError{KindEvent, s.Event.Stream()}
	}
	return schedule(scheduled, p.Reminders)
}

// schedule decides on a new event and on its reminders.
func schedule(scheduled EventScheduled, plans []ReminderPlan) ([]Event, error) {
	event := CalendarEvent{}.Apply(scheduled)
	if _, err := RestoreEvent(event.is); err != nil {
		return nil, err
	}
	if err := forward(KindEvent, event.Stream(), event.is.StartAt, event.is.EndAt); err != nil {
		return nil, err
	}
	reminders, err := remind(event, nil, plans, scheduled.At)
	if err != nil {
		return nil, err
	}
	return append([]Event{scheduled}, reminders...), nil
}

// remind decides on an event's new reminders. One whose moment has passed already is not made; one
// that exists is not made again (INV-REM-2).
func remind(event CalendarEvent, existing []EventReminder, plans []ReminderPlan, at time.Time) ([]Event, error) {
	taken := make(map[ReminderID]bool, len(existing)+len(plans))
	for _, r := range existing {
		taken[r.is.ID] = true
	}
	var events []Event
	for _, p := range plans {
		made := ReminderScheduled{
			OfReminder: OfReminder{p.Reminder, at}, CalendarEvent: event.is.ID, Tenant: event.is.TenantID, OffsetMinutes: p.OffsetMinutes,
			DueAt: event.is.StartAt.Add(-minutes(p.OffsetMinutes)),
		}
		if _, err := RestoreReminder(EventReminder{}.Apply(made).is); err != nil {
			return nil, err
		}
		if taken[p.Reminder] {
			return nil, ExistsError{KindReminder, uuid.UUID(p.Reminder)}
		}
		taken[p.Reminder] = true
		if made.DueAt.After(at) {
			events = append(events, made)
		}
	}
	return events, nil
}

// Reschedule decides that a planned event takes place at another time: its pending reminders give
// way to new ones. The time that it has yields no event. It returns a StateError, an InvalidError,
// an ExistsError of a reminder, or a MissingError.
func (s Schedule) Reschedule(start, end time.Time, plans []ReminderPlan, at time.Time) ([]Event, error) {
	events, err := s.Event.reschedule(start, end, at)
	if err != nil || len(events) == 0 {
		return nil, err
	}
	for _, r := range s.Reminders {
		events = append(events, r.drop(at)...)
	}
	reminders, err := remind(s.Event.Apply(events[0]), s.Reminders, plans, at)
	if err != nil {
		return nil, err
	}
	return append(events, reminders...), nil
}

// Start decides that the event begins; its reminders stay. It returns a StateError or a
// MissingError.
func (s Schedule) Start(at time.Time) ([]Event, error) { return s.Event.start(at) }

// Complete decides that the event is over and its pending reminders are skipped. It returns a
// StateError or a MissingError.
func (s Schedule) Complete(at time.Time) ([]Event, error) {
	events, err := s.Event.complete(at)
	return s.andSkip(events, err, at)
}

// Cancel decides that the event does not take place and its pending reminders are skipped. It
// returns a StateError (INV-CAL-3 where the event is an appointment's) or a MissingError.
func (s Schedule) Cancel(at time.Time) ([]Event, error) {
	events, err := s.Event.cancel(at)
	return s.andSkip(events, err, at)
}

func (s Schedule) andSkip(events []Event, err error, at time.Time) ([]Event, error) {
	if err != nil || len(events) == 0 {
		return nil, err
	}
	return append(events, skipAll(s.Reminders, at)...), nil
}

func skipAll(reminders []EventReminder, at time.Time) []Event {
	var events []Event
	for _, r := range reminders {
		events = append(events, r.skip(at)...)
	}
	return events
}
