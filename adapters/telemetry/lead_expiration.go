// Package telemetry turns what units of work and cycles return into the logs, metrics and
// spans that the specification names. It decorates from outside: no use case knows of it,
// and nothing is told before it is committed.
package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	appcrm "github.com/pin-platform/pinworker/app/crm"
	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/ports"
)

// LeadExpiration observes the job lead-expiration (spec: lead-expiration, observability).
type LeadExpiration struct {
	log    *slog.Logger
	tracer trace.Tracer

	expired  prometheus.Counter
	duration prometheus.Histogram
	lateness prometheus.Histogram
	backlog  prometheus.Gauge
	errors   prometheus.Counter
	jobs     *Jobs
}

// NewLeadExpiration registers the job's metrics.
func NewLeadExpiration(log *slog.Logger, tracer trace.Tracer, registry prometheus.Registerer, jobs *Jobs) *LeadExpiration {
	t := &LeadExpiration{
		log: log, tracer: tracer, jobs: jobs,
		expired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "crm_lead_expiration_expired_total", Help: "Leads moved to Expired.",
		}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "crm_lead_expiration_duration_seconds", Help: "How long a cycle took.",
			Buckets: []float64{.01, .05, .1, .5, 1, 5, 10, 30, 60, 300},
		}),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "crm_lead_expiration_lateness_seconds", Help: "ExpiredAt less ExpiresAt; the SLO is p95 below 3900 s.",
			Buckets: []float64{1, 10, 60, 300, 900, 1800, 2700, 3600, 3900, 7200, 21600, 86400},
		}),
		backlog: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "crm_lead_expiration_backlog", Help: "Active leads whose ExpiresAt has passed, before and after each cycle.",
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "crm_lead_expiration_errors_total", Help: "Leads that failed, and units rolled back by an infrastructure fault.",
		}),
	}
	registry.MustRegister(t.expired, t.duration, t.lateness, t.backlog, t.errors)
	return t
}

// Cycle observes a whole cycle: job.started, job.completed, the cycle's span, the backlog
// before and after.
func (t *LeadExpiration) Cycle(job appcrm.ExpireLeads) func(context.Context, cycle.Tick) (appcrm.LeadsExpired, error) {
	job.Leads = observedLeads{DueLeads: job.Leads, t: t}
	return func(ctx context.Context, tick cycle.Tick) (appcrm.LeadsExpired, error) {
		ctx, span := t.tracer.Start(ctx, "lead-expiration cycle", trace.WithAttributes(
			attribute.String("job.run_id", tick.Run.String())))
		defer span.End()
		log := t.log.With("jobRunId", tick.Run.String())
		log.Info("job.started", "Now", tick.AsOf)
		t.measure(ctx, log, tick.AsOf, job.Leads)
		result, err := job.Run(ctx, tick)
		t.duration.Observe(result.Elapsed.Seconds())
		t.measure(ctx, log, tick.AsOf, job.Leads)
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
			return result, err // the loop logs it
		}
		t.jobs.succeeded(ports.LeadExpiration)
		if result.CappedByMaxBatches {
			log.Warn("the cap ended the drain with leads still due: the next cycle takes them")
		}
		log.Info("job.completed", "ExpiredCount", result.ExpiredCount,
			"BatchesProcessed", result.BatchesProcessed, "cappedByMaxBatches", result.CappedByMaxBatches,
			"Elapsed", result.Elapsed.String())
		return result, nil
	}
}

// measure sets the gauges; that they cannot be set now is no reason to fail a cycle.
func (t *LeadExpiration) measure(ctx context.Context, log *slog.Logger, asOf time.Time, leads ports.DueLeads) {
	backlog, err := leads.Backlog(ctx, asOf, ports.Cursor{})
	if err != nil {
		if ctx.Err() == nil {
			log.Warn("the backlog could not be counted", "error", err)
		}
		return
	}
	t.backlog.Set(float64(backlog.Due))
	t.jobs.oldestDue(ports.LeadExpiration, asOf, backlog.Oldest)
	t.jobs.quarantined(ports.LeadExpiration, backlog.Held)
}

// observedLeads observes each unit of work: batch.processed, lead.expired, item.failed, the
// batch's span.
type observedLeads struct {
	ports.DueLeads
	t *LeadExpiration
}

// Transition implements ports.Due.
func (o observedLeads) Transition(
	ctx context.Context, claim ports.Claim, rule ports.Rule[crm.Lead, crm.Event],
) (ports.Outcome[crm.Lead, crm.Event], error) {
	began := time.Now()
	ctx, span := o.t.tracer.Start(ctx, "lead-expiration batch", trace.WithAttributes(
		attribute.String("job.run_id", claim.Run.String())))
	defer span.End()
	outcome, err := o.DueLeads.Transition(ctx, claim, rule)
	log := o.t.log.With("jobRunId", claim.Run.String())
	span.SetAttributes(attribute.Int("size", outcome.Claimed))
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
		o.failedUnit(ctx, log, outcome.Claimed, err)
		return outcome, err
	}
	for _, applied := range outcome.Applied {
		lead := applied.After.Snapshot()
		o.t.lateness.Observe(lead.ExpiredAt.Sub(lead.ExpiresAt).Seconds())
		id, tenant := lead.ID.String(), lead.TenantID.String()
		log.Debug("lead.expired", "LeadId", id, "TenantId", tenant)
		span.AddEvent("lead.expired", trace.WithAttributes(
			attribute.String("lead.id", id), attribute.String("tenant.id", tenant)))
	}
	for _, failure := range outcome.Failed {
		o.t.errors.Inc()
		log.Error("item.failed", "LeadId", failure.Item.String(), "TenantId", failure.Tenant.String(),
			"error", failure.Err, "streak", failure.Streak)
	}
	o.t.expired.Add(float64(len(outcome.Applied)))
	if outcome.Claimed > 0 {
		log.Info("batch.processed", "size", len(outcome.Applied), "elapsedMs", time.Since(began).Milliseconds())
	}
	return outcome, nil
}

// Hold implements ports.Due.
func (o observedLeads) Hold(ctx context.Context, at time.Time, held []ports.Held) error {
	err := o.DueLeads.Hold(ctx, at, held)
	if err != nil && ctx.Err() == nil {
		o.t.errors.Inc()
		o.t.log.Error("failed leads could not be put on record: the next tick takes them", "count", len(held), "error", err)
	}
	return err
}

func (o observedLeads) failedUnit(ctx context.Context, log *slog.Logger, claimed int, err error) {
	refused := (*ports.RefusedError)(nil)
	switch {
	case errors.As(err, &refused):
		log.Warn("batch undone by one of its leads: going over it one by one", "size", refused.Items, "error", refused.Err)
	case ctx.Err() != nil: // a stop rolls back what is in hand
	default:
		o.t.errors.Inc()
		if claimed > 0 {
			log.Error("batch rolled back: the next cycle takes it", "size", claimed, "error", err)
		} else { // twice in a row ends the cycle, and the loop logs that
			log.Warn("no batch could be claimed", "error", err)
		}
	}
}
