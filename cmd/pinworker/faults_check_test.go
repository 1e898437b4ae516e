package main

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/pin-platform/pinworker/adapters/embedded"
)

// committedMessage is a message that the database has on record as committed to an outbox.
type committedMessage struct {
	id, subject string
	version     int
}

// delivery counts what became of messages.
type delivery struct {
	committed, parked int
	records           int // that Kafka holds
	repetitions       int // of them
}

// checkDelivery compares what was committed, in its order, with what Kafka holds from its beginning, each
// partition in order: at least once, in order for each subject, nothing else.
func checkDelivery(messages []committedMessage, parked []string, records []embedded.Record) (counts delivery, findings []string) {
	counts = delivery{committed: len(messages), parked: len(parked), records: len(records)}
	found := func(format string, args ...any) { findings = append(findings, fmt.Sprintf(format, args...)) }
	known := make(map[string]committedMessage, len(messages))
	for _, m := range messages {
		known[m.id] = m
	}
	seen := make(map[string]bool, len(messages)) // by ce_id
	latest := make(map[string]int)               // version, by subject
	partitions := make(map[string]int32)         // by key
	for _, r := range records {
		m, ours := known[r.Headers["ce_id"]]
		version, _ := strconv.Atoi(r.Headers["ce_aggregateversion"])
		if !ours || m.subject != r.Headers["ce_subject"] || m.version != version || m.subject != r.Key {
			found("a record that nobody committed: ce_id %s, key %s, subject %s, version %d", r.Headers["ce_id"], r.Key, r.Headers["ce_subject"], version)
			continue
		}
		if before, elsewhere := partitions[r.Key]; elsewhere && before != r.Partition {
			found("key %s is in partitions %d and %d", r.Key, before, r.Partition)
		}
		partitions[r.Key] = r.Partition
		switch {
		case seen[m.id]:
			counts.repetitions++
		case version < latest[m.subject]:
			found("out of order: subject %s, version %d after %d", m.subject, version, latest[m.subject])
		default:
			latest[m.subject] = version
		}
		seen[m.id] = true
	}
	for _, m := range messages {
		switch {
		case slices.Contains(parked, m.id) && seen[m.id]:
			found("parked and delivered: %s, subject %s, version %d", m.id, m.subject, m.version)
		case !slices.Contains(parked, m.id) && !seen[m.id]:
			found("lost: %s, subject %s, version %d", m.id, m.subject, m.version)
		}
	}
	return counts, findings
}

func TestCheckDelivery_FindsWhatIsLostReorderedOrForeign(t *testing.T) {
	record := func(id, subject string, version int) embedded.Record {
		return embedded.Record{Key: subject, Headers: map[string]string{
			"ce_id": id, "ce_subject": subject, "ce_aggregateversion": strconv.Itoa(version),
		}}
	}
	messages := []committedMessage{{"a1", "a", 1}, {"b1", "b", 1}, {"a2", "a", 2}, {"a3", "a", 3}}
	a1, a2, a3, b1 := record("a1", "a", 1), record("a2", "a", 2), record("a3", "a", 3), record("b1", "b", 1)
	elsewhere := a3
	elsewhere.Partition = 5
	otherKey := b1
	otherKey.Key = "a"
	for name, test := range map[string]struct {
		records     []embedded.Record
		parked      []string
		repetitions int
		want        []string
	}{
		"all, another order of subjects":       {records: []embedded.Record{b1, a1, a2, a3}},
		"a batch again, as after a crash":      {records: []embedded.Record{a1, a2, a1, a2, a3, b1}, repetitions: 2},
		"one that is parked":                   {records: []embedded.Record{a1, a2, a3}, parked: []string{"b1"}},
		"a lost one":                           {records: []embedded.Record{a1, a3, b1}, want: []string{"lost: a2, subject a, version 2"}},
		"a reordered pair":                     {records: []embedded.Record{a1, a3, a2, b1}, want: []string{"out of order: subject a, version 2 after 3"}},
		"a duplicate with a ce_id of its own":  {records: []embedded.Record{a1, a2, a3, b1, record("x", "b", 1)}, want: []string{"a record that nobody committed: ce_id x, key b, subject b, version 1"}},
		"a ce_id of another subject":           {records: []embedded.Record{a1, a2, a3, record("b1", "c", 1)}, want: []string{"a record that nobody committed: ce_id b1, key c, subject c, version 1", "lost: b1, subject b, version 1"}},
		"a ce_id of another version":           {records: []embedded.Record{a1, a2, a3, record("b1", "b", 2)}, want: []string{"a record that nobody committed: ce_id b1, key b, subject b, version 2", "lost: b1, subject b, version 1"}},
		"another key":                          {records: []embedded.Record{a1, a2, a3, otherKey}, want: []string{"a record that nobody committed: ce_id b1, key a, subject b, version 1", "lost: b1, subject b, version 1"}},
		"a key in two partitions":              {records: []embedded.Record{a1, a2, elsewhere, b1}, want: []string{"key a is in partitions 0 and 5"}},
		"one that is parked and delivered too": {records: []embedded.Record{a1, a2, a3, b1}, parked: []string{"b1"}, want: []string{"parked and delivered: b1, subject b, version 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			counts, findings := checkDelivery(messages, test.parked, test.records)
			if !slices.Equal(findings, test.want) || counts.repetitions != test.repetitions {
				t.Errorf("%d repetitions, %q; want %d, %q", counts.repetitions, findings, test.repetitions, test.want)
			}
		})
	}
}
