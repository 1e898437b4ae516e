package kafka_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pin-platform/pinworker/adapters/embedded"
	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/kafka"
)

const topic = "pin.crm.lead-expired.v1"

func newPublisher(t *testing.T, brokers ...string) *kafka.Publisher {
	t.Helper()
	p, err := kafka.NewPublisher(kafka.Config{Brokers: brokers, ClientID: "test", KeyHeader: "key"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func newMessage(key, payload string) *message.Message {
	m := message.NewMessage(uuid.NewString(), []byte(payload))
	m.Metadata.Set("key", key)
	return m
}

func start(t *testing.T) embeddedtest.Broker {
	t.Helper()
	return embeddedtest.Kafka(t, 0, topic)
}

// A consumer or a producer in Java must find a key in the partition that we chose. franz-go's
// default is Java's murmur2 and serves as the oracle here.
func TestPublisher_PartitionsAsJavasClientsDo(t *testing.T) {
	broker := start(t)
	p := newPublisher(t, broker.Brokers()...)
	oracle := kgo.StickyKeyPartitioner(nil).ForTopic(topic)
	want := make(map[string]int32)
	for range 64 {
		key := uuid.NewString()
		want[key] = int32(oracle.Partition(&kgo.Record{Key: []byte(key)}, embedded.Partitions))
		if err := p.Publish(topic, newMessage(key, "{}")); err != nil {
			t.Fatal(err)
		}
	}
	records, err := embedded.ReadAll(t.Context(), broker.Brokers(), topic)
	if err != nil || len(records) != len(want) {
		t.Fatalf("%d records, %v; want %d", len(records), err, len(want))
	}
	for _, r := range records {
		if r.Partition != want[r.Key] {
			t.Errorf("key %s is in partition %d; Java would look in %d", r.Key, r.Partition, want[r.Key])
		}
	}
}

// The same by Kafka's own producer, for keys of any length: its jars come with Apache Kafka's.
func TestPublisher_PartitionsAsKafkasOwnProducerDoes(t *testing.T) {
	jars := os.Getenv(embeddedtest.KafkaJars)
	if jars == "" {
		t.Skip(embeddedtest.KafkaJars + " is not set")
	}
	broker := start(t)
	p := newPublisher(t, broker.Brokers()...)
	keys := make([]string, 0, 200)
	var input strings.Builder
	for length := range cap(keys) {
		key := make([]byte, length+1)
		rand.Read(key)
		if length%2 == 0 {
			key = []byte(uuid.NewString())
		}
		keys = append(keys, string(key))
		fmt.Fprintf(&input, "%x\n", key)
		if err := p.Publish(topic, newMessage(string(key), "{}")); err != nil {
			t.Fatal(err)
		}
	}
	java := exec.Command("java", "-cp", filepath.Join(jars, "*"), filepath.Join("testdata", "Partitions.java"), strconv.Itoa(embedded.Partitions))
	java.Stdin, java.Stderr = strings.NewReader(input.String()), t.Output()
	output, err := java.Output()
	partitions := strings.Fields(string(output))
	if err != nil || len(partitions) != len(keys) {
		t.Fatalf("%d partitions, %v; want %d", len(partitions), err, len(keys))
	}
	records, err := embedded.ReadAll(t.Context(), broker.Brokers(), topic)
	if err != nil || len(records) != len(keys) {
		t.Fatalf("%d records, %v; want %d", len(records), err, len(keys))
	}
	for _, r := range records {
		if want := partitions[slices.Index(keys, r.Key)]; strconv.Itoa(int(r.Partition)) != want {
			t.Errorf("key %x is in partition %d; Kafka's own producer puts it into %s", r.Key, r.Partition, want)
		}
	}
}

func TestPublisher_TellsARefusedMessageFromAnOutage(t *testing.T) {
	broker := start(t)
	p := newPublisher(t, broker.Brokers()...)
	tooLarge := p.Publish(topic, newMessage("a", string(make([]byte, 2<<20))))
	unknownTopic := p.Publish("pin.crm.unheard-of.v1", newMessage("a", "{}"))
	away := newPublisher(t, "127.0.0.1:1").Publish(topic, newMessage("a", "{}"))
	for what, test := range map[string]struct {
		err     error
		refused bool
	}{
		"too large":                         {tooLarge, true},
		"an unknown topic":                  {unknownTopic, false},
		"no broker":                         {away, false},
		"a record that the broker refuses":  {&kafka.PublishError{Err: fmt.Errorf("produce: %w", sarama.ErrInvalidRecord)}, true},
		"not enough replicas":               {&kafka.PublishError{Err: sarama.ErrNotEnoughReplicas}, false},
		"no leader":                         {&kafka.PublishError{Err: sarama.ErrNotLeaderForPartition}, false},
		"no right to write":                 {&kafka.PublishError{Err: sarama.ErrTopicAuthorizationFailed}, false},
		"something unheard of":              {&kafka.PublishError{Err: errors.New("?")}, false},
		"what never came as far as Publish": {errors.New("cannot unmarshal message wrapped in an envelope"), true},
	} {
		if test.err == nil || kafka.Refused(test.err) != test.refused {
			t.Errorf("%s: %v is refused: %v; want %v", what, test.err, kafka.Refused(test.err), test.refused)
		}
		var publish *kafka.PublishError
		if test.err == away && !errors.As(test.err, &publish) {
			t.Errorf("%s: %T; want a PublishError", what, test.err)
		}
	}
}

// Each message is so large that the topic takes it alone, and none in company; one is too large even so.
func TestPublisher_WhatItRefusesWasRefusedAlone(t *testing.T) {
	broker := start(t)
	embeddedtest.LimitBatches(t, broker, topic, 1000)
	p := newPublisher(t, broker.Brokers()...)
	incompressible := func(size int) string {
		text := make([]byte, size)
		rand.Read(text)
		return string(text)
	}
	const sound = 200
	answers := make([]error, sound+1)
	var all sync.WaitGroup
	for i := range answers {
		size := 600
		if i == sound/2 {
			size = 2000
		}
		all.Go(func() { answers[i] = p.Publish(topic, newMessage(uuid.NewString(), incompressible(size))) })
	}
	all.Wait()
	for i, err := range answers {
		var publish *kafka.PublishError
		switch {
		case i != sound/2 && err != nil:
			t.Errorf("a sound message: %v", err)
		case i == sound/2 && (err == nil || !kafka.Refused(err) || !errors.As(err, &publish) || publish.Sent != 2):
			t.Errorf("the one that is too large: %v; want it refused when it was sent a second time", err)
		}
	}
	records, err := embedded.ReadAll(t.Context(), broker.Brokers(), topic)
	if err != nil || len(records) != sound {
		t.Errorf("%d records, %v; want %d", len(records), err, sound)
	}
}

// One client's messages all pass through one place, and there each of a topic that is missing is waited for.
func TestPublisher_ATopicThatIsMissingDelaysNoOther(t *testing.T) {
	broker := start(t)
	p := newPublisher(t, broker.Brokers()...)
	const many = 2000
	var all sync.WaitGroup
	var lost atomic.Int32
	for range many {
		all.Go(func() {
			if err := p.Publish("pin.crm.missing.v1", newMessage(uuid.NewString(), "")); err == nil || kafka.Refused(err) {
				t.Errorf("of a topic that is not there: %v; want it to be tried again", err)
			}
			lost.Add(1)
		})
	}
	if err := p.Publish(topic, newMessage("key", "sound")); err != nil {
		t.Error(err)
	}
	if n := lost.Load(); n == many {
		t.Error("the sound topic's message came after all of the missing one's")
	}
	all.Wait()
}

func TestPublisher_ConnectsOnceKafkaIsThere(t *testing.T) {
	broker := start(t)
	address := broker.Brokers()[0]
	var port int
	if _, err := fmt.Sscanf(address, "127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	broker.Close()
	p := newPublisher(t, address)
	if err := p.Publish(topic, newMessage("a", "{}")); err == nil {
		t.Fatal("published to nobody")
	}
	embeddedtest.Kafka(t, port, topic)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for err := p.Publish(topic, newMessage("a", "{}")); err != nil; err = p.Publish(topic, newMessage("a", "{}")) {
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func TestPublisher_IsOfNoUseOnceClosed(t *testing.T) {
	p, err := kafka.NewPublisher(kafka.Config{Brokers: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Publish(topic, newMessage("a", "{}")); err == nil {
		t.Error("published after Close")
	}
}
