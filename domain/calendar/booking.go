package calendar

import (
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/domain/ids"
)

// Booking is an appointment with the slot that it takes, the event that it made and that event's
// reminders: they change together, or not at all (INV-APT-6).
type Booking struct {
	Appointment Appointment
	Slot        AvailabilitySlot
	Event       CalendarEvent
	Reminders   []EventReminder
}

// Parts returns the aggregates in the order in which they are locked.
func (b Booking) Parts() []eventsourcing.Part[Event] {
	parts := []eventsourcing.Part[Event]{b.Appointment, b.Slot, b.Event}
	for _, r := range b.Reminders {
		parts = append(parts, r)
	}
	return parts
}

// Apply routes an event to the part that it happened to.
func (b Booking) Apply(event Event) Booking {
	switch event.Kind() {
	case KindAppointment:
		b.Appointment = b.Appointment.Apply(event)
	case KindSlot:
		b.Slot = b.Slot.Apply(event)
	case KindEvent:
		b.Event = b.Event.Apply(event)
	case KindReminder:
		b.Reminders = applyToReminders(b.Reminders, event)
	}
	return b
}

// Request is what an investor books a slot with.
type Request struct {
	Appointment   AppointmentID
	CalendarEvent EventID
	Lead          LeadID // zero: of no lead
	Investor      ids.UserID
	Kind          EventKind
	TimeZone      TimeZone
	Reminders     []ReminderPlan
}

// Book decides that an investor takes an available slot: an appointment begins, Confirmed where the
// slot confirms by itself, and an event with its reminders. It returns a StateError (INV-SLT-3), a
// TooLateError, an ExistsError, an InvalidError or a MissingError.
func (b Booking) Book(r Request, at time.Time) ([]Event, error) {
	events, err := b.Slot.book(at)
	switch {
	case err != nil:
		return nil, err
	case b.Appointment.is.Version > 0:
		return nil, ExistsError{KindAppointment, b.Appointment.Stream()}
	}
	slot := b.Slot.is
	booked := AppointmentBooked{
		OfAppointment: OfAppointment{r.Appointment, at}, Tenant: slot.TenantID, Slot: slot.ID, CalendarEvent: r.CalendarEvent, Lead: r.Lead,
		Agent: slot.AgentUserID, Investor: r.Investor, PendingExpiresAt: pendingExpiresAt(b.Slot, at),
	}
	if _, err := RestoreAppointment(Appointment{}.Apply(booked).is); err != nil {
		return nil, err
	}
	scheduled, err := schedule(EventScheduled{
		OfEvent: OfEvent{r.CalendarEvent, at}, Tenant: slot.TenantID, Owner: slot.AgentUserID, Client: r.Investor,
		What: r.Kind, Origin: OriginAppointment, StartAt: slot.StartAt, EndAt: slot.EndAt, TimeZone: r.TimeZone,
		Appointment: r.Appointment,
	}, r.Reminders)
	if err != nil {
		return nil, err
	}
	return append(append(events, booked), scheduled...), nil
}

// Confirm decides that the agent takes the appointment, which changes nothing else. It returns a
// StateError or a MissingError.
func (b Booking) Confirm(at time.Time) ([]Event, error) { return b.Appointment.confirm(at) }

// Decline decides that the agent refuses the appointment, with the same cascade as a timeout. It returns a
// StateError, a MismatchError or a MissingError.
func (b Booking) Decline(at time.Time) ([]Event, error) {
	events, err := b.Appointment.decline(at)
	return b.andEnd(events, err, "", at)
}

// Cancel decides that somebody calls the appointment off, with the same cascade. It returns a
// StateError, a MismatchError or a MissingError.
func (b Booking) Cancel(by ids.UserID, at time.Time) ([]Event, error) {
	events, err := b.Appointment.cancel(by, at)
	return b.andEnd(events, err, "", at)
}

// TimeOut decides that the agent did not decide in time, with the same cascade and a reason
// (INV-APT-6, spec: appointment-timeout). Only a pending appointment, only strictly after its
// PendingExpiresAt, else a NotDueError; on one that is not pending (a race that was lost) it yields
// no event. A slot that is not booked, an event that has ended or is not the appointment's own is a
// StateError or a MismatchError.
func (b Booking) TimeOut(at time.Time) ([]Event, error) {
	events, err := b.Appointment.expire(at)
	return b.andEnd(events, err, ReasonTimedOut, at)
}

// Complete decides that a confirmed appointment took place: its event, which must have begun, is
// over, its pending reminders are skipped, and its slot stays taken. It returns a StateError, a
// MismatchError or a MissingError.
func (b Booking) Complete(at time.Time) ([]Event, error) {
	events, err := b.Appointment.complete(at)
	if err != nil || len(events) == 0 {
		return nil, err
	}
	ended, err := b.Event.completeWith(b.Appointment, at)
	if err != nil {
		return nil, err
	}
	return append(append(events, ended...), skipAll(b.Reminders, at)...), nil
}

// andEnd is the cascade of an appointment that ends before its time: the slot is released, or has
// expired (INV-SLT-5), the event is cancelled (INV-CAL-3), its pending reminders are skipped.
func (b Booking) andEnd(events []Event, err error, reason CancelReason, at time.Time) ([]Event, error) {
	if err != nil || len(events) == 0 {
		return nil, err
	}
	if b.Slot.is.ID != b.Appointment.is.SlotID {
		return nil, MismatchError{KindSlot, b.Slot.Stream(), "is another one than the appointment's"}
	}
	slot, err := b.Slot.release(at)
	if err != nil {
		return nil, err
	}
	event, err := b.Event.cancelWith(b.Appointment, reason, at)
	if err != nil {
		return nil, err
	}
	return append(append(append(events, slot...), event...), skipAll(b.Reminders, at)...), nil
}

// MissingPartnerError says that an appointment's slot or event, or a reminder's event, does not
// exist: nothing can be decided on it.
type MissingPartnerError struct {
	Kind Kind
	ID   uuid.UUID
}

func (e MissingPartnerError) Error() string {
	return "its " + string(e.Kind) + " " + e.ID.String() + " does not exist"
}
