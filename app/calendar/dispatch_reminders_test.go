package calendar_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/adapters/memory"
	"github.com/pin-platform/pinworker/adapters/portstest"
	appcalendar "github.com/pin-platform/pinworker/app/calendar"
	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/ports"
)

func TestDispatchReminders_AnEmptyBatchIsASuccessWithoutAChangeOrAMessage(t *testing.T) {
	w := newWorld(t)
	plan := w.schedule(noon) // due at noon is due after it
	w.news()
	w.wantDispatched(noon, appcalendar.RemindersDispatched{})
	w.wantNews()
	if got := w.reminder(plan.Reminders[0].Reminder); got != calendar.ReminderStatusPending {
		t.Errorf("the reminder is %s; want it left", got)
	}
}

func TestDispatchReminders_ADueReminderOfAnEventThatGoesOnIsSentOnce(t *testing.T) {
	w := newWorld(t)
	planned, started := w.schedule(noon.Add(-time.Minute)), w.schedule(noon.Add(-time.Second))
	w.must(w.operations().Start(t.Context(), "agent", started.CalendarEvent))
	w.news()
	w.wantDispatched(noon, appcalendar.RemindersDispatched{SentCount: 2})
	w.wantNews(reminderDue(planned.CalendarEvent), reminderDue(started.CalendarEvent))
	w.wantDispatched(noon, appcalendar.RemindersDispatched{}) // INV-REM-2
	w.wantNews()
	s := row(w, w.ReminderLedger, planned.Reminders[0].Reminder).Snapshot()
	if s.Status != calendar.ReminderStatusSent || s.SentAt != noon || s.UpdatedAt != noon || s.Version != 2 {
		t.Errorf("reminder %+v; want it sent at noon", s)
	}
}

func TestDispatchReminders_AReminderWhoseEventHasEndedIsSkippedWithoutAMessage(t *testing.T) {
	for _, status := range []calendar.EventStatus{calendar.EventStatusCancelled, calendar.EventStatusCompleted} {
		w := newWorld(t)
		plan := w.schedule(noon.Add(-time.Minute))
		w.ends(plan.CalendarEvent, status) // without the cascade, which would have skipped it
		w.news()
		w.wantDispatched(noon, appcalendar.RemindersDispatched{SkippedCount: 1})
		w.wantNews()
		if s := row(w, w.ReminderLedger, plan.Reminders[0].Reminder).Snapshot(); s.Status != calendar.ReminderStatusSkipped || !s.SentAt.IsZero() || s.UpdatedAt != noon {
			t.Errorf("%s: reminder %+v; want it skipped at noon", status, s)
		}
	}
}

func TestDispatchReminders_PartialFailure_ThePoisonIsLeftAndTriedInTheNextCycle(t *testing.T) {
	for name, poison := range map[string]struct {
		spoil, mend func(*world, calendar.EventPlan)
	}{
		"seen before the write": {
			func(w *world, p calendar.EventPlan) { w.orphans(p.Reminders[0].Reminder) },
			func(w *world, p calendar.EventPlan) {
				s := row(w, w.ReminderLedger, p.Reminders[0].Reminder).Snapshot()
				s.EventID = p.CalendarEvent
				mended, err := calendar.RestoreReminder(s)
				w.must(err)
				w.Import(mended)
			},
		},
		"refused by the database": {
			func(w *world, p calendar.EventPlan) { w.Refuse(uuid.UUID(p.Reminders[0].Reminder)) },
			func(w *world, p calendar.EventPlan) { w.Accept(uuid.UUID(p.Reminders[0].Reminder)) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			first, poisoned, last := w.schedule(noon.Add(-3*time.Second)), w.schedule(noon.Add(-2*time.Second)), w.schedule(noon.Add(-time.Second))
			poison.spoil(w, poisoned)
			w.news()
			w.wantDispatched(noon, appcalendar.RemindersDispatched{SentCount: 2, FailedCount: 1})
			w.wantNews(reminderDue(first.CalendarEvent), reminderDue(last.CalendarEvent))
			poison.mend(w, poisoned)
			w.wantDispatched(noon.Add(interval), appcalendar.RemindersDispatched{SentCount: 1})
			w.wantNews(reminderDue(poisoned.CalendarEvent))
		})
	}
}

func TestDispatchReminders_ParallelInstancesSendEachReminderOnce(t *testing.T) {
	w := newWorld(t)
	const n = 50
	for range n {
		w.schedule(noon.Add(-time.Minute))
	}
	w.news()
	tick := cycle.Begin(noon)
	results, err := together(func() (appcalendar.RemindersDispatched, error) {
		job := w.dispatcher(n)
		job.Clock = time.Now // one each
		return job.Run(t.Context(), tick)
	})
	if err != nil || results[0].SentCount+results[1].SentCount != n {
		t.Errorf("results %+v, %v; want %d sent by the two", results, err, n)
	}
	if news := w.news(); len(news) != n {
		t.Errorf("%d messages; want %d", len(news), n)
	}
}

func TestDispatchReminders_RaceWithCancel(t *testing.T) {
	w := newWorld(t)
	plan := w.schedule(noon.Add(-time.Minute))
	w.news()
	release := w.Lock(uuid.UUID(plan.CalendarEvent)) // the cancellation is in flight
	w.wantDispatched(noon, appcalendar.RemindersDispatched{SkippedLockedCount: 1})
	release()
	w.must(w.operations().CancelEvent(t.Context(), "agent", plan.CalendarEvent))
	w.wantDispatched(noon.Add(interval), appcalendar.RemindersDispatched{}) // the cascade has skipped it
	w.wantNews(eventIs(plan.CalendarEvent, calendar.EventStatusCancelled))
}

func TestDispatchReminders_RaceWithReschedule(t *testing.T) {
	w := newWorld(t)
	plan := w.schedule(noon.Add(-time.Minute))
	w.news()
	again := []calendar.ReminderPlan{{Reminder: portstest.NewID[calendar.EventReminder](), OffsetMinutes: 10}}
	start := noon.Add(10*time.Minute + interval)
	w.must(w.operations().Reschedule(t.Context(), "agent", plan.CalendarEvent, start, start.Add(time.Hour), again))
	w.wantDispatched(noon, appcalendar.RemindersDispatched{}) // the old one is gone
	w.wantDispatched(noon.Add(2*interval), appcalendar.RemindersDispatched{SentCount: 1})
	w.wantNews(reminderDue(plan.CalendarEvent))
}

func TestDispatchReminders_AnEventThatIsCancelledAfterTheWorkerLeavesTheReminderSent(t *testing.T) {
	w := newWorld(t)
	plan := w.schedule(noon.Add(-time.Minute))
	w.wantDispatched(noon, appcalendar.RemindersDispatched{SentCount: 1})
	w.must(w.operations().CancelEvent(t.Context(), "agent", plan.CalendarEvent))
	if got := w.reminder(plan.Reminders[0].Reminder); got != calendar.ReminderStatusSent {
		t.Errorf("the reminder is %s; want Sent for good (INV-REM-2)", got)
	}
}

func TestDispatchReminders_AStopLeavesTheBatchWhole(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		w.schedule(noon.Add(-time.Minute))
	}
	w.news()
	ctx, stop := context.WithCancel(t.Context())
	job := w.dispatcher(10)
	job.Reminders = interrupted[calendar.DueReminder, calendar.Event]{w.DueReminders, stop}
	result, _ := job.Run(ctx, cycle.Begin(noon))
	if sent := len(w.news()); sent != result.SentCount || sent != 0 && sent != 3 {
		t.Errorf("%d of 3 were sent, %d are told; want all or none", sent, result.SentCount)
	}
	if _, err := job.Run(ctx, cycle.Begin(noon)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v; want context.Canceled: nothing is begun after a stop", err)
	}
	if after := w.dispatch(noon, 10); after.SentCount+result.SentCount != 3 || after.SkippedLockedCount > 0 {
		t.Errorf("the next cycle %+v; want the rest, and no lock left", after)
	}
}

// The SLO is two minutes: DueAt, at most an interval until the tick, the cycle, and the rest.
func TestDispatchReminders_WhatIsDueAtAMomentLeavesByTheNextTick(t *testing.T) {
	for _, after := range []time.Duration{0, time.Microsecond, 30 * time.Second, interval - time.Microsecond} { // the last tick
		w := newWorld(t)
		due := noon.Add(after)
		plan := w.schedule(due)
		w.wantDispatched(noon, appcalendar.RemindersDispatched{})
		w.wantDispatched(noon.Add(interval), appcalendar.RemindersDispatched{SentCount: 1})
		if s := row(w, w.ReminderLedger, plan.Reminders[0].Reminder).Snapshot(); s.SentAt.Sub(due) > interval {
			t.Errorf("due %v after a tick: sent %v late", after, s.SentAt.Sub(due))
		}
	}
}

func TestDispatchReminders_PoisonIsHeldBackAndNobodyElseIs(t *testing.T) {
	w := newWorld(t)
	poison := w.schedule(noon.Add(-time.Hour))
	w.orphans(poison.Reminders[0].Reminder)
	tried := triedAt(40, func(at time.Time) int {
		w.schedule(at.Add(-time.Second))
		result := w.dispatch(at, 2)
		if result.SentCount != 1 {
			t.Errorf("%d sent at %v; want the sound one", result.SentCount, at)
		}
		return result.FailedCount
	})
	if !slices.Equal(tried, heldBack) {
		t.Errorf("the poison is tried at the ticks %v; want %v", tried, heldBack)
	}
}

// A booking that cannot time out has an event that goes on: its reminders are none of its fault.
func TestDispatchReminders_APoisonedAppointmentDoesNotHoldBackItsEventsReminders(t *testing.T) {
	w := newWorld(t)
	a := w.book(noon.Add(-time.Hour), 4*time.Hour) // one of its reminders is due, a day before it
	w.frees(a.Slot)
	w.news()
	for n := range 3 { // until it is held
		w.wantTimedOut(noon.Add(time.Duration(n-3)*interval), appcalendar.AppointmentsTimedOut{FailedCount: 1})
	}
	held, err := w.List(t.Context())
	if err != nil || len(held) != 1 || held[0].Job != ports.AppointmentTimeout || held[0].Item != uuid.UUID(a.Appointment) {
		t.Fatalf("on record %+v, %v; want the appointment", held, err)
	}
	w.wantDispatched(noon, appcalendar.RemindersDispatched{SentCount: 1})
	w.wantNews(reminderDue(a.CalendarEvent))
}

// Nor does one poisoned reminder hold back another of the same event.
func TestDispatchReminders_APoisonedReminderDoesNotHoldBackItsEventsOthers(t *testing.T) {
	w := newWorld(t)
	plan := portstest.Plan(noon.Add(-time.Minute))
	plan.Reminders = append(plan.Reminders, calendar.ReminderPlan{Reminder: portstest.NewID[calendar.EventReminder](), OffsetMinutes: 30})
	w.must(w.operations().Schedule(t.Context(), "agent", plan))
	w.Refuse(uuid.UUID(plan.Reminders[0].Reminder))
	w.wantDispatched(noon, appcalendar.RemindersDispatched{SentCount: 1, FailedCount: 1})
	if got := w.reminder(plan.Reminders[1].Reminder); got != calendar.ReminderStatusSent {
		t.Errorf("the sound reminder is %s; want Sent", got)
	}
}

// due has a service without a journal write reminders of one event, all due within a minute.
func (w *world) due(n int) {
	w.Helper()
	s := row(w, w.EventLedger, w.schedule(noon.Add(time.Hour)).CalendarEvent).Snapshot()
	for i := range n {
		due := noon.Add(-time.Minute + time.Duration(i)*time.Minute/time.Duration(n))
		reminder, err := calendar.RestoreReminder(calendar.ReminderSnapshot{
			ID: portstest.NewID[calendar.EventReminder](), EventID: s.ID, TenantID: s.TenantID, OffsetMinutes: 30, DueAt: due,
			Status: calendar.ReminderStatusPending, Version: 1, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
		})
		w.must(err)
		w.Import(reminder)
	}
}

// tick runs the cycles of one tick under a clock that each cycle moves on by a while, and returns
// their results. between is called after each.
func (w *world) tick(at time.Time, batch int, takes time.Duration, between ...func()) (results []appcalendar.RemindersDispatched) {
	w.Helper()
	now := at
	job := w.dispatcher(batch)
	job.Clock = func() time.Time { return now }
	cycle.CatchUp(w.Context(), job.Clock, 30*time.Second, func(ctx context.Context, tick cycle.Tick) cycle.Followed {
		result, err := job.Run(ctx, tick)
		results = append(results, result)
		now = now.Add(takes)
		for _, act := range between {
			act()
		}
		w.must(err)
		return result.Followed
	})
	return results
}

func sentBy(results []appcalendar.RemindersDispatched) (sent int) {
	for _, r := range results {
		sent += r.SentCount
	}
	return sent
}

func TestDispatchReminders_TenThousandDueInOneMinuteAllLeaveWithinTheTick(t *testing.T) {
	w := newWorld(t)
	w.due(10_000)
	results := w.tick(noon, 200, 100*time.Millisecond)
	if sent := sentBy(results); sent != 10_000 || len(results) != 51 {
		t.Errorf("%d sent in %d cycles; want all in 50, and one that finds none", sent, len(results))
	}
	if result := w.dispatch(noon.Add(interval), 200); result.SentCount > 0 {
		t.Errorf("%d were left to the next tick", result.SentCount)
	}
}

func TestDispatchReminders_ATickThatIsTooSlowLeavesTheRestToTheNextOne(t *testing.T) {
	w := newWorld(t)
	w.due(20)
	if sent := sentBy(w.tick(noon, 2, 10*time.Second)); sent != 6 {
		t.Errorf("%d sent in 30 s at 10 s for two; want 6", sent)
	}
	if sent := sentBy(w.tick(noon.Add(interval), 2, time.Millisecond)); sent != 14 {
		t.Errorf("%d sent in the next tick; want the other 14", sent)
	}
}

func TestDispatchReminders_WhatFailedOrWasLockedWaitsForTheNextTick(t *testing.T) {
	w := newWorld(t)
	poison, locked := w.schedule(noon.Add(-2*time.Minute)), w.schedule(noon.Add(-119*time.Second))
	w.due(6)
	w.Refuse(uuid.UUID(poison.Reminders[0].Reminder))
	release := w.Lock(uuid.UUID(locked.CalendarEvent))
	var sum appcalendar.RemindersDispatched
	mend := sync.OnceFunc(func() { release(); w.Accept(uuid.UUID(poison.Reminders[0].Reminder)) }) // after the first cycle
	for _, r := range w.tick(noon, 2, time.Second, mend) {
		sum.SentCount += r.SentCount
		sum.FailedCount += r.FailedCount
		sum.SkippedLockedCount += r.SkippedLockedCount
	}
	if want := (appcalendar.RemindersDispatched{SentCount: 6, FailedCount: 1, SkippedLockedCount: 1}); sum != want {
		t.Errorf("in one tick %+v; want %+v", sum, want)
	}
	if sent := sentBy(w.tick(noon.Add(interval), 2, time.Second)); sent != 2 {
		t.Errorf("%d sent in the next tick; want the two that waited", sent)
	}
}

func TestDispatchReminders_ALimitOutOfRangeIsAValidationError(t *testing.T) {
	w := newWorld(t)
	_, err := w.dispatcher(0).Run(t.Context(), cycle.Begin(noon))
	if limit := (cycle.LimitError{}); !errors.As(err, &limit) || limit.Limit != "BatchSize" {
		t.Errorf("error %v; want a LimitError about BatchSize", err)
	}
}

func TestDispatchReminders_ABatchThatTheInfrastructureRolledBackIsTakenByTheNextCycle(t *testing.T) {
	w := newWorld(t)
	w.schedule(noon.Add(-time.Minute))
	job := w.dispatcher(10)
	job.Reminders = interrupted[calendar.DueReminder, calendar.Event]{w.DueReminders, w.Cut}
	if result, err := job.Run(t.Context(), cycle.Begin(noon)); !errors.Is(err, memory.ErrCut) || result.FaultCount != 1 || result.FailedCount+result.SentCount > 0 {
		t.Errorf("result %+v, %v; want the cycle's only batch rolled back, and nobody blamed", result, err)
	}
	w.wantDispatched(noon.Add(interval), appcalendar.RemindersDispatched{SentCount: 1})
}
