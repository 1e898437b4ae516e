package calendar

import (
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/ids"
)

// Event is something that happened to one of the aggregates. It knows which kind, and its stream;
// the set is closed.
type Event interface {
	Kind() Kind
	Stream() uuid.UUID
	OccurredAt() time.Time
	event()
}

// What all events of one kind of aggregate have: whose they are, and when it happened.
type (
	// OfSlot makes an event a slot's.
	OfSlot struct {
		Slot SlotID
		At   time.Time
	}
	// OfAppointment makes an event an appointment's.
	OfAppointment struct {
		Appointment AppointmentID
		At          time.Time
	}
	// OfEvent makes an event a calendar event's.
	OfEvent struct {
		CalendarEvent EventID
		At            time.Time
	}
	// OfReminder makes an event a reminder's.
	OfReminder struct {
		Reminder ReminderID
		At       time.Time
	}
)

type (
	// SlotPublished begins a slot, as Available.
	SlotPublished struct {
		OfSlot
		Tenant             ids.TenantID
		Agent              ids.UserID
		StartAt            time.Time
		EndAt              time.Time
		MinLeadTimeMinutes int
		AutoConfirm        bool
	}

	// SlotBooked says that an appointment took the slot.
	SlotBooked struct {
		OfSlot
	}

	// SlotReleased says that the slot can be sold again (INV-SLT-5).
	SlotReleased struct {
		OfSlot
	}

	// SlotExpired says that the slot came back too late to be sold again (INV-SLT-5).
	SlotExpired struct {
		OfSlot
	}

	// SlotImported is the baseline of a slot that was written outside of the journal.
	SlotImported struct {
		OfSlot
		State SlotSnapshot
	}

	// AppointmentBooked begins an appointment: as Pending, or as Confirmed where PendingExpiresAt is zero.
	AppointmentBooked struct {
		OfAppointment
		Tenant           ids.TenantID
		Slot             SlotID
		CalendarEvent    EventID
		Lead             LeadID // zero: of no lead
		Agent            ids.UserID
		Investor         ids.UserID
		PendingExpiresAt time.Time
	}

	// AppointmentConfirmed says that the agent confirmed.
	AppointmentConfirmed struct {
		OfAppointment
	}

	// AppointmentDeclined says that the agent declined.
	AppointmentDeclined struct {
		OfAppointment
	}

	// AppointmentCancelled says that somebody cancelled.
	AppointmentCancelled struct {
		OfAppointment
		By ids.UserID
	}

	// AppointmentExpired says that the agent did not decide in time (INV-APT-6).
	AppointmentExpired struct {
		OfAppointment
	}

	// AppointmentCompleted says that the two have met.
	AppointmentCompleted struct {
		OfAppointment
	}

	// AppointmentImported is the baseline of an appointment that was written outside of the journal.
	AppointmentImported struct {
		OfAppointment
		State AppointmentSnapshot
	}

	// EventScheduled begins a calendar event, as Planned.
	EventScheduled struct {
		OfEvent
		Tenant      ids.TenantID
		Owner       ids.UserID
		Client      ids.UserID // zero: without a client
		What        EventKind
		Origin      EventOrigin
		StartAt     time.Time
		EndAt       time.Time
		TimeZone    TimeZone
		Appointment AppointmentID // zero: of no appointment
	}

	// EventRescheduled moves a planned event.
	EventRescheduled struct {
		OfEvent
		StartAt time.Time
		EndAt   time.Time
	}

	// EventStarted says that the event began.
	EventStarted struct {
		OfEvent
	}

	// EventCompleted says that the event is over.
	EventCompleted struct {
		OfEvent
	}

	// EventCancelled says that the event does not take place.
	EventCancelled struct {
		OfEvent
		Reason CancelReason // "": none
	}

	// EventImported is the baseline of an event that was written outside of the journal.
	EventImported struct {
		OfEvent
		State EventSnapshot
	}

	// ReminderScheduled begins a reminder, as Pending.
	ReminderScheduled struct {
		OfReminder
		CalendarEvent EventID
		Tenant        ids.TenantID
		OffsetMinutes int
		DueAt         time.Time
	}

	// ReminderSent says that the reminder went out (INV-REM-2: for good).
	ReminderSent struct {
		OfReminder
	}

	// ReminderSkipped says that the reminder is not to be sent (INV-REM-2: for good).
	ReminderSkipped struct {
		OfReminder
	}

	// ReminderDropped ends the stream of a reminder that was replaced.
	ReminderDropped struct {
		OfReminder
	}

	// ReminderImported is the baseline of a reminder that was written outside of the journal.
	ReminderImported struct {
		OfReminder
		State ReminderSnapshot
	}
)

// Kind returns KindSlot.
func (OfSlot) Kind() Kind { return KindSlot }

// Kind returns KindAppointment.
func (OfAppointment) Kind() Kind { return KindAppointment }

// Kind returns KindEvent.
func (OfEvent) Kind() Kind { return KindEvent }

// Kind returns KindReminder.
func (OfReminder) Kind() Kind { return KindReminder }

// Stream returns whose event it is.
func (e OfSlot) Stream() uuid.UUID { return uuid.UUID(e.Slot) }

// Stream returns whose event it is.
func (e OfAppointment) Stream() uuid.UUID { return uuid.UUID(e.Appointment) }

// Stream returns whose event it is.
func (e OfEvent) Stream() uuid.UUID { return uuid.UUID(e.CalendarEvent) }

// Stream returns whose event it is.
func (e OfReminder) Stream() uuid.UUID { return uuid.UUID(e.Reminder) }

// OccurredAt returns At.
func (e OfSlot) OccurredAt() time.Time { return e.At }

// OccurredAt returns At.
func (e OfAppointment) OccurredAt() time.Time { return e.At }

// OccurredAt returns At.
func (e OfEvent) OccurredAt() time.Time { return e.At }

// OccurredAt returns At.
func (e OfReminder) OccurredAt() time.Time { return e.At }

func (OfSlot) event()        {}
func (OfAppointment) event() {}
func (OfEvent) event()       {}
func (OfReminder) event()    {}
