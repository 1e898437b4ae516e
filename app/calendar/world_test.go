package calendar_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/adapters/memory"
	"github.com/pin-platform/pinworker/adapters/portstest"
	appcalendar "github.com/pin-platform/pinworker/app/calendar"
	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/app/verify"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/ports"
)

const interval = time.Minute

var noon = portstest.Noon

// world is a calendar, and a clock that stands still until it is moved.
type world struct {
	*testing.T
	memory.Calendar
	now   time.Time
	heard int // messages that were looked at
}

// newWorld returns an empty one. When the test is over, every row must be the fold of its stream.
func newWorld(t *testing.T) *world {
	w := &world{T: t, Calendar: memory.NewCalendar(), now: noon.AddDate(0, -1, 0)}
	t.Cleanup(func() {
		sound[calendar.AvailabilitySlot, calendar.SlotSnapshot](t, w.SlotLedger)
		sound[calendar.Appointment, calendar.AppointmentSnapshot](t, w.AppointmentLedger)
		sound[calendar.CalendarEvent, calendar.EventSnapshot](t, w.EventLedger)
		sound[calendar.EventReminder, calendar.ReminderSnapshot](t, w.ReminderLedger)
	})
	return w
}

func sound[A verify.Aggregate[A, S, E], S, E any](t *testing.T, ledger ports.Ledger[A, E]) {
	_, err := verify.Run(context.Background(), ledger, time.Time{}, func(f verify.Finding) {
		if !f.Ahead { // rows that a test imports
			t.Errorf("%s: %s", f.ID, f.What)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

func (w *world) clock() time.Time { return w.now }

// must makes what a test begins with.
func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) operations() appcalendar.Operations {
	return appcalendar.Operations{Slots: w.Slots, Bookable: w.Bookable, Bookings: w.Bookings, Schedules: w.Schedules, Clock: w.clock}
}

// schedule plans an event with one reminder that comes due at a moment.
func (w *world) schedule(due time.Time) calendar.EventPlan {
	w.Helper()
	plan := portstest.Plan(due)
	w.must(w.operations().Schedule(w.Context(), "agent", plan))
	return plan
}

// appointment is one that was booked, and what makes the difference between two.
type appointment struct {
	calendar.Publication
	calendar.Request
}

// book has somebody book a slot a day before a moment, when the agent's time is up; the slot begins
// some time after that.
func (w *world) book(due time.Time, ahead time.Duration, alter ...func(*appointment)) appointment {
	w.Helper()
	slot, request := portstest.Booking(due)
	slot.StartAt, slot.EndAt = due.Add(ahead), due.Add(ahead+time.Hour)
	a := appointment{slot, request}
	for _, alter := range alter {
		alter(&a)
	}
	back := w.now
	defer func() { w.now = back }()
	w.now = due.AddDate(0, 0, -1)
	w.must(w.operations().Publish(w.Context(), "agent", a.Publication))
	w.must(w.operations().Book(w.Context(), "investor", a.Slot, a.Request))
	return a
}

// state tells where an appointment is, with its slot, its event and its reminders.
func (w *world) state(a appointment) string {
	w.Helper()
	words := []string{
		string(row(w, w.AppointmentLedger, a.Appointment).Snapshot().Status), string(row(w, w.SlotLedger, a.Slot).Snapshot().Status),
		string(w.event(a.CalendarEvent)),
	}
	for _, r := range a.Reminders {
		words = append(words, string(w.reminder(r.Reminder)))
	}
	return strings.Join(words, " ")
}

func (w *world) event(id calendar.EventID) calendar.EventStatus {
	w.Helper()
	return row(w, w.EventLedger, id).Snapshot().Status
}

// reminder tells where a reminder is; "" where it is gone.
func (w *world) reminder(id calendar.ReminderID) calendar.ReminderStatus {
	w.Helper()
	return row(w, w.ReminderLedger, id).Snapshot().Status
}

// row is an aggregate as a ledger has it.
func row[A, E any, ID ~[16]byte](w *world, ledger ports.Ledger[A, E], id ID) A {
	w.Helper()
	for entry, err := range ledger.Entries(w.Context(), time.Time{}) {
		w.must(err)
		if entry.ID == uuid.UUID(id) {
			return entry.Row
		}
	}
	w.Fatalf("there is no %s", uuid.UUID(id))
	panic("unreachable")
}

// ends has a service without a journal end an event, and leave its reminders.
func (w *world) ends(id calendar.EventID, as calendar.EventStatus) {
	w.Helper()
	s := row(w, w.EventLedger, id).Snapshot()
	s.Status, s.Version = as, s.Version+1
	ended, err := calendar.RestoreEvent(s)
	w.must(err)
	w.Import(ended)
}

// orphans has a service without a journal give a reminder to an event that does not exist.
func (w *world) orphans(id calendar.ReminderID) {
	w.Helper()
	s := row(w, w.ReminderLedger, id).Snapshot()
	s.EventID, s.Version = portstest.NewID[calendar.CalendarEvent](), s.Version+1
	orphan, err := calendar.RestoreReminder(s)
	w.must(err)
	w.Import(orphan)
}

// frees has a service without a journal sell an appointment's slot once more.
func (w *world) frees(id calendar.SlotID) {
	w.Helper()
	s := row(w, w.SlotLedger, id).Snapshot()
	s.Status, s.Version = calendar.SlotStatusAvailable, s.Version+1
	free, err := calendar.RestoreSlot(s)
	w.must(err)
	w.Import(free)
}

// news tells which messages have been published since it was asked last: their topics, their keys
// and what they say has become of it.
func (w *world) news() []string {
	w.Helper()
	var news []string
	for _, m := range w.Messages()[w.heard:] {
		w.heard++
		var payload struct{ Status, Reason string }
		w.must(json.Unmarshal(m.Payload, &payload))
		news = append(news, strings.TrimSpace(fmt.Sprintf("%s %s %s%s", m.Topic, m.Key, payload.Status, payload.Reason)))
	}
	return news
}

func (w *world) wantNews(want ...string) {
	w.Helper()
	if got := w.news(); !slices.Equal(got, want) {
		w.Errorf("messages\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func reminderDue(event calendar.EventID) string {
	return "pin.calendar.reminder-due.v1 " + event.String()
}

func eventIs(event calendar.EventID, status calendar.EventStatus) string {
	return "pin.calendar.event-status-changed.v1 " + event.String() + " " + string(status)
}

func appointmentIs(a calendar.AppointmentID, reason calendar.AppointmentStatus) string {
	return "pin.calendar.appointment-cancelled.v1 " + a.String() + " " + string(reason)
}

// dispatcher is reminder-dispatch in batches of a size.
func (w *world) dispatcher(batch int) appcalendar.DispatchReminders {
	return appcalendar.DispatchReminders{
		Reminders: w.DueReminders, Limits: cycle.Limits{BatchSize: batch, MaxBatches: 1, Interval: interval},
		Clock: func() time.Time { w.now = w.now.Add(time.Second); return w.now },
	}
}

// dispatch runs a cycle.
func (w *world) dispatch(at time.Time, batch int) appcalendar.RemindersDispatched {
	w.Helper()
	result, err := w.dispatcher(batch).Run(w.Context(), cycle.Begin(at))
	w.must(err)
	return result
}

// wantDispatched runs a cycle of up to ten reminders.
func (w *world) wantDispatched(at time.Time, want appcalendar.RemindersDispatched) {
	w.Helper()
	got := w.dispatch(at, 10)
	got.Followed, want.Duration = cycle.Followed{}, time.Second
	if got != want {
		w.Errorf("result %+v; want %+v", got, want)
	}
}

// timer is appointment-timeout, up to some items a cycle.
func (w *world) timer(items int) appcalendar.TimeOutAppointments {
	return appcalendar.TimeOutAppointments{
		Appointments: w.Overdue, Limits: cycle.Limits{BatchSize: 1, MaxBatches: items, Interval: interval},
		Clock: func() time.Time { w.now = w.now.Add(time.Second); return w.now },
	}
}

// wantTimedOut runs a cycle of up to ten appointments.
func (w *world) wantTimedOut(at time.Time, want appcalendar.AppointmentsTimedOut) {
	w.Helper()
	got, err := w.timer(10).Run(w.Context(), cycle.Begin(at))
	w.must(err)
	got.Followed, want.Duration = cycle.Followed{}, time.Second
	if got != want {
		w.Errorf("result %+v; want %+v", got, want)
	}
}

// triedAt returns the ticks, an interval apart, at which something failed.
func triedAt(ticks int, failed func(at time.Time) int) []int {
	var tried []int
	for tick := range ticks {
		for range failed(noon.Add(time.Duration(tick) * interval)) {
			tried = append(tried, tick)
		}
	}
	return tried
}

// heldBack are the ticks at which poison is tried: three times in a row, and then after 2, 4, 8 and
// at most 10 intervals (spec: departures, backoff of poison).
var heldBack = []int{0, 1, 2, 4, 8, 16, 26, 36}

// interrupted is a store that something happens to while a unit is decided on: its caller is told to
// stop, or its connection is cut.
type interrupted[A, E any] struct {
	ports.Due[A, E]
	stop func()
}

func (i interrupted[A, E]) Transition(ctx context.Context, claim ports.Claim, rule ports.Rule[A, E]) (ports.Outcome[A, E], error) {
	decide := rule.Decide
	rule.Decide = func(item A, at time.Time) ([]E, error) { i.stop(); return decide(item, at) }
	return i.Due.Transition(ctx, claim, rule)
}

// together runs two instances at once, and returns their results.
func together[R any](run func() (R, error)) ([2]R, error) {
	type done struct {
		result R
		err    error
	}
	other := make(chan done)
	go func() { result, err := run(); other <- done{result, err} }()
	one, err := run()
	two := <-other
	if err == nil {
		err = two.err
	}
	return [2]R{one, two.result}, err
}
