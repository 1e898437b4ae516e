package telemetry

import (
	"context"
	"log/slog"

	appcalendar "github.com/pin-platform/pinworker/app/calendar"
	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/ports"
)

// slotOutcome is what became of a timed-out appointment's slot.
type slotOutcome string

const (
	slotReleased slotOutcome = "released"
	slotExpired  slotOutcome = "expired"
)

// AppointmentTimeout observes the job appointment-timeout and returns its cycle (spec:
// appointment-timeout, observability).
func AppointmentTimeout(s Sinks, job appcalendar.TimeOutAppointments) func(context.Context, cycle.Tick) (appcalendar.AppointmentsTimedOut, error) {
	m := metrics{s.Registry}
	items := m.counters("calendar_appointment_timeout_items_total", "Appointments that timed out, by what became of their slot.", "slot_outcome")
	items.WithLabelValues(string(slotReleased))
	items.WithLabelValues(string(slotExpired))
	duration := m.histogram("calendar_appointment_timeout_cycle_duration_seconds", "How long a cycle took; the target is below 30 s.", cycleBuckets...)
	one := pollers
	one.selected = "" // an appointment is a unit by itself: the batch is told when the cycle is over
	o := &observer[calendar.Booking, calendar.Event]{
		job: ports.AppointmentTimeout, sinks: s, words: one,
		backlog: m.gauge("calendar_appointment_timeout_backlog", "Pending appointments whose PendingExpiresAt has passed."),
		errors:  m.counter("calendar_appointment_timeout_errors_total", "Appointments that failed, and units rolled back by an infrastructure fault."),
		skipped: m.counter("calendar_appointment_timeout_skip_locked_total", "Appointments passed over because they were held elsewhere."),
		failed:  func(f ports.Failure) []field { return []field{id("AppointmentId", f.Item)} },
		applied: func(tell tellItem, t ports.Transitioned[calendar.Booking, calendar.Event]) {
			a := t.After.Appointment.Snapshot()
			outcome := slotExpired
			if t.After.Slot.Snapshot().Status == calendar.SlotStatusAvailable {
				outcome = slotReleased
			}
			items.WithLabelValues(string(outcome)).Inc()
			tell(slog.LevelInfo, "appointment expired", a.TenantID, id("AppointmentId", a.ID), id("SlotId", a.SlotID),
				id("CalendarEventId", a.CalendarEventID), term("SlotOutcome", outcome))
		},
	}
	job.Appointments = observed[calendar.Booking, calendar.Event]{job.Appointments, o, nil}
	return func(ctx context.Context, tick cycle.Tick) (result appcalendar.AppointmentsTimedOut, err error) {
		err = o.cycle(ctx, tick, job.Appointments, func(ctx context.Context) ([]field, error) {
			result, err = job.Run(ctx, tick)
			duration.Observe(result.Duration.Seconds())
			if selected := result.ExpiredCount + result.FailedCount; selected > 0 {
				o.log(tick.Run).tell(slog.LevelInfo, pollers.selected, count("count", selected))
			}
			return []field{
				count("ExpiredCount", result.ExpiredCount), count("SlotsReleasedCount", result.SlotsReleasedCount),
				count("SlotsExpiredCount", result.SlotsExpiredCount),
				millis("DurationMs", result.Duration), count("SkippedLocked", result.SkippedLockedCount),
			}, err
		})
		return result, err
	}
}
