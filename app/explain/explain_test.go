package explain_test

import (
	"context"
	"testing"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/app/explain"
	"github.com/pin-platform/pinworker/ports"
)

// lead is one that has expired.
type lead struct{}

func (lead) Row(context.Context, uuid.UUID) (ports.Row, bool, error) {
	return ports.Row{Aggregate: "Lead", Status: "Expired"}, true, nil
}

func (lead) Events(context.Context, uuid.UUID) ([]ports.Happened, error) {
	return []ports.Happened{{Aggregate: "Lead", Version: 2, Event: "LeadExpired", At: noon}}, nil
}

// post knows the same of every message.
type post ports.Station

func (p post) Find(_ context.Context, messages []ports.Announced) (map[uuid.UUID]ports.Whereabouts, error) {
	found := make(map[uuid.UUID]ports.Whereabouts)
	for _, m := range messages {
		if p != "" {
			found[m.ID] = ports.Whereabouts{State: ports.Station(p)}
		}
	}
	return found, nil
}

// What was not found in a long lane may wait in it, unless Kafka has it.
func TestExplain_AsksKafkaForWhatTheOutboxDoesNotHave(t *testing.T) {
	for _, test := range []struct{ outbox, kafka, want ports.Station }{
		{ports.Waiting, ports.Published, ports.Waiting},
		{"", ports.Published, ports.Published},
		{"", ports.NotFound, ports.NotFound},
		{"", "", ports.Unknown},
		{ports.Beyond, ports.Published, ports.Published},
		{ports.Beyond, ports.NotFound, ports.Beyond},
		{ports.Beyond, ports.Expired, ports.Beyond},
		{ports.Beyond, "", ports.Beyond},
	} {
		c := explain.Context{Rows: lead{}, History: lead{}, Outbox: post(test.outbox)}
		facts, _, _, err := c.Explain(t.Context(), uuid.Max, noon, post(test.kafka))
		if err != nil || len(facts.Messages) != 1 || facts.Messages[0].State != test.want {
			t.Errorf("outbox %q, Kafka %q: %+v, %v; want %q", test.outbox, test.kafka, facts.Messages, err, test.want)
		}
	}
}
