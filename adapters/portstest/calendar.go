package portstest

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	appcalendar "github.com/pin-platform/pinworker/app/calendar"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/ports"
)

// CalendarStore is an adapter under test, empty, with its hooks: they are about reminders or about
// appointments, as the suite's name says.
type CalendarStore struct {
	Hooks
	DueReminders ports.DueReminders
	Overdue      ports.OverdueAppointments

	Slots     ports.Slots
	Bookable  ports.BookableSlots
	Bookings  ports.Bookings
	Schedules ports.Schedules

	SlotLedger        ports.SlotLedger
	AppointmentLedger ports.AppointmentLedger
	EventLedger       ports.EventLedger
	ReminderLedger    ports.ReminderLedger
}

// Operate returns the operations on the store, at a moment.
func (s CalendarStore) Operate(at time.Time) appcalendar.Operations {
	return appcalendar.Operations{
		Slots: s.Slots, Bookable: s.Bookable, Bookings: s.Bookings, Schedules: s.Schedules,
		Clock: func() time.Time { return at },
	}
}

// Verify reports every row of the store that is not the fold of its stream, and returns how many lack
// one.
func (s CalendarStore) Verify(t *testing.T) int {
	t.Helper()
	return check[calendar.AvailabilitySlot, calendar.SlotSnapshot](t, s.SlotLedger) +
		check[calendar.Appointment, calendar.AppointmentSnapshot](t, s.AppointmentLedger) +
		check[calendar.CalendarEvent, calendar.EventSnapshot](t, s.EventLedger) +
		check[calendar.EventReminder, calendar.ReminderSnapshot](t, s.ReminderLedger)
}

// Plan returns an event to schedule with one reminder, due at a moment, half an hour before it.
func Plan(due time.Time) calendar.EventPlan {
	return calendar.EventPlan{
		CalendarEvent: NewID[calendar.CalendarEvent](), Tenant: ids.TenantID(uuid.New()), Owner: ids.UserID(uuid.New()),
		Kind: "Call", Origin: "Manual", StartAt: due.Add(30 * time.Minute), EndAt: due.Add(time.Hour), TimeZone: "Europe/Moscow",
		Reminders: []calendar.ReminderPlan{{Reminder: NewID[calendar.EventReminder](), OffsetMinutes: 30}},
	}
}

// Reminders runs the suite of reminder-dispatch; open returns a store of the test's own.
func Reminders(t *testing.T, open func(t *testing.T) CalendarStore) {
	Promises(t, func(t *testing.T) Job[calendar.DueReminder, calendar.Event] {
		s := open(t)
		events := make(map[uuid.UUID]calendar.EventID)
		return Job[calendar.DueReminder, calendar.Event]{
			Hooks: s.Hooks, Name: ports.ReminderDispatch, Due: s.DueReminders, Rule: appcalendar.Dispatch,
			Item: func(d calendar.DueReminder) uuid.UUID { return d.Reminder.Stream() },
			Make: func(t *testing.T, due time.Time) uuid.UUID {
				plan := Plan(due)
				if err := s.Operate(Noon.AddDate(0, -1, 0)).Schedule(t.Context(), "agent", plan); err != nil {
					t.Fatal(err)
				}
				reminder := uuid.UUID(plan.Reminders[0].Reminder)
				events[reminder] = plan.CalendarEvent
				return reminder
			},
			Settle: func(t *testing.T, id uuid.UUID) {
				if err := s.Operate(Noon).CancelEvent(t.Context(), "agent", events[id]); err != nil {
					t.Fatal(err)
				}
			},
			Done: func(t *testing.T, id uuid.UUID) bool {
				return entry(t, s.ReminderLedger, id).Row.Snapshot().Status == calendar.ReminderStatusSent
			},
			Verify: s.Verify,
		}
	})
}

// Booking returns a slot and a request for it with two reminders: an appointment that is made a day
// before a moment, and times out then.
func Booking(due time.Time) (calendar.Publication, calendar.Request) {
	start := due.AddDate(0, 0, 7)
	slot := calendar.Publication{
		Slot: NewID[calendar.AvailabilitySlot](), Tenant: ids.TenantID(uuid.New()), Agent: ids.UserID(uuid.New()),
		StartAt: start, EndAt: start.Add(time.Hour), MinLeadTimeMinutes: 120,
	}
	return slot, calendar.Request{
		Appointment: NewID[calendar.Appointment](), CalendarEvent: NewID[calendar.CalendarEvent](), Investor: ids.UserID(uuid.New()),
		Kind: "Viewing", TimeZone: "Asia/Almaty",
		Reminders: []calendar.ReminderPlan{
			{Reminder: NewID[calendar.EventReminder](), OffsetMinutes: 60}, {Reminder: NewID[calendar.EventReminder](), OffsetMinutes: 1440},
		},
	}
}

// Appointments runs the suite of appointment-timeout; open returns a store of the test's own.
func Appointments(t *testing.T, open func(t *testing.T) CalendarStore) {
	Promises(t, func(t *testing.T) Job[calendar.Booking, calendar.Event] {
		s := open(t)
		return Job[calendar.Booking, calendar.Event]{
			Hooks: s.Hooks, Name: ports.AppointmentTimeout, Due: s.Overdue, Rule: appcalendar.TimeOut,
			Item: func(b calendar.Booking) uuid.UUID { return b.Appointment.Stream() },
			Make: func(t *testing.T, due time.Time) uuid.UUID {
				slot, request := Booking(due)
				s.book(t, due, slot, request)
				return uuid.UUID(request.Appointment)
			},
			Settle: func(t *testing.T, id uuid.UUID) {
				if err := s.Operate(Noon).Confirm(t.Context(), "agent", calendar.AppointmentID(id)); err != nil {
					t.Fatal(err)
				}
			},
			Done: func(t *testing.T, id uuid.UUID) bool {
				a := entry(t, s.AppointmentLedger, id).Row.Snapshot()
				slot := entry(t, s.SlotLedger, uuid.UUID(a.SlotID)).Row.Snapshot()
				event := entry(t, s.EventLedger, uuid.UUID(a.CalendarEventID)).Row.Snapshot()
				if (a.Status == calendar.AppointmentStatusExpired) != (slot.Status == calendar.SlotStatusAvailable) ||
					(a.Status == calendar.AppointmentStatusExpired) != (event.Status == calendar.EventStatusCancelled) {
					t.Errorf("half Done: appointment %s, slot %s, event %s", a.Status, slot.Status, event.Status)
				}
				return a.Status == calendar.AppointmentStatusExpired
			},
			Verify: s.Verify,
		}
	})
	t.Run("what a slot confirms by itself is never claimed", func(t *testing.T) { confirmedByItself(t, open(t)) })
	t.Run("a slot past its lead time expires with its appointment", func(t *testing.T) { pastLeadTime(t, open(t)) })
	t.Run("an appointment that is held back holds back none of its event's reminders", func(t *testing.T) { remindersOfHeld(t, open(t)) })
}

// book makes an appointment a day before it times out.
func (s CalendarStore) book(t *testing.T, due time.Time, slot calendar.Publication, request calendar.Request) {
	t.Helper()
	operations := s.Operate(due.Add(-24 * time.Hour))
	if err := operations.Publish(t.Context(), "agent", slot); err != nil {
		t.Fatal(err)
	}
	if err := operations.Book(t.Context(), "investor", slot.Slot, request); err != nil {
		t.Fatal(err)
	}
}

func confirmedByItself(t *testing.T, s CalendarStore) {
	slot, request := Booking(Noon.Add(-time.Hour))
	slot.AutoConfirm = true
	s.book(t, Noon.Add(-time.Hour), slot, request)
	claim := ports.Claim{AsOf: Noon.AddDate(1, 0, 0), Limit: 10, Run: ports.NewRunID()}
	outcome, err := s.Overdue.Transition(t.Context(), claim, appcalendar.TimeOut)
	if err != nil || outcome.Claimed != 0 {
		t.Errorf("outcome %+v, %v; want nothing claimed", outcome, err)
	}
	if backlog, err := s.Overdue.Backlog(t.Context(), claim.AsOf, ports.Cursor{}); err != nil || backlog != (ports.Backlog{}) {
		t.Errorf("backlog %+v, %v; want none", backlog, err)
	}
	if a := entry(t, s.AppointmentLedger, uuid.UUID(request.Appointment)).Row.Snapshot(); a.Status != calendar.AppointmentStatusConfirmed || !a.PendingExpiresAt.IsZero() {
		t.Errorf("appointment %+v; want it Confirmed, with no moment to time out at", a)
	}
}

func pastLeadTime(t *testing.T, s CalendarStore) {
	due := Noon.Add(-time.Microsecond)
	slot, request := Booking(due)
	slot.StartAt, slot.EndAt = due.Add(2*time.Hour), due.Add(3*time.Hour) // its lead time begins at the moment that is due
	s.book(t, due, slot, request)
	before := len(s.Messages())
	outcome, err := s.Overdue.Transition(t.Context(), ports.Claim{AsOf: Noon, Limit: 1, Run: ports.NewRunID()}, appcalendar.TimeOut)
	if err != nil || len(outcome.Applied) != 1 || len(s.Messages()) != before+2 {
		t.Fatalf("outcome %+v, %v, messages %v; want it expired, and two messages", outcome, err, s.Messages()[before:])
	}
	states := []string{
		string(entry(t, s.AppointmentLedger, uuid.UUID(request.Appointment)).Row.Snapshot().Status),
		string(entry(t, s.SlotLedger, uuid.UUID(slot.Slot)).Row.Snapshot().Status),
		string(entry(t, s.EventLedger, uuid.UUID(request.CalendarEvent)).Row.Snapshot().Status),
	}
	for _, r := range request.Reminders {
		states = append(states, string(entry(t, s.ReminderLedger, uuid.UUID(r.Reminder)).Row.Snapshot().Status))
	}
	if want := []string{"Expired", "Expired", "Cancelled", "Skipped", "Skipped"}; !slices.Equal(states, want) {
		t.Errorf("appointment, slot, event and reminders are %v; want %v", states, want)
	}
	s.Verify(t)
}

func remindersOfHeld(t *testing.T, s CalendarStore) {
	slot, request := Booking(Noon.Add(-time.Minute))
	slot.StartAt, slot.EndAt = Noon.Add(23*time.Hour), Noon.Add(24*time.Hour) // one reminder was due an hour ago, a day before it
	s.book(t, Noon.Add(-time.Minute), slot, request)
	s.Refuse(uuid.UUID(request.Appointment))
	claim := ports.Claim{AsOf: Noon, Limit: 1, Run: ports.NewRunID()}
	failed, err := s.Overdue.Transition(t.Context(), claim, appcalendar.TimeOut)
	if err != nil || len(failed.Failed) != 1 {
		t.Fatalf("outcome %+v, %v; want the appointment failed", failed, err)
	}
	if err := s.Overdue.Hold(t.Context(), Noon, []ports.Held{{Failure: failed.Failed[0], NextAttempt: Noon.Add(time.Hour)}}); err != nil {
		t.Fatal(err)
	}
	sent, err := s.DueReminders.Transition(t.Context(), claim, appcalendar.Dispatch)
	if err != nil || len(sent.Applied) != 1 || sent.Applied[0].After.Reminder.Snapshot().EventID != request.CalendarEvent {
		t.Errorf("outcome %+v, %v; want the reminder sent", sent, err)
	}
	s.Verify(t)
}
