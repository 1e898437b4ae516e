package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/IBM/sarama"

	"github.com/pin-platform/pinworker/adapters/embedded"
	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/app/published"
)

func TestBenchJobs_PrintsTheSpecifiedFields(t *testing.T) {
	got := done[struct {
		Results []struct {
			Job           string  `json:"job"`
			Variant       string  `json:"variant"`
			Workers       int     `json:"workers"`
			RoundTripMs   float64 `json:"round_trip_ms"`
			RowsPerSecond float64 `json:"rows_per_second"`
		} `json:"results"`
		Ratios   map[string]float64 `json:"ratios"`
		Workers2 float64            `json:"workers_2"`
		Held     *benchHeld         `json:"held_snapshot"`
	}](t, "bench", "jobs", "--due", "3000", "--batch", "50", "--rounds", "1",
		"--job", "lead-expiration,expire-promotions,appointment-timeout")
	var variants []string
	for _, r := range got.Results {
		if r.RowsPerSecond <= 0 {
			t.Errorf("result %+v", r)
		}
		variants = append(variants, fmt.Sprint(r.Job, " ", r.Variant, " ", r.Workers, " ", r.RoundTripMs))
	}
	for _, want := range []string{
		"lead-expiration pinworker 1 0", "lead-expiration limit 1 0", "lead-expiration bare 1 0",
		"lead-expiration pinworker 2 0", "lead-expiration limit 2 0", "lead-expiration bare 2 0",
		"expire-promotions pinworker 1 0", "expire-promotions limit 1 0",
		"appointment-timeout pinworker 1 0", "appointment-timeout pinworker-20 1 0", "appointment-timeout statement 1 0",
		"appointment-timeout pinworker 1 1", "appointment-timeout pinworker-20 1 1", "appointment-timeout statement 1 1",
	} {
		if !slices.Contains(variants, want) {
			t.Errorf("no %s among %q", want, variants)
		}
	}
	for _, job := range []string{"lead-expiration", "expire-promotions", "appointment-timeout"} {
		if got.Ratios[job] <= 0 {
			t.Errorf("%s: ratio %v", job, got.Ratios[job])
		}
	}
	if got.Held == nil || got.Held.Pages == 0 || got.Workers2 <= 0 {
		t.Errorf("report %+v; want the held snapshot and two workers", got)
	}
}

func TestBenchBloat_PrintsTheSpecifiedFieldsAndTheTableShrinks(t *testing.T) {
	got := done[bloatReport](t, "bench", "bloat", "--messages", "20000", "--rate", "3", "--naptime", "1s")
	var phases []string
	for _, p := range got.Phases {
		phases = append(phases, fmt.Sprint(p.Phase, " ", p.Messages))
		if p.MessagesPerSecond <= 0 || p.Beside <= 0 || p.Ratio <= 0 {
			t.Errorf("phase %+v", p)
		}
	}
	if want := []string{"before 4600", "held 10800", "after 4600"}; !slices.Equal(phases, want) {
		t.Errorf("phases %q; want %q", phases, want)
	}
	if got.Ratio <= 0 || got.RatioToBefore <= 0 || got.HeldSeconds <= 0 {
		t.Errorf("report %+v", got)
	}
	if most, left := got.Most.TableMiB, got.AfterVacuum.TableMiB; most < 10 || left > most/2 {
		t.Errorf("the table had %.1f MiB at most, and has %.1f; want it shrunk", most, left)
	}
}

func TestBenchRelay_PrintsTheSpecifiedFields(t *testing.T) {
	got := done[struct {
		Kafka   string
		Results []struct {
			Relay    string  `json:"relay"`
			Latency  *int    `json:"latency_ms"`
			Messages int     `json:"messages"`
			Rate     float64 `json:"messages_per_second"`
		} `json:"results"`
	}](t, "bench", "relay", "--messages", "200", "--rounds", "1")
	var measured []string
	for _, r := range got.Results {
		if r.Rate <= 0 || r.Latency == nil {
			t.Fatalf("result %+v", r)
		}
		measured = append(measured, fmt.Sprint(r.Relay, " ", *r.Latency, " ", r.Messages))
	}
	want := []string{"pinworker 0 200", "stock 0 100", "raw 0 200", "pinworker 5 200", "stock 5 100", "raw 5 200"}
	if !slices.Equal(measured, want) || got.Kafka != "in process" {
		t.Errorf("results %q, Kafka %q; want %q in process", measured, got.Kafka, want)
	}
}

func TestBenchRelay_EveryWaySendsTheSame(t *testing.T) {
	db, err := openBench(embeddedtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	names := make(map[string]string)
	for _, way := range relayWays {
		b := benchRelay{std: streams{err: io.Discard}, messages: 5000, db: db} // a lane has more than one batch
		b.brokers = embeddedtest.Kafka(t, 0, published.TopicLeadExpired).Brokers()
		if _, err := b.carry(t.Context(), way, 0); err != nil {
			t.Fatalf("%s: %v", way, err)
		}
		records, err := readBack(t.Context(), b.brokers, published.TopicLeadExpired) // it checks payload and headers
		if err != nil || len(records) != b.share(way) {
			t.Fatalf("%s: %d records, %v; want %d", way, len(records), err, b.share(way))
		}
		for _, r := range records {
			partition, err := sarama.NewMurmur2Partitioner(r.Topic).Partition(&sarama.ProducerMessage{Key: sarama.StringEncoder(r.Key)}, embedded.Partitions)
			if err != nil || partition != r.Partition {
				t.Fatalf("%s: key %s is in partition %d; want %d", way, r.Key, r.Partition, partition)
			}
			names[way] = strings.Join(slices.Sorted(maps.Keys(r.Headers)), " ")
			if names[way] != names["pinworker"] {
				t.Fatalf("%s: headers %s; want %s", way, names[way], names["pinworker"])
			}
		}
	}
}

func TestBenchEndToEnd_TellsEachStage(t *testing.T) {
	got := done[struct {
		Kafka   string  `json:"kafka"`
		Leads   int     `json:"leads"`
		Singles int     `json:"singles"`
		HeapMiB float64 `json:"heap_mib"`
		P50     float64 `json:"commit_to_ack_p50_ms"`
		P99     float64 `json:"commit_to_ack_p99_ms"`
		Stages  []struct {
			Stage string  `json:"stage"`
			Last  float64 `json:"last_seconds"`
			P50   float64 `json:"p50_ms"`
			P99   float64 `json:"p99_ms"`
		} `json:"stages"`
	}](t, "bench", "end-to-end", "--leads", "1100", "--singles", "10")
	var passed []string
	for _, s := range got.Stages {
		passed = append(passed, s.Stage)
		if s.Last <= 0 || s.P50 <= 0 || s.P99 < s.P50 {
			t.Errorf("stage %+v", s)
		}
	}
	if want := []string{"claim", "commit", "relay", "ack"}; !slices.Equal(passed, want) {
		t.Errorf("stages %q; want %q", passed, want)
	}
	if got.Kafka != "in process" || got.Leads != 1100 || got.Singles != 10 || got.HeapMiB <= 0 || got.P50 <= 0 || got.P99 < got.P50 {
		t.Errorf("report %+v", got)
	}
}
