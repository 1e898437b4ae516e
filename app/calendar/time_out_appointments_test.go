package calendar_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/adapters/portstest"
	appcalendar "github.com/pin-platform/pinworker/app/calendar"
	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/ids"
)

// leadTime is that of every slot here.
const leadTime = 2 * time.Hour

const (
	inTime   = "Pending Booked Planned Pending Pending" // appointment, slot, event, its two reminders
	timedOut = "Expired Available Cancelled Skipped Skipped"
	tooLate  = "Expired Expired Cancelled Skipped Skipped"
)

// later keeps both reminders of an appointment from being due before it times out.
func later(a *appointment) { a.Reminders[1].OffsetMinutes = 120 }

func (w *world) wantState(a appointment, want string) {
	w.Helper()
	if got := w.state(a); got != want {
		w.Errorf("appointment, slot, event and reminders are %s; want %s", got, want)
	}
}

func TestTimeOutAppointments_AnEmptyBatchIsASuccessWithoutAChangeOrAMessage(t *testing.T) {
	w := newWorld(t)
	a := w.book(noon, 3*leadTime, later) // at its moment it is not due
	w.news()
	w.wantTimedOut(noon, appcalendar.AppointmentsTimedOut{})
	w.wantNews()
	w.wantState(a, inTime)
}

func TestTimeOutAppointments_ASlotThatIsStillUsableCanBeSoldAgain(t *testing.T) {
	w := newWorld(t)
	due := noon.Add(-time.Minute)
	a := w.book(due, leadTime+time.Minute, later) // noon is the last moment to sell it (INV-SLT-5)
	w.news()
	w.wantTimedOut(noon, appcalendar.AppointmentsTimedOut{ExpiredCount: 1, SlotsReleasedCount: 1})
	w.wantState(a, timedOut)
	w.wantNews(appointmentIs(a.Appointment, calendar.AppointmentStatusExpired), eventIs(a.CalendarEvent, calendar.EventStatusCancelled))

	is := row(w, w.AppointmentLedger, a.Appointment).Snapshot()
	if is.Version != 2 || is.UpdatedAt != noon || !is.CancelledBy.IsZero() {
		t.Errorf("appointment %+v; want one transition at noon, and nobody who cancelled", is)
	}
	if slot := row(w, w.SlotLedger, a.Slot).Snapshot(); slot.Version != 3 || slot.UpdatedAt != noon {
		t.Errorf("slot %+v; want one more transition at noon", slot)
	}
	if event := row(w, w.EventLedger, a.CalendarEvent).Snapshot(); event.Version != 2 || event.CancelReason != "Запись не подтверждена агентом в срок" {
		t.Errorf("event %+v; want one transition, for the specified reason", event)
	}
	for _, r := range a.Reminders {
		if reminder := row(w, w.ReminderLedger, r.Reminder).Snapshot(); reminder.Version != 2 || reminder.UpdatedAt != noon {
			t.Errorf("reminder %+v; want one transition at noon", reminder)
		}
	}

	w.wantTimedOut(noon, appcalendar.AppointmentsTimedOut{})
	w.wantNews() // exactly one pair
	w.now = noon
	_, again := portstest.Booking(noon)
	w.must(w.operations().Book(t.Context(), "another investor", a.Slot, again)) // the slot is there at once
}

func TestTimeOutAppointments_ASlotPastItsLeadTimeExpires(t *testing.T) {
	w := newWorld(t)
	a := w.book(noon.Add(-time.Minute), leadTime, later)
	w.news()
	w.wantTimedOut(noon, appcalendar.AppointmentsTimedOut{ExpiredCount: 1, SlotsExpiredCount: 1})
	w.wantState(a, tooLate)
	w.wantNews(appointmentIs(a.Appointment, calendar.AppointmentStatusExpired), eventIs(a.CalendarEvent, calendar.EventStatusCancelled))
}

func TestTimeOutAppointments_AnAppointmentOfALateBookingIsDueWhenTheLeadTimeBegins(t *testing.T) {
	w := newWorld(t)
	a := w.book(noon, leadTime-time.Hour, later) // made a day before noon, for an hour after it
	w.wantTimedOut(noon.Add(-time.Hour), appcalendar.AppointmentsTimedOut{})
	w.wantState(a, inTime)
	w.wantTimedOut(noon.Add(-time.Hour+time.Microsecond), appcalendar.AppointmentsTimedOut{ExpiredCount: 1, SlotsExpiredCount: 1})
}

func TestTimeOutAppointments_WhatTheSlotConfirmedByItselfIsNeverSelected(t *testing.T) {
	w := newWorld(t)
	a := w.book(noon.Add(-time.Hour), 3*leadTime, later, func(a *appointment) { a.AutoConfirm = true })
	w.news()
	w.wantTimedOut(noon.AddDate(1, 0, 0), appcalendar.AppointmentsTimedOut{})
	w.wantNews()
	w.wantState(a, "Confirmed Booked Planned Pending Pending")
}

func TestTimeOutAppointments_WhatTheAgentOrTheInvestorDecidedIsNeverSelected(t *testing.T) {
	for status, act := range map[calendar.AppointmentStatus]func(appcalendar.Operations, context.Context, calendar.AppointmentID) error{
		calendar.AppointmentStatusConfirmed: func(o appcalendar.Operations, ctx context.Context, id calendar.AppointmentID) error {
			return o.Confirm(ctx, "agent", id)
		},
		calendar.AppointmentStatusDeclined: func(o appcalendar.Operations, ctx context.Context, id calendar.AppointmentID) error {
			return o.Decline(ctx, "agent", id)
		},
		calendar.AppointmentStatusCancelled: func(o appcalendar.Operations, ctx context.Context, id calendar.AppointmentID) error {
			return o.CancelAppointment(ctx, "investor", id, ids.UserID{1})
		},
	} {
		w := newWorld(t)
		a := w.book(noon.Add(-time.Hour), 3*leadTime)
		w.now = noon.Add(-2 * time.Hour)
		w.must(act(w.operations(), t.Context(), a.Appointment))
		w.wantTimedOut(noon, appcalendar.AppointmentsTimedOut{})
		if got := row(w, w.AppointmentLedger, a.Appointment).Snapshot().Status; got != status {
			t.Errorf("the appointment is %s; want %s", got, status)
		}
	}
}

func TestTimeOutAppointments_PartialFailure_EachAppointmentIsForItself(t *testing.T) {
	for name, spoil := range map[string]func(*world, appointment){
		"the slot is not booked":                  func(w *world, a appointment) { w.frees(a.Slot) },
		"the event is cancelled already":          func(w *world, a appointment) { w.ends(a.CalendarEvent, calendar.EventStatusCancelled) },
		"the event is not the appointment's own":  (*world).givesAway,
		"the database refuses the appointment":    func(w *world, a appointment) { w.Refuse(uuid.UUID(a.Appointment)) },
		"the database refuses one of its cascade": func(w *world, a appointment) { w.Refuse(uuid.UUID(a.Reminders[1].Reminder)) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			poison, sound := w.book(noon.Add(-2*time.Minute), 3*leadTime, later), w.book(noon.Add(-time.Minute), 3*leadTime, later)
			spoil(w, poison)
			before := w.state(poison)
			w.news()
			w.wantTimedOut(noon, appcalendar.AppointmentsTimedOut{ExpiredCount: 1, SlotsReleasedCount: 1, FailedCount: 1})
			w.wantState(poison, before)
			w.wantState(sound, timedOut)
			w.wantNews(appointmentIs(sound.Appointment, calendar.AppointmentStatusExpired), eventIs(sound.CalendarEvent, calendar.EventStatusCancelled))
			w.wantTimedOut(noon.Add(interval), appcalendar.AppointmentsTimedOut{FailedCount: 1}) // it stays
		})
	}
}

// givesAway has a service without a journal take an appointment's event for somebody's own.
func (w *world) givesAway(a appointment) {
	w.Helper()
	s := row(w, w.EventLedger, a.CalendarEvent).Snapshot()
	s.Origin, s.Version = "Manual", s.Version+1
	event, err := calendar.RestoreEvent(s)
	w.must(err)
	w.Import(event)
}

func TestTimeOutAppointments_ParallelInstancesExpireEachAppointmentOnce(t *testing.T) {
	w := newWorld(t)
	const n = 20
	for range n {
		w.book(noon.Add(-time.Minute), 3*leadTime)
	}
	w.news()
	tick := cycle.Begin(noon)
	results, err := together(func() (appcalendar.AppointmentsTimedOut, error) {
		job := w.timer(2 * n)
		job.Clock = time.Now // one each
		return job.Run(t.Context(), tick)
	})
	if err != nil || results[0].ExpiredCount+results[1].ExpiredCount != n {
		t.Errorf("results %+v, %v; want %d expired by the two", results, err, n)
	}
	if news := w.news(); len(news) != 2*n {
		t.Errorf("%d messages; want %d pairs", len(news), n)
	}
}

func TestTimeOutAppointments_RaceWithTheAgentsConfirm(t *testing.T) {
	w := newWorld(t)
	a := w.book(noon.Add(-time.Minute), 3*leadTime, later)
	for _, held := range []uuid.UUID{uuid.UUID(a.Appointment), uuid.UUID(a.Slot), uuid.UUID(a.CalendarEvent)} {
		release := w.Lock(held) // an operation is in flight
		w.wantTimedOut(noon, appcalendar.AppointmentsTimedOut{SkippedLockedCount: 1})
		release()
	}
	w.now = noon.Add(time.Second) // after its moment, and before the worker: who commits first wins
	w.must(w.operations().Confirm(t.Context(), "agent", a.Appointment))
	w.wantTimedOut(noon.Add(interval), appcalendar.AppointmentsTimedOut{})
	w.wantState(a, "Confirmed Booked Planned Pending Pending")
}

func TestTimeOutAppointments_AConfirmAfterTheWorkerIsRefused(t *testing.T) {
	w := newWorld(t)
	a := w.book(noon.Add(-time.Minute), 3*leadTime, later)
	w.wantTimedOut(noon, appcalendar.AppointmentsTimedOut{ExpiredCount: 1, SlotsReleasedCount: 1})
	err := w.operations().Confirm(t.Context(), "agent", a.Appointment)
	if refusal := (calendar.StateError{}); !errors.As(err, &refusal) || refusal.Status != "Expired" {
		t.Errorf("error %v; want a StateError: it is Expired", err)
	}
	w.wantState(a, timedOut)
}

func TestTimeOutAppointments_AStopLeavesTheItemInHandWholeAndTheRestForLater(t *testing.T) {
	w := newWorld(t)
	booked := []appointment{w.book(noon.Add(-2*time.Minute), 3*leadTime, later), w.book(noon.Add(-time.Minute), 3*leadTime, later)}
	ctx, stop := context.WithCancel(t.Context())
	job := w.timer(10)
	job.Appointments = interrupted[calendar.Booking, calendar.Event]{w.Overdue, stop}
	result, err := job.Run(ctx, cycle.Begin(noon))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v; want context.Canceled", err)
	}
	if state := w.state(booked[0]); state != timedOut && state != inTime || (state == timedOut) != (result.ExpiredCount == 1) {
		t.Errorf("the item in hand is %s, %+v is told; want it whole or untouched", state, result)
	}
	w.wantState(booked[1], inTime)
	w.wantTimedOut(noon, appcalendar.AppointmentsTimedOut{ExpiredCount: 2 - result.ExpiredCount, SlotsReleasedCount: 2 - result.ExpiredCount})
}

func TestTimeOutAppointments_AnItemThatTheInfrastructureRolledBackIsTakenByTheNextCycle(t *testing.T) {
	w := newWorld(t)
	cut, sound := w.book(noon.Add(-2*time.Minute), 3*leadTime, later), w.book(noon.Add(-time.Minute), 3*leadTime, later)
	w.news()
	job := w.timer(10)
	job.Appointments = interrupted[calendar.Booking, calendar.Event]{w.Overdue, sync.OnceFunc(w.Cut)}
	result, err := job.Run(t.Context(), cycle.Begin(noon))
	if err != nil || result.ExpiredCount != 1 || result.FaultCount != 1 || result.FailedCount != 0 {
		t.Errorf("result %+v, %v; want the item in hand rolled back, nobody blamed, and the next one expired", result, err)
	}
	w.wantState(cut, inTime)
	w.wantState(sound, timedOut)
	w.wantNews(appointmentIs(sound.Appointment, calendar.AppointmentStatusExpired), eventIs(sound.CalendarEvent, calendar.EventStatusCancelled))
	w.wantTimedOut(noon.Add(interval), appcalendar.AppointmentsTimedOut{ExpiredCount: 1, SlotsReleasedCount: 1})
	w.wantState(cut, timedOut)
	w.wantNews(appointmentIs(cut.Appointment, calendar.AppointmentStatusExpired), eventIs(cut.CalendarEvent, calendar.EventStatusCancelled))
}

func TestTimeOutAppointments_WhatIsDueAtAMomentExpiresByTheNextTick(t *testing.T) {
	for _, after := range []time.Duration{0, time.Microsecond, 30 * time.Second, interval - time.Microsecond} { // the last tick
		w := newWorld(t)
		a := w.book(noon.Add(after), 3*leadTime, later)
		w.wantTimedOut(noon, appcalendar.AppointmentsTimedOut{})
		w.wantTimedOut(noon.Add(interval), appcalendar.AppointmentsTimedOut{ExpiredCount: 1, SlotsReleasedCount: 1})
		w.wantState(a, timedOut)
	}
}

func TestTimeOutAppointments_PoisonIsHeldBackAndNobodyElseIs(t *testing.T) {
	w := newWorld(t)
	w.frees(w.book(noon.Add(-time.Hour), 10*leadTime).Slot)
	tried := triedAt(40, func(at time.Time) int {
		w.book(at.Add(-time.Second), 3*leadTime)
		result, err := w.timer(2).Run(t.Context(), cycle.Begin(at))
		if err != nil || result.ExpiredCount != 1 {
			t.Errorf("%d expired at %v, %v; want the sound one", result.ExpiredCount, at, err)
		}
		return result.FailedCount
	})
	if !slices.Equal(tried, heldBack) {
		t.Errorf("the poison is tried at the ticks %v; want %v", tried, heldBack)
	}
}

// The appointment is the unit: how many of them a cycle takes is how many units it may have.
func TestTimeOutAppointments_ACycleTakesItsLimitAndTheNextOneFollowsBehindIt(t *testing.T) {
	w := newWorld(t)
	for i := range 7 {
		w.book(noon.Add(time.Duration(i-10)*time.Minute), 3*leadTime)
	}
	var expired []int
	cycle.CatchUp(t.Context(), func() time.Time { return noon }, 30*time.Second, func(ctx context.Context, tick cycle.Tick) cycle.Followed {
		result, err := w.timer(3).Run(ctx, tick)
		expired = append(expired, result.ExpiredCount)
		w.must(err)
		return result.Followed
	})
	if want := []int{3, 3, 1}; !slices.Equal(expired, want) {
		t.Errorf("expired %v; want %v in one tick", expired, want)
	}
}

func TestTimeOutAppointments_ALimitOutOfRangeIsAValidationError(t *testing.T) {
	_, err := newWorld(t).timer(0).Run(t.Context(), cycle.Begin(noon))
	if limit := (cycle.LimitError{}); !errors.As(err, &limit) || limit.Limit != "MaxBatchesPerCycle" {
		t.Errorf("error %v; want a LimitError about MaxBatchesPerCycle", err)
	}
}
