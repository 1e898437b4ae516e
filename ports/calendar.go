package ports

import "github.com/pin-platform/pinworker/domain/calendar"

// The jobs of the calendar context (spec: reminder-dispatch, appointment-timeout).
const (
	ReminderDispatch   Job = "reminder-dispatch"
	AppointmentTimeout Job = "appointment-timeout"
)

// What the calendar context's jobs need.
type (
	// DueReminders are pending reminders by their DueAt, each with its event, which is locked with
	// it: a reminder is sent only if its event goes on when the unit commits.
	DueReminders = Due[calendar.DueReminder, calendar.Event]
	// OverdueAppointments are pending appointments by their PendingExpiresAt, each with its slot,
	// its event and its pending reminders (INV-APT-6).
	OverdueAppointments = Due[calendar.Booking, calendar.Event]
	// ReminderPreview is what reminder-dispatch would do.
	ReminderPreview = Preview[calendar.DueReminder, calendar.Event]
	// AppointmentPreview is what appointment-timeout would do.
	AppointmentPreview = Preview[calendar.Booking, calendar.Event]
)

// What its operations need. All lock in the order appointment, slot, event, reminders.
type (
	// Slots are all slots, for publishing them.
	Slots = Store[calendar.SlotID, calendar.AvailabilitySlot, calendar.Event]
	// BookableSlots are slots by their id, for booking: the appointment begins with it.
	BookableSlots = Store[calendar.SlotID, calendar.Booking, calendar.Event]
	// Bookings are appointments with all that changes with them, pending reminders only.
	Bookings = Store[calendar.AppointmentID, calendar.Booking, calendar.Event]
	// Schedules are events with their pending reminders.
	Schedules = Store[calendar.EventID, calendar.Schedule, calendar.Event]
)

// What `verify` reads.
type (
	// SlotLedger is the slots'.
	SlotLedger = Ledger[calendar.AvailabilitySlot, calendar.Event]
	// AppointmentLedger is the appointments'.
	AppointmentLedger = Ledger[calendar.Appointment, calendar.Event]
	// EventLedger is the calendar events'.
	EventLedger = Ledger[calendar.CalendarEvent, calendar.Event]
	// ReminderLedger is the reminders'.
	ReminderLedger = Ledger[calendar.EventReminder, calendar.Event]
)
