package calendar_test

import (
	"testing"
	"time"

	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/ids"
)

func TestSchedule_Schedule(t *testing.T) {
	t.Run("plans an event with its reminders, each its offset before the start", func(t *testing.T) {
		after := givenSchedule(t, nil).When(scheduleEvent(plan(asItIs))).Then(errand, remindsADayBefore, remindsAnHourBefore)
		if e := after.Event.Snapshot(); e.Status != calendar.EventStatusPlanned || e.Version != 1 || !e.AppointmentID.IsZero() {
			t.Errorf("event %+v; want Planned, version 1, of no appointment", e)
		}
		want := calendar.ReminderSnapshot{
			ID: reminder, EventID: event, TenantID: tenant, OffsetMinutes: 60, DueAt: leadTime,
			Status: calendar.ReminderStatusPending, Version: 1, CreatedAt: made, UpdatedAt: made,
		}
		if r := after.Reminders[1].Snapshot(); r != want {
			t.Errorf("reminder %+v; want %+v", r, want)
		}
	})
	t.Run("makes no reminder whose moment has passed", func(t *testing.T) {
		for offset, want := range map[int]int{48*60 - 1: 3, 48 * 60: 2, 48*60 + 1: 2} {
			events, err := calendar.Schedule{}.Schedule(plan(func(p *calendar.EventPlan) { // made is 48 hours before
				p.Reminders = append(p.Reminders, calendar.ReminderPlan{Reminder: newReminder, OffsetMinutes: offset})
			}), made)
			if err != nil || len(events) != 1+want {
				t.Errorf("%d minutes before: %d reminders, %v; want %d", offset, len(events)-1, err, want)
			}
		}
	})
	t.Run("needs neither a client nor a reminder", func(t *testing.T) {
		alone := errand
		alone.Client = ids.UserID{}
		givenSchedule(t, nil).When(scheduleEvent(plan(func(p *calendar.EventPlan) {
			p.Client, p.Reminders = ids.UserID{}, nil
		}))).Then(alone)
	})
	t.Run("again with other data is refused", func(t *testing.T) {
		for name, change := range map[string]func(*calendar.EventPlan){
			"id":        func(p *calendar.EventPlan) { p.CalendarEvent[0]++ },
			"tenant":    func(p *calendar.EventPlan) { p.Tenant[0]++ },
			"owner":     func(p *calendar.EventPlan) { p.Owner[0]++ },
			"client":    func(p *calendar.EventPlan) { p.Client = ids.UserID{} },
			"kind":      func(p *calendar.EventPlan) { p.Kind = "Call" },
			"origin":    func(p *calendar.EventPlan) { p.Origin = "Sync" },
			"start":     func(p *calendar.EventPlan) { p.StartAt = leadTime },
			"end":       func(p *calendar.EventPlan) { p.EndAt = justAfter(one) },
			"time zone": func(p *calendar.EventPlan) { p.TimeZone = "Asia/Omsk" },
		} {
			t.Run(name, func(t *testing.T) {
				givenSchedule(t, ownEvent).When(scheduleEvent(plan(change))).ThenRefused(calendar.ExistsError{})
			})
		}
	})
	t.Run("with something missing or wrong is refused", func(t *testing.T) {
		for name, change := range map[string]func(*calendar.EventPlan){
			"id":                 func(p *calendar.EventPlan) { p.CalendarEvent = calendar.EventID{} },
			"tenant":             func(p *calendar.EventPlan) { p.Tenant = ids.TenantID{} },
			"owner":              func(p *calendar.EventPlan) { p.Owner = ids.UserID{} },
			"kind":               func(p *calendar.EventPlan) { p.Kind = "" },
			"origin":             func(p *calendar.EventPlan) { p.Origin = "" },
			"a booking's origin": func(p *calendar.EventPlan) { p.Origin = calendar.OriginAppointment },
			"start":              func(p *calendar.EventPlan) { p.StartAt = time.Time{} },
			"end":                func(p *calendar.EventPlan) { p.EndAt = p.StartAt },
			"time zone":          func(p *calendar.EventPlan) { p.TimeZone = "" },
			"reminder":           func(p *calendar.EventPlan) { p.Reminders[0].Reminder = calendar.ReminderID{} },
			"offset":             func(p *calendar.EventPlan) { p.Reminders[0].OffsetMinutes = -1 },
		} {
			t.Run(name, func(t *testing.T) {
				p := plan(change)
				_, err := calendar.Schedule{}.Schedule(p, made)
				if invalid, ok := err.(calendar.InvalidError); !ok || invalid.Kind == calendar.KindEvent && calendar.EventID(invalid.ID) != p.CalendarEvent {
					t.Errorf("error %v; want an InvalidError about the event or a reminder", err)
				}
			})
		}
	})
}

func TestSchedule_AReminderThatIsAskedForTwiceIsRefused(t *testing.T) {
	twice := []calendar.ReminderPlan{{reminder, 60}, {reminder, 30}}
	givenSchedule(t, nil).When(scheduleEvent(plan(func(p *calendar.EventPlan) { p.Reminders = twice }))).
		ThenRefused(calendar.ExistsError{})
	givenSchedule(t, ownEvent).When(reschedule(calendar.ReminderPlan{Reminder: newReminder}, calendar.ReminderPlan{Reminder: newReminder})).
		ThenRefused(calendar.ExistsError{})
	givenBooking(t, []calendar.Event{published}).When(book(request(func(r *calendar.Request) { r.Reminders = twice }), made)).
		ThenRefused(calendar.ExistsError{})
}

func TestSchedule_Reschedule(t *testing.T) {
	moved := calendar.EventRescheduled{OfEvent: ofEvent(made), StartAt: one, EndAt: one.Add(time.Hour)}
	gaveWay := func(id calendar.ReminderID) calendar.Event {
		return calendar.ReminderDropped{OfReminder: ofReminder(id, made)}
	}
	t.Run("moves the event, and its pending reminders give way to new ones", func(t *testing.T) {
		after := givenSchedule(t, ownEvent).When(reschedule(calendar.ReminderPlan{Reminder: newReminder})).
			Then(moved, gaveWay(dayReminder), gaveWay(reminder), remindsAtOne)
		if e := after.Event.Snapshot(); e.Status != calendar.EventStatusPlanned || !e.StartAt.Equal(one) || !e.EndAt.Equal(one.Add(time.Hour)) || e.Version != 2 {
			t.Errorf("event %+v; want Planned at one, version 2", e)
		}
		expectReminders(t, after.Reminders, calendar.ReminderStatusDropped, calendar.ReminderStatusDropped, calendar.ReminderStatusPending)
		if !after.Reminders[0].Gone() || after.Reminders[2].Gone() {
			t.Error("gone are the reminders that gave way, and no others")
		}
	})
	t.Run("leaves reminders that went out or were skipped as they are, INV-REM-2", func(t *testing.T) {
		sent := calendar.ReminderSent{OfReminder: ofReminder(dayReminder, made)}
		skipped := calendar.ReminderSkipped{OfReminder: ofReminder(reminder, made)}
		after := givenSchedule(t, ownEvent, sent, skipped).When(reschedule(calendar.ReminderPlan{Reminder: newReminder})).
			Then(moved, remindsAtOne)
		expectReminders(t, after.Reminders, calendar.ReminderStatusSent, calendar.ReminderStatusSkipped, calendar.ReminderStatusPending)
	})
	t.Run("with a reminder that exists already is refused, INV-REM-2", func(t *testing.T) {
		sent := calendar.ReminderSent{OfReminder: ofReminder(reminder, made)}
		for name, more := range map[string][]calendar.Event{"sent": {sent}, "pending": nil} {
			t.Run(name, func(t *testing.T) {
				givenSchedule(t, ownEvent, more...).When(reschedule(calendar.ReminderPlan{Reminder: reminder})).
					ThenRefused(calendar.ExistsError{})
			})
		}
	})
	t.Run("makes no reminder whose moment has passed", func(t *testing.T) {
		passed := calendar.ReminderPlan{Reminder: newReminder, OffsetMinutes: 49 * 60}
		givenSchedule(t, ownEvent).When(reschedule(passed)).Then(moved, gaveWay(dayReminder), gaveWay(reminder))
	})
	t.Run("to times that cannot be is refused", func(t *testing.T) {
		for name, to := range map[string][2]time.Time{"no start": {{}, noon}, "no duration": {noon, noon}, "no end": {noon, {}}} {
			t.Run(name, func(t *testing.T) {
				givenSchedule(t, ownEvent).When(func(s calendar.Schedule) ([]calendar.Event, error) {
					return s.Reschedule(to[0], to[1], nil, made)
				}).ThenRefused(calendar.InvalidError{})
			})
		}
	})
}

func TestSchedule_StartCompleteAndCancel(t *testing.T) {
	started := calendar.EventStarted{OfEvent: ofEvent(noon)}
	skipped := func(at time.Time) []calendar.Event {
		return []calendar.Event{
			calendar.ReminderSkipped{OfReminder: ofReminder(dayReminder, at)}, calendar.ReminderSkipped{OfReminder: ofReminder(reminder, at)},
		}
	}
	for name, test := range map[string]struct {
		more      []calendar.Event
		decide    scheduleDecision
		want      []calendar.Event
		status    calendar.EventStatus
		reminders calendar.ReminderStatus
	}{
		"start leaves the reminders":  {nil, start, []calendar.Event{started}, calendar.EventStatusInProgress, calendar.ReminderStatusPending},
		"complete skips them":         {[]calendar.Event{started}, complete, with([]calendar.Event{calendar.EventCompleted{OfEvent: ofEvent(one)}}, skipped(one)...), calendar.EventStatusCompleted, calendar.ReminderStatusSkipped},
		"cancel skips them":           {nil, cancelEvent, with([]calendar.Event{calendar.EventCancelled{OfEvent: ofEvent(made)}}, skipped(made)...), calendar.EventStatusCancelled, calendar.ReminderStatusSkipped},
		"cancel under way skips them": {[]calendar.Event{started}, cancelEvent, with([]calendar.Event{calendar.EventCancelled{OfEvent: ofEvent(made)}}, skipped(made)...), calendar.EventStatusCancelled, calendar.ReminderStatusSkipped},
	} {
		t.Run(name, func(t *testing.T) {
			after := givenSchedule(t, ownEvent, test.more...).When(test.decide).Then(test.want...)
			if e := after.Event.Snapshot(); e.Status != test.status || e.CancelReason != "" || e.Version != 2+len(test.more) {
				t.Errorf("event %+v; want %s", e, test.status)
			}
			expectReminders(t, after.Reminders, test.reminders, test.reminders)
		})
	}
}
