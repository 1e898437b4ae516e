package telemetry

import (
	"context"
	"log/slog"
	"time"

	appcrm "github.com/pin-platform/pinworker/app/crm"
	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/ports"
)

// LeadExpiration observes the job lead-expiration and returns its cycle (spec: lead-expiration,
// observability).
func LeadExpiration(s Sinks, job appcrm.ExpireLeads) func(context.Context, cycle.Tick) (appcrm.LeadsExpired, error) {
	m := metrics{s.Registry}
	expired := m.counter("crm_lead_expiration_expired_total", "Leads moved to Expired.")
	duration := m.histogram("crm_lead_expiration_duration_seconds", "How long a cycle took.", cycleBuckets...)
	lateness := m.histogram("crm_lead_expiration_lateness_seconds", "ExpiredAt less ExpiresAt; the SLO is p95 below 3900 s.",
		1, 10, 60, 300, 900, 1800, 2700, 3600, 3900, 7200, 21600, 86400)
	o := &observer[crm.Lead, crm.Event]{
		job: ports.LeadExpiration, sinks: s,
		words:   words{run: "jobRunId", started: "job.started", asOf: "Now", completed: "job.completed", failed: "item.failed"},
		backlog: m.gauge("crm_lead_expiration_backlog", "Active leads whose ExpiresAt has passed, before and after each cycle."),
		errors:  m.counter("crm_lead_expiration_errors_total", "Leads that failed, and units rolled back by an infrastructure fault."),
		failed:  func(f ports.Failure) []field { return []field{id("LeadId", f.Item)} },
		applied: func(tell tellItem, t ports.Transitioned[crm.Lead, crm.Event]) {
			lead := t.After.Snapshot()
			expired.Inc()
			lateness.Observe(lead.ExpiredAt.Sub(lead.ExpiresAt).Seconds())
			tell(slog.LevelDebug, "lead.expired", lead.TenantID, id("LeadId", lead.ID))
		},
	}
	job.Leads = observed[crm.Lead, crm.Event]{job.Leads, o, func(log journal, outcome ports.Outcome[crm.Lead, crm.Event], took time.Duration) {
		if outcome.Claimed > 0 {
			log.tell(slog.LevelInfo, "batch.processed", count("size", len(outcome.Applied)), millis("elapsedMs", took))
		}
	}}
	return func(ctx context.Context, tick cycle.Tick) (result appcrm.LeadsExpired, err error) {
		err = o.cycle(ctx, tick, job.Leads, func(ctx context.Context) ([]field, error) {
			o.measure(ctx, o.log(tick.Run), tick.AsOf, job.Leads)
			result, err = job.Run(ctx, tick)
			duration.Observe(result.Elapsed.Seconds())
			if err == nil && result.CappedByMaxBatches {
				o.log(tick.Run).tell(slog.LevelWarn, "the cap ended the drain with leads still due: the next cycle takes them")
			}
			return []field{
				count("ExpiredCount", result.ExpiredCount), count("BatchesProcessed", result.BatchesProcessed),
				is("cappedByMaxBatches", result.CappedByMaxBatches), elapsed("Elapsed", result.Elapsed),
			}, err
		})
		return result, err
	}
}
