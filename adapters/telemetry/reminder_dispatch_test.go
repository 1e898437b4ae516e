package telemetry_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/adapters/memory"
	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/adapters/telemetry"
	appcalendar "github.com/pin-platform/pinworker/app/calendar"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/ports"
)

// calendarAt are the operations on a calendar at a moment.
func calendarAt(c memory.Calendar, at time.Time) appcalendar.Operations {
	return appcalendar.Operations{
		Slots: c.Slots, Bookable: c.Bookable, Bookings: c.Bookings, Schedules: c.Schedules, Clock: func() time.Time { return at },
	}
}

func reminderDispatch(t *testing.T) *observed {
	t.Helper()
	o, _ := remindersOf(t)
	return o
}

// remindersOf is reminder-dispatch with the calendar that it is about.
func remindersOf(t *testing.T) (*observed, memory.Calendar) {
	t.Helper()
	o := observe(t, ports.ReminderDispatch, "calendar_reminder_dispatch_")
	c := memory.NewCalendar()
	o.store = c
	o.cycle = alone(telemetry.ReminderDispatch(o.sinks, appcalendar.DispatchReminders{
		Reminders: intercepted[calendar.DueReminder, calendar.Event]{c.DueReminders, o}, Limits: batchesOfTwo, Clock: o.clock,
	}))
	o.make = func(due time.Time) item { return reminderItem(o, c, portstest.Plan(due)) }
	o.spoil = func(i *item) string {
		s := row(o, c.ReminderLedger, i.id).Snapshot()
		s.EventID = portstest.NewID[calendar.CalendarEvent]()
		i.name = nameOf(s.ID, s.EventID)
		orphan, err := calendar.RestoreReminder(s)
		imports(o, c.World, orphan, err)
		return "its CalendarEvent " + s.EventID.String() + " does not exist"
	}
	return o, c
}

// reminderItem schedules an event with one reminder.
func reminderItem(o *observed, c memory.Calendar, plan calendar.EventPlan) item {
	o.Helper()
	o.must(calendarAt(c, noon.AddDate(0, -1, 0)).Schedule(o.Context(), "agent", plan))
	reminder := plan.Reminders[0].Reminder
	return item{
		id: uuid.UUID(reminder), lock: uuid.UUID(plan.CalendarEvent),
		name: nameOf(reminder, plan.CalendarEvent), tenant: "TenantId=" + plan.Tenant.String(),
	}
}

func nameOf(reminder calendar.ReminderID, event calendar.EventID) string {
	return "ReminderId=" + reminder.String() + " EventId=" + event.String()
}

func TestReminderDispatch_TellsACycleAsSpecified(t *testing.T) {
	o := reminderDispatch(t)
	first, second := o.make(noon.Add(-90*time.Second)), o.make(noon.Add(-30*time.Second))
	sent := func(i item) string { return "reminder sent " + i.name + " OffsetMinutes=30 " + i.tenant }
	o.must(o.run(noon))
	o.wantLines(
		o.lines(),
		"INFO cycle started AsOf=2026-03-01T12:00:00Z", "INFO batch selected count=2",
		"INFO "+sent(first), "INFO "+sent(second),
		"INFO cycle completed SentCount=2 SkippedCount=0 DurationMs=1000 SkippedLocked=0",
	)
	o.wantLines(o.told(), "reminder-dispatch batch", "  "+sent(first), "  "+sent(second), "reminder-dispatch cycle")
	o.wantOnlyMetrics(map[string]float64{
		`calendar_reminder_dispatch_items_total{result="sent"}`:    2,
		`calendar_reminder_dispatch_items_total{result="skipped"}`: 0,
		"calendar_reminder_dispatch_cycle_duration_seconds_count":  1,
		"calendar_reminder_dispatch_cycle_duration_seconds_sum":    1,
		"calendar_reminder_dispatch_lateness_seconds_count":        2,
		"calendar_reminder_dispatch_lateness_seconds_sum":          90 + 30,
		"calendar_reminder_dispatch_backlog":                       0,
		"calendar_reminder_dispatch_skip_locked_total":             0,
		"calendar_reminder_dispatch_errors_total":                  0,

		`job_oldest_due_age_seconds{job="reminder-dispatch"}`:         0,
		`job_quarantined{job="reminder-dispatch"}`:                    0,
		`job_last_success_timestamp_seconds{job="reminder-dispatch"}`: 1,
	})
}

// The event's own cascade skips its reminders; where a service cancels an event and leaves them, the
// job does.
func TestReminderDispatch_TellsWhyAReminderWasSkipped(t *testing.T) {
	o, c := remindersOf(t)
	for _, status := range []calendar.EventStatus{calendar.EventStatusCancelled, calendar.EventStatusCompleted} {
		reminder := o.make(noon.Add(-time.Minute))
		s := row(o, c.EventLedger, reminder.lock).Snapshot()
		s.Status = status
		ended, err := calendar.RestoreEvent(s)
		imports(o, c.World, ended, err)
		skipped := "reminder skipped " + reminder.name + " EventStatus=" + string(status) + " " + reminder.tenant
		o.must(o.run(noon))
		o.wantLines(
			o.lines(),
			"INFO cycle started AsOf=2026-03-01T12:00:00Z", "INFO batch selected count=1", "INFO "+skipped,
			"INFO cycle completed SentCount=0 SkippedCount=1 DurationMs=1000 SkippedLocked=0",
		)
		o.wantLines(o.told(), "reminder-dispatch batch", "  "+skipped, "reminder-dispatch cycle")
	}
	o.wantMetrics(map[string]float64{
		`calendar_reminder_dispatch_items_total{result="sent"}`:    0,
		`calendar_reminder_dispatch_items_total{result="skipped"}`: 2,
		"calendar_reminder_dispatch_lateness_seconds_count":        0,
		"calendar_reminder_dispatch_errors_total":                  0,
	})
}
