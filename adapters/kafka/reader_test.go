package kafka_test

import (
	"fmt"
	"testing"

	"github.com/pin-platform/pinworker/adapters/kafka"
)

func TestSince_ReadsWhatCameAfterAPositionAndNothingElse(t *testing.T) {
	broker := start(t)
	config := kafka.Config{Brokers: broker.Brokers(), ClientID: "test"}
	p := newPublisher(t, broker.Brokers()...)
	publish := func(from, to int) {
		t.Helper()
		for n := from; n < to; n++ {
			if err := p.Publish(topic, newMessage(fmt.Sprint("key ", n%20), fmt.Sprint(n))); err != nil {
				t.Fatal(err)
			}
		}
	}
	publish(0, 50)
	from, err := kafka.End(t.Context(), config, topic)
	if err != nil {
		t.Fatal(err)
	}
	if records, err := kafka.Since(t.Context(), config, from); err != nil || len(records) != 0 {
		t.Errorf("%d records, %v; want none yet", len(records), err)
	}
	publish(50, 300)
	records, err := kafka.Since(t.Context(), config, from)
	if err != nil || len(records) != 250 {
		t.Fatalf("%d records, %v; want 250", len(records), err)
	}
	last := make(map[string]int)
	for _, r := range records {
		var n int
		if _, err := fmt.Sscan(string(r.Value), &n); err != nil || n < 50 || r.Key != fmt.Sprint("key ", n%20) {
			t.Errorf("record %+v: %v", r, err)
		}
		if n <= last[r.Key] {
			t.Errorf("%s: %d after %d", r.Key, n, last[r.Key])
		}
		last[r.Key] = n
	}
}

func TestEnd_AMissingTopicAndAnAbsentKafkaAreErrors(t *testing.T) {
	broker := start(t)
	if _, err := kafka.End(t.Context(), kafka.Config{Brokers: broker.Brokers(), ClientID: "test"}, "pin.crm.unheard-of.v1"); err == nil {
		t.Error("a topic that is not there has an end")
	}
	if _, err := kafka.End(t.Context(), kafka.Config{Brokers: []string{"127.0.0.1:1"}, ClientID: "test"}, topic); err == nil {
		t.Error("a Kafka that is not there has topics")
	}
}
