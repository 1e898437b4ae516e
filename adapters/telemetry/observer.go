package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/ports"
)

// Sinks are where observers tell.
type Sinks struct {
	Log      *slog.Logger
	Tracer   trace.Tracer
	Registry prometheus.Registerer
	Jobs     *Jobs
}

// observer is what the four jobs' telemetry shares: it decorates a job's store and its cycle. What
// the lines are called, and what an item is, is the job's own.
type observer[A, E any] struct {
	job   ports.Job
	sinks Sinks
	words words
	// failed names a failed item: its id, and what else the specification asks for.
	failed func(ports.Failure) []field
	// applied tells of one item that was committed.
	applied func(item tellItem, t ports.Transitioned[A, E])

	backlog prometheus.Gauge
	errors  prometheus.Counter
	skipped prometheus.Counter // nil: not counted
}

// words are a job's lines and what the run id is called in them.
type words struct {
	run, started, asOf, completed, failed line
	// selected tells how many items a unit took; "": nothing is told of units.
	selected line
}

// pollers are the words that three of the jobs share; leads have their own.
var pollers = words{
	run: "runId", started: "cycle started", asOf: "AsOf", selected: "batch selected",
	completed: "cycle completed", failed: "item failed",
}

// tellItem tells of an item: a line, and an event of the unit's span.
type tellItem func(level slog.Level, what line, tenant ids.TenantID, fields ...field)

// cycle runs a cycle under a span, with its first and last line and the backlog. run returns what
// the last line tells; an error, which is told here, stands in its place.
func (o *observer[A, E]) cycle(
	ctx context.Context, tick cycle.Tick, due ports.Due[A, E], run func(context.Context) ([]field, error),
) error {
	ctx, span := o.sinks.Tracer.Start(context.WithValue(ctx, runKey{}, tick.Run), string(o.job)+" cycle", trace.WithAttributes(runID(tick.Run)))
	defer span.End()
	log := o.log(tick.Run)
	log.tell(slog.LevelInfo, o.words.started, moment(string(o.words.asOf), tick.AsOf))
	result, err := run(ctx)
	o.measure(ctx, log, tick.AsOf, due)
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
		if ctx.Err() == nil { // a stop is no failure
			log.tell(slog.LevelError, "cycle failed: the next one takes what it left", fault(err))
		}
		return err
	}
	o.sinks.Jobs.succeeded(o.job)
	log.tell(slog.LevelInfo, o.words.completed, result...)
	return nil
}

// runKey finds a cycle's run id in its context.
type runKey struct{}

// log is the journal of a run.
func (o *observer[A, E]) log(run ports.RunID) journal {
	return journal{o.sinks.Log}.with(id(string(o.words.run), uuid.UUID(run)))
}

func runID(run ports.RunID) attribute.KeyValue { return attribute.String("job.run_id", run.String()) }

// measure sets the gauges; that they cannot be set now is no reason to fail a cycle.
func (o *observer[A, E]) measure(ctx context.Context, log journal, asOf time.Time, due ports.Due[A, E]) {
	backlog, err := due.Backlog(ctx, asOf, ports.Cursor{})
	if err != nil {
		if ctx.Err() == nil {
			log.tell(slog.LevelWarn, "the backlog could not be counted", fault(err))
		}
		return
	}
	o.backlog.Set(float64(backlog.Due))
	o.sinks.Jobs.oldestDue(o.job, asOf, backlog.Oldest)
	o.sinks.Jobs.quarantined(o.job, backlog.Held)
}

// observed is a job's store, observed unit by unit.
type observed[A, E any] struct {
	ports.Due[A, E]
	o *observer[A, E]
	// unit hears of each unit that was committed, and how long it took; it may be nil.
	unit func(log journal, outcome ports.Outcome[A, E], took time.Duration)
}

// Transition implements ports.Due.
func (d observed[A, E]) Transition(ctx context.Context, claim ports.Claim, rule ports.Rule[A, E]) (ports.Outcome[A, E], error) {
	o := d.o
	began := time.Now()
	ctx, span := o.sinks.Tracer.Start(ctx, string(o.job)+" batch", trace.WithAttributes(runID(claim.Run)))
	defer span.End()
	outcome, err := d.Due.Transition(ctx, claim, rule)
	log := o.log(claim.Run)
	span.SetAttributes(attribute.Int("size", outcome.Claimed))
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
		d.failedUnit(ctx, log, outcome.Claimed, err)
		return outcome, err
	}
	if o.words.selected != "" && outcome.Claimed > 0 {
		log.tell(slog.LevelInfo, o.words.selected, count("count", outcome.Claimed))
	}
	tell := func(level slog.Level, what line, tenant ids.TenantID, fields ...field) {
		fields = append(fields, id("TenantId", tenant))
		log.tell(level, what, fields...)
		if !span.IsRecording() {
			return
		}
		attributes := make([]attribute.KeyValue, 0, len(fields))
		for _, f := range fields {
			attributes = append(attributes, attribute.String(f.attr.Key, f.attr.Value.String()))
		}
		span.AddEvent(string(what), trace.WithAttributes(attributes...))
	}
	for _, applied := range outcome.Applied {
		o.applied(tell, applied)
	}
	for _, failure := range outcome.Failed {
		o.errors.Inc()
		tell(slog.LevelError, o.words.failed, failure.Tenant, append(o.failed(failure), fault(failure.Err), count("streak", failure.Streak))...)
	}
	if o.skipped != nil {
		o.skipped.Add(float64(outcome.SkippedLocked))
	}
	if d.unit != nil {
		d.unit(log, outcome, time.Since(began))
	}
	return outcome, nil
}

// Hold implements ports.Due.
func (d observed[A, E]) Hold(ctx context.Context, at time.Time, held []ports.Held) error {
	err := d.Due.Hold(ctx, at, held)
	if err != nil && ctx.Err() == nil {
		d.o.errors.Inc()
		run, _ := ctx.Value(runKey{}).(ports.RunID)
		d.o.log(run).tell(slog.LevelError, "failed items could not be put on record: the next tick takes them",
			count("count", len(held)), fault(err))
	}
	return err
}

func (d observed[A, E]) failedUnit(ctx context.Context, log journal, claimed int, err error) {
	refused := (*ports.RefusedError)(nil)
	switch {
	case errors.As(err, &refused):
		log.tell(slog.LevelWarn, "batch undone by one of its items: going over it one by one", count("size", refused.Items), fault(refused.Err))
	case ctx.Err() != nil: // a stop rolls back what is in hand
	default:
		d.o.errors.Inc()
		if claimed > 0 {
			log.tell(slog.LevelError, "batch rolled back: the next cycle takes it", count("size", claimed), fault(err))
		} else { // twice in a row ends the cycle, and the loop logs that
			log.tell(slog.LevelWarn, "no batch could be claimed", fault(err))
		}
	}
}

// metrics makes a job's metrics and registers them.
type metrics struct{ registry prometheus.Registerer }

func (m metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	m.registry.MustRegister(c)
	return c
}

func (m metrics) counters(name, help, label string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	m.registry.MustRegister(c)
	return c
}

func (m metrics) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	m.registry.MustRegister(g)
	return g
}

func (m metrics) histogram(name, help string, buckets ...float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	m.registry.MustRegister(h)
	return h
}

// cycleBuckets have a boundary at the target of 30 s.
var cycleBuckets = []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
