package published

import (
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/ports"
)

// contract is the name of an integration event, and its topic.
type contract struct{ name, topic string }

// announcedBy are the contracts by which domain events are announced, by the events' stored names.
var announcedBy = map[string]contract{
	"ReminderSent":               {"ReminderDueEvent", TopicReminderDue},
	"AppointmentExpired":         {"AppointmentCancelledEvent", TopicAppointmentCancelled},
	"AppointmentDeclined":        {"AppointmentCancelledEvent", TopicAppointmentCancelled},
	"AppointmentCancelled":       {"AppointmentCancelledEvent", TopicAppointmentCancelled},
	"CalendarEventPlanned":       {"CalendarEventStatusChangedEvent", TopicEventStatusChanged},
	"CalendarEventStarted":       {"CalendarEventStatusChangedEvent", TopicEventStatusChanged},
	"CalendarEventEnded":         {"CalendarEventStatusChangedEvent", TopicEventStatusChanged},
	"CalendarEventCalledOff":     {"CalendarEventStatusChangedEvent", TopicEventStatusChanged},
	"PromotionPurchased":         {"PromotionPurchaseChangedKafkaEvent", TopicPurchaseChanged},
	"PromotionActivated":         {"PromotionPurchaseChangedKafkaEvent", TopicPurchaseChanged},
	"PromotionPurchaseExpired":   {"PromotionPurchaseChangedKafkaEvent", TopicPurchaseChanged},
	"PromotionPurchaseCancelled": {"PromotionPurchaseChangedKafkaEvent", TopicPurchaseChanged},
	"LeadExpired":                {"LeadExpiredEvent", TopicLeadExpired},
}

// Announced returns the messages that an aggregate's events were announced with, in order: their ids
// can be told from the events alone. A unit of work announces an aggregate's last event. key is what
// the aggregate's messages are keyed by: its own id, but for a reminder's, which is its event's.
func Announced(aggregate, key uuid.UUID, events []ports.Happened) []ports.Announced {
	var messages []ports.Announced
	for i, e := range events {
		by, announced := announcedBy[e.Event]
		if !announced || i+1 < len(events) && events[i+1].Run == e.Run {
			continue
		}
		messages = append(messages, ports.Announced{
			ID: MessageID(aggregate, e.Version, by.name), Topic: by.topic, Key: key.String(), Event: e.Event, At: e.At, Written: written(e),
		})
	}
	return messages
}

// written is when an event was, at the earliest: at the moment that it tells, or when its run began, which
// is later where the run was about an earlier moment.
func written(e ports.Happened) time.Time {
	if run := uuid.UUID(e.Run); run.Version() == 7 {
		if began := time.Unix(run.Time().UnixTime()).UTC(); began.After(e.At) {
			return began
		}
	}
	return e.At
}
