package outbox_test

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/ports"
)

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

func TestRelay_AHotKeyNeitherLosesItsOrderNorHoldsOthersBack(t *testing.T) {
	w := newWorld(t)
	const hot = 10_000
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
	sent, last := 0, 0
	allOthers := make(chan struct{})
	w.relay(&publisher{answer: func(m *message.Message, _ int) error {
		mu.Lock()
		defer mu.Unlock()
		if m.Metadata.Get("ce_subject") != about(0, 1).Subject.String() {
			if sent++; sent == len(others) {
				close(allOthers)
			}
			return nil
		}
		if v := version(m); v != last+1 {
			t.Errorf("the hot key's %d came after %d", v, last)
		}
		if last++; last == hot/4 { // it waits here for the others, who do not wait for it
			mu.Unlock()
			select {
			case <-allOthers:
			case <-t.Context().Done():
			}
			mu.Lock()
		}
		return nil
	}}, time.Second)
	w.empty()
	if mu.Lock(); last != hot {
		t.Errorf("%d of the hot key; want %d", last, hot)
	}
	mu.Unlock()
}

// to returns a message about a key for a topic.
func to(topic string, key int) ports.Message {
	m := about(key, 1)
	m.Topic = topic
	return m
}

func TestRelay_ATopicThatHangsOrIsFloodedDelaysNoOther(t *testing.T) {
	const flood, hanging = 100_000, 64
	w := newWorld(t)
	never, sound := make(chan struct{}), make(chan int, 1)
	t.Cleanup(func() { close(never) })
	var batch []ports.Message
	for key := range hanging {
		batch = append(batch, to("hangs", key))
	}
	w.write(t.Context(), batch...)
	for done := 0; done < flood; done += len(batch) {
		batch = batch[:0]
		for key := range 10_000 {
			m := to("flooded", key)
			m.ID = uuid.New()
			batch = append(batch, m)
		}
		w.write(t.Context(), batch...)
	}
	w.write(t.Context(), to("sound", 1))
	w.relayWith(&publisher{answer: func(m *message.Message, _ int) error {
		switch m.Metadata.Get("ce_type") {
		case "hangs":
			<-never
		case "sound":
			sound <- len(w.waiting())
		}
		return nil
	}}, outbox.RelayConfig{BatchSize: 500, PollInterval: 50 * time.Millisecond, ShutdownGrace: time.Millisecond})
	if waiting := <-sound; waiting < 1000 {
		t.Errorf("%d keys wait beside the sound topic's message; want most of what was before it", waiting)
	}
}

// A transaction that draws its message's id first may commit last, and the key's next message then comes
// after it. By then the lane is gone up to a higher id.
func TestRelay_AKeysMessagesKeepTheirOrderWhereTheFirstCommitsLate(t *testing.T) {
	w := newWorld(t)
	key, other := sameLane()
	late, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	statement, args, err := outbox.NewWriter(table, "pin/crm", func() {}).Compose(t.Context(), ports.RunID{1}, []ports.Message{about(key, 1)})
	if err == nil {
		_, err = late.Exec(t.Context(), statement, args...)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.write(t.Context(), about(other, 1))
	var order []int // of the key
	w.relayWith(&publisher{answer: func(m *message.Message, _ int) error {
		switch m.UUID {
		case about(other, 1).ID.String(): // while the lane's worker is at work, so that no look comes between
			w.write(t.Context(), about(other, 2))
		case about(other, 2).ID.String():
			if err := late.Commit(t.Context()); err != nil {
				t.Error(err)
			}
			w.write(t.Context(), about(key, 2))
		default:
			order = append(order, version(m))
		}
		return nil
	}}, outbox.RelayConfig{BatchSize: 100, PollInterval: time.Second, ShutdownGrace: time.Second})
	w.eventually("all are told", func() bool { n, _ := w.told(); return n == 4 })
	if !slices.Equal(order, []int{1, 2}) {
		t.Errorf("the key's messages came in the order %v", order)
	}
}

// sameLane returns two keys of one lane.
func sameLane() (key, other int) {
	shard := func(key int) uint32 {
		h := fnv.New32a()
		h.Write([]byte(about(key, 1).Key))
		return h.Sum32() % outbox.Shards
	}
	for other = 2; shard(other) != shard(1); {
		other++
	}
	return 1, other
}

// A page of a hot key's large messages is cut before it shows what is behind them.
func TestRelay_AHotKeyOfLargeMessagesHoldsNoOtherBack(t *testing.T) {
	w := newWorld(t)
	hot, other := sameLane()
	const messages = 200
	for v := range messages {
		m := about(hot, v+1)
		m.Payload = make([]byte, 40_000)
		w.write(t.Context(), m)
	}
	w.write(t.Context(), about(other, 1))
	sent, before := 0, 0
	w.relay(&publisher{answer: func(m *message.Message, _ int) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if sent++; m.UUID == about(other, 1).ID.String() {
			before = sent
		}
		return nil
	}}, time.Second)
	w.empty()
	if before > 21 {
		t.Errorf("the other key's message was the %d. that was sent; want it in the first round, of 21", before)
	}
}

// Looks and rounds that find nothing to do wake nobody.
func TestRelay_KeysThatAreHeldCostNoLooks(t *testing.T) {
	traced := &statements{}
	w := newTracedWorld(t, traced)
	for key := range 40 {
		w.write(t.Context(), about(key, 1))
	}
	relay, _, _ := w.relayWith(&publisher{answer: func(*message.Message, int) error { return errOutage }},
		outbox.RelayConfig{BatchSize: 100, PollInterval: time.Second, ShutdownGrace: time.Second})
	w.eventually("keys are held in several lanes", func() bool { return w.timesHeldUp(topic) > 8 })
	for range 20 {
		relay.Wake()
	}
	began := traced.looks()
	w.eventually("a key is tried again", func() bool { return w.timesHeldUp(topic) > 16 })
	if looks := traced.looks() - began; looks > 200 {
		t.Errorf("%d looks meanwhile; want a few", looks)
	}
}

// A page is held in memory, with what is made of it.
func TestRelay_APageOfLargeMessagesIsCut(t *testing.T) {
	w := newWorld(t)
	var large []ports.Message
	for key := range 10 {
		m := about(key, 1)
		m.Payload = make([]byte, 700<<10) // 933 KiB in its envelope
		large = append(large, m)
	}
	w.inOneLane(large...)
	w.relay(&publisher{answer: func(*message.Message, int) error { return nil }}, time.Second)
	w.empty()
	w.eventually("all is told", func() bool { n, _ := w.told(); return n == len(large) })
	if w.most != 3 {
		t.Errorf("a round sent %d; want 3, which are more than 2 MiB", w.most)
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
		if !strings.Contains(sql, "lane") {
			t.Errorf("an idle relay ran %s", sql)
		}
	}
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

func TestDepth_CountsWhatNobodyKnowsTheTopicOf(t *testing.T) {
	w := newWorld(t)
	w.write(t.Context(), about(1, 1), to("a typo", 1), to("a newer version's", 1))
	relay, _, _ := w.relay(&publisher{answer: func(*message.Message, int) error { return errOutage }}, time.Second)
	w.eventually("the relay has seen all three", func() bool { return w.timesHeldUp("a typo") > 0 && w.timesHeldUp("a newer version's") > 0 })
	for name, r := range map[string]*outbox.Relay{"beside a relay": relay, "by itself": nil} {
		backlogs, oldest, err := outbox.Depth(t.Context(), w.pool, table, []string{topic}, r)
		if want := []outbox.Backlog{{Topic: topic, Waiting: 1}, {Topic: outbox.Other, Waiting: 2}}; !slices.Equal(backlogs, want) || oldest <= 0 || err != nil {
			t.Errorf("%s: %+v, %s, %v; want %+v", name, backlogs, oldest, err, want)
		}
	}
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
