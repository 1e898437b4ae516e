package calendar

import (
	"context"
	"time"

	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/ports"
)

// Schedule plans an event with its reminders. Errors: calendar.ExistsError, calendar.InvalidError.
func (o Operations) Schedule(ctx context.Context, by ports.Actor, p calendar.EventPlan) error {
	p.StartAt, p.EndAt = ports.Stored(p.StartAt), ports.Stored(p.EndAt)
	return o.event(ctx, "schedule", p.CalendarEvent, by, func(s calendar.Schedule, at time.Time) ([]calendar.Event, error) {
		return s.Schedule(p, at)
	})
}

// Reschedule moves a planned event; its pending reminders give way to new ones. Errors:
// calendar.StateError, calendar.InvalidError, calendar.MissingError.
func (o Operations) Reschedule(
	ctx context.Context, by ports.Actor, id calendar.EventID, start, end time.Time, reminders []calendar.ReminderPlan,
) error {
	start, end = ports.Stored(start), ports.Stored(end)
	return o.event(ctx, "reschedule", id, by, func(s calendar.Schedule, at time.Time) ([]calendar.Event, error) {
		return s.Reschedule(start, end, reminders, at)
	})
}

// Start has an event begin. Errors: calendar.StateError, calendar.MissingError.
func (o Operations) Start(ctx context.Context, by ports.Actor, id calendar.EventID) error {
	return o.event(ctx, "start", id, by, calendar.Schedule.Start)
}

// Complete has an event end; its pending reminders are skipped. Errors: calendar.StateError,
// calendar.MissingError.
func (o Operations) Complete(ctx context.Context, by ports.Actor, id calendar.EventID) error {
	return o.event(ctx, "complete", id, by, calendar.Schedule.Complete)
}

// CancelEvent calls an event off; its pending reminders are skipped. Errors: calendar.StateError
// (INV-CAL-3 where it is an appointment's), calendar.MissingError.
func (o Operations) CancelEvent(ctx context.Context, by ports.Actor, id calendar.EventID) error {
	return o.event(ctx, "cancel", id, by, calendar.Schedule.Cancel)
}

func (o Operations) event(
	ctx context.Context, act string, id calendar.EventID, by ports.Actor,
	decide func(calendar.Schedule, time.Time) ([]calendar.Event, error),
) error {
	return change(ctx, o, o.Schedules, act+" calendar event", id, by,
		ports.Rule[calendar.Schedule, calendar.Event]{Decide: decide, Announce: published.EventStatusChanged})
}
