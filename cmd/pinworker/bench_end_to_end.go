package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/pin-platform/pinworker/adapters/embedded"
	"github.com/pin-platform/pinworker/adapters/kafka"
	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/adapters/postgres"
	appcrm "github.com/pin-platform/pinworker/app/crm"
	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/ports"
	"github.com/pin-platform/pinworker/sql/bench"
)

func newBenchEndToEnd(global *globals, std streams) *cobra.Command {
	b := benchRelay{std: std}
	leads, singles := 100_000, 300
	cmd := &cobra.Command{
		Use:   "end-to-end",
		Short: "Measure from leads that are due to Kafka's acknowledgement",
		Long: `Has leads come due all at once, PostgreSQL's fsync on, and measures until the last is expired and
until Kafka has acknowledged the last message, with the job and the relay of one worker; then, on the
idle worker, from the commit of one lead to the acknowledgement of its message.

With --kafka-jars it starts Apache Kafka itself; without, a broker in this process, whose figures say
nothing of Kafka.`,
		Example: "  pinworker bench end-to-end --kafka-jars /opt/kafka/libs\n  pinworker bench end-to-end --leads 5000 --singles 50 --json",
		Args:    cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.IntVar(&leads, "leads", leads, "leads that come due at once, 500 to 1000000")
	flags.IntVar(&singles, "singles", singles, "leads that come due one by one, 10 to 10000")
	flags.StringVar(&b.jars, "kafka-jars", "", "a folder with Apache Kafka's jars")
	cmd.RunE = command(func(cmd *cobra.Command, _ []string) error {
		switch {
		case leads < 500 || leads > 1_000_000:
			return usage("--leads %d: allowed is a whole number from 500 to 1000000", leads)
		case singles < 10 || singles > 10_000:
			return usage("--singles %d: allowed is a whole number from 10 to 10000", singles)
		}
		report, err := b.endToEnd(cmd.Context(), leads, singles)
		if err != nil {
			return err
		}
		if global.json {
			return writeJSON(std.out, report)
		}
		_, err = fmt.Fprintf(std.out, "Kafka: %s\n%d leads due at once: expired in %.1f s, acknowledged in %.1f s, at most %.0f MiB of heap in use\n"+
			"One lead on an idle worker, from commit to acknowledgement: p50 %.1f ms, p99 %.1f ms\n",
			report.Kafka, report.Leads, report.Expired, report.Acked, report.HeapMiB, report.P50, report.P99)
		return err
	})
	return cmd
}

// endToEndReport is the JSON document.
type endToEndReport struct {
	Kafka   string  `json:"kafka"`
	Leads   int     `json:"leads"`
	Expired float64 `json:"expired_seconds"`
	Acked   float64 `json:"acked_seconds"`
	HeapMiB float64 `json:"heap_mib"` // most in use
	P50     float64 `json:"commit_to_ack_p50_ms"`
	P99     float64 `json:"commit_to_ack_p99_ms"`
}

// ackCounter is an outbox.Observer that counts.
type ackCounter struct {
	acked atomic.Int64
	heard chan struct{}
}

func (c *ackCounter) Published(_ string, n int, _ []time.Duration) {
	c.acked.Add(int64(n))
	select {
	case c.heard <- struct{}{}:
	default:
	}
}

func (*ackCounter) Parked(string) {}
func (*ackCounter) HeldUp(string) {}

// until waits for the n-th acknowledgement.
func (c *ackCounter) until(ctx context.Context, n int) error {
	for c.acked.Load() < int64(n) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.heard:
		}
	}
	return nil
}

func (b *benchRelay) endToEnd(ctx context.Context, leads, singles int) (report endToEndReport, err error) {
	server, err := embedded.StartPostgres(ctx, embedded.PostgresConfig{Durable: true})
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	if b.db, err = openBench(server.URL() + "&pool_max_conns=16"); err != nil {
		return report, err
	}
	defer b.db.Close()
	migrator := postgres.NewMigrator(b.db, "crm")
	if err := errors.Join(migrator.UpAll(ctx), migrator.Close()); err != nil {
		return report, err
	}
	var started relayReport
	closeKafka, err := b.startKafka(ctx, &started)
	if err != nil {
		return report, err
	}
	defer closeKafka()
	report.Kafka, report.Leads = started.Kafka, leads
	for i, n := range []int{leads, singles} {
		if _, err := b.db.Pool.Exec(ctx, bench.Statement("fill_leads"), n, benchDay(i)); err != nil {
			return report, err
		}
	}
	if _, err := b.db.Pool.Exec(ctx, "VACUUM ANALYZE"); err != nil {
		return report, err
	}
	publisher, err := kafka.NewPublisher(b.kafkaConfig(0))
	if err != nil {
		return report, err
	}
	counter := &ackCounter{heard: make(chan struct{}, 1)}
	relay := outbox.NewRelay(b.db.Pool, outbox.Table{Schema: "crm"}, publisher, outbox.RelayConfig{
		BatchSize: 500, PollInterval: time.Second, ShutdownGrace: time.Second, Refused: kafka.Refused,
	}, counter, slog.New(slog.DiscardHandler))
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(running) }()
	due := postgres.NewCRM(b.db, outbox.NewWriter(outbox.Table{Schema: "crm"}, "pin/crm", relay.Wake)).Due
	err = report.atOnce(ctx, due, counter)
	if err == nil {
		err = report.oneByOne(ctx, due, counter, singles)
	}
	stop()
	return report, errors.Join(err, <-ended, publisher.Close())
}

func (r *endToEndReport) atOnce(ctx context.Context, due ports.DueLeads, counter *ackCounter) error {
	watching, enough := context.WithCancel(ctx)
	peak := make(chan float64)
	go func() {
		most := 0.0
		for watching.Err() == nil {
			var memory runtime.MemStats
			runtime.ReadMemStats(&memory)
			most = max(most, float64(memory.HeapInuse)/(1<<20))
			select {
			case <-watching.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
		peak <- round3(most)
	}()
	began := time.Now()
	job := appcrm.ExpireLeads{Leads: due, Clock: time.Now, Limits: cycle.Limits{BatchSize: 500, MaxBatches: r.Leads, Interval: time.Hour}}
	done, err := job.Run(ctx, cycle.Tick{Run: ports.NewRunID(), AsOf: benchDay(0)})
	r.Expired = round3(time.Since(began).Seconds())
	if err == nil && done.ExpiredCount != r.Leads {
		err = fmt.Errorf("%d of %d leads expired", done.ExpiredCount, r.Leads)
	}
	if err == nil {
		err = counter.until(ctx, r.Leads)
	}
	r.Acked = round3(time.Since(began).Seconds())
	enough()
	r.HeapMiB = <-peak
	return err
}

func (r *endToEndReport) oneByOne(ctx context.Context, due ports.DueLeads, counter *ackCounter, singles int) error {
	claim := ports.Claim{AsOf: benchDay(1), Limit: 1, Run: ports.NewRunID()}
	var took []float64
	for n := range singles {
		outcome, err := due.Transition(ctx, claim, appcrm.Expire)
		began := time.Now()
		if err == nil && len(outcome.Applied) != 1 {
			err = errors.New("no lead expired")
		}
		if err == nil {
			err = counter.until(ctx, r.Leads+n+1)
		}
		if err != nil {
			return err
		}
		took = append(took, time.Since(began).Seconds()*1000)
		claim.After = outcome.Next
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond): // idle again
		}
	}
	slices.Sort(took)
	r.P50, r.P99 = round3(took[len(took)/2]), round3(took[len(took)*99/100])
	return nil
}
