package outbox_test

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/kafka"
	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/ports"
)

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

// What is sent from a database that cannot be written to could not be deleted, and would be sent again and
// again. After a failover, other connections lead to a database that can be.
func TestRelay_SendsNothingWhileTheDatabaseIsReadOnly(t *testing.T) {
	w := newWorld(t)
	database := pgx.Identifier{w.owner.Config().ConnConfig.Database}.Sanitize()
	settle := func(setting string) { // for connections that are made from now on
		t.Helper()
		if _, err := w.owner.Exec(t.Context(), "ALTER DATABASE "+database+" "+setting); err != nil {
			t.Fatal(err)
		}
	}
	w.write(t.Context(), about(1, 1), about(2, 1))
	settle("SET default_transaction_read_only = on")
	w.pool.Reset()
	p := &publisher{answer: func(*message.Message, int) error { return nil }}
	w.relay(p, time.Second)
	w.eventually("some rounds find it read-only", func() bool { return w.timesHeldUp("") > 3 })
	if n := p.attempts(about(1, 1)) + p.attempts(about(2, 1)); n > 0 {
		t.Errorf("%d messages were sent; want none", n)
	}
	settle("RESET default_transaction_read_only")
	w.empty()
	if a, b := p.attempts(about(1, 1)), p.attempts(about(2, 1)); a != 1 || b != 1 {
		t.Errorf("they were sent %d and %d times; want once", a, b)
	}
	w.eventually("its end is told", func() bool { return w.log.count("goes on") > 0 })
}

// A fault of ours is no word of Kafka's.
func TestRelay_APanicParksNothing(t *testing.T) {
	w := newWorld(t)
	bad, sound := about(1, 1), about(2, 1)
	w.inOneLane(bad, sound)
	p := &publisher{answer: func(m *message.Message, attempt int) error {
		if m.UUID == bad.ID.String() && attempt < 3 {
			panic("a bug")
		}
		return nil
	}}
	w.relay(p, time.Second)
	w.empty()
	if n := p.attempts(sound); n != 1 || len(w.onList()) > 0 {
		t.Errorf("the sound one was sent %d times, %v are parked; want once, and none", n, w.onList())
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
