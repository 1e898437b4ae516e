package published

import (
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/ports"
)

// The calendar's topics.
const (
	TopicReminderDue          = "pin.calendar.reminder-due.v1"          // ReminderDueEvent, keyed by the event
	TopicAppointmentCancelled = "pin.calendar.appointment-cancelled.v1" // AppointmentCancelledEvent, keyed by the appointment
	TopicEventStatusChanged   = "pin.calendar.event-status-changed.v1"  // CalendarEventStatusChangedEvent, keyed by the event
)

// ReminderDueEvent asks notifications to remind somebody: of an appointment where AppointmentID is
// set, of a calendar event otherwise. It tells repetitions by ReminderID.
type ReminderDueEvent struct {
	ContractVersion int                 // 1
	ReminderID      calendar.ReminderID `json:"ReminderId"`
	EventID         calendar.EventID    `json:"EventId"`
	TenantID        ids.TenantID        `json:"TenantId"`
	OwnerUserID     ids.UserID          `json:"OwnerUserId"`
	ClientUserID    *ids.UserID         `json:"ClientUserId"`
	Kind            calendar.EventKind
	StartAt         time.Time
	TimeZone        calendar.TimeZone // IANA name
	OffsetMinutes   int
	AppointmentID   *calendar.AppointmentID `json:"AppointmentId"`
}

// Reminded announces a reminder that goes out; one that was skipped says nothing.
func Reminded(after calendar.DueReminder, _ []calendar.Event) ([]ports.Message, error) {
	r, e := after.Reminder.Snapshot(), after.Event.Snapshot()
	if r.Status != calendar.ReminderStatusSent {
		return nil, nil
	}
	m, err := message("ReminderDueEvent", ports.Message{
		Topic:            TopicReminderDue,
		Key:              e.ID.String(),
		Subject:          uuid.UUID(r.ID),
		Tenant:           e.TenantID,
		AggregateType:    string(calendar.KindReminder),
		AggregateVersion: r.Version,
		ContractVersion:  1,
		OccurredAt:       r.SentAt,
		DueAt:            r.DueAt,
	}, ReminderDueEvent{
		ContractVersion: 1,
		ReminderID:      r.ID,
		EventID:         e.ID,
		TenantID:        e.TenantID,
		OwnerUserID:     e.OwnerUserID,
		ClientUserID:    optional(e.ClientUserID),
		Kind:            e.Kind,
		StartAt:         e.StartAt,
		TimeZone:        e.TimeZone,
		OffsetMinutes:   r.OffsetMinutes,
		AppointmentID:   optional(e.AppointmentID),
	})
	return []ports.Message{m}, err
}

// AppointmentCancelledEvent tells crm and notifications that an appointment does not take place.
type AppointmentCancelledEvent struct {
	ContractVersion int                    // 1
	AppointmentID   calendar.AppointmentID `json:"AppointmentId"`
	TenantID        ids.TenantID           `json:"TenantId"`
	SlotID          calendar.SlotID        `json:"SlotId"`
	CalendarEventID calendar.EventID       `json:"CalendarEventId"`
	LeadID          *calendar.LeadID       `json:"LeadId"`
	AgentUserID     ids.UserID             `json:"AgentUserId"`
	InvestorUserID  ids.UserID             `json:"InvestorUserId"`
	StartAt         time.Time
	Reason          calendar.AppointmentStatus // Expired, Declined or Cancelled
	CancelledBy     *ids.UserID                // null where it expired
	OccurredAt      time.Time
}

// CalendarEventStatusChangedEvent tells what has become of an event in somebody's calendar.
type CalendarEventStatusChangedEvent struct {
	ContractVersion int              // 1
	EventID         calendar.EventID `json:"EventId"`
	TenantID        ids.TenantID     `json:"TenantId"`
	OwnerUserID     ids.UserID       `json:"OwnerUserId"`
	ClientUserID    *ids.UserID      `json:"ClientUserId"`
	Kind            calendar.EventKind
	Status          calendar.EventStatus
	CancelReason    *calendar.CancelReason
	StartAt         time.Time
	TimeZone        calendar.TimeZone
	AppointmentID   *calendar.AppointmentID `json:"AppointmentId"`
	OccurredAt      time.Time
}

// BookingEnded announces that an appointment does not take place, and its event neither, in this
// order.
func BookingEnded(after calendar.Booking, _ []calendar.Event) ([]ports.Message, error) {
	a, slot := after.Appointment.Snapshot(), after.Slot.Snapshot()
	var due time.Time
	if a.Status == calendar.AppointmentStatusExpired {
		due = a.PendingExpiresAt
	}
	cancelled, err := message("AppointmentCancelledEvent", ports.Message{
		Topic:            TopicAppointmentCancelled,
		Key:              a.ID.String(),
		Subject:          uuid.UUID(a.ID),
		Tenant:           a.TenantID,
		AggregateType:    string(calendar.KindAppointment),
		AggregateVersion: a.Version,
		ContractVersion:  1,
		OccurredAt:       a.UpdatedAt,
		DueAt:            due,
	}, AppointmentCancelledEvent{
		ContractVersion: 1,
		AppointmentID:   a.ID,
		TenantID:        a.TenantID,
		SlotID:          a.SlotID,
		CalendarEventID: a.CalendarEventID,
		LeadID:          optional(a.LeadID),
		AgentUserID:     a.AgentUserID,
		InvestorUserID:  a.InvestorUserID,
		StartAt:         slot.StartAt,
		Reason:          a.Status,
		CancelledBy:     optional(a.CancelledBy),
		OccurredAt:      a.UpdatedAt,
	})
	if err != nil {
		return nil, err
	}
	changed, err := eventStatus(after.Event)
	changed.DueAt = due
	return []ports.Message{cancelled, changed}, err
}

// BookingEvent announces what the event of a booking has become: planned, or over.
func BookingEvent(after calendar.Booking, _ []calendar.Event) ([]ports.Message, error) {
	m, err := eventStatus(after.Event)
	return []ports.Message{m}, err
}

// EventStatusChanged announces what an event has become, where its status is another one.
func EventStatusChanged(after calendar.Schedule, events []calendar.Event) ([]ports.Message, error) {
	for _, event := range events {
		switch event.(type) {
		case calendar.EventScheduled, calendar.EventStarted, calendar.EventCompleted, calendar.EventCancelled:
			m, err := eventStatus(after.Event)
			return []ports.Message{m}, err
		}
	}
	return nil, nil
}

func eventStatus(event calendar.CalendarEvent) (ports.Message, error) {
	e := event.Snapshot()
	return message("CalendarEventStatusChangedEvent", ports.Message{
		Topic:            TopicEventStatusChanged,
		Key:              e.ID.String(),
		Subject:          uuid.UUID(e.ID),
		Tenant:           e.TenantID,
		AggregateType:    string(calendar.KindEvent),
		AggregateVersion: e.Version,
		ContractVersion:  1,
		OccurredAt:       e.UpdatedAt,
	}, CalendarEventStatusChangedEvent{
		ContractVersion: 1,
		EventID:         e.ID,
		TenantID:        e.TenantID,
		OwnerUserID:     e.OwnerUserID,
		ClientUserID:    optional(e.ClientUserID),
		Kind:            e.Kind,
		Status:          e.Status,
		CancelReason:    optional(e.CancelReason),
		StartAt:         e.StartAt,
		TimeZone:        e.TimeZone,
		AppointmentID:   optional(e.AppointmentID),
		OccurredAt:      e.UpdatedAt,
	})
}
