// Package published holds the integration events: the contracts that other services read
// (docs/events). A contract changes by adding optional fields; anything else is a new topic
// with the next version suffix.
package published

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/ports"
)

// namespace of the message ids. It never changes: a message published again, even after a
// restore, must have the id it had.
var namespace = uuid.NewSHA1(uuid.NameSpaceDNS, []byte("events.pinworker.pin-platform"))

// MessageID derives a message's ce_id from the aggregate, its version and the event's name,
// so that consumers can tell a repetition (spec: events, headers).
func MessageID(aggregate uuid.UUID, version int, event string) uuid.UUID {
	return uuid.NewSHA1(namespace, []byte(aggregate.String()+"/"+strconv.Itoa(version)+"/"+event))
}

// message completes m with its id and its payload.
func message(event string, m ports.Message, contract any) (ports.Message, error) {
	payload, err := json.Marshal(contract)
	if err != nil {
		return ports.Message{}, fmt.Errorf("encode %s of %s: %w", event, m.Subject, err)
	}
	m.ID = MessageID(m.Subject, m.AggregateVersion, event)
	m.Payload = payload
	return m, nil
}

// optional is null in JSON where there is nothing.
func optional[T comparable](value T) *T {
	var none T
	if value == none {
		return nil
	}
	return &value
}

// Topics are all topics that the contexts publish to, in order; TopicsOf are a context's.
var (
	Topics   = slices.Concat(TopicsOf["calendar"], TopicsOf["promotion"], TopicsOf["crm"])
	TopicsOf = map[string][]string{
		"calendar":  {TopicReminderDue, TopicAppointmentCancelled, TopicEventStatusChanged},
		"promotion": {TopicPurchaseChanged},
		"crm":       {TopicLeadExpired},
	}
)
