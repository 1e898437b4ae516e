package calendar_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/domain/ids"
)

func TestBooking_Book(t *testing.T) {
	onSale := []calendar.Event{published}
	t.Run("takes the slot, begins an appointment, its event and that event's reminders", func(t *testing.T) {
		after := givenBooking(t, onSale).When(book(request(asItIs), made)).
			Then(taken, booked, visit, remindsADayBefore, remindsAnHourBefore)
		want := calendar.AppointmentSnapshot{
			ID: appointment, TenantID: tenant, SlotID: slot, CalendarEventID: event, LeadID: lead, AgentUserID: agent,
			InvestorUserID: investor, Status: calendar.AppointmentStatusPending, PendingExpiresAt: dayBefore,
			Version: 1, CreatedAt: made, UpdatedAt: made,
		}
		if after.Appointment.Snapshot() != want {
			t.Errorf("appointment %+v; want %+v", after.Appointment.Snapshot(), want)
		}
		wantEvent := calendar.EventSnapshot{
			ID: event, TenantID: tenant, OwnerUserID: agent, ClientUserID: investor, Kind: "Viewing",
			Origin: calendar.OriginAppointment, Status: calendar.EventStatusPlanned, StartAt: noon, EndAt: one,
			TimeZone: "Europe/Moscow", AppointmentID: appointment, Version: 1, CreatedAt: made, UpdatedAt: made,
		}
		if after.Event.Snapshot() != wantEvent {
			t.Errorf("event %+v; want %+v", after.Event.Snapshot(), wantEvent)
		}
		if s := after.Slot.Snapshot(); s.Status != calendar.SlotStatusBooked || s.Version != 2 {
			t.Errorf("slot %+v; want Booked, version 2", s)
		}
		expectReminders(t, after.Reminders, calendar.ReminderStatusPending, calendar.ReminderStatusPending)
	})
	t.Run("of a slot that confirms by itself begins confirmed, and never times out", func(t *testing.T) {
		itself, already := published, booked
		itself.AutoConfirm, already.PendingExpiresAt = true, time.Time{}
		after := givenBooking(t, []calendar.Event{itself}).When(book(request(asItIs), made)).
			Then(taken, already, visit, remindsADayBefore, remindsAnHourBefore)
		if s := after.Appointment.Snapshot(); s.Status != calendar.AppointmentStatusConfirmed || !s.PendingExpiresAt.IsZero() {
			t.Errorf("appointment %+v; want Confirmed, with no PendingExpiresAt", s)
		}
		if events, err := after.TimeOut(one); len(events) > 0 || err != nil {
			t.Errorf("timed out: %v, %v", events, err)
		}
	})
	t.Run("without a lead", func(t *testing.T) {
		events, err := eventsourcing.Fold(calendar.Booking{}, onSale...).
			Book(request(func(r *calendar.Request) { r.Lead = calendar.LeadID{} }), made)
		if err != nil || len(events) != 5 {
			t.Errorf("%v, %v", events, err)
		}
	})
	t.Run("with something missing is refused", func(t *testing.T) {
		for name, change := range map[string]func(*calendar.Request){
			"appointment":      func(r *calendar.Request) { r.Appointment = calendar.AppointmentID{} },
			"calendar event":   func(r *calendar.Request) { r.CalendarEvent = calendar.EventID{} },
			"investor":         func(r *calendar.Request) { r.Investor = ids.UserID{} },
			"kind":             func(r *calendar.Request) { r.Kind = "" },
			"time zone":        func(r *calendar.Request) { r.TimeZone = "" },
			"reminder":         func(r *calendar.Request) { r.Reminders[1].Reminder = calendar.ReminderID{} },
			"offset from zero": func(r *calendar.Request) { r.Reminders[1].OffsetMinutes = -1 },
		} {
			t.Run(name, func(t *testing.T) {
				givenBooking(t, onSale).When(book(request(change), made)).ThenRefused(calendar.InvalidError{})
			})
		}
	})
	t.Run("takes a slot at the last moment it is sold, and none after it", func(t *testing.T) {
		if _, err := eventsourcing.Fold(calendar.Booking{}, onSale...).Book(request(asItIs), leadTime); err != nil {
			t.Error(err)
		}
		givenBooking(t, onSale).When(book(request(asItIs), justAfter(leadTime))).ThenRefused(calendar.TooLateError{})
	})
}

func TestBooking_PendingExpiresAt_IsADayLaterOrWhenTheLeadTimeBegins(t *testing.T) {
	for name, test := range map[string]struct{ made, want time.Time }{
		"a day comes first":           {made, dayBefore},
		"both at once":                {leadTime.Add(-24 * time.Hour), leadTime},
		"the lead time, just":         {justAfter(leadTime.Add(-24 * time.Hour)), leadTime},
		"booked at the very last":     {leadTime, leadTime},
		"a day comes first, but just": {leadTime.Add(-24*time.Hour - time.Microsecond), leadTime.Add(-time.Microsecond)},
	} {
		t.Run(name, func(t *testing.T) {
			before := eventsourcing.Fold(calendar.Booking{}, calendar.Event(published))
			events, err := before.Book(request(asItIs), test.made)
			if got := eventsourcing.Fold(before, events...).Appointment.Snapshot().PendingExpiresAt; err != nil || !got.Equal(test.want) {
				t.Errorf("PendingExpiresAt %s, %v; want %s", got, err, test.want)
			}
		})
	}
}

func TestBooking_Confirm_IsLegalForAsLongAsTheAppointmentIsPending(t *testing.T) {
	for name, at := range map[string]time.Time{"in time": made, "after PendingExpiresAt": justAfter(dayBefore)} {
		t.Run(name, func(t *testing.T) {
			after := givenBooking(t, pendingBooking).When(confirm(at)).
				Then(calendar.AppointmentConfirmed{OfAppointment: ofAppointment(at)})
			if s := after.Appointment.Snapshot(); s.Status != calendar.AppointmentStatusConfirmed || s.Version != 2 || !s.UpdatedAt.Equal(at) {
				t.Errorf("appointment %+v; want Confirmed, version 2", s)
			}
			if after.Appointment = pending.Appointment; !reflect.DeepEqual(after, pending) {
				t.Errorf("booking %+v; want nothing else changed", after)
			}
		})
	}
}

func TestBooking_Complete_EndsTheEventAndKeepsTheSlot(t *testing.T) {
	accepted := calendar.AppointmentConfirmed{OfAppointment: ofAppointment(made)}
	began := calendar.EventStarted{OfEvent: ofEvent(one)}
	t.Run("of an event that has begun", func(t *testing.T) {
		after := givenBooking(t, pendingBooking, accepted, began).When(completeAppointment(one)).Then(
			calendar.AppointmentCompleted{OfAppointment: ofAppointment(one)}, calendar.EventCompleted{OfEvent: ofEvent(one)},
			calendar.ReminderSkipped{OfReminder: ofReminder(dayReminder, one)}, calendar.ReminderSkipped{OfReminder: ofReminder(reminder, one)},
		)
		if s := after.Appointment.Snapshot(); s.Status != calendar.AppointmentStatusCompleted || s.Version != 3 {
			t.Errorf("appointment %+v; want Completed, version 3", s)
		}
		if after.Slot.Snapshot() != pending.Slot.Snapshot() || after.Event.Snapshot().Status != calendar.EventStatusCompleted {
			t.Errorf("slot %+v, event %+v; want the slot as it was, the event Completed", after.Slot, after.Event)
		}
	})
	t.Run("is refused before the event has begun", func(t *testing.T) {
		givenBooking(t, pendingBooking, accepted).When(completeAppointment(one)).ThenRefused(calendar.StateError{})
	})
}

// cascade is what comes of an appointment that ends: its own event, the slot's, the calendar event's.
func cascade(ended, slot calendar.Event, reason calendar.CancelReason, at time.Time, reminders ...calendar.ReminderID) []calendar.Event {
	events := []calendar.Event{ended, slot, calendar.EventCancelled{OfEvent: ofEvent(at), Reason: reason}}
	for _, id := range reminders {
		events = append(events, calendar.ReminderSkipped{OfReminder: ofReminder(id, at)})
	}
	return events
}

func TestBooking_DeclineAndCancel_TakeTheWholeCascadeAndGiveNoReason(t *testing.T) {
	released := calendar.SlotReleased{OfSlot: ofSlot(made)}
	accepted := calendar.AppointmentConfirmed{OfAppointment: ofAppointment(made)}
	refused := calendar.AppointmentDeclined{OfAppointment: ofAppointment(made)}
	calledOff := calendar.AppointmentCancelled{OfAppointment: ofAppointment(made), By: investor}
	for name, test := range map[string]struct {
		more   []calendar.Event
		decide bookingDecision
		ended  calendar.Event
		status calendar.AppointmentStatus
		by     ids.UserID
	}{
		"decline":              {nil, decline(made), refused, calendar.AppointmentStatusDeclined, ids.UserID{}},
		"cancel while pending": {nil, cancelAppointment(made), calledOff, calendar.AppointmentStatusCancelled, investor},
		"cancel a confirmed":   {[]calendar.Event{accepted}, cancelAppointment(made), calledOff, calendar.AppointmentStatusCancelled, investor},
	} {
		t.Run(name, func(t *testing.T) {
			after := givenBooking(t, pendingBooking, test.more...).When(test.decide).
				Then(cascade(test.ended, released, "", made, dayReminder, reminder)...)
			if s := after.Appointment.Snapshot(); s.Status != test.status || s.CancelledBy != test.by {
				t.Errorf("appointment %+v; want %s by %s", s, test.status, test.by)
			}
			expectEnded(t, after, calendar.SlotStatusAvailable, "")
			expectReminders(t, after.Reminders, calendar.ReminderStatusSkipped, calendar.ReminderStatusSkipped)
		})
	}
}

func TestBooking_TimeOut_INV_APT_6(t *testing.T) {
	const reason = "Запись не подтверждена агентом в срок"
	timedOut := func(at time.Time) calendar.Event {
		return calendar.AppointmentExpired{OfAppointment: ofAppointment(at)}
	}
	t.Run("stays pending at the very moment it would expire", func(t *testing.T) {
		givenBooking(t, pendingBooking).When(timeOut(dayBefore)).ThenRefused(calendar.NotDueError{})
	})
	t.Run("takes the whole cascade a microsecond later, each aggregate one version on", func(t *testing.T) {
		at := justAfter(dayBefore)
		after := givenBooking(t, pendingBooking).When(timeOut(at)).
			Then(cascade(timedOut(at), calendar.SlotReleased{OfSlot: ofSlot(at)}, reason, at, dayReminder, reminder)...)
		if s := after.Appointment.Snapshot(); s.Status != calendar.AppointmentStatusExpired || !s.CancelledBy.IsZero() {
			t.Errorf("appointment %+v; want Expired, cancelled by nobody", s)
		}
		expectEnded(t, after, calendar.SlotStatusAvailable, reason)
		expectReminders(t, after.Reminders, calendar.ReminderStatusSkipped, calendar.ReminderStatusSkipped)
		for i, part := range after.Parts() {
			if was := pending.Parts()[i]; part.Version() != was.Version()+1 || part.Stream() != was.Stream() {
				t.Errorf("%T is at version %d; it was at %d", part, part.Version(), was.Version())
			}
		}
	})
	t.Run("releases the slot at the last moment it is sold, INV-SLT-5", func(t *testing.T) {
		after := givenBooking(t, pendingBooking).When(timeOut(leadTime)).
			Then(cascade(timedOut(leadTime), calendar.SlotReleased{OfSlot: ofSlot(leadTime)}, reason, leadTime, dayReminder, reminder)...)
		expectEnded(t, after, calendar.SlotStatusAvailable, reason)
	})
	t.Run("expires the slot a microsecond later, INV-SLT-5", func(t *testing.T) {
		at := justAfter(leadTime)
		after := givenBooking(t, pendingBooking).When(timeOut(at)).
			Then(cascade(timedOut(at), calendar.SlotExpired{OfSlot: ofSlot(at)}, reason, at, dayReminder, reminder)...)
		expectEnded(t, after, calendar.SlotStatusExpired, reason)
	})
	t.Run("leaves reminders that went out as they are, INV-REM-2", func(t *testing.T) {
		at := justAfter(dayBefore)
		sent := calendar.ReminderSent{OfReminder: ofReminder(dayReminder, at)}
		after := givenBooking(t, pendingBooking, sent).When(timeOut(at)).
			Then(cascade(timedOut(at), calendar.SlotReleased{OfSlot: ofSlot(at)}, reason, at, reminder)...)
		expectReminders(t, after.Reminders, calendar.ReminderStatusSent, calendar.ReminderStatusSkipped)
	})
	t.Run("meets an unexpected state and is refused", func(t *testing.T) {
		for name, test := range map[string]struct {
			unexpected calendar.Event
			want       error
		}{
			"another slot":                      {slotIs(func(s *calendar.SlotSnapshot) { s.ID[0]++ }), calendar.MismatchError{}},
			"another event":                     {eventIs(visit, func(s *calendar.EventSnapshot) { s.ID[0]++ }), calendar.MismatchError{}},
			"an event of another appointment":   {eventIs(visit, func(s *calendar.EventSnapshot) { s.AppointmentID[0]++ }), calendar.MismatchError{}},
			"an event of another origin":        {eventIs(visit, func(s *calendar.EventSnapshot) { s.Origin = "Manual" }), calendar.MismatchError{}},
			"a slot that is not booked":         {slotIn(calendar.SlotStatusAvailable), calendar.StateError{}},
			"an event that is cancelled":        {eventIn(visit, calendar.EventStatusCancelled), calendar.StateError{}},
			"an event that is completed":        {eventIn(visit, calendar.EventStatusCompleted), calendar.StateError{}},
			"a pending one that never runs out": {appointmentIs(func(s *calendar.AppointmentSnapshot) { s.PendingExpiresAt = time.Time{} }), calendar.NotDueError{}},
		} {
			t.Run(name, func(t *testing.T) {
				givenBooking(t, pendingBooking, test.unexpected).When(timeOut(one)).ThenRefused(test.want)
			})
		}
	})
}

// expectEnded checks the slot and the event of an appointment that has ended.
func expectEnded(t *testing.T, b calendar.Booking, slot calendar.SlotStatus, reason calendar.CancelReason) {
	t.Helper()
	if s := b.Slot.Snapshot(); s.Status != slot {
		t.Errorf("slot %+v; want %s", s, slot)
	}
	if e := b.Event.Snapshot(); e.Status != calendar.EventStatusCancelled || e.CancelReason != reason {
		t.Errorf("event %+v; want Cancelled for %q", e, reason)
	}
}

func expectReminders(t *testing.T, reminders []calendar.EventReminder, want ...calendar.ReminderStatus) {
	t.Helper()
	var got []calendar.ReminderStatus
	for _, r := range reminders {
		got = append(got, r.Snapshot().Status)
	}
	if !slices.Equal(got, want) {
		t.Errorf("reminders %v; want %v", got, want)
	}
}

func TestNumber_CountsEachStreamOfABookingByItself(t *testing.T) {
	numbersOf := func(before calendar.Booking, events []calendar.Event, err error) []int {
		if err != nil {
			t.Fatal(err)
		}
		var versions []int
		for i, numbered := range eventsourcing.Number(before, events...) {
			if numbered.Event != events[i] {
				t.Errorf("event %d is %+v; want %+v", i, numbered.Event, events[i])
			}
			versions = append(versions, numbered.Version)
		}
		return versions
	}
	onSale := eventsourcing.Fold(calendar.Booking{}, calendar.Event(published))
	events, err := onSale.Book(request(asItIs), made)
	if got := numbersOf(onSale, events, err); !slices.Equal(got, []int{2, 1, 1, 1, 1}) {
		t.Errorf("a booking is numbered %v", got)
	}
	events, err = pending.TimeOut(leadTime)
	if got := numbersOf(pending, events, err); !slices.Equal(got, []int{2, 3, 2, 2, 2}) {
		t.Errorf("a timeout is numbered %v", got)
	}
}
