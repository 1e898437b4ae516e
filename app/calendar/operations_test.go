package calendar_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/ports"
)

// twice does what is done again without anything happening: the second time says nothing.
func (w *world) twice(act func() error) {
	w.Helper()
	w.must(act())
	first := len(w.Messages())
	w.must(act())
	if again := w.Messages()[first:]; len(again) > 0 {
		w.Errorf("messages %v of what had happened already", again)
	}
}

func TestOperations_TellWhatBecomesOfAnEvent(t *testing.T) {
	w := newWorld(t)
	o := w.operations()
	plan, other := portstest.Plan(noon), portstest.Plan(noon)
	id := plan.CalendarEvent
	w.twice(func() error { return o.Schedule(t.Context(), "agent", plan) })
	w.wantNews(eventIs(id, calendar.EventStatusPlanned))
	w.twice(func() error {
		return o.Reschedule(t.Context(), "agent", id, noon.Add(time.Hour), noon.Add(2*time.Hour), nil)
	})
	w.wantNews() // its status is what it was
	w.twice(func() error { return o.Start(t.Context(), "agent", id) })
	w.wantNews(eventIs(id, calendar.EventStatusInProgress))
	w.twice(func() error { return o.Complete(t.Context(), "agent", id) })
	w.wantNews(eventIs(id, calendar.EventStatusCompleted))

	w.must(o.Schedule(t.Context(), "agent", other))
	w.news()
	w.twice(func() error { return o.CancelEvent(t.Context(), "agent", other.CalendarEvent) })
	w.wantNews(eventIs(other.CalendarEvent, calendar.EventStatusCancelled))
}

func TestOperations_TellWhatBecomesOfAnAppointment(t *testing.T) {
	for name, end := range map[string]struct {
		act   func(*world, appointment)
		state string
		news  func(appointment) []string
	}{
		"confirmed": {
			func(w *world, a appointment) {
				w.twice(func() error { return w.operations().Confirm(w.Context(), "agent", a.Appointment) })
			},
			"Confirmed Booked Planned Pending Pending",
			func(appointment) []string { return nil },
		},
		"declined": {
			func(w *world, a appointment) {
				w.twice(func() error { return w.operations().Decline(w.Context(), "agent", a.Appointment) })
			},
			"Declined Available Cancelled Skipped Skipped",
			func(a appointment) []string {
				return []string{appointmentIs(a.Appointment, calendar.AppointmentStatusDeclined), eventIs(a.CalendarEvent, calendar.EventStatusCancelled)}
			},
		},
		"cancelled": {
			func(w *world, a appointment) {
				w.twice(func() error {
					return w.operations().CancelAppointment(w.Context(), "investor", a.Appointment, a.Investor)
				})
			},
			"Cancelled Available Cancelled Skipped Skipped",
			func(a appointment) []string {
				return []string{appointmentIs(a.Appointment, calendar.AppointmentStatusCancelled), eventIs(a.CalendarEvent, calendar.EventStatusCancelled)}
			},
		},
		"completed": {
			func(w *world, a appointment) {
				w.must(w.operations().Confirm(w.Context(), "agent", a.Appointment))
				w.must(w.operations().Start(w.Context(), "agent", a.CalendarEvent))
				w.news()
				w.twice(func() error { return w.operations().CompleteAppointment(w.Context(), "agent", a.Appointment) })
			},
			"Completed Booked Completed Skipped Skipped",
			func(a appointment) []string { return []string{eventIs(a.CalendarEvent, calendar.EventStatusCompleted)} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := w.book(noon, 3*leadTime, later)
			w.wantNews(eventIs(a.CalendarEvent, calendar.EventStatusPlanned)) // of the slot's publication nobody hears
			w.now = noon.Add(-time.Hour)
			end.act(w, a)
			w.wantState(a, end.state)
			w.wantNews(end.news(a)...)
		})
	}
}

func TestOperations_TellWhatWasActedOn(t *testing.T) {
	w := newWorld(t)
	o, ctx := w.operations(), t.Context()
	slot, appointment, event := portstest.NewID[calendar.AvailabilitySlot](), portstest.NewID[calendar.Appointment](), portstest.NewID[calendar.CalendarEvent]()
	publication, request := portstest.Booking(noon)
	publication.EndAt = publication.StartAt
	plan := portstest.Plan(noon)
	plan.Kind = ""
	for want, err := range map[string]error{
		"publish slot " + publication.Slot.String() + ": AvailabilitySlot " + publication.Slot.String() + ": EndAt is not after StartAt": o.Publish(ctx, "agent", publication),

		"book slot " + slot.String() + ": the AvailabilitySlot does not exist": o.Book(ctx, "investor", slot, request),

		"confirm appointment " + appointment.String() + ": the Appointment does not exist":  o.Confirm(ctx, "agent", appointment),
		"decline appointment " + appointment.String() + ": the Appointment does not exist":  o.Decline(ctx, "agent", appointment),
		"cancel appointment " + appointment.String() + ": the Appointment does not exist":   o.CancelAppointment(ctx, "investor", appointment, ids.UserID{1}),
		"complete appointment " + appointment.String() + ": the Appointment does not exist": o.CompleteAppointment(ctx, "agent", appointment),

		"schedule calendar event " + plan.CalendarEvent.String() + ": CalendarEvent " + plan.CalendarEvent.String() + ": Kind is missing": o.Schedule(ctx, "agent", plan),

		"reschedule calendar event " + event.String() + ": the CalendarEvent does not exist": o.Reschedule(ctx, "agent", event, noon, noon.Add(time.Hour), nil),
		"start calendar event " + event.String() + ": the CalendarEvent does not exist":      o.Start(ctx, "agent", event),
		"complete calendar event " + event.String() + ": the CalendarEvent does not exist":   o.Complete(ctx, "agent", event),
		"cancel calendar event " + event.String() + ": the CalendarEvent does not exist":     o.CancelEvent(ctx, "agent", event),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("error %v; want %s", err, want)
		}
	}
	w.wantNews()
}

func TestOperations_RefuseWhatTheInvariantsForbidAndSayWhichOne(t *testing.T) {
	w := newWorld(t)
	a := w.book(noon, 3*leadTime, later)
	w.news()
	_, another := portstest.Booking(noon)
	for want, err := range map[string]error{
		"INV-SLT-3": w.operations().Book(t.Context(), "investor", a.Slot, another),
		"INV-CAL-3": w.operations().CancelEvent(t.Context(), "agent", a.CalendarEvent),
	} {
		if refusal := (calendar.StateError{}); !errors.As(err, &refusal) || !strings.Contains(err.Error(), want+": ") {
			t.Errorf("error %v; want a StateError for %s", err, want)
		}
	}
	w.wantNews()
	w.wantState(a, inTime)
}

func TestOperations_AMomentFinerThanPostgresIsStoredAsPostgresDoes(t *testing.T) {
	w := newWorld(t)
	plan := portstest.Plan(noon.Add(123 * time.Nanosecond))
	w.twice(func() error { return w.operations().Schedule(t.Context(), "agent", plan) }) // the same again, not another one
	if s := row(w, w.EventLedger, plan.CalendarEvent).Snapshot(); s.StartAt != ports.Stored(plan.StartAt) || s.EndAt != ports.Stored(plan.EndAt) {
		t.Errorf("event %+v; want whole microseconds", s)
	}
	if s := row(w, w.ReminderLedger, plan.Reminders[0].Reminder).Snapshot(); s.DueAt != noon {
		t.Errorf("due at %v; want noon", s.DueAt)
	}
}
