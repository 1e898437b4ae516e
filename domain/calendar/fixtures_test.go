package calendar_test

import (
	"testing"
	"time"

	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/domaintest"
	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/domain/ids"
)

var (
	slot        = calendar.SlotID{1}
	appointment = calendar.AppointmentID{2}
	event       = calendar.EventID{3}
	dayReminder = calendar.ReminderID{4}
	reminder    = calendar.ReminderID{5}
	newReminder = calendar.ReminderID{6}
	tenant      = ids.TenantID{7}
	agent       = ids.UserID{8}
	investor    = ids.UserID{9}
	lead        = calendar.LeadID{10}
)

// The slot is at noon and can be sold until an hour before; it is booked two days before, so that
// the agent has a day to decide.
var (
	noon      = time.Date(2026, 3, 3, 12, 0, 0, 0, time.UTC)
	one       = noon.Add(time.Hour)
	leadTime  = noon.Add(-time.Hour)
	dayBefore = noon.Add(-24 * time.Hour)
	made      = noon.Add(-48 * time.Hour)
)

func justAfter(moment time.Time) time.Time { return moment.Add(time.Microsecond) }

func ofSlot(at time.Time) calendar.OfSlot { return calendar.OfSlot{Slot: slot, At: at} }

func ofAppointment(at time.Time) calendar.OfAppointment {
	return calendar.OfAppointment{Appointment: appointment, At: at}
}

func ofEvent(at time.Time) calendar.OfEvent {
	return calendar.OfEvent{CalendarEvent: event, At: at}
}

func ofReminder(id calendar.ReminderID, at time.Time) calendar.OfReminder {
	return calendar.OfReminder{Reminder: id, At: at}
}

var (
	published = calendar.SlotPublished{
		OfSlot: ofSlot(made), Tenant: tenant, Agent: agent, StartAt: noon, EndAt: one, MinLeadTimeMinutes: 60,
	}
	taken  = calendar.SlotBooked{OfSlot: ofSlot(made)}
	booked = calendar.AppointmentBooked{
		OfAppointment: ofAppointment(made), Tenant: tenant, Slot: slot, CalendarEvent: event, Lead: lead,
		Agent: agent, Investor: investor, PendingExpiresAt: dayBefore,
	}
	visit = calendar.EventScheduled{
		OfEvent: ofEvent(made), Tenant: tenant, Owner: agent, Client: investor, What: "Viewing",
		Origin: calendar.OriginAppointment, StartAt: noon, EndAt: one, TimeZone: "Europe/Moscow", Appointment: appointment,
	}
	remindsADayBefore   = reminds(dayReminder, 24*60, dayBefore)
	remindsAtOne        = reminds(newReminder, 0, one)
	remindsAnHourBefore = reminds(reminder, 60, leadTime)

	// errand is a visit that no booking made.
	errand = func() calendar.EventScheduled {
		e := visit
		e.Origin, e.Appointment = "Manual", calendar.AppointmentID{}
		return e
	}()
)

func reminds(id calendar.ReminderID, offset int, due time.Time) calendar.ReminderScheduled {
	return calendar.ReminderScheduled{
		OfReminder: ofReminder(id, made), CalendarEvent: event, Tenant: tenant, OffsetMinutes: offset, DueAt: due,
	}
}

// pendingBooking is what has happened once an investor has booked; ownEvent, once somebody has put
// an event of another origin into the calendar.
var (
	pendingBooking = []calendar.Event{published, taken, booked, visit, remindsADayBefore, remindsAnHourBefore}
	ownEvent       = []calendar.Event{errand, remindsADayBefore, remindsAnHourBefore}

	pending = eventsourcing.Fold(calendar.Booking{}, pendingBooking...)
)

func request(change func(*calendar.Request)) calendar.Request {
	r := calendar.Request{
		Appointment: appointment, CalendarEvent: event, Lead: lead, Investor: investor, Kind: "Viewing",
		TimeZone: "Europe/Moscow", Reminders: []calendar.ReminderPlan{{dayReminder, 24 * 60}, {reminder, 60}},
	}
	change(&r)
	return r
}

func plan(change func(*calendar.EventPlan)) calendar.EventPlan {
	p := calendar.EventPlan{
		CalendarEvent: event, Tenant: tenant, Owner: agent, Client: investor, Kind: "Viewing", Origin: "Manual",
		StartAt: noon, EndAt: one, TimeZone: "Europe/Moscow",
		Reminders: []calendar.ReminderPlan{{dayReminder, 24 * 60}, {reminder, 60}},
	}
	change(&p)
	return p
}

func asItIs[T any](*T) {}

// The imports below put an aggregate into any state there is, and with a zero snapshot, into none.

func slotIs(change func(*calendar.SlotSnapshot)) calendar.Event {
	s := pending.Slot.Snapshot()
	change(&s)
	return calendar.SlotImported{OfSlot: ofSlot(made), State: s}
}

func appointmentIs(change func(*calendar.AppointmentSnapshot)) calendar.Event {
	s := pending.Appointment.Snapshot()
	change(&s)
	return calendar.AppointmentImported{OfAppointment: ofAppointment(made), State: s}
}

func eventIs(scheduled calendar.EventScheduled, change func(*calendar.EventSnapshot)) calendar.Event {
	s := calendar.CalendarEvent{}.Apply(scheduled).Snapshot()
	change(&s)
	return calendar.EventImported{OfEvent: ofEvent(made), State: s}
}

func reminderIs(change func(*calendar.ReminderSnapshot)) calendar.Event {
	s := calendar.EventReminder{}.Apply(remindsAnHourBefore).Snapshot()
	change(&s)
	return calendar.ReminderImported{OfReminder: ofReminder(reminder, made), State: s}
}

func slotIn(status calendar.SlotStatus) calendar.Event {
	return slotIs(func(s *calendar.SlotSnapshot) {
		if s.Status = status; status == "" {
			*s = calendar.SlotSnapshot{}
		}
	})
}

func appointmentIn(status calendar.AppointmentStatus) calendar.Event {
	return appointmentIs(func(s *calendar.AppointmentSnapshot) {
		if s.Status = status; status == "" {
			*s = calendar.AppointmentSnapshot{}
		}
	})
}

func eventIn(scheduled calendar.EventScheduled, status calendar.EventStatus) calendar.Event {
	return eventIs(scheduled, func(s *calendar.EventSnapshot) {
		if s.Status = status; status == "" {
			*s = calendar.EventSnapshot{}
		}
	})
}

func reminderIn(status calendar.ReminderStatus) calendar.Event {
	return reminderIs(func(s *calendar.ReminderSnapshot) {
		if s.Status = status; status == "" {
			*s = calendar.ReminderSnapshot{}
		}
	})
}

type (
	bookingDecision  = func(calendar.Booking) ([]calendar.Event, error)
	scheduleDecision = func(calendar.Schedule) ([]calendar.Event, error)
	dueDecision      = func(calendar.DueReminder) ([]calendar.Event, error)
)

func givenBooking(t *testing.T, history []calendar.Event, more ...calendar.Event) domaintest.Scenario[calendar.Booking, calendar.Event] {
	t.Helper()
	return domaintest.Given[calendar.Booking](t, with(history, more...)...)
}

func givenSchedule(t *testing.T, history []calendar.Event, more ...calendar.Event) domaintest.Scenario[calendar.Schedule, calendar.Event] {
	t.Helper()
	return domaintest.Given[calendar.Schedule](t, with(history, more...)...)
}

func with(history []calendar.Event, more ...calendar.Event) []calendar.Event {
	return append(history[:len(history):len(history)], more...)
}

func book(r calendar.Request, at time.Time) bookingDecision {
	return func(b calendar.Booking) ([]calendar.Event, error) { return b.Book(r, at) }
}

func confirm(at time.Time) bookingDecision {
	return func(b calendar.Booking) ([]calendar.Event, error) { return b.Confirm(at) }
}

func decline(at time.Time) bookingDecision {
	return func(b calendar.Booking) ([]calendar.Event, error) { return b.Decline(at) }
}

func cancelAppointment(at time.Time) bookingDecision {
	return func(b calendar.Booking) ([]calendar.Event, error) { return b.Cancel(investor, at) }
}

func timeOut(at time.Time) bookingDecision {
	return func(b calendar.Booking) ([]calendar.Event, error) { return b.TimeOut(at) }
}

func completeAppointment(at time.Time) bookingDecision {
	return func(b calendar.Booking) ([]calendar.Event, error) { return b.Complete(at) }
}

func scheduleEvent(p calendar.EventPlan) scheduleDecision {
	return func(s calendar.Schedule) ([]calendar.Event, error) { return s.Schedule(p, made) }
}

// reschedule moves the event to one o'clock.
func reschedule(plans ...calendar.ReminderPlan) scheduleDecision {
	return func(s calendar.Schedule) ([]calendar.Event, error) {
		return s.Reschedule(one, one.Add(time.Hour), plans, made)
	}
}

func start(s calendar.Schedule) ([]calendar.Event, error)       { return s.Start(noon) }
func complete(s calendar.Schedule) ([]calendar.Event, error)    { return s.Complete(one) }
func cancelEvent(s calendar.Schedule) ([]calendar.Event, error) { return s.Cancel(made) }
func dispatch(beside calendar.CalendarEvent, at time.Time) dueDecision {
	return func(d calendar.DueReminder) ([]calendar.Event, error) {
		d.Event = beside
		return d.Dispatch(at)
	}
}
