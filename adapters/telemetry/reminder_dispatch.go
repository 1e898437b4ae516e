package telemetry

import (
	"context"
	"log/slog"

	appcalendar "github.com/pin-platform/pinworker/app/calendar"
	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/ports"
)

// ReminderDispatch observes the job reminder-dispatch and returns its cycle (spec:
// reminder-dispatch, observability).
func ReminderDispatch(s Sinks, job appcalendar.DispatchReminders) func(context.Context, cycle.Tick) (appcalendar.RemindersDispatched, error) {
	m := metrics{s.Registry}
	items := m.counters("calendar_reminder_dispatch_items_total", "Reminders that were sent, or skipped because their event has ended.", "result")
	sent, skipped := items.WithLabelValues("sent"), items.WithLabelValues("skipped")
	duration := m.histogram("calendar_reminder_dispatch_cycle_duration_seconds", "How long a cycle took; the target is below 30 s.", cycleBuckets...)
	lateness := m.histogram("calendar_reminder_dispatch_lateness_seconds", "SentAt less DueAt; the SLO is two minutes until delivery.",
		1, 5, 10, 30, 60, 90, 120, 180, 300, 600, 3600)
	o := &observer[calendar.DueReminder, calendar.Event]{
		job: ports.ReminderDispatch, sinks: s, words: pollers,
		backlog: m.gauge("calendar_reminder_dispatch_backlog", "Pending reminders whose DueAt has passed."),
		errors:  m.counter("calendar_reminder_dispatch_errors_total", "Reminders that failed, and units rolled back by an infrastructure fault."),
		skipped: m.counter("calendar_reminder_dispatch_skip_locked_total", "Reminders passed over because they or their events were held elsewhere."),
		failed: func(f ports.Failure) []field {
			return []field{id("ReminderId", f.Item), id("EventId", f.Of)}
		},
		applied: func(tell tellItem, t ports.Transitioned[calendar.DueReminder, calendar.Event]) {
			r, e := t.After.Reminder.Snapshot(), t.After.Event.Snapshot()
			if r.Status != calendar.ReminderStatusSent {
				skipped.Inc()
				tell(slog.LevelInfo, "reminder skipped", e.TenantID, id("ReminderId", r.ID), id("EventId", r.EventID),
					term("EventStatus", e.Status))
				return
			}
			sent.Inc()
			lateness.Observe(r.SentAt.Sub(r.DueAt).Seconds())
			tell(slog.LevelInfo, "reminder sent", e.TenantID, id("ReminderId", r.ID), id("EventId", r.EventID), count("OffsetMinutes", r.OffsetMinutes))
		},
	}
	job.Reminders = observed[calendar.DueReminder, calendar.Event]{job.Reminders, o, nil}
	return func(ctx context.Context, tick cycle.Tick) (result appcalendar.RemindersDispatched, err error) {
		err = o.cycle(ctx, tick, job.Reminders, func(ctx context.Context) ([]field, error) {
			result, err = job.Run(ctx, tick)
			duration.Observe(result.Duration.Seconds())
			return []field{
				count("SentCount", result.SentCount), count("SkippedCount", result.SkippedCount),
				millis("DurationMs", result.Duration), count("SkippedLocked", result.SkippedLockedCount),
			}, err
		})
		return result, err
	}
}
