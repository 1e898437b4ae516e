package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/pin-platform/pinworker/adapters/memory"
	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/adapters/telemetry"
	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/ports"
)

var noon = portstest.Noon

// observed is a job over a store in memory, with what it tells.
type observed struct {
	*testing.T
	job       ports.Job
	prefix    string // of the job's metrics
	runID     string // what lines call the run id
	failed    string // how they begin that tell of a failed item
	completed string // and of a cycle's end
	store     hooks
	cycle     func(context.Context, cycle.Tick) error
	make      func(due time.Time) item // makes an item that comes due
	spoil     func(*item) string       // makes poison of it, and says what is wrong with it then

	before, beforeHold func() error // what stands in the store's way
	sinks              telemetry.Sinks
	log                bytes.Buffer
	registry           *prometheus.Registry
	spans              *tracetest.SpanRecorder
	tick               cycle.Tick
	now                time.Time
}

// item is one that a job polls.
type item struct {
	id     uuid.UUID
	lock   uuid.UUID // what holds it back where somebody else is at it
	name   string    // its id, or ids, as lines have them
	tenant string    // as lines have it

	partners string // an appointment's, as lines have them
}

type hooks interface {
	Lock(id uuid.UUID) (release func())
	Refuse(id uuid.UUID)
	Cut()
}

const interval = time.Minute

var batchesOfTwo = cycle.Limits{BatchSize: 2, MaxBatches: 1, Interval: interval}

// jobs are all of them.
var jobs = []func(*testing.T) *observed{leadExpiration, reminderDispatch, appointmentTimeout, expirePromotions}

func eachJob(t *testing.T, test func(*observed)) {
	t.Helper()
	for _, open := range jobs {
		o := open(t)
		t.Run(string(o.job), func(t *testing.T) { o.T = t; test(o) })
	}
}

func observe(t *testing.T, job ports.Job, prefix string) *observed {
	t.Helper()
	o := &observed{
		T: t, job: job, prefix: prefix, runID: "runId", failed: "item failed", completed: "cycle completed", now: noon,
		registry: prometheus.NewRegistry(), spans: tracetest.NewSpanRecorder(),
	}
	log, err := telemetry.NewLogger(&o.log, slog.LevelDebug, "json")
	if err != nil {
		t.Fatal(err)
	}
	o.sinks = telemetry.Sinks{
		Log: log, Tracer: trace.NewTracerProvider(trace.WithSpanProcessor(o.spans)).Tracer("test"),
		Registry: o.registry, Jobs: telemetry.NewJobs(o.registry),
	}
	return o
}

// clock moves on by a second whenever it is read.
func (o *observed) clock() time.Time {
	o.now = o.now.Add(time.Second)
	return o.now
}

// intercepted is a store that something may stand in the way of.
type intercepted[A, E any] struct {
	ports.Due[A, E]
	o *observed
}

func (i intercepted[A, E]) Transition(ctx context.Context, c ports.Claim, r ports.Rule[A, E]) (ports.Outcome[A, E], error) {
	if i.o.before != nil {
		if err := i.o.before(); err != nil {
			return ports.Outcome[A, E]{}, err
		}
	}
	return i.Due.Transition(ctx, c, r)
}

func (i intercepted[A, E]) Hold(ctx context.Context, at time.Time, held []ports.Held) error {
	if i.o.beforeHold != nil {
		if err := i.o.beforeHold(); err != nil {
			return err
		}
	}
	return i.Due.Hold(ctx, at, held)
}

// alone is a cycle without its result.
func alone[R any](run func(context.Context, cycle.Tick) (R, error)) func(context.Context, cycle.Tick) error {
	return func(ctx context.Context, tick cycle.Tick) error {
		_, err := run(ctx, tick)
		return err
	}
}

// row is an aggregate as a ledger has it.
func row[A, E any](o *observed, ledger ports.Ledger[A, E], id uuid.UUID) A {
	o.Helper()
	for entry, err := range ledger.Entries(o.Context(), time.Time{}) {
		o.must(err)
		if entry.ID == id {
			return entry.Row
		}
	}
	o.Fatalf("there is no %s", id)
	panic("unreachable")
}

// imports has a service without a journal write a row.
func imports[A eventsourcing.Part[E], E eventsourcing.Event](o *observed, w *memory.World[E], written A, err error) {
	o.Helper()
	o.must(err)
	w.Import(written)
}

// must makes what a test begins with.
func (o *observed) must(err error) {
	o.Helper()
	if err != nil {
		o.Fatal(err)
	}
}

// run runs a cycle; what lines and told return is about the last one.
func (o *observed) run(at time.Time) error {
	o.log.Reset()
	o.spans.Reset()
	o.tick = cycle.Begin(at)
	return o.cycle(o.Context(), o.tick)
}

// lines returns the log, each line with its level, its message and its fields in their order, less
// the time and the run id, which each must have. Of a time that was measured it has no value.
func (o *observed) lines() []string {
	o.Helper()
	var lines []string
	for text := range strings.Lines(o.log.String()) {
		var words []string
		run := false
		for key, value := range fields(o.T, text) {
			switch key {
			case "time":
			case "level", "msg":
				words = append(words, value)
			case o.runID:
				run = value == o.tick.Run.String()
			case "elapsedMs":
				words = append(words, key)
			default:
				words = append(words, key+"="+value)
			}
		}
		if !run {
			o.Errorf("without the run id: %s", text)
		}
		lines = append(lines, strings.Join(words, " "))
	}
	return lines
}

// fields yields a line's fields in their order.
func fields(t *testing.T, line string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		t.Helper()
		decoder := json.NewDecoder(strings.NewReader(line))
		var tokens []json.Token
		for {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			tokens = append(tokens, token)
		}
		for pair := range slices.Chunk(tokens[1:len(tokens)-1], 2) {
			if !yield(fmt.Sprint(pair[0]), fmt.Sprint(pair[1])) {
				return
			}
		}
	}
}

// about returns the lines that begin with some words.
func (o *observed) about(words ...string) []string {
	o.Helper()
	return slices.DeleteFunc(o.lines(), func(line string) bool {
		return !slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(line, w) })
	})
}

// told returns the spans that have ended, each with its status where it is bad, and with its events
// as lines have them. All must have the run id.
func (o *observed) told() []string {
	o.Helper()
	var told []string
	for _, span := range o.spans.Ended() {
		name, run := span.Name(), false
		for _, a := range span.Attributes() {
			run = run || a.Key == "job.run_id" && a.Value.AsString() == o.tick.Run.String()
		}
		if !run {
			o.Errorf("the span %s is without the run id", name)
		}
		if span.Status().Code == codes.Error {
			name += ": " + span.Status().Description
		}
		told = append(told, name)
		for _, event := range span.Events() {
			words := []string{" ", event.Name}
			for _, a := range event.Attributes {
				words = append(words, string(a.Key)+"="+a.Value.AsString())
			}
			told = append(told, strings.Join(words, " "))
		}
	}
	return told
}

// metrics are all that the registry has, as Prometheus spells them; of histograms the count and the
// sum. When a cycle last succeeded is 1 where one has.
func (o *observed) metrics() map[string]float64 {
	o.Helper()
	families, err := o.registry.Gather()
	o.must(err)
	all := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			suffix := ""
			if len(labels) > 0 {
				suffix = "{" + strings.Join(labels, ",") + "}"
			}
			if h := m.GetHistogram(); h != nil {
				all[f.GetName()+"_count"+suffix], all[f.GetName()+"_sum"+suffix] = float64(h.GetSampleCount()), h.GetSampleSum()
				continue
			}
			all[f.GetName()+suffix] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	if succeeded := o.labelled("job_last_success_timestamp_seconds"); all[succeeded] > 0 {
		all[succeeded] = 1
	}
	return all
}

// labelled is one of the metrics that all jobs share.
func (o *observed) labelled(name string) string { return fmt.Sprintf("%s{job=%q}", name, o.job) }

func (o *observed) wantLines(got []string, want ...string) {
	o.Helper()
	if !slices.Equal(got, want) {
		o.Errorf("told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// wantMetrics checks some of the metrics.
func (o *observed) wantMetrics(want map[string]float64) {
	o.Helper()
	got := o.metrics()
	for name, value := range want {
		if actual, has := got[name]; !has || actual != value {
			o.Errorf("%s = %v (there: %v); want %v", name, actual, has, value)
		}
	}
}

// wantOnlyMetrics checks all of them.
func (o *observed) wantOnlyMetrics(want map[string]float64) {
	o.Helper()
	o.wantMetrics(want)
	for name := range o.metrics() {
		if _, has := want[name]; !has {
			o.Errorf("there is a metric %s", name)
		}
	}
}

func TestJobs_TellNothingOfAnEmptyBatchButItsCycle(t *testing.T) {
	eachJob(t, func(o *observed) {
		o.make(noon.Add(time.Minute))
		o.must(o.run(noon))
		if got := o.lines(); len(got) != 2 || !strings.HasPrefix(got[1], "INFO "+o.completed) {
			o.Errorf("told %q; want the cycle's beginning and its end", got)
		}
		o.wantMetrics(map[string]float64{
			o.prefix + "backlog": 0, o.prefix + "errors_total": 0,
			o.labelled("job_last_success_timestamp_seconds"): 1, o.labelled("job_oldest_due_age_seconds"): 0,
		})
	})
}

func TestJobs_TellOfPoisonAsAnErrorOncePerCycleUntilItIsHeldBack(t *testing.T) {
	eachJob(t, func(o *observed) {
		poison := o.make(noon.Add(-time.Minute))
		fault := o.spoil(&poison)
		for streak, held := range []float64{0, 0, 1} {
			o.must(o.run(noon.Add(time.Duration(streak) * interval)))
			failed := fmt.Sprintf("%s %s error=%s streak=%d %s", o.failed, poison.name, fault, streak+1, poison.tenant)
			o.wantLines(o.about("ERROR", "WARN"), "ERROR "+failed)
			if told := o.told(); !slices.Contains(told, "  "+failed) {
				o.Errorf("spans %q; want an event of the failed item", told)
			}
			o.wantMetrics(map[string]float64{
				o.prefix + "backlog": 1, o.prefix + "errors_total": float64(streak + 1), o.labelled("job_quarantined"): held,
				o.labelled("job_oldest_due_age_seconds"):         float64(60 * (streak + 1)),
				o.labelled("job_last_success_timestamp_seconds"): 1, // poison fails no cycle
			})
		}
		o.must(o.run(noon.Add(3 * interval)))
		o.wantLines(o.about("ERROR", "WARN"))
		o.wantMetrics(map[string]float64{o.prefix + "backlog": 1, o.prefix + "errors_total": 3, o.labelled("job_quarantined"): 1})
	})
}

func TestJobs_TellOfWhatTheDatabaseRefuses(t *testing.T) {
	eachJob(t, func(o *observed) {
		refused, sound := o.make(noon.Add(-2*time.Minute)), o.make(noon.Add(-time.Minute))
		o.store.Refuse(refused.id)
		o.must(o.run(noon))
		want := []string{"ERROR " + o.failed + " " + refused.name + " error=" + memory.ErrRefused.Error() + " streak=1 " + refused.tenant}
		if o.job != ports.AppointmentTimeout { // its items share no fate
			want = append([]string{"WARN batch undone by one of its items: going over it one by one size=2 error=" + memory.ErrRefused.Error()}, want...)
		}
		o.wantLines(o.about("ERROR", "WARN"), want...)
		if sent := slices.IndexFunc(o.told(), func(l string) bool { return strings.Contains(l, sound.name) }); sent < 0 {
			o.Errorf("spans %q; want the sound item among them", o.told())
		}
		o.wantMetrics(map[string]float64{o.prefix + "backlog": 1, o.prefix + "errors_total": 1, o.labelled("job_last_success_timestamp_seconds"): 1})
	})
}

func TestJobs_CountWhatSomebodyElseIsAt(t *testing.T) {
	eachJob(t, func(o *observed) {
		held, _ := o.make(noon.Add(-2*time.Minute)), o.make(noon.Add(-time.Minute))
		defer o.store.Lock(held.lock)()
		o.must(o.run(noon))
		o.wantLines(o.about("ERROR", "WARN"))
		o.wantMetrics(map[string]float64{o.prefix + "backlog": 1, o.prefix + "errors_total": 0, o.labelled("job_oldest_due_age_seconds"): 120})
		if o.job == ports.LeadExpiration { // its specification names neither
			return
		}
		if end := o.about("INFO " + o.completed); len(end) != 1 || !strings.HasSuffix(end[0], " SkippedLocked=1") {
			o.Errorf("told %q; want one that was passed over", end)
		}
		o.wantMetrics(map[string]float64{o.prefix + "skip_locked_total": 1})
	})
}

var errGone = errors.New("connection refused")

func TestJobs_ACycleWithoutADatabaseIsNoSuccess(t *testing.T) {
	eachJob(t, func(o *observed) {
		o.make(noon.Add(-time.Minute))
		o.before = func() error { return errGone }
		err := o.run(noon)
		if !errors.Is(err, errGone) {
			o.Fatalf("error %v; want %v", err, errGone)
		}
		const tried = "WARN no batch could be claimed error=connection refused"
		o.wantLines(o.about("ERROR", "WARN", "INFO "+o.completed), tried, tried,
			"ERROR cycle failed: the next one takes what it left error="+err.Error())
		told := o.told()
		if last := told[len(told)-1]; !strings.HasPrefix(last, string(o.job)+" cycle: ") || !strings.HasSuffix(last, errGone.Error()) {
			o.Errorf("span %q; want the cycle's, failed", last)
		}
		o.wantMetrics(map[string]float64{o.prefix + "errors_total": 2, o.prefix + "backlog": 1}) // it is tried once more
		if _, told := o.metrics()[o.labelled("job_last_success_timestamp_seconds")]; told {
			o.Error("a success is told")
		}
	})
}

func TestJobs_TellOfABatchThatTheInfrastructureRolledBack(t *testing.T) {
	eachJob(t, func(o *observed) {
		o.make(noon.Add(-time.Minute))
		o.before = func() error { o.store.Cut(); o.before = nil; return nil }
		err := o.run(noon)
		if !errors.Is(err, memory.ErrCut) {
			o.Fatalf("error %v; want the cycle failed, whose only batch it was", err)
		}
		o.wantLines(o.about("ERROR", "WARN"), "ERROR batch rolled back: the next cycle takes it size=1 error="+memory.ErrCut.Error(),
			"ERROR cycle failed: the next one takes what it left error="+err.Error())
		o.wantMetrics(map[string]float64{o.prefix + "errors_total": 1, o.prefix + "backlog": 1})
	})
}

func TestJobs_TellOfFailuresThatCannotBePutOnRecord(t *testing.T) {
	eachJob(t, func(o *observed) {
		poison := o.make(noon.Add(-time.Minute))
		fault := o.spoil(&poison)
		o.beforeHold = func() error { return errGone }
		o.must(o.run(noon))
		o.wantLines(o.about("ERROR", "WARN"), "ERROR "+o.failed+" "+poison.name+" error="+fault+" streak=1 "+poison.tenant,
			"ERROR failed items could not be put on record: the next tick takes them count=1 error=connection refused")
		o.wantMetrics(map[string]float64{o.prefix + "errors_total": 2})
	})
}
