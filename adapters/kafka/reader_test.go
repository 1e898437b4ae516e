package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

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

// silent is an address where somebody listens and says nothing, whatever is asked; each connection is told.
func silent(t *testing.T) (address string, connected <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() }) //nolint:errcheck // the test is over
	told := make(chan struct{}, 100)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() }) //nolint:errcheck // the test is over
			told <- struct{}{}
		}
	}()
	return l.Addr().String(), told
}

func TestDescribeTopics_AStopIsHeardWhereABrokerSaysNothing(t *testing.T) {
	address, connected := silent(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-connected
		cancel()
	}()
	_, err := kafka.DescribeTopics(ctx, kafka.Config{Brokers: []string{address}, ClientID: "test"}, topic)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v; want that it was told to stop", err)
	}
	if n := len(connected); n > 0 {
		t.Errorf("it tried %d more times after that", n)
	}
}

func TestDescribeTopics_SaysWhyItsTimeWasUp(t *testing.T) {
	address, _ := silent(t)
	up := errors.New("no answer within a moment")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, up)
	defer cancel()
	if _, err := kafka.DescribeTopics(ctx, kafka.Config{Brokers: []string{address}, ClientID: "test"}, topic); !errors.Is(err, up) {
		t.Errorf("error %v; want that its time was up", err)
	}
}
