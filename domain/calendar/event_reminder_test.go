package calendar_test

import (
	"testing"
	"time"

	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/domaintest"
)

func TestDueReminder_Dispatch(t *testing.T) {
	when := func(t *testing.T, beside calendar.Event, at time.Time) domaintest.Decision[calendar.DueReminder, calendar.Event] {
		t.Helper()
		return domaintest.Given[calendar.DueReminder](t, calendar.Event(remindsAnHourBefore)).
			When(dispatch(calendar.CalendarEvent{}.Apply(beside), at))
	}
	at := justAfter(leadTime)
	t.Run("stays pending at the very moment it is due", func(t *testing.T) {
		when(t, visit, leadTime).ThenRefused(calendar.NotDueError{})
	})
	t.Run("goes out a microsecond later", func(t *testing.T) {
		after := when(t, visit, at).Then(calendar.ReminderSent{OfReminder: ofReminder(reminder, at)})
		want := calendar.ReminderSnapshot{
			ID: reminder, EventID: event, TenantID: tenant, OffsetMinutes: 60, DueAt: leadTime,
			Status: calendar.ReminderStatusSent, SentAt: at, Version: 2, CreatedAt: made, UpdatedAt: at,
		}
		if r := after.Reminder.Snapshot(); r != want {
			t.Errorf("reminder %+v; want %+v", r, want)
		}
	})
	t.Run("goes out for a deadline, which has no length", func(t *testing.T) {
		deadline := visit
		deadline.EndAt = deadline.StartAt
		if _, err := calendar.RestoreEvent(calendar.CalendarEvent{}.Apply(deadline).Snapshot()); err != nil {
			t.Error(err)
		}
		when(t, deadline, at).Then(calendar.ReminderSent{OfReminder: ofReminder(reminder, at)})
	})
	t.Run("is skipped where its event has ended or been cancelled", func(t *testing.T) {
		for _, status := range []calendar.EventStatus{calendar.EventStatusCancelled, calendar.EventStatusCompleted} {
			after := when(t, eventIn(visit, status), at).Then(calendar.ReminderSkipped{OfReminder: ofReminder(reminder, at)})
			if r := after.Reminder.Snapshot(); r.Status != calendar.ReminderStatusSkipped || !r.SentAt.IsZero() || r.Version != 2 {
				t.Errorf("reminder %+v; want Skipped, never sent", r)
			}
		}
	})
	t.Run("is not skipped before it is due either", func(t *testing.T) {
		when(t, eventIn(visit, calendar.EventStatusCancelled), leadTime).ThenRefused(calendar.NotDueError{})
	})
	t.Run("beside another event is refused", func(t *testing.T) {
		when(t, eventIs(visit, func(s *calendar.EventSnapshot) { s.ID[0]++ }), at).ThenRefused(calendar.MismatchError{})
	})
}
