package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pin-platform/pinworker/adapters/embedded"
	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/ports"
)

// services are what faults come over: a PostgreSQL of their own, three brokers of Apache Kafka on a
// disk that can be made full, and a network in between that can be spoilt.
type services struct {
	postgres *embedded.Postgres
	database string // its URL, for the worker's role
	owner    *pgxpool.Pool
	kafka    *embedded.ApacheKafka
	client   *kgo.Client // beside the worker's
	admin    *kadm.Client
	disk     *disk
	network  *network
}

func startServices(t *testing.T, jars string) *services {
	t.Helper()
	s := &services{disk: mountDisk(t), network: newNetwork(t)}
	var database string
	s.postgres, database = embeddedtest.OwnServer(t)
	s.database = embeddedtest.AsWorker(t, database)
	s.network.database(t, s.database)
	s.keepRecord(t, database)
	var err error
	s.kafka, err = embedded.StartApacheKafkaCluster(t.Context(), embedded.ApacheKafkaConfig{
		Jars: jars, Brokers: 3, Folder: s.disk.folder, Through: s.network.broker,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kafka.Close)
	s.client, err = kgo.NewClient(kgo.SeedBrokers(s.kafka.Brokers()...), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.client.Close)
	s.admin = kadm.NewClient(s.client)
	return s
}

// keepRecord has the database write down each message that is committed to the outbox.
func (s *services) keepRecord(t *testing.T, database string) {
	t.Helper()
	config, err := pgxpool.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.RuntimeParams["default_transaction_read_only"] = "off" // whatever the server's is
	if s.owner, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.owner.Close)
	if _, err = s.owner.Exec(t.Context(), `
		CREATE TABLE committed (n bigint GENERATED ALWAYS AS IDENTITY, topic text, id uuid, subject text, version integer);
		CREATE FUNCTION keep_record() RETURNS trigger LANGUAGE plpgsql AS $$
		DECLARE headers json := convert_from(NEW.payload, 'UTF8')::json -> 'metadata';
		BEGIN
			INSERT INTO committed (topic, id, subject, version)
			VALUES (NEW.topic, NEW.uuid, headers ->> 'ce_subject', (headers ->> 'ce_aggregateversion')::integer);
			RETURN NULL;
		END $$;
		CREATE TRIGGER keep_record AFTER INSERT ON crm.outbox FOR EACH ROW EXECUTE FUNCTION keep_record()`,
		pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
}

// trial is one fault's: its own topic, its choices, and what was seen of it.
type trial struct {
	*testing.T
	*services
	full     bool
	topic    string
	choice   *rand.Rand
	versions map[uuid.UUID]int
	before   []embedded.Record // of a topic that was deleted since
	seen     map[string]int
	longest  time.Duration // that the messages took to be delivered, from when all was well again
	worker   *workerProcess
}

func newTrial(t *testing.T, s *services, name string, seed uint64, full bool) *trial {
	t.Helper()
	h := fnv.New64a()
	h.Write([]byte(name))
	topic := "fault." + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	r := &trial{
		T: t, services: s, full: full, topic: topic, choice: rand.New(rand.NewPCG(seed, h.Sum64())),
		versions: make(map[uuid.UUID]int), seen: make(map[string]int),
	}
	r.createTopic()
	return r
}

// createTopic makes the trial's topic as a production's is: each record on two brokers of three, at least.
func (r *trial) createTopic() {
	r.Helper()
	minimum := "2"
	eventually(r.T, "the topic is made", func() bool { // one of its name may still be on its way out
		created, err := r.admin.CreateTopics(r.Context(), embedded.Partitions, 3, map[string]*string{"min.insync.replicas": &minimum}, r.topic)
		return err == nil && created.Error() == nil
	})
	r.replicated()
}

// replicated waits until each partition of the topic has a leader and all of its replicas.
func (r *trial) replicated() {
	r.Helper()
	eventually(r.T, "all replicas are in sync", func() bool {
		partitions := r.partitions()
		return len(partitions) == embedded.Partitions &&
			!slices.ContainsFunc(partitions, func(p kadm.PartitionDetail) bool { return p.Leader < 0 || len(p.ISR) < 3 })
	})
}

// partitions is what Kafka tells of the topic's partitions: none where it tells nothing.
func (r *trial) partitions() []kadm.PartitionDetail {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	topics, err := r.admin.ListTopics(ctx, r.topic)
	if err != nil || topics.Error() != nil {
		return nil
	}
	return topics[r.topic].Partitions.Sorted()
}

// see counts something that was seen of the fault.
func (r *trial) see(what string, times int) { r.seen[what] += times }

// moment lets a time of the run's choice pass: it is when the fault comes.
func (r *trial) moment(most time.Duration) { time.Sleep(time.Duration(r.choice.Int64N(int64(most)))) }

const subjects = 60 // of a trial

// write commits n messages about subjects of the run's choice, each the next version of its subject.
func (r *trial) write(n int) { r.Helper(); r.writeSized(n, 20) }

func (r *trial) writeSized(n, payload int) {
	r.Helper()
	messages := make([]ports.Message, n)
	for i := range messages {
		subject := uuid.NewSHA1(uuid.NameSpaceURL, []byte(r.topic))
		subject[15] = byte(r.choice.IntN(subjects))
		r.versions[subject]++
		version := r.versions[subject]
		messages[i] = ports.Message{
			ID: uuid.NewSHA1(subject, fmt.Append(nil, version)), Topic: r.topic, Key: subject.String(), Subject: subject,
			Tenant: ids.TenantID{0xFA}, AggregateType: "Lead", AggregateVersion: version, ContractVersion: 1, OccurredAt: time.Now(),
			Payload: fmt.Appendf(nil, `{"Fill":"%s"}`, strings.Repeat("x", payload)),
		}
	}
	statement, args, err := outbox.NewWriter(outbox.Table{Schema: "crm"}, "pin/crm", func() {}).Compose(r.Context(), ports.RunID{}, messages)
	if err == nil {
		_, err = r.owner.Exec(r.Context(), statement, args...)
	}
	if err != nil {
		r.Fatal(err)
	}
}

func (r *trial) count(query string, args ...any) (n int) {
	r.Helper()
	if err := r.owner.QueryRow(r.Context(), query, args...).Scan(&n); err != nil {
		r.Fatal(err)
	}
	return n
}

// waiting is how many messages are in the outbox.
func (r *trial) waiting() int { r.Helper(); return r.count("SELECT count(*) FROM crm.outbox") }

// connections are those of the worker; lanes are those of them that hold a lane: they are in a round.
func (r *trial) connections() (all, lanes []int32) {
	r.Helper()
	err := r.owner.QueryRow(r.Context(), `SELECT coalesce(array_agg(pid), '{}'), coalesce(array_agg(pid) FILTER (WHERE holds), '{}') FROM (
			SELECT pid, EXISTS (SELECT FROM pg_locks AS l WHERE l.pid = a.pid AND locktype = 'advisory') AS holds
			FROM pg_stat_activity AS a WHERE usename = 'worker' ORDER BY pid
		) AS connection`).Scan(&all, &lanes)
	if err != nil {
		r.Fatal(err)
	}
	return all, lanes
}

// settled waits until the outbox is empty.
func (r *trial) settled() {
	r.Helper()
	begin := time.Now()
	within(r.T, 5*time.Minute, "the outbox is empty", func() bool { return r.waiting() == 0 })
	r.longest = max(r.longest, time.Since(begin))
}

// check reads Kafka from its beginning, and compares it with what was committed.
func (r *trial) check() (counts delivery, findings []string) {
	r.Helper()
	rows, err := r.owner.Query(r.Context(), "SELECT id::text, subject, version FROM committed WHERE topic = $1 ORDER BY n", r.topic)
	if err != nil {
		r.Fatal(err)
	}
	messages, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (m committedMessage, err error) {
		return m, row.Scan(&m.id, &m.subject, &m.version)
	})
	if err != nil {
		r.Fatal(err)
	}
	list, err := outbox.ListParked(r.Context(), r.owner, outbox.Table{Schema: "crm"})
	if err != nil {
		r.Fatal(err)
	}
	var parked []string
	for _, p := range list {
		if p.Topic == r.topic {
			parked = append(parked, p.Message.String())
		}
	}
	counts, findings = checkDelivery(messages, parked, append(r.before, r.records()...))
	for i, finding := range findings {
		if i == 20 {
			r.Errorf("and %d more", len(findings)-i)
			break
		}
		r.Error(finding)
	}
	if counts.committed == 0 {
		r.Error("nothing was committed")
	}
	return counts, findings
}

func (r *trial) records() []embedded.Record {
	r.Helper()
	records, err := embedded.ReadAll(r.Context(), r.kafka.Brokers(), r.topic) //nolint:forbidigo // cargo, of no contract
	if err != nil {
		r.Fatal(err)
	}
	return records
}
