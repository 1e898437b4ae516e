package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/pin-platform/pinworker/adapters/kafka"
	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/cmd/pinworker/internal/settings"
	"github.com/pin-platform/pinworker/cmd/pinworker/internal/simulation"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/ports"
)

// simulateOptions are the command's flags.
type simulateOptions struct {
	plan   simulation.Plan
	settle time.Duration
}

func newSimulate(global *globals, std streams) *cobra.Command {
	var options simulateOptions
	plan := &options.plan
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Run the platform's operations beside workers that serve, and check all that came of it",
		Long: `Does what the platform's services do, at a rate, in the configured databases: leads are
registered, extended and archived, promotions bought and taken back, slots published and
booked, appointments confirmed, declined, cancelled and held, events planned, moved and
called off. Much of it comes due within seconds, and many operations come at that very
moment, to race the workers that serve beside it: start those first (pinworker serve).

When the time is over it waits, for --settle at most, until the workers have taken what is
due and the outboxes are empty. Then it checks: it recomputes from its own log of operations
what must have happened, and compares that with every stream, with every message that came
to Kafka, and each row with its stream (verify). Exit code 3: there are findings.

It needs a role that may do what the platform's services do, not only the worker's. What it
makes is made up, and it stays: it is all of one tenant, which is told at the start. The
messages go to the real topics. Keep it away from production.`,
		Example: `  pinworker simulate --config pinworker.yaml --rate 100 --for 1m
  pinworker simulate --rate 20 --for 1h --settle 5m --seed 7 --json`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.Float64Var(&plan.Rate, "rate", 20, "operations a second, above 0, at most 10000")
	flags.DurationVar(&plan.For, "for", time.Minute, "for how long, 1s to 24h")
	flags.DurationVar(&options.settle, "settle", 2*time.Minute, "how long to wait afterwards for what is due, 1s to 24h")
	flags.Uint64Var(&plan.Seed, "seed", 1, "the same seed makes the same choices; ids and moments are new each time")
	flags.IntVar(&plan.Concurrency, "concurrency", 16, "operations under way at once, 1 to 1000")
	cmd.RunE = command(func(cmd *cobra.Command, _ []string) error {
		switch {
		case !(plan.Rate > 0 && plan.Rate <= 10_000):
			return usage("--rate %v: allowed is a number above 0, at most 10000", plan.Rate)
		case plan.For < time.Second || plan.For > 24*time.Hour:
			return usage("--for %s: allowed is a duration from 1s to 24h", plan.For)
		case options.settle < time.Second || options.settle > 24*time.Hour:
			return usage("--settle %s: allowed is a duration from 1s to 24h", options.settle)
		case plan.Concurrency < 1 || plan.Concurrency > 1000:
			return usage("--concurrency %d: allowed is a whole number from 1 to 1000", plan.Concurrency)
		}
		return withContexts(cmd.Context(), global, std, settings.Settings.Served, (*worker).current, func(s settings.Settings, w *worker) error {
			for _, name := range jobNames {
				if _, j := w.job(name); j == nil {
					return usage("the job %s is disabled: the simulation is about all of them; set jobs.%s.enabled=true", name, name)
				}
			}
			config, err := kafkaConfig(s)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			return newSimulationRun(options, s, w, config, std.err).run(cmd.Context(), global.json, std.out)
		}, settings.EveryDatabase, settings.Kafka)
	})
	return cmd
}

// simulationRun is one run of the command.
type simulationRun struct {
	simulateOptions
	worker   *worker
	kafka    kafka.Config
	progress io.Writer
	log      simulation.Log
}

// simulationReport is the JSON document.
type simulationReport struct {
	simulation.Report
	Verify struct {
		Streams     int `json:"streams"`
		Differences int `json:"differences"`
	} `json:"verify"`
	Tenant  ids.TenantID `json:"tenant"`
	Seed    uint64       `json:"seed"`
	Rate    float64      `json:"rate"` // operations a second, as reached
	Seconds float64      `json:"seconds"`
}

func newSimulationRun(options simulateOptions, s settings.Settings, w *worker, to kafka.Config, progress io.Writer) *simulationRun {
	r := &simulationRun{simulateOptions: options, worker: w, progress: progress, kafka: to}
	r.plan.Tenant = ids.TenantID(uuid.New())
	r.plan.Late = min(s.ReminderDispatch.Interval, s.AppointmentTimeout.Interval, s.ExpirePromotions.Interval, s.LeadExpiration.Interval)
	for _, c := range w.contexts {
		for _, j := range c.jobs {
			if j.interval > r.settle {
				r.say("jobs.%s.interval is %s here: if the workers have it too, --settle %s is short", j.name, j.interval, r.settle)
			}
		}
	}
	return r
}

func (r *simulationRun) say(format string, args ...any) {
	fmt.Fprintf(r.progress, format+"\n", args...) //nolint:errcheck // progress is a courtesy
}

func (r *simulationRun) run(ctx context.Context, asJSON bool, out io.Writer) error {
	from, err := kafka.End(ctx, r.kafka, published.Topics...) // nothing before can be about what begins now
	if err != nil {
		return err
	}
	began := time.Now()
	r.say("Tenant %s, for %s, %v operations a second. Then what came of it is checked.", r.plan.Tenant, r.plan.For, r.plan.Rate)
	if err := r.operate(ctx); err != nil {
		return err
	}
	rate := float64(len(r.log.Operations())) / time.Since(began).Seconds()
	evidence, err := r.evidence(ctx, from)
	if err != nil {
		return err
	}
	report := simulationReport{Report: simulation.Check(evidence), Tenant: r.plan.Tenant, Seed: r.plan.Seed, Rate: rate}
	if err := r.verify(ctx, &report, evidence.Log); err != nil {
		return err
	}
	report.Seconds = time.Since(began).Seconds()
	if asJSON {
		err = writeJSON(out, report)
	} else {
		err = report.print(out)
	}
	if err == nil && len(report.Findings) > 0 {
		return &exitError{code: exitNotInOrder}
	}
	return err
}

// tellEvery is how often progress is told.
const tellEvery = 5 * time.Second

// operate runs the traffic.
func (r *simulationRun) operate(ctx context.Context) error {
	began, over := time.Now(), make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(tellEvery):
				r.say("%s", told(r.log.Operations(), time.Since(began)))
			}
		}
	})
	platform := simulation.Platform{Calendar: r.worker.calendar, Promotion: r.worker.promotion, CRM: r.worker.crm}
	err := simulation.Run(ctx, platform, r.plan, &r.log)
	close(over)
	telling.Wait()
	return err
}

// told is a line of progress.
func told(log []simulation.Operation, in time.Duration) string {
	kinds, outcomes := make(map[simulation.Kind]int), make(map[simulation.Outcome]int)
	for _, o := range log {
		kinds[o.Kind]++
		outcomes[o.Outcome]++
	}
	parts := make([]string, 0, len(kinds))
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		parts = append(parts, fmt.Sprintf("%s %d", kind, kinds[kind]))
	}
	return fmt.Sprintf("%4.0f s  %d operations, %.1f/s; %d refused, %d conflicts, %d unknown; %s", in.Seconds(), len(log), float64(len(log))/in.Seconds(),
		outcomes[simulation.Refused], outcomes[simulation.Conflict], outcomes[simulation.Unknown], strings.Join(parts, ", "))
}

// evidence waits until the workers are done, and reads what they left.
func (r *simulationRun) evidence(ctx context.Context, from kafka.Position) (simulation.Evidence, error) {
	began := time.Now()
	deadline := began.Add(r.settle)
	e := simulation.Evidence{Log: r.log.Operations(), Tenant: r.plan.Tenant, Until: began.Add(r.plan.Horizon())}
	if e.Until.After(deadline) {
		e.Until = deadline
	}
	r.say("Waiting until the workers have taken what is due ...")
	if err := r.taken(ctx, e, deadline); err != nil {
		return e, err
	}
	// What moves while it is read is read again: a message is expected only of what is on record,
	// and found only once its relay has sent it.
	for {
		streams, err := r.streams(ctx, simulation.Subjects(e.Log))
		if err == nil {
			err = r.sent(ctx, deadline)
		}
		if err != nil {
			return e, err
		}
		r.say("Reading Kafka and %d streams ...", len(streams))
		records, err := patiently(ctx, r, func() ([]kafka.Record, error) { return kafka.Since(ctx, r.kafka, from) }) //nolint:forbidigo // its checker holds them to their contracts
		if err != nil {
			return e, err
		}
		if e.Streams, err = r.streams(ctx, simulation.Subjects(e.Log)); err != nil {
			return e, err
		}
		if maps.EqualFunc(streams, e.Streams, func(a, b []ports.Happened) bool { return len(a) == len(b) }) || time.Now().After(deadline) {
			e.Records = make([]simulation.Record, len(records))
			for i, record := range records {
				e.Records[i] = simulation.Record(record)
			}
			return e, nil
		}
	}
}

// taken waits until no job has anything of the simulation's left to take, or until a deadline.
func (r *simulationRun) taken(ctx context.Context, e simulation.Evidence, deadline time.Time) error {
	streams, look := make(map[uuid.UUID][]ports.Happened), simulation.Subjects(e.Log)
	told := time.Now()
	for {
		read, err := r.streams(ctx, look)
		if err != nil {
			return err
		}
		maps.Copy(streams, read)
		overdue := simulation.Overdue(e.Log, streams, e.Until)
		if len(overdue) == 0 || time.Now().After(deadline) {
			return nil
		}
		if time.Since(told) > tellEvery {
			told = time.Now()
			parts := make([]string, 0, len(overdue))
			for _, job := range slices.Sorted(maps.Keys(overdue)) {
				parts = append(parts, fmt.Sprintf("%d of %s", len(overdue[job]), job))
			}
			r.say("Left to take by %s: %s", e.Until.Format(time.TimeOnly), strings.Join(parts, ", "))
		}
		look = make(map[string][]uuid.UUID)
		for job, ids := range overdue {
			c, _ := r.worker.job(string(job))
			look[c.name] = append(look[c.name], ids...)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// sent waits until the outboxes are empty, or until a deadline.
func (r *simulationRun) sent(ctx context.Context, deadline time.Time) error {
	told := time.Now()
	for {
		waiting, parked := 0, 0
		for _, c := range r.worker.contexts {
			lag, err := patiently(ctx, r, func() (outbox.Lag, error) { return outbox.Measure(ctx, c.db.Pool, c.table) })
			if err != nil {
				return err
			}
			waiting += lag.Unpublished
			parked += lag.Parked
		}
		if parked > 0 && (waiting == 0 || time.Now().After(deadline)) {
			r.say("%d messages are parked (pinworker outbox parked): what Kafka refused counts as lost", parked)
		}
		switch {
		case waiting == 0:
			return nil
		case time.Now().After(deadline):
			r.say("%d messages wait in the outboxes still: what is not in Kafka yet counts as lost", waiting)
			return nil
		case time.Since(told) > tellEvery:
			told = time.Now()
			r.say("%d messages wait in the outboxes", waiting)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// streams reads the streams of some aggregates, by context.
func (r *simulationRun) streams(ctx context.Context, subjects map[string][]uuid.UUID) (map[uuid.UUID][]ports.Happened, error) {
	const atOnce = 4
	var mu sync.Mutex
	streams := make(map[uuid.UUID][]ports.Happened)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, c := range r.worker.contexts {
		for part := range slices.Chunk(subjects[c.name], 100) {
			group.Go(func() error {
				for _, id := range part {
					events, err := patiently(ctx, r, func() ([]ports.Happened, error) { return c.history.Events(ctx, id) })
					if err != nil {
						return err
					}
					mu.Lock()
					streams[id] = events
					mu.Unlock()
				}
				return nil
			})
		}
	}
	err := group.Wait()
	return streams, err
}

// patiently reads again where it cannot be read: an outage must not cost the whole log.
func patiently[T any](ctx context.Context, r *simulationRun, read func() (T, error)) (result T, err error) {
	const times, pause = 20, time.Second
	for range times {
		if result, err = read(); err == nil || ctx.Err() != nil {
			break
		}
		r.say("It cannot be read now, and is tried again: %v", err)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return result, err
}

// verify compares rows with their streams: all that changed since the first of the operations.
func (r *simulationRun) verify(ctx context.Context, report *simulationReport, log []simulation.Operation) error {
	first := time.Now()
	for _, o := range log {
		if o.At.Before(first) {
			first = o.At
		}
	}
	result, err := patiently(ctx, r, func() (verification, error) { return r.worker.verify(ctx, first) })
	report.Verify.Streams, report.Verify.Differences = result.Streams, result.Differences
	for _, item := range result.Items {
		if !item.Ahead {
			report.Findings = append(report.Findings, simulation.Finding{Of: "verify, " + item.Context, ID: uuid.MustParse(item.ID), What: item.What})
		}
	}
	return err
}

func (r simulationReport) print(out io.Writer) error {
	operations := newGrid(out, "OPERATION", "ACCEPTED", "ALREADY SO", "REFUSED", "CONFLICTS", "UNKNOWN")
	total := 0
	for _, kind := range slices.Sorted(maps.Keys(r.Operations)) {
		n := r.Operations[kind]
		total += n.Accepted + n.Already + n.Refused + n.Conflicts + n.Unknown
		operations.row(kind, n.Accepted, n.Already, n.Refused, n.Conflicts, n.Unknown)
	}
	operations.row()
	outcomes := newGrid(out, "OUTCOME", "TIMES")
	for _, name := range slices.Sorted(maps.Keys(r.Outcomes)) {
		outcomes.row(name, r.Outcomes[name])
	}
	outcomes.row()
	topics := newGrid(out, "TOPIC", "EXPECTED", "IN KAFKA", "REPETITIONS")
	for _, topic := range published.Topics {
		topics.row(topic, r.Messages[topic].Expected, r.Messages[topic].Read, r.Messages[topic].Repetitions)
	}
	topics.row()
	findings := newGrid(out)
	const show = 20
	for i, finding := range r.Findings {
		if i == show {
			findings.row(fmt.Sprintf("... and %d more: --json has all of them", len(r.Findings)-show))
			break
		}
		findings.row(fmt.Sprintf("FINDING  %v", finding))
	}
	if len(r.Findings) > 0 {
		findings.row()
	}
	if err := errors.Join(operations.flush(), outcomes.flush(), topics.flush(), findings.flush()); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%d operations, %.1f a second, all recomputed: %d findings. verify: %d streams, %d differences. It took %.1f s.\n",
		total, r.Rate, len(r.Findings), r.Verify.Streams, r.Verify.Differences, r.Seconds)
	return err
}
