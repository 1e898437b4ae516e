package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.opentelemetry.io/otel/trace"

	"github.com/pin-platform/pinworker/adapters/embedded"
	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/kafka"
	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/ports"
)

func TestMain(m *testing.M) { embeddedtest.Main(m) }

const topic = "pin.crm.lead-expired.v1"

var table = outbox.Table{Schema: "crm"}

// world is an outbox in a fresh database, and what its relays log.
type world struct {
	*testing.T
	pool  *pgxpool.Pool // under the worker's role
	owner *pgxpool.Pool
	log   *journal

	mu                sync.Mutex // what its relays tell
	published, parked int
	lags              []time.Duration
	heldUp            map[string]int // by topic
}

func (w *world) Published(_ string, n int, lags []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.published += n
	w.lags = append(w.lags, lags...)
}

func (w *world) Parked(string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.parked++
}

func (w *world) HeldUp(topic string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heldUp[topic]++
}

// timesHeldUp returns how often a topic, or "" for the database, was said to be held up.
func (w *world) timesHeldUp(topic string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heldUp[topic]
}

// told returns how many messages were said to be published, and to be parked.
func (w *world) told() (published, parked int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.published, w.parked
}

// onList returns the ids of what is parked.
func (w *world) onList() (ids []uuid.UUID) {
	w.Helper()
	list, err := outbox.ListParked(w.Context(), w.pool, table)
	if err != nil {
		w.Fatal(err)
	}
	for _, p := range list {
		ids = append(ids, p.Message)
	}
	return ids
}

// attempts returns after how many the message that is parked was.
func (w *world) attempts() int {
	w.Helper()
	list, err := outbox.ListParked(w.Context(), w.pool, table)
	if err != nil || len(list) != 1 {
		w.Fatalf("parked %v, %v; want one", list, err)
	}
	return list[0].Attempts
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newTracedWorld(t, nil)
}

func newTracedWorld(t *testing.T, tracer pgx.QueryTracer) *world {
	t.Helper()
	url := embeddedtest.Database(t)
	return &world{T: t, pool: connect(t, embeddedtest.AsWorker(t, url), tracer), owner: connect(t, url, nil), log: &journal{}, heldUp: make(map[string]int)}
}

func connect(t *testing.T, url string, tracer pgx.QueryTracer) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 24
	config.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// write commits messages, one for each (key, version), through the real write side.
func (w *world) write(ctx context.Context, messages ...ports.Message) {
	w.Helper()
	statement, args, err := outbox.NewWriter(table, "pin/crm", func() {}).Compose(ctx, ports.RunID{0x0F}, messages)
	if err != nil {
		w.Fatal(err)
	}
	if _, err := w.pool.Exec(ctx, statement, args...); err != nil {
		w.Fatal(err)
	}
}

func about(key, version int) ports.Message {
	subject := uuid.UUID{0: 0xAA, 15: byte(key), 14: byte(key >> 8)}
	return ports.Message{
		ID:    uuid.NewSHA1(subject, []byte(strconv.Itoa(version))),
		Topic: topic, Key: subject.String(), Subject: subject, Tenant: ids.TenantID{0xBB},
		AggregateType: "Lead", AggregateVersion: version, ContractVersion: 1,
		OccurredAt: time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC),
		Payload:    []byte(`{"ContractVersion":1}`),
	}
}

// relay starts a relay; halt tells it to stop, stop waits for it as well.
func (w *world) relay(publisher message.Publisher, grace time.Duration) (relay *outbox.Relay, halt, stop func()) {
	w.Helper()
	return w.relayWith(publisher, outbox.RelayConfig{BatchSize: 100, PollInterval: 50 * time.Millisecond, ShutdownGrace: grace})
}

func (w *world) relayWith(publisher message.Publisher, config outbox.RelayConfig) (relay *outbox.Relay, halt, stop func()) {
	w.Helper()
	config.Refused = kafka.Refused
	relay = outbox.NewRelay(w.pool, table, publisher, config, w, slog.New(w.log))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.Error(err)
		}
	})
	w.Cleanup(stop)
	return relay, cancel, stop
}

func (w *world) publisher(brokers []string) *kafka.Publisher {
	publisher, err := kafka.NewPublisher(kafka.Config{Brokers: brokers, ClientID: "test", KeyHeader: outbox.HeaderPartitionKey})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := publisher.Close(); err != nil {
			w.Error(err)
		}
	})
	return publisher
}

func (w *world) kafka(port int) embeddedtest.Broker {
	w.Helper()
	return embeddedtest.Kafka(w, port, topic)
}

// waiting returns the versions that wait, by key.
func (w *world) waiting() map[string]int {
	w.Helper()
	rows, err := w.pool.Query(context.Background(), "SELECT key, count(*) FROM crm.outbox GROUP BY key")
	if err != nil {
		w.Fatal(err)
	}
	waiting := make(map[string]int)
	var key string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&key, &n}, func() error { waiting[key] = n; return nil }); err != nil {
		w.Fatal(err)
	}
	return waiting
}

// eventually waits until a condition holds; the test's own deadline bounds it.
func (w *world) eventually(what string, holds func() bool) {
	w.Helper()
	deadline := time.After(30 * time.Second)
	for !holds() {
		select {
		case <-deadline:
			w.Fatalf("never: %s; log:\n%s", what, w.log)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (w *world) empty() {
	w.eventually("the outbox is empty", func() bool { return len(w.waiting()) == 0 })
}

// read returns what Kafka holds, and checks that each subject's versions are in order.
func (w *world) read(broker embeddedtest.Broker) []embedded.Record {
	w.Helper()
	records, err := embedded.ReadAll(w.Context(), broker.Brokers(), topic)
	if err != nil {
		w.Fatal(err)
	}
	last := make(map[string]int)
	for _, r := range records {
		version, err := strconv.Atoi(r.Headers["ce_aggregateversion"])
		if err != nil {
			w.Fatal(err)
		}
		if subject := r.Headers["ce_subject"]; version <= last[subject] {
			w.Errorf("subject %s: version %d after %d", subject, version, last[subject])
		} else {
			last[subject] = version
		}
	}
	return records
}

func TestRelay_PublishesCloudEventsInKafkasBinaryMode(t *testing.T) {
	w := newWorld(t)
	broker := w.kafka(0)
	traceID, spanID := trace.TraceID{1}, trace.SpanID{2}
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: trace.FlagsSampled,
	}))
	m := about(1, 2)
	w.write(ctx, m)
	w.relay(w.publisher(broker.Brokers()), time.Second)
	w.empty()

	records := w.read(broker)
	if len(records) != 1 {
		t.Fatalf("%d records; want 1", len(records))
	}
	got := records[0]
	if got.Key != m.Key || string(got.Value) != string(m.Payload) {
		t.Errorf("key %q, value %s; want %q, %s", got.Key, got.Value, m.Key, m.Payload)
	}
	want := map[string]string{
		"content-type":            "application/json",
		"ce_specversion":          "1.0",
		"ce_id":                   m.ID.String(),
		"ce_source":               "pin/crm",
		"ce_type":                 topic,
		"ce_subject":              m.Subject.String(),
		"ce_time":                 "2026-03-01T12:00:00.123456Z",
		"ce_correlationid":        ports.RunID{0x0F}.String(),
		"ce_tenantid":             m.Tenant.String(),
		"ce_aggregatetype":        "Lead",
		"ce_aggregateversion":     "2",
		"ce_contractversion":      "1",
		"ce_partitionkey":         m.Key,
		"traceparent":             fmt.Sprintf("00-%s-%s-01", traceID, spanID),
		"_watermill_message_uuid": m.ID.String(),
	}
	if !maps.Equal(got.Headers, want) {
		t.Errorf("headers %v; want %v", got.Headers, want)
	}
}

func TestRelay_PublishesAllOnceAndInOrderForEachKey(t *testing.T) {
	w := newWorld(t)
	broker := w.kafka(0)
	const keys, versions = 40, 12
	for version := range versions {
		var batch []ports.Message
		for key := range keys {
			batch = append(batch, about(key, version+1))
		}
		w.write(t.Context(), batch...)
	}
	publisher := w.publisher(broker.Brokers())
	for range 3 { // they share the lanes
		w.relay(publisher, time.Second)
	}
	w.empty()
	if records := w.read(broker); len(records) != keys*versions {
		t.Errorf("%d records; want %d", len(records), keys*versions)
	}
}

func TestRelay_WaitsForAKafkaThatIsAwayAndLosesNothing(t *testing.T) {
	w := newWorld(t)
	port := embeddedtest.FreePort(t)
	relay, _, _ := w.relay(w.publisher([]string{fmt.Sprintf("127.0.0.1:%d", port)}), time.Second)
	for key := range 20 {
		w.write(t.Context(), about(key, 1), about(key, 2))
	}
	w.eventually("the outage is told", func() bool { return w.log.count("held up") > 0 })
	if err := relay.Stalled(); err != nil {
		t.Errorf("a relay that waits for Kafka is alive, but: %v", err)
	}
	if waiting := w.waiting(); len(waiting) != 20 {
		t.Errorf("%d keys wait; want 20", len(waiting))
	}
	broker := w.kafka(port)
	w.empty()
	if records := w.read(broker); len(records) != 40 {
		t.Errorf("%d records; want 40", len(records))
	}
	w.eventually("the end of the outage is told", func() bool { return w.log.count("goes on") > 0 })
}

func TestRelay_WhatKafkaRefusesForGoodIsParkedAndAllElseGoesOn(t *testing.T) {
	attempts := map[string]int{"too large for Kafka": 2, "no envelope": 1} // it did not come as far as Kafka's client
	for what, poison := range map[string]func(*world){
		"too large for Kafka": func(w *world) {
			m := about(0, 1)
			m.Payload = make([]byte, 2<<20)
			w.write(w.Context(), m)
		},
		"no envelope": func(w *world) {
			w.write(w.Context(), about(0, 1))
			if _, err := w.owner.Exec(w.Context(), `UPDATE crm.outbox SET payload = 'rubbish'`); err != nil {
				w.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			broker := w.kafka(0)
			poison(w)
			w.write(t.Context(), about(0, 2)) // of the same key
			const others = 64                 // enough for every lane to have some
			for key := range others {
				w.write(t.Context(), about(key+1, 1), about(key+1, 2))
			}
			w.relay(w.publisher(broker.Brokers()), time.Second)
			w.empty()
			if records := w.read(broker); len(records) != others*2+1 {
				t.Errorf("%d records; want %d: all but the poison", len(records), others*2+1)
			}
			if got, want := w.onList(), []uuid.UUID{about(0, 1).ID}; !slices.Equal(got, want) {
				t.Errorf("parked %v; want %v", got, want)
			}
			if n := w.attempts(); n != attempts[what] {
				t.Errorf("parked after %d attempts; want %d", n, attempts[what])
			}
			if n := w.log.count("is parked"); n != 1 {
				t.Errorf("it was told %d times; want once", n)
			}
			if published, parked := w.told(); published != others*2+1 || parked != 1 {
				t.Errorf("told of %d published and %d parked", published, parked)
			}
		})
	}
}

func TestRelay_TellsWhatWatermillTellsAndNothingOfAPayload(t *testing.T) {
	w := newWorld(t)
	w.write(t.Context(), about(1, 1))
	const rubbish = "rubbish of somebody's"
	if _, err := w.owner.Exec(t.Context(), "UPDATE crm.outbox SET payload = $1", []byte(rubbish)); err != nil {
		t.Fatal(err)
	}
	w.relay(&publisher{}, time.Second)
	w.eventually("it is parked", func() bool { return len(w.onList()) == 1 })
	if w.log.count("Could not unwrap a message") != 1 || w.log.count(rubbish)+w.log.count(fmt.Sprintf("%d", []byte(rubbish))) > 0 {
		t.Errorf("log:\n%s", w.log)
	}
}

// Kafka refuses a whole batch of records for one of them.
func TestRelay_OneOversizeAmong999SoundOnesIsParkedAlone(t *testing.T) {
	w := newWorld(t)
	broker := w.kafka(0)
	batch := make([]ports.Message, 1000)
	for key := range batch {
		batch[key] = about(key, 1)
	}
	batch[500].Payload = make([]byte, 2<<20)
	w.write(t.Context(), batch...)
	w.relay(w.publisher(broker.Brokers()), time.Second)
	w.empty()
	if got := w.onList(); len(got) != 1 || got[0] != batch[500].ID {
		t.Errorf("parked %v; want the oversize alone", got)
	}
	if records := w.read(broker); len(records) != 999 {
		t.Errorf("%d records; want 999", len(records))
	}
}

func TestRelay_ARefusedMessageWaitsForNoOtherAndNoOtherForIt(t *testing.T) {
	w := newWorld(t)
	hanging, never := make(chan struct{}, 1), make(chan struct{})
	t.Cleanup(func() { close(never) })
	w.relay(&publisher{answer: func(m *message.Message, _ int) error {
		switch m.Metadata.Get("ce_type") {
		case "hangs":
			hanging <- struct{}{}
			<-never
		case "refused":
			return errRefused
		}
		return nil
	}}, time.Millisecond)
	to := func(topic string, m ports.Message) ports.Message {
		m.Topic = topic
		return m
	}
	hung, refused, sound := to("hangs", about(1, 1)), to("refused", about(2, 1)), to("sound", about(3, 1))
	w.write(t.Context(), hung)
	<-hanging
	w.write(t.Context(), refused, sound)
	w.eventually("the refused one is parked, the sound one published, the other in flight", func() bool {
		return slices.Equal(w.onList(), []uuid.UUID{refused.ID}) && maps.Equal(w.waiting(), map[string]int{hung.Key: 1})
	})
}

func TestRelay_ATransientErrorParksNothing(t *testing.T) {
	w := newWorld(t)
	p := &publisher{answer: func(_ *message.Message, attempt int) error {
		if attempt <= 3 {
			return &kafka.PublishError{Topic: topic, Err: errors.New("not enough replicas")}
		}
		return nil
	}}
	w.write(t.Context(), about(1, 1))
	w.relay(p, time.Second)
	w.empty()
	if got := w.onList(); len(got) > 0 || p.attempts(about(1, 1)) != 4 {
		t.Errorf("parked %v, %d attempts; want none parked, and the 4th to go through", got, p.attempts(about(1, 1)))
	}
}

func TestRelay_AnOutageIsToldOnceHoweverManyOfItsTopicsLanesGoOn(t *testing.T) {
	w := newWorld(t)
	bad := about(0, 1)
	const attempts = 4
	p := &publisher{answer: func(m *message.Message, attempt int) error {
		if m.UUID == bad.ID.String() && attempt <= attempts {
			return errOutage
		}
		return nil
	}}
	w.write(t.Context(), bad)
	w.relay(p, time.Second)
	for attempt := range attempts {
		w.eventually("it is tried", func() bool { return p.attempts(bad) > attempt })
		batch := make([]ports.Message, 64) // enough for every lane to have some
		for key := range batch {
			batch[key] = about(key+1, attempt+1)
		}
		w.write(t.Context(), batch...)
	}
	w.empty()
	w.eventually("its end is told", func() bool { return w.log.count("goes on") > 0 })
	if began, ended := w.log.count("held up"), w.log.count("goes on"); began != 1 || ended != 1 {
		t.Errorf("it began %d times and ended %d times; want once:\n%s", began, ended, w.log)
	}
}

func TestRelay_AnOutageThatAnotherRelaySawTheEndOfIsOver(t *testing.T) {
	w := newWorld(t)
	w.write(t.Context(), about(1, 1))
	w.relay(&publisher{answer: func(*message.Message, int) error { return errOutage }}, time.Second)
	w.eventually("the outage is told", func() bool { return w.log.count("held up") > 0 })
	if _, err := w.owner.Exec(t.Context(), "DELETE FROM crm.outbox"); err != nil { // as the other does
		t.Fatal(err)
	}
	w.eventually("its end is told", func() bool { return w.log.count("goes on") > 0 })
}

func TestRelay_AnErrorOfTheDatabaseIsNoTopics(t *testing.T) {
	w := newWorld(t)
	execute := func(sql string) {
		t.Helper()
		if _, err := w.owner.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	execute("REVOKE DELETE ON crm.outbox FROM pinworker")
	w.write(t.Context(), about(1, 1), about(2, 1))
	w.relay(&publisher{answer: func(*message.Message, int) error { return nil }}, time.Second)
	w.eventually("it fails some times", func() bool { return w.timesHeldUp("") > 3 })
	execute("GRANT DELETE ON crm.outbox TO pinworker")
	w.empty()
	w.eventually("its end is told", func() bool { return w.log.count("goes on") > 0 })
	if n := w.timesHeldUp(topic); n > 0 {
		t.Errorf("the topic is said to be held up %d times", n)
	}
	if began, ended := w.log.count("held up"), w.log.count("goes on"); began != 1 || ended != 1 {
		t.Errorf("it began %d times and ended %d times; want once:\n%s", began, ended, w.log)
	}
}

func TestParked_IsReleasedOrDiscardedWithAReasonThatIsKept(t *testing.T) {
	w := newWorld(t)
	bad := true
	var mu sync.Mutex
	w.relay(&publisher{answer: func(*message.Message, int) error {
		mu.Lock()
		defer mu.Unlock()
		if bad {
			return errRefused
		}
		return nil
	}}, time.Second)
	w.write(t.Context(), about(1, 1), about(2, 1))
	w.eventually("both are parked", func() bool { return len(w.onList()) == 2 })
	mu.Lock()
	bad = false
	mu.Unlock()
	if err := outbox.Release(t.Context(), w.pool, table, about(1, 1).ID); err != nil {
		t.Error(err)
	}
	if err := outbox.Discard(t.Context(), w.pool, table, about(2, 1).ID, "superseded"); err != nil {
		t.Error(err)
	}
	w.eventually("the released one is published", func() bool { published, _ := w.told(); return published == 1 })
	if got := w.onList(); len(got) > 0 {
		t.Errorf("still on the list: %v", got)
	}
	var reason string
	if err := w.owner.QueryRow(t.Context(), "SELECT discard_reason FROM crm.outbox_parked").Scan(&reason); err != nil || reason != "superseded" {
		t.Errorf("kept %q, %v; want the discarded one with its reason", reason, err)
	}
	for _, decide := range []func() error{
		func() error { return outbox.Release(t.Context(), w.pool, table, about(2, 1).ID) },
		func() error { return outbox.Discard(t.Context(), w.pool, table, about(9, 1).ID, "never was") },
	} {
		if err := decide(); !errors.Is(err, outbox.ErrNotParked) {
			t.Errorf("error %v; want ErrNotParked", err)
		}
	}
}

func TestRelay_AHotKeyNeitherLosesItsOrderNorHoldsOthersBack(t *testing.T) {
	w := newWorld(t)
	const hot = 2000
	batch := make([]ports.Message, hot)
	for i := range batch {
		batch[i] = about(0, i+1)
	}
	w.write(t.Context(), batch...)
	others := make([]ports.Message, 64)
	for key := range others {
		others[key] = about(key+1, 1)
	}
	w.write(t.Context(), others...)
	var mu sync.Mutex
	var order []string
	w.relay(&publisher{answer: func(m *message.Message, _ int) error {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, m.Metadata.Get("ce_subject")+"/"+m.Metadata.Get("ce_aggregateversion"))
		return nil
	}}, time.Second)
	w.empty()
	last, behind := 0, 0
	for i, sent := range order {
		subject, version, _ := strings.Cut(sent, "/")
		if subject != about(0, 1).Subject.String() {
			behind = i
			continue
		}
		if n, err := strconv.Atoi(version); err != nil || n != last+1 {
			t.Fatalf("the hot key's %s came after %d", version, last)
		}
		last++
	}
	if last != hot || behind > hot/4 {
		t.Errorf("%d of the hot key; the last of the others was number %d of all: they waited for it", last, behind)
	}
}

func TestRelay_TellsForHowLongAMessageHasBeenDue(t *testing.T) {
	w := newWorld(t)
	overdue, other := about(1, 1), about(2, 1)
	overdue.DueAt = time.Now().Add(-time.Hour)
	w.write(t.Context(), overdue, other)
	w.relay(&publisher{answer: func(*message.Message, int) error { return nil }}, time.Second)
	w.empty()
	w.eventually("both are told", func() bool { published, _ := w.told(); return published == 2 })
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.lags) != 1 || w.lags[0] < time.Hour || w.lags[0] > 2*time.Hour {
		t.Errorf("lags %v; want one of about an hour", w.lags)
	}
}

func TestRelay_DeletesOnlyWhatWasAcked(t *testing.T) {
	w := newWorld(t)
	for key := range 20 {
		w.write(t.Context(), about(key, 1), about(key, 2))
	}
	p := &publisher{answer: func(m *message.Message, _ int) error {
		if version(m) == 2 {
			return errOutage
		}
		return nil
	}}
	w.relay(p, time.Second)
	want := make(map[string]int)
	for key := range 20 {
		want[about(key, 1).Key] = 1
	}
	w.eventually("the first of each key is gone, the second waits", func() bool { return maps.Equal(w.waiting(), want) })
	for key := range 20 {
		if n := p.attempts(about(key, 1)); n != 1 {
			t.Errorf("key %d: what was acked was sent %d times", key, n)
		}
	}
}

// inOneLane writes messages into a lane of their own.
func (w *world) inOneLane(messages ...ports.Message) {
	w.Helper()
	w.write(w.Context(), messages...)
	if _, err := w.owner.Exec(w.Context(), "UPDATE crm.outbox SET shard = 0"); err != nil {
		w.Fatal(err)
	}
}

// It need not be the whole topic that is away: some keys may be in a partition without a leader.
func TestRelay_WhatAnOutageStopsHoldsUpItsOwnKeyAlone(t *testing.T) {
	w := newWorld(t)
	var away atomic.Bool
	away.Store(true)
	const versions = 15
	bad := about(0, 1)
	sound, attempts := 0, 0
	var mu sync.Mutex
	p := &publisher{}
	p.answer = func(m *message.Message, _ int) error {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case m.Metadata.Get("ce_subject") != bad.Subject.String():
			if sound++; sound == 9*versions {
				attempts = p.attempts(bad)
			}
		case away.Load():
			return errOutage
		}
		return nil
	}
	var batch []ports.Message
	for version := range versions {
		for key := range 10 {
			batch = append(batch, about(key, version+1))
		}
	}
	w.inOneLane(batch...)
	w.relay(p, time.Second)
	w.eventually("all but the one key are published", func() bool { return maps.Equal(w.waiting(), map[string]int{bad.Key: versions}) })
	mu.Lock()
	if attempts != 1 {
		t.Errorf("the one key was tried %d times until the others were through; want them through in its first round", attempts)
	}
	mu.Unlock()
	if n := p.attempts(about(0, 2)); n > 0 {
		t.Errorf("its second message was sent %d times before its first was taken", n)
	}
	away.Store(false)
	w.empty()
}

func TestRelay_ARoundsWorthOfKeysThatAnOutageStopsIsPassedBy(t *testing.T) {
	w := newWorld(t)
	var away atomic.Bool
	away.Store(true)
	bad := make(map[string]bool)
	var batch []ports.Message
	for key := range 150 { // more than a round takes
		bad[about(key, 1).Key] = true
		batch = append(batch, about(key, 1))
	}
	batch = append(batch, about(150, 1))
	w.inOneLane(batch...)
	w.relay(&publisher{answer: func(m *message.Message, _ int) error {
		if away.Load() && bad[m.Metadata.Get(outbox.HeaderPartitionKey)] {
			return errOutage
		}
		return nil
	}}, time.Second)
	w.eventually("the last one is published", func() bool { return w.waiting()[about(150, 1).Key] == 0 })
	if n := len(w.waiting()); n != len(bad) {
		t.Errorf("%d keys wait; want %d", n, len(bad))
	}
	away.Store(false)
	w.empty()
	w.eventually("the outage's end is told", func() bool { return w.log.count("goes on") == 1 })
}

// One of two brokers says of its partitions that it does not lead them.
func TestRelay_PartitionsWithoutALeaderHoldUpNoneOfTheOthersKeys(t *testing.T) {
	w := newWorld(t)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(8, topic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	for partition := range int32(8) {
		if err := cluster.MoveTopicPartition(topic, partition, partition%2); err != nil {
			t.Fatal(err)
		}
	}
	var away atomic.Bool
	away.Store(true)
	cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if cluster.CurrentNode() == 0 || !away.Load() {
			return nil, nil, false //nolint:nilnil // it is kfake that answers
		}
		produce := request.(*kmsg.ProduceRequest)
		response := produce.ResponseKind().(*kmsg.ProduceResponse)
		for _, topic := range produce.Topics {
			answer := kmsg.ProduceResponseTopic{Topic: topic.Topic}
			for _, partition := range topic.Partitions {
				answer.Partitions = append(answer.Partitions, kmsg.ProduceResponseTopicPartition{
					Partition: partition.Partition, ErrorCode: kerr.NotLeaderForPartition.Code, BaseOffset: -1, LogAppendTime: -1,
				})
			}
			response.Topics = append(response.Topics, answer)
		}
		return response, nil, true
	})
	stopped := make(map[string]int)
	partitions := kgo.StickyKeyPartitioner(nil).ForTopic(topic)
	var batch []ports.Message
	const keys, versions = 200, 15
	for version := range versions {
		for key := range keys {
			m := about(key, version+1)
			if partitions.Partition(&kgo.Record{Key: []byte(m.Key)}, 8)%2 == 1 {
				stopped[m.Key] = versions
			}
			batch = append(batch, m)
		}
	}
	w.write(t.Context(), batch...)
	w.relay(w.publisher(cluster.ListenAddrs()), time.Second)
	w.eventually("all others are published", func() bool { return maps.Equal(w.waiting(), stopped) })
	away.Store(false)
	w.empty()
}

func TestRelay_HasOneMessageOfAKeyInFlight(t *testing.T) {
	w := newWorld(t)
	var mu sync.Mutex
	inFlight := make(map[string]int)
	p := &publisher{answer: func(m *message.Message, _ int) error {
		key := m.Metadata.Get(outbox.HeaderPartitionKey)
		mu.Lock()
		inFlight[key]++
		if inFlight[key] > 1 {
			w.Errorf("two messages of key %s in flight", key)
		}
		mu.Unlock()
		time.Sleep(time.Millisecond) // lets others come, if they may
		mu.Lock()
		inFlight[key]--
		mu.Unlock()
		return nil
	}}
	for key := range 5 {
		for v := range 10 {
			w.write(t.Context(), about(key, v+1))
		}
	}
	w.relay(p, time.Second)
	w.relay(p, time.Second)
	w.empty()
}

func TestRelay_AStopFinishesWhatIsInFlightAndReadsNoMore(t *testing.T) {
	w := newWorld(t)
	arrived, release := make(chan struct{}, 100), make(chan struct{})
	p := &publisher{answer: func(*message.Message, int) error {
		arrived <- struct{}{}
		<-release
		return nil
	}}
	for key := range 10 {
		w.write(t.Context(), about(key, 1), about(key, 2))
	}
	_, halt, stop := w.relay(p, 30*time.Second)
	for range 10 {
		<-arrived
	}
	halt()
	w.write(t.Context(), about(50, 1)) // too late for this relay
	close(release)
	stop()
	want := map[string]int{about(50, 1).Key: 1}
	for key := range 10 {
		want[about(key, 2).Key] = 1
	}
	if waiting := w.waiting(); !maps.Equal(waiting, want) {
		t.Errorf("waiting %v; want the second of each key and the late one, %v", waiting, want)
	}
	for key := range 10 {
		if p.attempts(about(key, 2)) > 0 {
			t.Errorf("key %d: a message was begun after the stop", key)
		}
	}
}

func TestRelay_AStopDoesNotWaitLongerThanItsGrace(t *testing.T) {
	w := newWorld(t)
	arrived, never := make(chan struct{}, 100), make(chan struct{})
	t.Cleanup(func() { close(never) })
	p := &publisher{answer: func(*message.Message, int) error {
		arrived <- struct{}{}
		<-never
		return nil
	}}
	w.write(t.Context(), about(1, 1))
	_, _, stop := w.relay(p, time.Millisecond)
	<-arrived
	stop()
	if waiting := w.waiting(); len(waiting) != 1 {
		t.Errorf("waiting %v; want the message that was not acked", waiting)
	}
}

// gate holds back what it is given until it is opened, and passes it on to Kafka then.
type gate struct {
	message.Publisher
	arrived chan struct{}
	open    chan struct{}
}

func (g *gate) Publish(topic string, messages ...*message.Message) error {
	g.arrived <- struct{}{}
	<-g.open
	return g.Publisher.Publish(topic, messages...)
}

func TestRelay_PublishesOnceWhatIsInFlightAtAStop(t *testing.T) {
	w := newWorld(t)
	broker := w.kafka(0)
	kafka := w.publisher(broker.Brokers())
	const keys = 1200
	var batch []ports.Message
	for version := range 2 {
		for key := range keys {
			batch = append(batch, about(key, version+1))
		}
	}
	w.write(t.Context(), batch...)
	g := &gate{Publisher: kafka, arrived: make(chan struct{}, keys), open: make(chan struct{})}
	_, halt, stop := w.relayWith(g, outbox.RelayConfig{BatchSize: 500, PollInterval: time.Second, ShutdownGrace: time.Minute})
	for range keys {
		<-g.arrived
	}
	halt()
	close(g.open)
	stop()
	if n, records := len(w.waiting()), w.read(broker); n != keys || len(records) != keys {
		t.Errorf("%d records, %d keys wait; want %d, what was in flight, and each key's second message", len(records), n, keys)
	}
	w.relay(kafka, time.Second)
	w.empty()
	if records := w.read(broker); len(records) != 2*keys {
		t.Errorf("%d records; want %d: nothing was sent again", len(records), 2*keys)
	}
}

// looks counts how often a relay looked for waiting messages.
func (s *statements) looks() (n int) {
	for _, sql := range s.all() {
		if strings.Contains(sql, "WITH RECURSIVE lane") {
			n++
		}
	}
	return n
}

func TestRelay_TheLanesOfOneThatIsKilledAreTakenOverWithinTwoPolls(t *testing.T) {
	victim := newWorld(t)
	arrived, never := make(chan struct{}, 1), make(chan struct{})
	t.Cleanup(func() { close(never) })
	victim.write(t.Context(), about(1, 1))
	kill := victim.killable()
	victim.relay(&publisher{answer: func(*message.Message, int) error {
		arrived <- struct{}{}
		<-never
		return nil
	}}, time.Millisecond)
	<-arrived

	statements := &statements{}
	w := &world{T: t, pool: connect(t, victim.pool.Config().ConnString(), statements), owner: victim.owner, log: &journal{}, heldUp: make(map[string]int)}
	var atPublish atomic.Int64
	w.relayWith(&publisher{answer: func(*message.Message, int) error {
		atPublish.Store(int64(statements.looks()))
		return nil
	}}, outbox.RelayConfig{BatchSize: 100, PollInterval: time.Second, ShutdownGrace: time.Second})
	w.eventually("the other finds the lane taken", func() bool { return statements.looks() >= 2 })
	atKill := statements.looks()
	kill()
	w.empty()
	if polls := int(atPublish.Load()) - atKill; polls > 2 {
		t.Errorf("taken over after %d polls; want 2 at most", polls)
	}
}

// killable makes the world's connections die at once, as a process's do that is killed; there are none after that.
func (w *world) killable() (kill func()) {
	w.Helper()
	config := w.pool.Config()
	var mu sync.Mutex
	var open []net.Conn
	dead := false
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		if dead {
			return nil, errors.New("killed")
		}
		conn, err := dial(ctx, network, address)
		if err == nil {
			open = append(open, conn)
		}
		return conn, err
	}
	var err error
	if w.pool, err = pgxpool.NewWithConfig(w.Context(), config); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(w.pool.Close)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		dead = true
		for _, conn := range open {
			conn.Close() //nolint:errcheck // that is the point
		}
	}
}

func TestRelay_AnIdleRelayLooksWithOneStatement(t *testing.T) {
	statements := &statements{}
	w := newTracedWorld(t, statements)
	_, _, stop := w.relay(&publisher{}, time.Second)
	w.eventually("five looks without a byte of WAL", func() bool { // others of the server may write some
		looks, before := len(statements.all()), w.walPosition()
		w.eventually("some looks", func() bool { return len(statements.all()) >= looks+5 })
		return w.walPosition() == before
	})
	stop()
	for _, sql := range statements.all() {
		if !strings.Contains(sql, "WITH RECURSIVE lane") {
			t.Errorf("an idle relay ran %s", sql)
		}
	}
}

func (w *world) walPosition() (position string) {
	w.Helper()
	if err := w.owner.QueryRow(context.Background(), "SELECT pg_current_wal_insert_lsn()::text").Scan(&position); err != nil {
		w.Fatal(err)
	}
	return position
}

func TestRelay_WakesAtACommit(t *testing.T) {
	statements := &statements{}
	w := newTracedWorld(t, statements)
	broker := w.kafka(0)
	relay, _, _ := w.relayWith(w.publisher(broker.Brokers()), outbox.RelayConfig{BatchSize: 100, PollInterval: time.Hour, ShutdownGrace: time.Second})
	w.eventually("it has looked once", func() bool { return len(statements.all()) > 0 })
	writer := outbox.NewWriter(table, "pin/crm", relay.Wake)
	w.write(t.Context(), about(1, 1))
	writer.Committed()
	w.empty()
}

func TestMeasure_CountsWhatWaitsAndSinceWhen(t *testing.T) {
	w := newWorld(t)
	if lag, err := outbox.Measure(t.Context(), w.pool, table); err != nil || lag != (outbox.Lag{}) {
		t.Errorf("lag of nothing: %+v, %v", lag, err)
	}
	w.write(t.Context(), about(1, 1), about(2, 1))
	if lag, err := outbox.Measure(t.Context(), w.pool, table); err != nil || lag.Unpublished != 2 || lag.Oldest.IsZero() {
		t.Errorf("lag %+v, %v; want 2 since some moment", lag, err)
	}
}

func TestWriter_WritesABatchWithOneStatement(t *testing.T) {
	statements := &statements{}
	w := newTracedWorld(t, statements)
	var batch []ports.Message
	for key := range 500 {
		batch = append(batch, about(key, 1))
	}
	w.write(t.Context(), batch...)
	inserts := slices.DeleteFunc(statements.all(), func(sql string) bool { return !strings.HasPrefix(sql, "INSERT") })
	if len(inserts) != 1 {
		t.Errorf("%d statements for 500 messages: %q", len(inserts), inserts)
	}
}

var (
	errRefused = errors.New("refused") // no kafka.PublishError: about the message itself
	errOutage  = &kafka.PublishError{Topic: topic, Err: errors.New("broker away")}
)

// publisher stands for Kafka where a test needs it to answer at will.
type publisher struct {
	answer func(m *message.Message, attempt int) error

	mu   sync.Mutex
	sent map[string]int
}

func (p *publisher) Publish(_ string, messages ...*message.Message) error {
	for _, m := range messages {
		p.mu.Lock()
		if p.sent == nil {
			p.sent = make(map[string]int)
		}
		p.sent[m.UUID]++
		attempt := p.sent[m.UUID]
		p.mu.Unlock()
		if err := p.answer(m, attempt); err != nil {
			return err
		}
	}
	return nil
}

func (p *publisher) Close() error { return nil }

func (p *publisher) attempts(m ports.Message) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent[m.ID.String()]
}

func version(m *message.Message) int {
	n, _ := strconv.Atoi(m.Metadata.Get("ce_aggregateversion"))
	return n
}

// statements records what a pool runs.
type statements struct {
	mu  sync.Mutex
	sql []string
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sql = append(s.sql, strings.TrimSpace(data.SQL))
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *statements) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sql)
}

// journal keeps what was logged.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) Enabled(context.Context, slog.Level) bool { return true }
func (j *journal) WithAttrs([]slog.Attr) slog.Handler       { return j }
func (j *journal) WithGroup(string) slog.Handler            { return j }
func (j *journal) Handle(_ context.Context, r slog.Record) error {
	fields := make(map[string]string)
	r.Attrs(func(a slog.Attr) bool { fields[a.Key] = a.Value.String(); return true })
	line, err := json.Marshal(fields)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, r.Message+" "+string(line))
	return err
}

func (j *journal) count(part string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for _, line := range j.lines {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "\n")
}
