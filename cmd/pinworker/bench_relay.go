package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/pin-platform/pinworker/adapters/embedded"
	"github.com/pin-platform/pinworker/adapters/kafka"
	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/adapters/postgres"
	"github.com/pin-platform/pinworker/adapters/telemetry"
	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/ports"
)

func newBenchRelay(global *globals, std streams) *cobra.Command {
	b := benchRelay{std: std}
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Measure the outbox relay beside Watermill's own subscriber and beside no Watermill at all",
		Long: `Carries the same real messages (LeadExpiredEvent, all headers, envelopes) from PostgreSQL, fsync
on, to Kafka in three ways: our relay ("pinworker"); watermill-sql's subscriber through the forwarder
("stock"); lock, select, unwrap, send, delete in a transaction a batch, with the same lanes and batches and
no Watermill ("raw", the limit). What comes to Kafka is the same. Medians of the rounds.

Each as it is, and with 5 ms more of latency: whatever is sent to a broker arrives so much later, its
answers come as they are. The stock subscriber carries a tenth of the messages, as it sends them one by
one: all of them, with the latency, would take it an hour.

With --kafka-jars it starts Apache Kafka itself; without, a broker in this process, whose figures say
nothing of Kafka.`,
		Example: "  pinworker bench relay --kafka-jars /opt/kafka/libs\n  pinworker bench relay --messages 5000 --rounds 3 --json",
		Args:    cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.IntVar(&b.messages, "messages", 100_000, "messages a round, 100 to 1000000; the stock subscriber gets a tenth, 100 at least")
	flags.IntVar(&b.rounds, "rounds", 5, "rounds, 1 to 20")
	flags.StringVar(&b.jars, "kafka-jars", "", "a folder with Apache Kafka's jars")
	cmd.RunE = command(func(cmd *cobra.Command, _ []string) error {
		switch {
		case b.messages < 100 || b.messages > 1_000_000:
			return usage("--messages %d: allowed is a whole number from 100 to 1000000", b.messages)
		case b.rounds < 1 || b.rounds > 20:
			return usage("--rounds %d: allowed is a whole number from 1 to 20", b.rounds)
		}
		report, err := b.run(cmd.Context())
		return show(global, std, report, err)
	})
	return cmd
}

// relayReport is the JSON document.
type relayReport struct {
	Kafka   string        `json:"kafka"` // which one
	Results []relayResult `json:"results"`
}

type relayResult struct {
	Relay             string  `json:"relay"`
	LatencyMs         int     `json:"latency_ms"` // added
	Messages          int     `json:"messages"`   // a round
	MessagesPerSecond float64 `json:"messages_per_second"`
}

var relayWays = []string{"pinworker", "stock", "raw"}

type benchRelay struct {
	std              streams
	messages, rounds int
	jars             string

	db      *postgres.DB
	brokers []string
}

func (b *benchRelay) run(ctx context.Context) (report relayReport, err error) {
	database, err := startBench(ctx, "", "crm")
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, database.close()) }()
	b.db = database.DB
	closeKafka, err := b.startKafka(ctx, &report)
	if err != nil {
		return report, err
	}
	defer closeKafka()
	for _, latency := range []int{0, 5} {
		rates := make(map[string][]float64)
		for round := range b.rounds {
			line := []string{fmt.Sprintf("Round %d, %d ms more:", round+1, latency)}
			for _, way := range relayWays {
				rate, err := b.carry(ctx, way, time.Duration(latency)*time.Millisecond)
				if err != nil {
					return report, fmt.Errorf("%s: %w", way, err)
				}
				rates[way] = append(rates[way], rate)
				line = append(line, fmt.Sprintf("%s %.0f messages/s", way, rate))
			}
			fmt.Fprintln(b.std.err, strings.Join(line, "  ")) //nolint:errcheck // progress is a courtesy
		}
		for _, way := range relayWays {
			report.Results = append(report.Results, relayResult{way, latency, b.share(way), math.Round(median(rates[way]))})
		}
	}
	return report, nil
}

// startKafka starts the broker that was asked for.
func (b *benchRelay) startKafka(ctx context.Context, report *relayReport) (stop func(), err error) {
	if b.jars == "" {
		broker, err := embedded.StartKafka(0, published.TopicLeadExpired)
		if err != nil {
			return nil, err
		}
		report.Kafka, b.brokers = "in process", broker.Brokers()
		return broker.Close, nil
	}
	broker, err := embedded.StartApacheKafka(ctx, b.jars, 0, published.TopicLeadExpired)
	if err != nil {
		return nil, err
	}
	report.Kafka, b.brokers = "Apache Kafka", broker.Brokers()
	return broker.Close, nil
}

// kafkaConfig leads to the brokers, with some more latency on the way there.
func (b *benchRelay) kafkaConfig(latency time.Duration) kafka.Config {
	config := kafka.Config{Brokers: b.brokers, ClientID: "bench", KeyHeader: outbox.HeaderPartitionKey}
	if latency > 0 {
		config.Dial = func(network, address string) (net.Conn, error) {
			conn, err := net.Dial(network, address)
			if err != nil {
				return nil, err
			}
			near, far := net.Pipe()
			go later(conn, far, latency)
			go later(far, conn, 0)
			return near, nil
		}
	}
	return config
}

// share is how many messages a way carries in a round.
func (b *benchRelay) share(way string) int {
	if way == "stock" { // it is slow
		return max(100, b.messages/10)
	}
	return b.messages
}

// carry fills an outbox and measures how fast one way empties it.
func (b *benchRelay) carry(ctx context.Context, way string, latency time.Duration) (float64, error) {
	n := b.share(way)
	if _, err := b.db.Pool.Exec(ctx, "TRUNCATE crm.outbox; CHECKPOINT"); err != nil {
		return 0, err
	}
	config := b.kafkaConfig(latency)
	carry := map[string]func(context.Context, kafka.Config, int) (time.Duration, error){
		"pinworker": b.ours, "stock": b.stock, "raw": b.raw,
	}[way]
	took, err := carry(ctx, config, n)
	return float64(n) / took.Seconds(), err
}

// fill writes messages as the worker does.
func (b *benchRelay) fill(ctx context.Context, n int) error {
	const page = 500
	for written := 0; written < n; written += page {
		messages := make([]ports.Message, 0, page)
		for range min(page, n-written) {
			lead, err := crm.Restore(crm.Snapshot{
				ID: crm.LeadID(uuid.New()), TenantID: ids.TenantID(uuid.New()), ExecutorAgentUserID: ids.UserID(uuid.New()),
				PrimaryInvestorUserID: ids.UserID(uuid.New()), Status: crm.Expired, ExpiresAt: benchDay(0), ExpiredAt: benchDay(1), Version: 2,
			})
			if err != nil {
				return err
			}
			m, err := published.LeadExpired(lead, nil)
			if err != nil {
				return err
			}
			messages = append(messages, m...)
		}
		statement, args, err := benchWriter("crm").Compose(ctx, ports.NewRunID(), messages)
		if err != nil {
			return err
		}
		if _, err := b.db.Pool.Exec(ctx, statement, args...); err != nil {
			return err
		}
	}
	return nil
}

// emptied waits until a query counts nothing any more.
func (b *benchRelay) emptied(ctx context.Context, query string, args ...any) error {
	for {
		var left bool
		if err := b.db.Pool.QueryRow(ctx, query, args...).Scan(&left); err != nil || !left {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (b *benchRelay) ours(ctx context.Context, config kafka.Config, n int) (time.Duration, error) {
	if err := b.fill(ctx, n); err != nil {
		return 0, err
	}
	publisher, err := kafka.NewPublisher(config)
	if err != nil {
		return 0, err
	}
	relay := outbox.NewRelay(b.db.Pool, outbox.Table{Schema: "crm"}, publisher, outbox.RelayConfig{
		BatchSize: 500, PollInterval: time.Second, ShutdownGrace: time.Second, Refused: kafka.Refused,
	}, telemetry.NewOutbox(prometheus.NewRegistry(), outbox.Other), slog.New(slog.DiscardHandler))
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- relay.Run(running) }()
	err = b.emptied(ctx, "SELECT EXISTS (SELECT FROM crm.outbox)")
	took := time.Since(began)
	stop()
	return took, errors.Join(err, <-ended, publisher.Close())
}

// stock is watermill-sql's own subscriber, with its own table, in front of the same forwarder.
func (b *benchRelay) stock(ctx context.Context, config kafka.Config, n int) (took time.Duration, err error) {
	const topic = "stock"
	db := stdlib.OpenDBFromPool(b.db.Pool)
	defer func() { err = errors.Join(err, db.Close()) }()
	schema := watermillsql.DefaultPostgreSQLSchema{SubscribeBatchSize: 100}
	subscriber, err := watermillsql.NewSubscriber(db, watermillsql.SubscriberConfig{
		SchemaAdapter: schema, OffsetsAdapter: watermillsql.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true, PollInterval: 10 * time.Millisecond,
	}, watermill.NopLogger{})
	if err != nil {
		return 0, err
	}
	if err := subscriber.SubscribeInitialize(topic); err != nil {
		return 0, err
	}
	if err := b.fill(ctx, n); err != nil {
		return 0, err
	}
	_, err = db.ExecContext(ctx, `TRUNCATE watermill_stock; TRUNCATE watermill_offsets_stock;
		INSERT INTO watermill_stock (uuid, payload, metadata, transaction_id)
		SELECT uuid::text, convert_from(payload, 'UTF8')::json, '{}', pg_current_xact_id() FROM crm.outbox ORDER BY topic, shard, id`)
	if err != nil {
		return 0, err
	}
	publisher, err := kafka.NewPublisher(config)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, publisher.Close()) }()
	forward, err := forwarder.NewForwarder(subscriber, publisher, watermill.NopLogger{}, forwarder.Config{ForwarderTopic: topic, CloseTimeout: time.Second})
	if err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- forward.Run(ctx) }()
	err = b.emptied(ctx, `SELECT coalesce((SELECT max(offset_acked) FROM watermill_offsets_stock), 0) < (SELECT max("offset") FROM watermill_stock)`)
	took = time.Since(began)
	return took, errors.Join(err, forward.Close(), <-ended)
}

func (r relayReport) print(w io.Writer) error {
	g := newGrid(w, "RELAY", "ADDED LATENCY", "MESSAGES", "MESSAGES/S")
	for _, result := range r.Results {
		g.row(result.Relay, fmt.Sprintf("%d ms", result.LatencyMs), result.Messages, int(result.MessagesPerSecond))
	}
	if _, err := fmt.Fprintf(w, "Kafka: %s\n", r.Kafka); err != nil {
		return err
	}
	return g.flush()
}
