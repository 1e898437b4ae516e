package kafka_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pin-platform/pinworker/adapters/kafka"
	"github.com/pin-platform/pinworker/ports"
)

const idHeader = "ce_id"

// posted publishes messages, each with an id of its own, under a few keys.
func posted(t *testing.T, brokers []string, n int) []ports.Announced {
	t.Helper()
	p := newPublisher(t, brokers...)
	messages := make([]ports.Announced, n)
	for i := range messages {
		messages[i] = ports.Announced{ID: uuid.New(), Topic: topic, Key: fmt.Sprint("key ", i%5), Written: time.Now()}
		m := newMessage(messages[i].Key, "{}")
		m.Metadata.Set(idHeader, messages[i].ID.String())
		if err := p.Publish(topic, m); err != nil {
			t.Fatal(err)
		}
	}
	return messages
}

func postOf(brokers []string) kafka.Post {
	return kafka.Post{Config: kafka.Config{Brokers: brokers, ClientID: "test"}, IDHeader: idHeader, Records: 1000, Patience: time.Minute}
}

func TestPost_FindsMessagesWhereTheyAre(t *testing.T) {
	brokers := start(t).Brokers()
	post := postOf(brokers)
	from, err := kafka.End(t.Context(), post.Config, topic)
	if err != nil {
		t.Fatal(err)
	}
	messages := posted(t, brokers, 40)
	found, err := post.Find(t.Context(), messages)
	if err != nil {
		t.Fatal(err)
	}
	records, err := kafka.Since(t.Context(), post.Config, from)
	if err != nil || len(records) != len(messages) {
		t.Fatalf("%d records, %v; want all", len(records), err)
	}
	for _, r := range records {
		w := found[uuid.MustParse(r.Headers[idHeader])]
		if w.State != ports.Published || w.Partition != r.Partition || w.Offset != r.Offset || time.Since(w.Since) > time.Hour {
			t.Errorf("found at %+v; it is at partition %d, offset %d", w, r.Partition, r.Offset)
		}
	}
}

func TestPost_SaysThatAMessageIsNotThereAndHowFarItLooked(t *testing.T) {
	brokers := start(t).Brokers()
	messages := posted(t, brokers, 40) // 8 a key; two keys may share a partition
	post := postOf(brokers)
	never := messages[0]
	never.ID = uuid.New()
	if found, err := post.Find(t.Context(), []ports.Announced{never}); err != nil || found[never.ID].State != ports.NotFound || found[never.ID].Looked < 8 {
		t.Errorf("found %+v, %v; want it not found among all of its partition", found, err)
	}
	post.Records = 3
	last := messages[39]
	if found, err := post.Find(t.Context(), []ports.Announced{last}); err != nil || found[last.ID] != (ports.Whereabouts{State: ports.NotFound, Looked: 3}) {
		t.Errorf("found %+v, %v; want it not found among 3", found, err)
	}
}

func TestPost_TellsWhatTheRetentionTookFromWhatWasNeverThere(t *testing.T) {
	brokers := start(t).Brokers()
	messages := posted(t, brokers, 10)
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	ends, err := admin.ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.DeleteRecords(t.Context(), ends.Offsets()); err != nil {
		t.Fatal(err)
	}
	found, err := postOf(brokers).Find(t.Context(), messages)
	for _, m := range messages {
		if err != nil || found[m.ID].State != ports.Expired {
			t.Errorf("found %+v, %v; want it taken by the retention", found[m.ID], err)
		}
	}
}

func TestPost_AKafkaThatSaysNothingIsAnErrorInTime(t *testing.T) {
	address, _ := silent(t)
	for what, brokers := range map[string][]string{"nobody": {"127.0.0.1:1"}, "silent": {address}} {
		post := postOf(brokers)
		post.Patience = 100 * time.Millisecond
		found, err := post.Find(t.Context(), []ports.Announced{{ID: uuid.New(), Topic: topic, Key: "k", Written: time.Now()}})
		if err == nil || len(found) > 0 {
			t.Errorf("%s: found %v, %v; want an error", what, found, err)
		}
		if what == "silent" && !strings.Contains(err.Error(), "no answer within 100ms") {
			t.Errorf("%s: %v; want how long it was waited for", what, err)
		}
	}
}
