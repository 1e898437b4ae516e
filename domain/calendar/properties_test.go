package calendar_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/eventsourcing"
)

// world is a slot with all that was ever booked on it, and an event of another origin. Random
// commands are given to it, at moments that never go back.
type world struct {
	slot     calendar.AvailabilitySlot
	bookings []calendar.Booking // their Slot is stale: slot counts
	own      calendar.Schedule
	at       time.Time
	made     uint16 // ids so far
	streams  map[uuid.UUID][]calendar.Event
	final    map[uuid.UUID]any // the parts that may change no more
}

// decide gives a command to a state and returns the state that it leads to.
func decide[A eventsourcing.State[A, calendar.Event]](t *rapid.T, w *world, state A, command func(A) ([]calendar.Event, error)) A {
	events, err := command(state)
	if again, againErr := command(state); !reflect.DeepEqual(events, again) || !reflect.DeepEqual(err, againErr) {
		t.Fatalf("not pure: %v, %v; then %v, %v", events, err, again, againErr)
	}
	if err != nil && len(events) > 0 {
		t.Fatalf("refused (%v), and yielded %v", err, events)
	}
	for _, numbered := range eventsourcing.Number(state, events...) {
		id := numbered.Event.Stream()
		w.streams[id] = append(w.streams[id], numbered.Event)
		if numbered.Version != len(w.streams[id]) {
			t.Fatalf("%+v is event %d of its stream", numbered, len(w.streams[id]))
		}
	}
	after := eventsourcing.Fold(state, events...)
	if repeated, _ := command(after); err == nil && len(repeated) > 0 {
		t.Fatalf("repeated at once: %v", repeated)
	}
	return after
}

// ofBooking gives a command to one of the bookings.
func (w *world) ofBooking(t *rapid.T, command bookingDecision) {
	if len(w.bookings) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.bookings)-1).Draw(t, "booking")
	b := w.bookings[i]
	b.Slot = w.slot
	w.bookings[i] = decide(t, w, b, command)
	w.slot = w.bookings[i].Slot
}

// ofSchedule gives a command to an event, an appointment's or the other one.
func (w *world) ofSchedule(t *rapid.T, command scheduleDecision) {
	i := rapid.IntRange(0, len(w.bookings)).Draw(t, "event")
	if i == len(w.bookings) {
		w.own = decide(t, w, w.own, command)
		return
	}
	b := &w.bookings[i]
	after := decide(t, w, calendar.Schedule{Event: b.Event, Reminders: b.Reminders}, command)
	b.Event, b.Reminders = after.Event, after.Reminders
}

func (w *world) newID() [16]byte {
	w.made++
	return [16]byte{0xff, byte(w.made >> 8), byte(w.made)}
}

// plans are up to three reminders that do not exist, or now and then one that does.
func (w *world) plans(t *rapid.T) []calendar.ReminderPlan {
	var plans []calendar.ReminderPlan
	for _, offset := range rapid.SliceOfN(rapid.SampledFrom([]int{0, 30, 60, 24 * 60}), 0, 3).Draw(t, "offsets") {
		plans = append(plans, calendar.ReminderPlan{Reminder: w.newID(), OffsetMinutes: offset})
	}
	if len(plans) > 0 && len(w.own.Reminders) > 0 && rapid.IntRange(0, 9).Draw(t, "an old one") == 0 {
		plans[0].Reminder = calendar.ReminderID(w.own.Reminders[0].Stream())
	}
	return plans
}

func (w *world) Later(t *rapid.T) {
	w.at = w.at.Add(rapid.SampledFrom([]time.Duration{time.Microsecond, time.Hour, 8 * time.Hour, 24 * time.Hour}).Draw(t, "later"))
}

// LaterToAMoment lets time pass until a moment that counts, or just after it.
func (w *world) LaterToAMoment(t *rapid.T) {
	moments := []time.Time{leadTime, dayBefore}
	for _, b := range w.bookings {
		moments = append(moments, b.Appointment.Snapshot().PendingExpiresAt)
	}
	for _, r := range w.own.Reminders {
		moments = append(moments, r.Snapshot().DueAt)
	}
	moment := rapid.SampledFrom(moments).Draw(t, "moment")
	if rapid.Bool().Draw(t, "just after") {
		moment = justAfter(moment)
	}
	if moment.After(w.at) {
		w.at = moment
	}
}

func (w *world) Publish(t *rapid.T) {
	p := calendar.Publication{
		Slot: slot, Tenant: tenant, Agent: agent, StartAt: noon, EndAt: one, MinLeadTimeMinutes: 60,
		AutoConfirm: rapid.IntRange(0, 3).Draw(t, "auto-confirm") == 0,
	}
	w.slot = decide(t, w, w.slot, func(s calendar.AvailabilitySlot) ([]calendar.Event, error) { return s.Publish(p, w.at) })
}

func (w *world) Book(t *rapid.T) {
	r := request(func(r *calendar.Request) {
		r.Appointment, r.CalendarEvent = w.newID(), w.newID()
		r.Reminders = w.plans(t)
		r.Reminders = slices.DeleteFunc(r.Reminders, func(p calendar.ReminderPlan) bool {
			return w.streams[uuid.UUID(p.Reminder)] != nil // it is another event's: only the database can tell
		})
	})
	after := decide(t, w, calendar.Booking{Slot: w.slot}, func(b calendar.Booking) ([]calendar.Event, error) { return b.Book(r, w.at) })
	if w.slot = after.Slot; after.Appointment.Version() > 0 {
		w.bookings = append(w.bookings, after)
	}
}

func (w *world) Confirm(t *rapid.T)             { w.ofBooking(t, confirm(w.at)) }
func (w *world) Decline(t *rapid.T)             { w.ofBooking(t, decline(w.at)) }
func (w *world) CancelAppointment(t *rapid.T)   { w.ofBooking(t, cancelAppointment(w.at)) }
func (w *world) TimeOut(t *rapid.T)             { w.ofBooking(t, timeOut(w.at)) }
func (w *world) CompleteAppointment(t *rapid.T) { w.ofBooking(t, completeAppointment(w.at)) }

func (w *world) Schedule(t *rapid.T) {
	p := plan(func(p *calendar.EventPlan) { p.CalendarEvent, p.Reminders = event, w.plans(t) })
	w.own = decide(t, w, w.own, func(s calendar.Schedule) ([]calendar.Event, error) { return s.Schedule(p, w.at) })
}

func (w *world) Reschedule(t *rapid.T) {
	to := w.at.Add(time.Duration(rapid.IntRange(0, 48).Draw(t, "hours")) * time.Hour)
	plans := w.plans(t)
	w.ofSchedule(t, func(s calendar.Schedule) ([]calendar.Event, error) {
		return s.Reschedule(to, to.Add(time.Hour), plans, w.at)
	})
}

func (w *world) Start(t *rapid.T) {
	w.ofSchedule(t, func(s calendar.Schedule) ([]calendar.Event, error) { return s.Start(w.at) })
}

func (w *world) Complete(t *rapid.T) {
	w.ofSchedule(t, func(s calendar.Schedule) ([]calendar.Event, error) { return s.Complete(w.at) })
}

func (w *world) Cancel(t *rapid.T) {
	w.ofSchedule(t, func(s calendar.Schedule) ([]calendar.Event, error) { return s.Cancel(w.at) })
}

// Dispatch is what the job does with every reminder of one event.
func (w *world) Dispatch(t *rapid.T) {
	i := rapid.IntRange(0, len(w.bookings)).Draw(t, "event")
	beside, reminders := w.own.Event, &w.own.Reminders
	if i < len(w.bookings) {
		beside, reminders = w.bookings[i].Event, &w.bookings[i].Reminders
	}
	*reminders = slices.Clone(*reminders)
	for i, r := range *reminders {
		(*reminders)[i] = decide(t, w, calendar.DueReminder{Reminder: r, Event: beside}, func(d calendar.DueReminder) ([]calendar.Event, error) {
			return d.Dispatch(w.at)
		}).Reminder
	}
}

// Check holds after every command.
func (w *world) Check(t *rapid.T) {
	holders := 0
	for _, b := range w.bookings {
		if slices.Contains(holding, b.Appointment.Snapshot().Status) {
			holders++
		}
		checkBooking(t, b)
		checkSchedule(t, calendar.Schedule{Event: b.Event, Reminders: b.Reminders})
	}
	checkSchedule(t, w.own)
	s := w.slot.Snapshot()
	if holders > 1 || (holders == 1) != (s.Status == calendar.SlotStatusBooked) {
		t.Fatalf("%d appointments hold the slot %+v", holders, s)
	}
	if tooLate := s.UpdatedAt.After(leadTime); s.Status == calendar.SlotStatusExpired && !tooLate || s.Status == calendar.SlotStatusAvailable && tooLate && s.Version > 1 {
		t.Fatalf("INV-SLT-5: %+v", s)
	}
	for _, part := range w.parts() {
		w.checkPart(t, part)
	}
}

// holding are the states in which an appointment has its slot.
var holding = []calendar.AppointmentStatus{calendar.AppointmentStatusPending, calendar.AppointmentStatusConfirmed, calendar.AppointmentStatusCompleted}

func checkBooking(t *rapid.T, b calendar.Booking) {
	a, e := b.Appointment.Snapshot(), b.Event.Snapshot()
	if (e.Status == calendar.EventStatusCancelled) == slices.Contains(holding, a.Status) {
		t.Fatalf("INV-CAL-3: the event %+v of %+v", e, a)
	}
	if (a.Status == calendar.AppointmentStatusCancelled) == a.CancelledBy.IsZero() {
		t.Fatalf("cancelled by whom? %+v", a)
	}
	expired := a.Status == calendar.AppointmentStatusExpired
	if expired != (e.CancelReason == calendar.ReasonTimedOut) || expired && (a.PendingExpiresAt.IsZero() || !a.PendingExpiresAt.Before(a.UpdatedAt)) {
		t.Fatalf("INV-APT-6: %+v, %+v", a, e)
	}
}

func checkSchedule(t *rapid.T, s calendar.Schedule) {
	e := s.Event.Snapshot()
	over := e.Status == calendar.EventStatusCancelled || e.Status == calendar.EventStatusCompleted
	for _, reminder := range s.Reminders {
		r := reminder.Snapshot()
		if r.Status == calendar.ReminderStatusPending && (over || !r.DueAt.Equal(e.StartAt.Add(-time.Duration(r.OffsetMinutes)*time.Minute))) {
			t.Fatalf("%+v is pending, of %+v", r, e)
		}
		if (r.Status == calendar.ReminderStatusSent) != r.SentAt.After(r.DueAt) {
			t.Fatalf("sent? %+v", r)
		}
	}
}

func (w *world) parts() []eventsourcing.Part[calendar.Event] {
	parts := w.own.Parts()
	for _, b := range w.bookings {
		b.Slot = w.slot
		parts = append(parts, b.Parts()...)
	}
	return append(parts, w.slot)
}

// final are the states that an aggregate never leaves.
var final = []any{
	calendar.SlotStatusExpired, calendar.AppointmentStatusDeclined, calendar.AppointmentStatusCancelled, calendar.AppointmentStatusExpired,
	calendar.AppointmentStatusCompleted, calendar.EventStatusCompleted, calendar.EventStatusCancelled, calendar.ReminderStatusSent,
	calendar.ReminderStatusSkipped, calendar.ReminderStatusDropped,
}

func (w *world) checkPart(t *rapid.T, part eventsourcing.Part[calendar.Event]) {
	switch p := part.(type) {
	case calendar.AvailabilitySlot:
		checkPart(t, w, p, p.Snapshot().Status, calendar.RestoreSlot)
	case calendar.Appointment:
		checkPart(t, w, p, p.Snapshot().Status, calendar.RestoreAppointment)
	case calendar.CalendarEvent:
		checkPart(t, w, p, p.Snapshot().Status, calendar.RestoreEvent)
	case calendar.EventReminder:
		checkPart(t, w, p, p.Snapshot().Status, calendar.RestoreReminder)
	default:
		t.Fatalf("%T is no aggregate", part)
	}
}

// checkPart checks an aggregate against its stream, its stored form and what it was before.
func checkPart[A aggregate[A, S], S comparable](t *rapid.T, w *world, part A, status any, restore func(S) (A, error)) {
	var unborn A
	stream := w.streams[part.Stream()]
	if part.Version() != len(stream) {
		t.Fatalf("%+v after %d events", part, len(stream))
	}
	if part == unborn {
		return
	}
	if folded, imported := eventsourcing.Fold(unborn, stream...), unborn.Apply(part.Import(w.at)); folded != part || imported != part {
		t.Fatalf("folded %+v, imported %+v; want %+v", folded, imported, part)
	}
	if restored, err := restore(part.Snapshot()); status != calendar.ReminderStatusDropped && (err != nil || restored != part) {
		t.Fatalf("restored %+v, %v; want %+v", restored, err, part)
	}
	if was := w.final[part.Stream()]; was != nil && was != any(part) {
		t.Fatalf("%+v became %+v", was, part)
	}
	if slices.Contains(final, status) {
		w.final[part.Stream()] = part
	}
}

func TestBookingAndSchedule_WhateverHappensToThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{at: made.Add(-24 * time.Hour), streams: map[uuid.UUID][]calendar.Event{}, final: map[uuid.UUID]any{}}
		w.Publish(t)
		t.Repeat(rapid.StateMachineActions(w))
	})
}
