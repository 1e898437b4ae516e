package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/pin-platform/pinworker/adapters/kafka"
	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/adapters/postgres"
	"github.com/pin-platform/pinworker/adapters/telemetry"
	appcrm "github.com/pin-platform/pinworker/app/crm"
	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/cmd/pinworker/internal/settings"
	"github.com/pin-platform/pinworker/ports"
	"github.com/pin-platform/pinworker/sql/bench"
)

func newBenchEndToEnd(global *globals, std streams) *cobra.Command {
	b := benchEndToEnd{benchRelay: benchRelay{std: std}}
	cmd := &cobra.Command{
		Use:   "end-to-end",
		Short: "Measure from leads that are due to Kafka's acknowledgement, stage by stage",
		Long: `Has leads come due all at once, PostgreSQL's fsync on, and measures when the last of them has passed
each stage, with the job and the relay of one worker and all their telemetry. Then, on the idle worker,
leads come due one by one, and it measures how long each stage takes:

  claim    from the moment due, at which a page is asked for, until the rule is asked about the lead
  commit   until the lead, its event and its message are committed
  relay    until the relay has read the message, and hands it to Kafka's client
  ack      until Kafka has acknowledged it

With --kafka-jars it starts Apache Kafka itself; without, a broker in this process, whose figures say
nothing of Kafka.`,
		Example: "  pinworker bench end-to-end --kafka-jars /opt/kafka/libs\n  pinworker bench end-to-end --leads 5000 --singles 50 --json",
		Args:    cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.IntVar(&b.leads, "leads", 100_000, "leads that come due at once, 500 to 1000000")
	flags.IntVar(&b.singles, "singles", 300, "leads that come due one by one, 10 to 10000")
	flags.StringVar(&b.jars, "kafka-jars", "", "a folder with Apache Kafka's jars")
	cmd.RunE = command(func(cmd *cobra.Command, _ []string) error {
		switch {
		case b.leads < 500 || b.leads > 1_000_000:
			return usage("--leads %d: allowed is a whole number from 500 to 1000000", b.leads)
		case b.singles < 10 || b.singles > 10_000:
			return usage("--singles %d: allowed is a whole number from 10 to 10000", b.singles)
		}
		report, err := b.run(cmd.Context())
		return show(global, std, report, err)
	})
	return cmd
}

// endToEndReport is the JSON document.
type endToEndReport struct {
	Kafka   string        `json:"kafka"`
	Leads   int           `json:"leads"`
	Singles int           `json:"singles"`
	Stages  []stageReport `json:"stages"`
	HeapMiB float64       `json:"heap_mib"` // most in use
	// From a single's commit to Kafka's acknowledgement, its last two stages together.
	P50 float64 `json:"commit_to_ack_p50_ms"`
	P99 float64 `json:"commit_to_ack_p99_ms"`
}

type stageReport struct {
	Stage string `json:"stage"`
	// Last is when the last of the leads that were due at once had passed it.
	Last float64 `json:"last_seconds"`
	// Of a single, from the stage before.
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

func (r endToEndReport) print(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "Kafka: %s\n%d leads due at once, at most %.0f MiB of heap in use; then %d, one by one\n", r.Kafka, r.Leads, r.HeapMiB, r.Singles); err != nil {
		return err
	}
	g := newGrid(w, "STAGE", "LAST OF THOSE AT ONCE", "ONE BY ONE: P50", "P99")
	for _, s := range r.Stages {
		g.row(s.Stage, fmt.Sprintf("%.2f s", s.Last), fmt.Sprintf("%.1f ms", s.P50), fmt.Sprintf("%.1f ms", s.P99))
	}
	g.row("from commit to ack", "", fmt.Sprintf("%.1f ms", r.P50), fmt.Sprintf("%.1f ms", r.P99))
	return g.flush()
}

type benchEndToEnd struct {
	benchRelay

	leads, singles int
}

func (b *benchEndToEnd) run(ctx context.Context) (report endToEndReport, err error) {
	database, err := startBench(ctx, "", "crm")
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, database.close()) }()
	b.db = database.DB
	var started relayReport
	closeKafka, err := b.startKafka(ctx, &started)
	if err != nil {
		return report, err
	}
	defer closeKafka()
	for i, n := range []int{b.leads, b.singles} {
		if _, err := b.db.Pool.Exec(ctx, bench.Statement("fill_leads"), n, benchDay(i)); err != nil {
			return report, err
		}
	}
	if _, err := b.db.Pool.Exec(ctx, "VACUUM ANALYZE"); err != nil {
		return report, err
	}
	report = endToEndReport{Kafka: started.Kafka, Leads: b.leads, Singles: b.singles}
	return report, b.measure(ctx, database.server.URL(), &report)
}

// measure has a worker as serve has it, but for the stages that are noted on the way.
func (b *benchEndToEnd) measure(ctx context.Context, url string, report *endToEndReport) (err error) {
	s, _, err := settings.Load(settings.Sources{Flags: []string{"database.url=" + url, "jobs.lead-expiration.enabled=false"}})
	if err != nil {
		return err
	}
	w, err := newWorker(s, io.Discard, "crm")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if w.publisher, err = kafka.NewPublisher(b.kafkaConfig(0)); err != nil {
		return err
	}
	c, j := w.contexts[0], newJourney()
	relay := outbox.NewRelay(c.db.Pool, c.table, stagedPublisher{w.publisher, j}, outbox.RelayConfig{
		BatchSize: s.Relay.BatchSize, PollInterval: s.Relay.PollInterval, ShutdownGrace: s.Relay.ShutdownGrace, Refused: kafka.Refused,
	}, w.outboxes, w.log)
	leads := stagedLeads{postgres.NewCRM(c.db, outbox.NewWriter(c.table, "pin/crm", func() {
		j.reach(committed, 0)
		relay.Wake()
	})).Due, j}
	job := telemetry.LeadExpiration(w.sinks, appcrm.ExpireLeads{
		Leads: leads, Clock: time.Now,
		Limits: cycle.Limits{BatchSize: s.LeadExpiration.BatchSize, MaxBatches: b.leads, Interval: s.LeadExpiration.Interval},
	})

	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(running) }()
	last, err := b.atOnce(ctx, job, j, report)
	var took [stages][]float64
	var fromCommit []float64
	if err == nil {
		took, fromCommit, err = b.oneByOne(ctx, leads, j)
	}
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	for s := range stages {
		report.Stages = append(report.Stages, stageReport{s.String(), last[s], round3(median(took[s])), round3(p99(took[s]))})
	}
	report.P50, report.P99 = round3(median(fromCommit)), round3(p99(fromCommit))
	return nil
}

// atOnce drains all that is due, and returns after how many seconds the last lead has passed each stage.
func (b *benchEndToEnd) atOnce(
	ctx context.Context, job func(context.Context, cycle.Tick) (appcrm.LeadsExpired, error), j *journey, report *endToEndReport,
) (last [stages]float64, err error) {
	watching, enough := context.WithCancel(ctx)
	peak := make(chan float64)
	go func() { peak <- mostHeap(watching) }()
	began := time.Now()
	done, err := job(ctx, cycle.Tick{Run: ports.NewRunID(), AsOf: benchDay(0)})
	if err == nil && done.ExpiredCount != b.leads {
		err = fmt.Errorf("%d of %d leads expired", done.ExpiredCount, b.leads)
	}
	var at [stages]time.Time
	if err == nil {
		at, err = j.until(ctx, b.leads)
	}
	enough()
	report.HeapMiB = round3(<-peak)
	for s := range stages {
		last[s] = round3(at[s].Sub(began).Seconds())
	}
	return last, err
}

// mostHeap watches, and returns how many MiB of heap were in use at most.
func mostHeap(ctx context.Context) (most float64) {
	for {
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		most = max(most, float64(memory.HeapInuse)/(1<<20))
		select {
		case <-ctx.Done():
			return most
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// oneByOne takes leads while nothing else happens, and returns how many milliseconds each was in a stage.
func (b *benchEndToEnd) oneByOne(ctx context.Context, leads ports.DueLeads, j *journey) (took [stages][]float64, fromCommit []float64, err error) {
	claim := ports.Claim{AsOf: benchDay(1), Limit: 1, Run: ports.NewRunID()}
	millis := func(from, to time.Time) float64 { return to.Sub(from).Seconds() * 1000 }
	for n := range b.singles {
		before := time.Now()
		outcome, err := leads.Transition(ctx, claim, appcrm.Expire)
		if err == nil && len(outcome.Applied) != 1 {
			err = errors.New("no lead expired")
		}
		if err != nil {
			return took, nil, err
		}
		at, err := j.until(ctx, b.leads+n+1)
		if err != nil {
			return took, nil, err
		}
		for s := range stages {
			took[s] = append(took[s], millis(before, at[s]))
			before = at[s]
		}
		fromCommit = append(fromCommit, millis(at[committed], at[acked]))
		claim.After = outcome.Next
		select {
		case <-ctx.Done():
			return took, nil, ctx.Err()
		case <-time.After(20 * time.Millisecond): // idle again
		}
	}
	return took, fromCommit, nil
}
