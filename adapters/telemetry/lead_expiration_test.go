package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	pkgerrors "github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/pin-platform/pinworker/adapters/memory"
	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/adapters/telemetry"
	appcrm "github.com/pin-platform/pinworker/app/crm"
	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/ports"
)

// observed is a job over leads in memory, with what it tells.
type observed struct {
	*testing.T
	leads    memory.CRM
	log      bytes.Buffer
	registry *prometheus.Registry
	spans    *tracetest.SpanRecorder
	cycle    func(context.Context, cycle.Tick) (appcrm.LeadsExpired, error)
}

func observe(t *testing.T, due func(ports.DueLeads) ports.DueLeads) *observed {
	t.Helper()
	o := &observed{T: t, leads: memory.NewCRM(), registry: prometheus.NewRegistry(), spans: tracetest.NewSpanRecorder()}
	log := slog.New(slog.NewJSONHandler(&o.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	tracer := trace.NewTracerProvider(trace.WithSpanProcessor(o.spans)).Tracer("test")
	sinks := telemetry.Sinks{Log: log, Tracer: tracer, Registry: o.registry, Jobs: telemetry.NewJobs(o.registry)}
	o.cycle = telemetry.LeadExpiration(sinks, appcrm.ExpireLeads{
		Leads: due(o.leads.Due), Limits: cycle.Limits{BatchSize: 2, MaxBatches: 10, Interval: time.Hour}, Clock: time.Now,
	})
	return o
}

func asItIs(leads ports.DueLeads) ports.DueLeads { return leads }

func (o *observed) register(n int) []crm.Registration {
	o.Helper()
	registrations := make([]crm.Registration, n)
	for i := range registrations {
		registrations[i] = portstest.Registration(portstest.Noon.Add(time.Duration(i-60) * time.Minute))
		operations := appcrm.Operations{Leads: o.leads.Leads, Clock: func() time.Time { return portstest.Noon.AddDate(0, -1, 0) }}
		if err := operations.Register(o.Context(), "agent", registrations[i]); err != nil {
			o.Fatal(err)
		}
	}
	return registrations
}

// lines returns the log, each line with its message and these fields only.
func (o *observed) lines(fields ...string) []string {
	o.Helper()
	var lines []string
	for line := range strings.Lines(o.log.String()) {
		all := make(map[string]any)
		if err := json.Unmarshal([]byte(line), &all); err != nil {
			o.Fatal(err)
		}
		text := all["msg"].(string)
		for _, f := range fields {
			if v, ok := all[f]; ok {
				value, err := json.Marshal(v)
				if err != nil {
					o.Fatal(err)
				}
				text += " " + f + "=" + strings.Trim(string(value), `"`)
			}
		}
		lines = append(lines, text)
	}
	return lines
}

func (o *observed) metric(name string) float64 {
	o.Helper()
	families, err := o.registry.Gather()
	if err != nil {
		o.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			switch {
			case m.GetCounter() != nil:
				return m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				return m.GetGauge().GetValue()
			}
			return float64(m.GetHistogram().GetSampleCount())
		}
	}
	o.Fatalf("no metric %s", name)
	return 0
}

func TestLeadExpiration_TellsACycleAsSpecified(t *testing.T) {
	o := observe(t, asItIs)
	leads := o.register(3)
	tick := cycle.Begin(portstest.Noon)
	if _, err := o.cycle(t.Context(), tick); err != nil {
		t.Fatal(err)
	}
	want := []string{"job.started Now=2026-03-01T12:00:00Z"}
	for i, r := range leads {
		want = append(want, "lead.expired LeadId="+r.Lead.String()+" TenantId="+r.Tenant.String())
		if i == 1 {
			want = append(want, "batch.processed size=2")
		}
	}
	want = append(want, "batch.processed size=1", "job.completed ExpiredCount=3 BatchesProcessed=2 cappedByMaxBatches=false")
	if got := o.lines("Now", "LeadId", "TenantId", "size", "ExpiredCount", "BatchesProcessed", "cappedByMaxBatches"); !slices.Equal(got, want) {
		t.Errorf("log\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, line := range o.lines("jobRunId") {
		if !strings.HasSuffix(line, "jobRunId="+tick.Run.String()) {
			t.Errorf("without the run id: %s", line)
		}
	}
	for name, want := range map[string]float64{
		"crm_lead_expiration_expired_total":    3,
		"crm_lead_expiration_duration_seconds": 1,
		"crm_lead_expiration_lateness_seconds": 3,
		"crm_lead_expiration_backlog":          0,
		"crm_lead_expiration_errors_total":     0,
		"job_oldest_due_age_seconds":           0,
	} {
		if got := o.metric(name); got != want {
			t.Errorf("%s = %v; want %v", name, got, want)
		}
	}
	const lateness = (60 + 59 + 58) * 60 // each lead's, from its ExpiresAt to noon
	if got := o.sum("crm_lead_expiration_lateness_seconds"); got != lateness {
		t.Errorf("lateness of %v s in all; want %v", got, lateness)
	}
	for _, line := range o.lines("elapsedMs") {
		if strings.HasPrefix(line, "batch.processed") && !strings.Contains(line, "elapsedMs=") {
			t.Errorf("without elapsedMs: %s", line)
		}
	}
	tenants := 0
	for _, s := range o.spans.Ended() {
		for _, e := range s.Events() {
			for _, a := range e.Attributes {
				if string(a.Key) == "TenantId" {
					tenants++
				}
			}
		}
	}
	if tenants != 3 {
		t.Errorf("%d items with their tenant on spans; want 3", tenants)
	}
	if o.metric("job_last_success_timestamp_seconds") == 0 {
		t.Error("the success is not told")
	}
	var spans []string
	for _, s := range o.spans.Ended() {
		spans = append(spans, s.Name())
	}
	if want := []string{"lead-expiration batch", "lead-expiration batch", "lead-expiration batch", "lead-expiration cycle"}; !slices.Equal(spans, want) {
		t.Errorf("spans %v; want %v", spans, want)
	}
}

func (o *observed) sum(histogram string) float64 {
	o.Helper()
	families, err := o.registry.Gather()
	if err != nil {
		o.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == histogram {
			return f.GetMetric()[0].GetHistogram().GetSampleSum()
		}
	}
	return 0
}

// stops lets a cycle see its backlog and then ends it.
type stops struct {
	ports.DueLeads
	backlog func() float64
	seen    *float64
}

func (s stops) Transition(ctx context.Context, c ports.Claim, r ports.Rule[crm.Lead, crm.Event]) (ports.Outcome[crm.Lead, crm.Event], error) {
	*s.seen = s.backlog()
	return s.DueLeads.Transition(ctx, c, r)
}

func TestLeadExpiration_TellsTheBacklogBeforeTheCycleToo(t *testing.T) {
	var o *observed
	var seen float64
	o = observe(t, func(leads ports.DueLeads) ports.DueLeads {
		return stops{leads, func() float64 { return o.metric("crm_lead_expiration_backlog") }, &seen}
	})
	o.register(1)
	if _, err := o.cycle(t.Context(), cycle.Begin(portstest.Noon)); err != nil {
		t.Fatal(err)
	}
	if seen != 1 || o.metric("crm_lead_expiration_backlog") != 0 {
		t.Errorf("backlog %v before, %v after; want 1, 0", seen, o.metric("crm_lead_expiration_backlog"))
	}
}

func TestJobs_TellTheInterval(t *testing.T) {
	o := observe(t, asItIs)
	telemetry.NewJobs(prometheus.WrapRegistererWithPrefix("other_", o.registry)).Interval("lead-expiration", time.Hour)
	if got := o.metric("other_job_interval_seconds"); got != 3600 {
		t.Errorf("interval %v; want 3600", got)
	}
}

func TestNewLogger_TellsAnErrorsTextWithoutItsStack(t *testing.T) {
	var out bytes.Buffer
	log, err := telemetry.NewLogger(&out, slog.LevelInfo, "text")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("stopped", "error", pkgerrors.New("router close timeout"))
	if !strings.HasSuffix(out.String(), "error=\"router close timeout\"\n") {
		t.Errorf("log %q", out.String())
	}
}

func TestLeadExpiration_TellsOnePoisonLeadOnce(t *testing.T) {
	o := observe(t, asItIs)
	leads := o.register(2)
	o.leads.Refuse(uuid.UUID(leads[0].Lead))
	if _, err := o.cycle(t.Context(), cycle.Begin(portstest.Noon)); err != nil {
		t.Fatal(err)
	}
	failed := slices.DeleteFunc(o.lines("level", "LeadId", "error"), func(l string) bool { return !strings.HasPrefix(l, "item.failed") })
	if want := []string{"item.failed level=ERROR LeadId=" + leads[0].Lead.String() + " error=" + memory.ErrRefused.Error()}; !slices.Equal(failed, want) {
		t.Errorf("log %q; want %q", failed, want)
	}
	if o.metric("crm_lead_expiration_errors_total") != 1 || o.metric("crm_lead_expiration_backlog") != 1 {
		t.Error("the poison is not counted once as an error and left in the backlog")
	}
}

// gone is a database that cannot be reached.
type gone struct{ ports.DueLeads }

var errGone = errors.New("connection refused")

func (gone) Transition(context.Context, ports.Claim, ports.Rule[crm.Lead, crm.Event]) (ports.Outcome[crm.Lead, crm.Event], error) {
	return ports.Outcome[crm.Lead, crm.Event]{}, errGone
}

func TestLeadExpiration_ACycleWithoutADatabaseIsNoSuccess(t *testing.T) {
	o := observe(t, func(leads ports.DueLeads) ports.DueLeads { return gone{leads} })
	o.register(1)
	if _, err := o.cycle(t.Context(), cycle.Begin(portstest.Noon)); !errors.Is(err, errGone) {
		t.Fatalf("error %v; want %v", err, errGone)
	}
	if got := o.lines(); slices.Contains(got, "job.completed") {
		t.Errorf("log %q tells of a completed job", got)
	}
	if got := o.metric("crm_lead_expiration_errors_total"); got != 2 {
		t.Errorf("%v errors; want 2: it is tried once more", got)
	}
}
