package main

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pin-platform/pinworker/adapters/embedded"
	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/docs/consumer"
)

// publishedTwice has some leads expire, two of them for a second time, and all that this led to come again,
// the last first, and behind it a message that is older than what has come: one that was parked and released. It returns the
// ids of all, and each lead's latest version.
func (p *platform) publishedTwice(broker embeddedtest.Broker) (ids []string, latest map[string]int) {
	p.Helper()
	leads := p.register(6)
	for _, again := range []int{2, 0} {
		done[runResult](p.T, "run", "lead-expiration")
		for _, lead := range leads[:again] {
			p.must(p.worker.crm.Extend(p.Context(), "agent", lead.Lead, time.Now().UTC().Truncate(time.Microsecond)))
		}
	}
	s := serveWorker(p.T, "--set", "kafka.brokers="+broker.Brokers()[0])
	eventually(p.T, "all is published", func() bool { return p.count("SELECT count(*) FROM crm.outbox") == 0 })
	if code := s.stop(); code != exitDone {
		p.Errorf("exit %d: %s", code, &s.log)
	}
	records, err := readBack(p.Context(), broker.Brokers(), published.TopicLeadExpired)
	p.must(err)
	latest = make(map[string]int)
	late := embedded.Record{}
	for _, r := range records {
		version, _ := strconv.Atoi(r.Headers["ce_aggregateversion"])
		ids, latest[r.Headers["ce_subject"]] = append(ids, r.Headers["ce_id"]), version
		if version == 4 {
			late = r
		}
	}
	late.Headers = maps.Clone(late.Headers)
	late.Headers["ce_id"], late.Headers["ce_aggregateversion"] = uuid.NewString(), "1"
	ids = append(ids, late.Headers["ce_id"])
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Brokers()...))
	p.must(err)
	defer client.Close()
	slices.Reverse(records)
	for _, r := range append(records, late) {
		again := &kgo.Record{Topic: r.Topic, Key: []byte(r.Key), Value: r.Value}
		for name, value := range r.Headers {
			again.Headers = append(again.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
		p.must(client.ProduceSync(p.Context(), again).FirstErr())
	}
	slices.Sort(ids)
	return ids, latest
}

// caughtUp waits until a group has done all that a topic holds.
func caughtUp(t *testing.T, broker embeddedtest.Broker, group string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Brokers()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	eventually(t, "the group has done all there is", func() bool {
		lags, err := kadm.NewClient(client).Lag(t.Context(), group)
		lag := lags[group]
		return err == nil && lag.Error() == nil && len(lag.Lag) > 0 && lag.Lag.Total() == 0
	})
}

// Each example reads the topic to its end, is ended, and reads it from the beginning once more, as it would
// after its offsets were lost.
func TestConsumers_DoEachMessageOnceAndKeepTheLatest(t *testing.T) {
	p := newPlatform(t)
	broker := embeddedtest.Kafka(t, 0, published.TopicLeadExpired)
	ids, latest := p.publishedTwice(broker)
	check := func(t *testing.T, done []string, versions map[string]int) {
		t.Helper()
		if slices.Sort(done); !slices.Equal(done, ids) {
			t.Errorf("done are %q; want each once, %q", done, ids)
		}
		if !maps.Equal(versions, latest) {
			t.Errorf("versions %v; want %v", versions, latest)
		}
	}

	t.Run("in Go", func(t *testing.T) {
		pool, err := pgxpool.New(t.Context(), embeddedtest.EmptyDatabase(t))
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		if _, err := pool.Exec(t.Context(), consumer.Schema); err != nil {
			t.Fatal(err)
		}
		for _, group := range []string{"go", "go-again"} {
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- consumer.Run(ctx, broker.Brokers(), published.TopicLeadExpired, group, pool) }()
			caughtUp(t, broker, group)
			stop()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
		}
		var done []string
		var told int
		var versions map[string]int
		if err := pool.QueryRow(t.Context(), `SELECT ARRAY (SELECT ce_id::text FROM inbox), (SELECT count(*) FROM feed),
			(SELECT json_object_agg(lead, version) FROM leads)`).Scan(&done, &told, &versions); err != nil {
			t.Fatal(err)
		}
		check(t, done, versions)
		if told != len(ids) {
			t.Errorf("agents were told %d times; want %d", told, len(ids))
		}
	})

	t.Run("in Java", func(t *testing.T) {
		jars := os.Getenv(embeddedtest.KafkaJars)
		if jars == "" {
			t.Skip("set " + embeddedtest.KafkaJars + ": it runs on Kafka's own client")
		}
		file := filepath.Join(t.TempDir(), "feed")
		for _, group := range []string{"java", "java-again"} {
			ctx, stop := context.WithCancel(t.Context())
			cmd := exec.CommandContext(ctx, "java", "-cp", filepath.Join(jars, "*"), "../../docs/consumer/LeadFeed.java",
				broker.Brokers()[0], published.TopicLeadExpired, group, file)
			var log lockedBuffer
			cmd.Stdout, cmd.Stderr = &log, &log
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("%s", &log)
				}
			})
			caughtUp(t, broker, group)
			stop()
			cmd.Wait() //nolint:errcheck // it runs until it is killed
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var done []string
		versions := make(map[string]int)
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			done = append(done, fields[0])
			if version, _ := strconv.Atoi(fields[2]); fields[len(fields)-1] != "late" {
				versions[fields[1]] = version
			}
		}
		check(t, done, versions)
	})
}
