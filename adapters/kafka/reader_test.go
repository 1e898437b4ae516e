package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/pin-platform/pinworker/adapters/embedded"
	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
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

func TestDescribe_AStopIsHeardWhereABrokerSaysNothing(t *testing.T) {
	address, connected := silent(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-connected
		cancel()
	}()
	_, err := kafka.Describe(ctx, kafka.Config{Brokers: []string{address}, ClientID: "test"}, topic)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v; want that it was told to stop", err)
	}
	if n := len(connected); n > 0 {
		t.Errorf("it tried %d more times after that", n)
	}
}

func TestDescribe_SaysWhyItsTimeWasUp(t *testing.T) {
	address, _ := silent(t)
	up := errors.New("no answer within a moment")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, up)
	defer cancel()
	if _, err := kafka.Describe(ctx, kafka.Config{Brokers: []string{address}, ClientID: "test"}, topic); !errors.Is(err, up) {
		t.Errorf("error %v; want that its time was up", err)
	}
}

func TestDescribe_TellsHowATopicIsSet(t *testing.T) {
	broker := start(t)
	embeddedtest.LimitBatches(t, broker, topic, 5000)
	cluster, err := kafka.Describe(t.Context(), kafka.Config{Brokers: broker.Brokers(), ClientID: "test"}, topic, "pin.crm.unheard-of.v1")
	if err != nil || cluster.Brokers != 1 || len(cluster.Topics) != 2 {
		t.Fatalf("%+v, %v; want two topics and one broker", cluster, err)
	}
	got, missing := cluster.Topics[0], cluster.Topics[1]
	got.MayWrite, got.Told = false, false // nobody asks who we are
	if want := (kafka.Topic{Name: topic, Partitions: embedded.Partitions, Replicas: 1, InSync: 1, MinInSync: 1, MaxMessageBytes: 5000}); got != want {
		t.Errorf("%+v; want %+v", got, want)
	}
	if !missing.Missing || missing.Err == nil {
		t.Errorf("%+v; want it missing", missing)
	}
}

func TestDescribe_TellsWhetherWeMayWrite(t *testing.T) {
	a := newAuthority(t)
	_, brokers := demanding(t, a)
	describe := func(user string) kafka.Topic {
		t.Helper()
		config := kafka.Config{Brokers: brokers, ClientID: "test", Security: kafka.Security{
			TLS: kafka.TLS{Enabled: true, CA: a.ca}, SASL: kafka.SASL{Mechanism: kafka.Plain, User: user, Password: "secret"},
		}}
		cluster, err := kafka.Describe(t.Context(), config, topic)
		if err != nil {
			t.Fatal(err)
		}
		return cluster.Topics[0]
	}
	if got := describe("writer"); !got.Told || !got.MayWrite || got.MinInSync != 1 {
		t.Errorf("the writer is told %+v; want that it may, and the settings", got)
	}
	if got := describe("reader"); !got.Told || got.MayWrite || got.MinInSync != 0 {
		t.Errorf("the reader is told %+v; want that it may not, and no settings", got)
	}
	if got := describe("nobody"); got.Err == nil || got.Missing {
		t.Errorf("nobody is told %+v; want that nothing is told", got)
	}
}
