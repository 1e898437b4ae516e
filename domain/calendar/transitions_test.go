package calendar_test

import (
	"maps"
	"testing"

	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/domaintest"
	"github.com/pin-platform/pinworker/domain/eventsourcing"
)

// The tables say, for each aggregate, what comes of every command in every state that it can be
// in, the others being as a pending booking, or an event that is planned, has them.

var (
	bookingCommands = domaintest.Commands[calendar.Booking, calendar.Event]{
		"Book": book(request(asItIs), made), "Confirm": confirm(one), "Decline": decline(made),
		"Cancel": cancelAppointment(made), "TimeOut": timeOut(leadTime), "Complete": completeAppointment(one),
	}
	scheduleCommands = domaintest.Commands[calendar.Schedule, calendar.Event]{
		"Schedule":   scheduleEvent(plan(asItIs)),
		"Reschedule": reschedule(calendar.ReminderPlan{Reminder: newReminder}),
		"Start":      start, "Complete": complete, "Cancel": cancelEvent,
	}
)

const (
	begins = "SlotBooked AppointmentBooked EventScheduled ReminderScheduled ReminderScheduled"
	ends   = " SlotReleased EventCancelled ReminderSkipped"
)

// bookingWith is a booking with one reminder after some more has happened to it.
func bookingWith(more ...calendar.Event) calendar.Booking {
	return eventsourcing.Fold(calendar.Booking{}, with([]calendar.Event{published, taken, booked, visit, remindsAnHourBefore}, more...)...)
}

func scheduleWith(more ...calendar.Event) calendar.Schedule {
	return eventsourcing.Fold(calendar.Schedule{}, with([]calendar.Event{errand, remindsAnHourBefore}, more...)...)
}

func TestAppointment_EveryCommandInEveryState(t *testing.T) {
	given := func(status calendar.AppointmentStatus) calendar.Booking {
		switch status {
		case calendar.AppointmentStatusPending, calendar.AppointmentStatusConfirmed, calendar.AppointmentStatusCompleted:
			return bookingWith(appointmentIn(status))
		}
		return bookingWith(appointmentIn(status), slotIn(calendar.SlotStatusAvailable))
	}
	const refused, missing, taken = "StateError", "MissingError", "ExistsError"
	domaintest.Table(t, given, bookingCommands, domaintest.Outcomes[calendar.AppointmentStatus]{
		"": {
			"Book": begins, "Confirm": missing, "Decline": missing,
			"Cancel": missing, "TimeOut": "", "Complete": missing,
		},
		calendar.AppointmentStatusPending: {
			"Book": refused, "Confirm": "AppointmentConfirmed", "Decline": "AppointmentDeclined" + ends,
			"Cancel": "AppointmentCancelled" + ends, "TimeOut": "AppointmentExpired" + ends, "Complete": refused,
		},
		calendar.AppointmentStatusConfirmed: {
			"Book": refused, "Confirm": "", "Decline": refused,
			"Cancel": "AppointmentCancelled" + ends, "TimeOut": "", "Complete": refused, // its event has not begun
		},
		calendar.AppointmentStatusDeclined: {
			"Book": taken, "Confirm": refused, "Decline": "",
			"Cancel": refused, "TimeOut": "", "Complete": refused,
		},
		calendar.AppointmentStatusCancelled: {
			"Book": taken, "Confirm": refused, "Decline": refused,
			"Cancel": "", "TimeOut": "", "Complete": refused,
		},
		calendar.AppointmentStatusExpired: {
			"Book": taken, "Confirm": refused, "Decline": refused,
			"Cancel": refused, "TimeOut": "", "Complete": refused,
		},
		calendar.AppointmentStatusCompleted: {
			"Book": refused, "Confirm": refused, "Decline": refused,
			"Cancel": refused, "TimeOut": "", "Complete": "",
		},
	})
}

func TestSlot_EveryCommandInEveryState_INV_SLT_3(t *testing.T) {
	publish := func(minutes int) func(calendar.AvailabilitySlot) ([]calendar.Event, error) {
		return func(s calendar.AvailabilitySlot) ([]calendar.Event, error) {
			return s.Publish(calendar.Publication{
				Slot: slot, Tenant: tenant, Agent: agent, StartAt: noon, EndAt: one, MinLeadTimeMinutes: minutes,
			}, made)
		}
	}
	given := func(status calendar.SlotStatus) calendar.AvailabilitySlot {
		return calendar.AvailabilitySlot{}.Apply(slotIn(status))
	}
	again := map[string]string{"Publish": "", "Another": "ExistsError"}
	domaintest.Table(
		t, given,
		domaintest.Commands[calendar.AvailabilitySlot, calendar.Event]{"Publish": publish(60), "Another": publish(90)},
		domaintest.Outcomes[calendar.SlotStatus]{
			"":                           {"Publish": "SlotPublished", "Another": "SlotPublished"},
			calendar.SlotStatusAvailable: again, calendar.SlotStatusBooked: again, calendar.SlotStatusExpired: again, calendar.SlotStatusWithdrawn: again,
		},
	)

	// The appointment is pending and due: what would end it needs a slot that is booked.
	unbooked := func(book string) map[string]string {
		return map[string]string{
			"Book": book, "Confirm": "AppointmentConfirmed", "Decline": "StateError",
			"Cancel": "StateError", "TimeOut": "StateError", "Complete": "StateError",
		}
	}
	commands := maps.Clone(bookingCommands)
	commands["Book"] = func(b calendar.Booking) ([]calendar.Event, error) {
		return calendar.Booking{Slot: b.Slot}.Book(request(asItIs), made)
	}
	domaintest.Table(
		t, func(status calendar.SlotStatus) calendar.Booking { return bookingWith(slotIn(status)) }, commands,
		domaintest.Outcomes[calendar.SlotStatus]{
			"": {
				"Book": "MissingError", "Confirm": "AppointmentConfirmed", "Decline": "MismatchError",
				"Cancel": "MismatchError", "TimeOut": "MismatchError", "Complete": "StateError",
			},
			calendar.SlotStatusBooked: {
				"Book": "StateError", "Confirm": "AppointmentConfirmed", "Decline": "AppointmentDeclined" + ends,
				"Cancel": "AppointmentCancelled" + ends, "TimeOut": "AppointmentExpired" + ends, "Complete": "StateError",
			},
			calendar.SlotStatusAvailable: unbooked(begins),
			calendar.SlotStatusExpired:   unbooked("StateError"),
			calendar.SlotStatusWithdrawn: unbooked("StateError"),
		},
	)
}

func TestEvent_EveryCommandInEveryState(t *testing.T) {
	given := func(status calendar.EventStatus) calendar.Schedule { return scheduleWith(eventIn(errand, status)) }
	domaintest.Table(t, given, scheduleCommands, domaintest.Outcomes[calendar.EventStatus]{
		"": {
			"Schedule": "EventScheduled ReminderScheduled ReminderScheduled", "Reschedule": "MissingError",
			"Start": "MissingError", "Complete": "MissingError", "Cancel": "MissingError",
		},
		calendar.EventStatusPlanned: {
			"Schedule": "", "Reschedule": "EventRescheduled ReminderDropped ReminderScheduled",
			"Start": "EventStarted", "Complete": "StateError", "Cancel": "EventCancelled ReminderSkipped",
		},
		calendar.EventStatusInProgress: {
			"Schedule": "", "Reschedule": "StateError",
			"Start": "", "Complete": "EventCompleted ReminderSkipped", "Cancel": "EventCancelled ReminderSkipped",
		},
		calendar.EventStatusCompleted: {
			"Schedule": "", "Reschedule": "StateError",
			"Start": "StateError", "Complete": "", "Cancel": "StateError",
		},
		calendar.EventStatusCancelled: {
			"Schedule": "", "Reschedule": "StateError",
			"Start": "StateError", "Complete": "StateError", "Cancel": "",
		},
	})
}

func TestEvent_OfAnAppointment_IsNeitherCancelledNorMovedNorEndedByItself_INV_CAL_3(t *testing.T) {
	given := func(status calendar.EventStatus) calendar.Schedule { return scheduleWith(eventIn(visit, status)) }
	domaintest.Table(t, given, scheduleCommands, domaintest.Outcomes[calendar.EventStatus]{
		"": {
			"Schedule": "EventScheduled ReminderScheduled ReminderScheduled", "Reschedule": "MissingError",
			"Start": "MissingError", "Complete": "MissingError", "Cancel": "MissingError",
		},
		calendar.EventStatusPlanned: {
			"Schedule": "ExistsError", "Reschedule": "StateError",
			"Start": "EventStarted", "Complete": "StateError", "Cancel": "StateError",
		},
		calendar.EventStatusInProgress: {
			"Schedule": "ExistsError", "Reschedule": "StateError",
			"Start": "", "Complete": "StateError", "Cancel": "StateError",
		},
		calendar.EventStatusCompleted: {
			"Schedule": "ExistsError", "Reschedule": "StateError",
			"Start": "StateError", "Complete": "", "Cancel": "StateError",
		},
		calendar.EventStatusCancelled: {
			"Schedule": "ExistsError", "Reschedule": "StateError",
			"Start": "StateError", "Complete": "StateError", "Cancel": "",
		},
	})

	// Its appointment's cascade cancels it, if it is still to come or under way.
	over := func(refused string) map[string]string {
		return map[string]string{
			"Book": "StateError", "Confirm": "AppointmentConfirmed", "Decline": refused,
			"Cancel": refused, "TimeOut": refused, "Complete": "StateError",
		}
	}
	goesOn := map[string]string{
		"Book": "StateError", "Confirm": "AppointmentConfirmed", "Decline": "AppointmentDeclined" + ends,
		"Cancel": "AppointmentCancelled" + ends, "TimeOut": "AppointmentExpired" + ends, "Complete": "StateError",
	}
	domaintest.Table(
		t, func(status calendar.EventStatus) calendar.Booking { return bookingWith(eventIn(visit, status)) }, bookingCommands,
		domaintest.Outcomes[calendar.EventStatus]{
			"": over("MismatchError"), calendar.EventStatusPlanned: goesOn, calendar.EventStatusInProgress: goesOn,
			calendar.EventStatusCompleted: over("StateError"), calendar.EventStatusCancelled: over("StateError"),
		},
	)
}

func TestReminder_EveryCommandInEveryState_INV_REM_2(t *testing.T) {
	stays := map[string]string{
		"Schedule": "", "Reschedule": "EventRescheduled ReminderScheduled",
		"Start": "EventStarted", "Complete": "EventCompleted", "Cancel": "EventCancelled",
	}
	commands := maps.Clone(scheduleCommands)
	commands["Complete"] = func(s calendar.Schedule) ([]calendar.Event, error) {
		return complete(s.Apply(eventIn(errand, calendar.EventStatusInProgress)))
	}
	domaintest.Table(
		t, func(status calendar.ReminderStatus) calendar.Schedule { return scheduleWith(reminderIn(status)) }, commands,
		domaintest.Outcomes[calendar.ReminderStatus]{
			"": stays,
			calendar.ReminderStatusPending: {
				"Schedule": "", "Reschedule": "EventRescheduled ReminderDropped ReminderScheduled", "Start": "EventStarted",
				"Complete": "EventCompleted ReminderSkipped", "Cancel": "EventCancelled ReminderSkipped",
			},
			calendar.ReminderStatusSent: stays, calendar.ReminderStatusSkipped: stays, calendar.ReminderStatusDropped: stays,
		},
	)

	const passesBy = " SlotReleased EventCancelled"
	remains := map[string]string{
		"Book": "StateError", "Confirm": "AppointmentConfirmed", "Decline": "AppointmentDeclined" + passesBy,
		"Cancel": "AppointmentCancelled" + passesBy, "TimeOut": "AppointmentExpired" + passesBy, "Complete": "StateError",
	}
	domaintest.Table(
		t, func(status calendar.ReminderStatus) calendar.Booking { return bookingWith(reminderIn(status)) }, bookingCommands,
		domaintest.Outcomes[calendar.ReminderStatus]{
			"": remains,
			calendar.ReminderStatusPending: {
				"Book": "StateError", "Confirm": "AppointmentConfirmed", "Decline": "AppointmentDeclined" + ends,
				"Cancel": "AppointmentCancelled" + ends, "TimeOut": "AppointmentExpired" + ends, "Complete": "StateError",
			},
			calendar.ReminderStatusSent: remains, calendar.ReminderStatusSkipped: remains, calendar.ReminderStatusDropped: remains,
		},
	)
}

func TestReminder_DispatchInEveryStateBesideEveryEvent_INV_REM_2(t *testing.T) {
	dueBeside := func(status calendar.EventStatus) domaintest.Commands[calendar.DueReminder, calendar.Event] {
		beside := calendar.CalendarEvent{}.Apply(eventIn(visit, status))
		return domaintest.Commands[calendar.DueReminder, calendar.Event]{
			"Dispatch": dispatch(beside, justAfter(leadTime)), "Early": dispatch(beside, leadTime),
		}
	}
	never := map[string]string{"Dispatch": "", "Early": ""}
	for status, outcome := range map[calendar.EventStatus]string{
		"": "MismatchError", calendar.EventStatusPlanned: "ReminderSent", calendar.EventStatusInProgress: "ReminderSent",
		calendar.EventStatusCompleted: "ReminderSkipped", calendar.EventStatusCancelled: "ReminderSkipped",
	} {
		t.Run(string(status), func(t *testing.T) {
			domaintest.Table(
				t,
				func(status calendar.ReminderStatus) calendar.DueReminder {
					return calendar.DueReminder{}.Apply(reminderIn(status))
				},
				dueBeside(status),
				domaintest.Outcomes[calendar.ReminderStatus]{
					"": never, calendar.ReminderStatusPending: {"Dispatch": outcome, "Early": "NotDueError"},
					calendar.ReminderStatusSent: never, calendar.ReminderStatusSkipped: never, calendar.ReminderStatusDropped: never,
				},
			)
		})
	}
}
