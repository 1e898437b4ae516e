package telemetry_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/adapters/memory"
	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/adapters/telemetry"
	appcalendar "github.com/pin-platform/pinworker/app/calendar"
	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/ports"
)

func appointmentTimeout(t *testing.T) *observed {
	t.Helper()
	o, _ := appointmentsOf(t)
	return o
}

// appointmentsOf is appointment-timeout, and what makes an appointment that times out at a moment, of
// a slot that begins some time after it.
func appointmentsOf(t *testing.T) (*observed, func(due time.Time, ahead time.Duration) item) {
	t.Helper()
	o := observe(t, ports.AppointmentTimeout, "calendar_appointment_timeout_")
	c := memory.NewCalendar()
	o.store = c
	o.cycle = alone(telemetry.AppointmentTimeout(o.sinks, appcalendar.TimeOutAppointments{
		Appointments: intercepted[calendar.Booking, calendar.Event]{c.Overdue, o}, Clock: o.clock,
		Limits: cycle.Limits{BatchSize: 1, MaxBatches: 10, Interval: interval},
	}))
	book := func(due time.Time, ahead time.Duration) item {
		slot, request := portstest.Booking(due)
		slot.StartAt, slot.EndAt = due.Add(ahead), due.Add(ahead+time.Hour)
		operations := calendarAt(c, due.AddDate(0, 0, -1))
		o.must(operations.Publish(o.Context(), "agent", slot))
		o.must(operations.Book(o.Context(), "investor", slot.Slot, request))
		return item{
			id: uuid.UUID(request.Appointment), lock: uuid.UUID(slot.Slot),
			name: "AppointmentId=" + request.Appointment.String(), tenant: "TenantId=" + slot.Tenant.String(),
			partners: "SlotId=" + slot.Slot.String() + " CalendarEventId=" + request.CalendarEvent.String(),
		}
	}
	o.make = func(due time.Time) item { return book(due, 7*24*time.Hour) }
	o.spoil = func(i *item) string {
		s := row(o, c.SlotLedger, i.lock).Snapshot()
		s.Status = calendar.SlotStatusAvailable
		free, err := calendar.RestoreSlot(s)
		imports(o, c.World, free, err)
		return "INV-SLT-5: AvailabilitySlot " + s.ID.String() + " is Available: it cannot be released"
	}
	return o, book
}

func TestAppointmentTimeout_TellsACycleAsSpecified(t *testing.T) {
	o, book := appointmentsOf(t)
	const leadTime = 2 * time.Hour
	usable, tooLate := book(noon.Add(-time.Hour), leadTime+time.Hour), book(noon.Add(-time.Minute), leadTime)
	released := "appointment expired " + usable.name + " " + usable.partners + " SlotOutcome=released " + usable.tenant
	expired := "appointment expired " + tooLate.name + " " + tooLate.partners + " SlotOutcome=expired " + tooLate.tenant
	o.must(o.run(noon))
	o.wantLines(
		o.lines(),
		"INFO cycle started AsOf=2026-03-01T12:00:00Z", "INFO "+released, "INFO "+expired, "INFO batch selected count=2",
		"INFO cycle completed ExpiredCount=2 SlotsReleasedCount=1 SlotsExpiredCount=1 DurationMs=1000 SkippedLocked=0",
	)
	const unit = "appointment-timeout batch" // the item, and at last a claim that finds none
	o.wantLines(o.told(), unit, "  "+released, unit, "  "+expired, unit, "appointment-timeout cycle")
	o.wantOnlyMetrics(map[string]float64{
		`calendar_appointment_timeout_items_total{slot_outcome="released"}`: 1,
		`calendar_appointment_timeout_items_total{slot_outcome="expired"}`:  1,
		"calendar_appointment_timeout_cycle_duration_seconds_count":         1,
		"calendar_appointment_timeout_cycle_duration_seconds_sum":           1,
		"calendar_appointment_timeout_backlog":                              0,
		"calendar_appointment_timeout_skip_locked_total":                    0,
		"calendar_appointment_timeout_errors_total":                         0,

		`job_oldest_due_age_seconds{job="appointment-timeout"}`:         0,
		`job_quarantined{job="appointment-timeout"}`:                    0,
		`job_last_success_timestamp_seconds{job="appointment-timeout"}`: 1,
	})
}
