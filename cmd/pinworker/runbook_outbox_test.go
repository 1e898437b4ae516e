package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/app/published"
)

const outboxBacklog, outboxStuck = "outbox-backlog", "outbox-stuck"

var outboxSituations = []situation{
	{
		page: outboxStuck, cause: "The topic takes smaller messages only",
		given: func(k *terminal) {
			k.kafkaAndItsTools()
			k.run(`kafka-configs.sh --bootstrap-server "$PINWORKER_KAFKA_BROKERS" --alter --entity-type topics --entity-name pin.crm.lead-expired.v1 --add-config max.message.bytes=200`)
			k.register(3)
			k.serve()
			eventually(k.T, "the messages are parked", func() bool { return k.count("SELECT count(*) FROM crm.outbox_parked") == 3 })
		},
		then: func(k *terminal) { k.wantPublishedAtLeast(k.broker, 3) },
	},
	{
		page: outboxStuck, cause: "It is no message of ours",
		given: func(k *terminal) {
			k.kafka()
			k.execute(`INSERT INTO crm.outbox (topic, shard, key, uuid, created_at, payload)
				VALUES ('pin.crm.lead-expired.v1', 0, 'a', gen_random_uuid(), now(), 'by hand')`)
			k.serve()
			eventually(k.T, "it is parked", func() bool { return k.count("SELECT count(*) FROM crm.outbox_parked") == 1 })
		},
		then: func(k *terminal) {
			if n := k.count("SELECT count(*) FROM crm.outbox_parked WHERE discard_reason = 'written by hand, ticket 4711'"); n != 1 {
				k.Errorf("%d are kept with their reason; want 1", n)
			}
		},
	},
	{
		page: outboxStuck, cause: "The topic is missing",
		given: func(k *terminal) {
			k.kafkaAndItsTools()
			k.run(`kafka-topics.sh --bootstrap-server "$PINWORKER_KAFKA_BROKERS" --delete --topic pin.crm.lead-expired.v1`)
			k.register(3)
			k.serve()
			k.waits(3)
		},
		then: func(k *terminal) { k.wantPublishedAtLeast(k.broker, 3) },
	},
	{
		page: outboxBacklog, cause: "Kafka is away",
		given: func(k *terminal) {
			k.env["PINWORKER_KAFKA_BROKERS"] = fmt.Sprintf("127.0.0.1:%d", embeddedtest.FreePort(k.T))
			k.register(20)
			k.serve()
			k.waits(20)
			eventually(k.T, "the relay has tried", func() bool {
				return k.run(`curl -s "http://$WORKER/metrics" | grep -c '^outbox_publish_errors_total.*transient.*lead.* [1-9]'`) == "1\n"
			})
		},
		others: kafkaComesBack,
		then:   func(k *terminal) { k.wantPublishedAtLeast(k.broker, 20) },
	},
	{
		page: outboxBacklog, cause: "No worker serves",
		given: func(k *terminal) {
			k.kafka()
			k.register(20)
			done[runResult](k.T, "run", "lead-expiration")
		},
		then: func(k *terminal) { k.wantPublishedAtLeast(k.broker, 20) },
	},
	{
		page: outboxBacklog, cause: "A forgotten transaction",
		given: func(k *terminal) {
			k.kafka()
			k.register(20)
			done[runResult](k.T, "run", "lead-expiration")
			k.forget("psql", "SELECT FROM crm.outbox FOR UPDATE")
			k.serve()
			eventually(k.T, "it is seen", func() bool { return k.run("pinworker doctor | grep -c 'application psql.*holds back'") != "0\n" })
		},
		then: func(k *terminal) { k.wantPublishedAtLeast(k.broker, 20) },
	},
	{
		page: outboxBacklog, cause: "One key has it all",
		given: func(k *terminal) {
			k.slowKafka().slow.Store(true)
			lead := k.register(1)[0].Lead
			_, job := k.worker.job("lead-expiration")
			for range 150 {
				now := time.Now()
				_, err := job.run(k.Context(), cycle.Begin(now))
				k.must(err)
				k.must(k.worker.crm.Extend(k.Context(), "agent", lead, now.UTC().Truncate(time.Microsecond)))
			}
			k.serve()
		},
		others: getsWell,
		then:   func(k *terminal) { k.wantPublishedAtLeast(k.broker, 151) },
	},
	{
		page: outboxBacklog, cause: "Kafka is slow, or more comes than it takes",
		given: func(k *terminal) {
			kafka := k.slowKafka()
			k.register(20)
			k.serve()
			eventually(k.T, "some are sent", func() bool { return k.everythingDone(20) })
			kafka.slow.Store(true)
			k.register(200)
			done[runResult](k.T, "run", "lead-expiration")
		},
		others: getsWell,
		then:   func(k *terminal) { k.wantPublishedAtLeast(k.broker, 220) },
	},
	{
		page: outboxBacklog, cause: "Nobody carries them",
		given: func(k *terminal) {
			k.kafka()
			k.register(20)
			k.env["PINWORKER_RELAY_ENABLED"] = "false"
			k.serve()
			delete(k.env, "PINWORKER_RELAY_ENABLED")
			k.waits(20)
		},
		then: func(k *terminal) { k.wantPublishedAtLeast(k.broker, 20) },
	},
}

// kafkaAndItsTools starts Apache Kafka, for pages that use the programs that come with it.
func (k *terminal) kafkaAndItsTools() {
	k.Helper()
	if os.Getenv(embeddedtest.KafkaJars) == "" {
		k.Skip("needs Apache Kafka's tools: " + embeddedtest.KafkaJars)
	}
	k.kafka()
}

// kafkaComesBack starts one where it was away.
func kafkaComesBack(k *terminal) {
	var port int
	_, err := fmt.Sscanf(k.env["PINWORKER_KAFKA_BROKERS"], "127.0.0.1:%d", &port)
	k.must(err)
	k.broker = embeddedtest.Kafka(k.T, port, published.Topics...)
}

// slowKafka takes its time: from the moment that it gets slow until it gets well.
type slowKafka struct {
	*kfake.Cluster
	slow atomic.Bool
	well func()
}

func (k *slowKafka) Brokers() []string { return k.ListenAddrs() }

func (k *terminal) slowKafka() *slowKafka {
	k.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(8, published.Topics...))
	k.must(err)
	well := make(chan struct{})
	slow := &slowKafka{Cluster: cluster, well: sync.OnceFunc(func() { close(well) })}
	k.Cleanup(func() { slow.well(); slow.Close() })
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		if slow.slow.Load() {
			cluster.SleepControl(func() { <-well })
		}
		return nil, nil, false //nolint:nilnil // it is kfake that answers
	})
	k.broker, k.env["PINWORKER_KAFKA_BROKERS"] = slow, slow.Brokers()[0]
	return slow
}

func getsWell(k *terminal) { k.broker.(*slowKafka).well() }

// waits returns once so many of the crm's messages wait.
func (k *terminal) waits(messages int) {
	k.Helper()
	eventually(k.T, "the messages wait", func() bool { return k.count("SELECT count(*) FROM crm.outbox") == messages })
}

// forget leaves another user's transaction open, and lets doctor see it, soon.
func (k *terminal) forget(application, statement string) {
	k.Helper()
	k.execute("GRANT pg_read_all_stats TO worker")
	k.Cleanup(func() { // the role is all databases'
		_, err := k.context("crm").db.Pool.Exec(context.Background(), "REVOKE pg_read_all_stats FROM worker")
		k.must(err)
	})
	k.env[impatient] = "2s"
	conn, err := pgx.Connect(k.Context(), k.owner+"&application_name="+application)
	k.must(err)
	k.Cleanup(func() { conn.Close(context.Background()) }) //nolint:errcheck // it was ended
	tx, err := conn.Begin(k.Context())
	k.must(err)
	_, err = tx.Exec(k.Context(), statement)
	k.must(err)
}
