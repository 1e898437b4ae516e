package published_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/ports"
)

// An appointment of an investor's, with all that belongs to it; alter makes it another one.
func appointmentIs(alter func(*calendar.AppointmentSnapshot)) calendar.Appointment {
	s := calendar.AppointmentSnapshot{
		ID: calendar.AppointmentID{0xA1, 1}, TenantID: ids.TenantID{0xBB, 2}, SlotID: calendar.SlotID{0xA2, 2},
		CalendarEventID: calendar.EventID{0xA3, 3}, LeadID: calendar.LeadID{0xA5, 5},
		AgentUserID: ids.UserID{0xCC, 3}, InvestorUserID: ids.UserID{0xDD, 4},
		Status: calendar.AppointmentStatusPending, PendingExpiresAt: now.Add(-time.Minute), Version: 1, CreatedAt: created, UpdatedAt: created,
	}
	alter(&s)
	return must(calendar.RestoreAppointment(s))
}

func eventIs(alter func(*calendar.EventSnapshot)) calendar.CalendarEvent {
	s := calendar.EventSnapshot{
		ID: calendar.EventID{0xA3, 3}, TenantID: ids.TenantID{0xBB, 2}, OwnerUserID: ids.UserID{0xCC, 3}, ClientUserID: ids.UserID{0xDD, 4},
		Kind: "Viewing", Origin: calendar.OriginAppointment, Status: calendar.EventStatusPlanned,
		StartAt: now.Add(48 * time.Hour), EndAt: now.Add(49 * time.Hour), TimeZone: "Asia/Almaty",
		AppointmentID: calendar.AppointmentID{0xA1, 1}, Version: 1, CreatedAt: created, UpdatedAt: created,
	}
	alter(&s)
	return must(calendar.RestoreEvent(s))
}

// ownersAlone is an event without a client and of no appointment.
func ownersAlone(s *calendar.EventSnapshot) {
	s.ClientUserID, s.Origin, s.AppointmentID, s.Kind = ids.UserID{}, "Manual", calendar.AppointmentID{}, "Call"
}

func asItIs[S any](*S) {}

func booking(alter func(*calendar.AppointmentSnapshot)) calendar.Booking {
	return calendar.Booking{
		Appointment: appointmentIs(alter),
		Slot: must(calendar.RestoreSlot(calendar.SlotSnapshot{
			ID: calendar.SlotID{0xA2, 2}, TenantID: ids.TenantID{0xBB, 2}, AgentUserID: ids.UserID{0xCC, 3},
			StartAt: now.Add(48 * time.Hour), EndAt: now.Add(49 * time.Hour), MinLeadTimeMinutes: 120,
			Status: calendar.SlotStatusBooked, Version: 2, CreatedAt: created, UpdatedAt: created,
		})),
		Event: eventIs(asItIs),
	}
}

func dueReminder(event calendar.CalendarEvent) calendar.DueReminder {
	return calendar.DueReminder{Event: event, Reminder: must(calendar.RestoreReminder(calendar.ReminderSnapshot{
		ID: calendar.ReminderID{0xA4, 4}, EventID: event.Snapshot().ID, TenantID: ids.TenantID{0xBB, 2}, OffsetMinutes: 30,
		DueAt: now.Add(-time.Second), Status: calendar.ReminderStatusPending, Version: 1, CreatedAt: created, UpdatedAt: created,
	}))}
}

func TestReminded_KeepsItsContract(t *testing.T) {
	for name, event := range map[string]calendar.CalendarEvent{
		"ReminderDueEvent":            eventIs(asItIs),
		"ReminderDueEvent_OfNoClient": eventIs(ownersAlone),
	} {
		golden(t, name, only(t, announced(t, dueReminder(event), calendar.DueReminder.Dispatch, published.Reminded)))
	}
}

func TestReminded_ASkippedReminderSaysNothing(t *testing.T) {
	cancelled := eventIs(func(s *calendar.EventSnapshot) { s.Status = calendar.EventStatusCancelled })
	if messages := announced(t, dueReminder(cancelled), calendar.DueReminder.Dispatch, published.Reminded); len(messages) > 0 {
		t.Errorf("messages %v about a reminder that is not sent", messages)
	}
}

func cancelledByInvestor(b calendar.Booking, at time.Time) ([]calendar.Event, error) {
	return b.Cancel(ids.UserID{0xDD, 4}, at)
}

func TestBookingEnded_KeepsItsContract(t *testing.T) {
	for name, decide := range map[string]func(calendar.Booking, time.Time) ([]calendar.Event, error){
		"Expired": calendar.Booking.TimeOut, "Declined": calendar.Booking.Decline, "Cancelled": cancelledByInvestor,
	} {
		messages := announced(t, booking(asItIs), decide, published.BookingEnded)
		if len(messages) != 2 {
			t.Fatalf("%s: messages %v; want two", name, messages)
		}
		golden(t, "AppointmentCancelledEvent_"+name, messages[0])
		if name == "Expired" {
			golden(t, "CalendarEventStatusChangedEvent_ForAReason", messages[1])
		}
	}
	ofNoLead := booking(func(s *calendar.AppointmentSnapshot) { s.LeadID = calendar.LeadID{} })
	golden(t, "AppointmentCancelledEvent_OfNoLead", announced(t, ofNoLead, calendar.Booking.TimeOut, published.BookingEnded)[0])
}

func TestBookingEnded_TellsOfTheAppointmentAndThenOfItsEventEachByItsOwnKey(t *testing.T) {
	type address struct {
		topic, key    string
		subject       uuid.UUID
		aggregateType string
		version       int
	}
	var got []address
	for _, m := range announced(t, booking(asItIs), calendar.Booking.TimeOut, published.BookingEnded) {
		got = append(got, address{m.Topic, m.Key, m.Subject, m.AggregateType, m.AggregateVersion})
	}
	want := [2]address{
		{"pin.calendar.appointment-cancelled.v1", "a1010000-0000-0000-0000-000000000000", uuid.UUID{0xA1, 1}, "Appointment", 2},
		{"pin.calendar.event-status-changed.v1", "a3030000-0000-0000-0000-000000000000", uuid.UUID{0xA3, 3}, "CalendarEvent", 2},
	}
	if len(got) != 2 || [2]address(got) != want {
		t.Errorf("messages to %v; want %v", got, want)
	}
}

func TestEventStatusChanged_KeepsItsContract(t *testing.T) {
	event := calendar.Schedule{Event: eventIs(ownersAlone)}
	golden(t, "CalendarEventStatusChangedEvent", only(t, announced(t, event, calendar.Schedule.Cancel, published.EventStatusChanged)))
}

func TestEventStatusChanged_AnEventThatMovesSaysNothing(t *testing.T) {
	moved := func(s calendar.Schedule, at time.Time) ([]calendar.Event, error) {
		return s.Reschedule(at.Add(time.Hour), at.Add(2*time.Hour), []calendar.ReminderPlan{{Reminder: calendar.ReminderID{1}, OffsetMinutes: 10}}, at)
	}
	if messages := announced(t, calendar.Schedule{Event: eventIs(ownersAlone)}, moved, published.EventStatusChanged); len(messages) > 0 {
		t.Errorf("messages %v about an event whose status is what it was", messages)
	}
}

// What dedupes a message is the aggregate that it is about, not its key: an event's reminders share
// their event's key, and none is taken for another.
func TestReminded_AnEventsRemindersShareAKeyAndNoID(t *testing.T) {
	send := func(id calendar.ReminderID) ports.Message {
		due := dueReminder(eventIs(asItIs))
		s := due.Reminder.Snapshot()
		s.ID = id
		due.Reminder = must(calendar.RestoreReminder(s))
		return only(t, announced(t, due, calendar.DueReminder.Dispatch, published.Reminded))
	}
	one, other := send(calendar.ReminderID{1}), send(calendar.ReminderID{2})
	if one.Key != other.Key || one.ID == other.ID {
		t.Errorf("keys %s and %s, ids %s and %s; want one key and two ids", one.Key, other.Key, one.ID, other.ID)
	}
}
