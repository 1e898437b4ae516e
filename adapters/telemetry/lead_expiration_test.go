package telemetry_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/adapters/memory"
	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/adapters/telemetry"
	appcrm "github.com/pin-platform/pinworker/app/crm"
	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/ports"
)

func leadExpiration(t *testing.T) *observed {
	t.Helper()
	o := observe(t, ports.LeadExpiration, "crm_lead_expiration_")
	o.runID, o.failed, o.completed = "jobRunId", "item.failed", "job.completed"
	leads := memory.NewCRM()
	operations := appcrm.Operations{Leads: leads.Leads, Clock: func() time.Time { return noon.AddDate(0, -1, 0) }}
	o.store = leads
	o.cycle = alone(telemetry.LeadExpiration(o.sinks, appcrm.ExpireLeads{
		Leads: intercepted[crm.Lead, crm.Event]{leads.Due, o}, Clock: o.clock,
		Limits: cycle.Limits{BatchSize: 2, MaxBatches: 10, Interval: interval},
	}))
	o.make = func(due time.Time) item {
		r := portstest.Registration(due)
		o.must(operations.Register(o.Context(), "agent", r))
		return item{id: uuid.UUID(r.Lead), lock: uuid.UUID(r.Lead), name: "LeadId=" + r.Lead.String(), tenant: "TenantId=" + r.Tenant.String()}
	}
	o.spoil = func(i *item) string {
		stale := row(o, leads.Ledger, i.id)
		o.must(operations.Extend(o.Context(), "agent", crm.LeadID(i.id), noon))
		leads.Import(stale)
		return "the stream is ahead of its row"
	}
	return o
}

func TestLeadExpiration_TellsACycleAsSpecified(t *testing.T) {
	o := leadExpiration(t)
	var expired [3]string
	for i := range expired {
		lead := o.make(noon.Add(time.Duration(i-60) * time.Minute))
		expired[i] = "lead.expired " + lead.name + " " + lead.tenant
	}
	o.must(o.run(noon))
	o.wantLines(
		o.lines(),
		"INFO job.started Now=2026-03-01T12:00:00Z",
		"DEBUG "+expired[0], "DEBUG "+expired[1], "INFO batch.processed size=2 elapsedMs",
		"DEBUG "+expired[2], "INFO batch.processed size=1 elapsedMs",
		"INFO job.completed ExpiredCount=3 BatchesProcessed=2 cappedByMaxBatches=false Elapsed=1s",
	)
	o.wantLines(
		o.told(),
		"lead-expiration batch", "  "+expired[0], "  "+expired[1], "lead-expiration batch", "  "+expired[2], "lead-expiration batch",
		"lead-expiration cycle",
	)
	o.wantOnlyMetrics(map[string]float64{
		"crm_lead_expiration_expired_total":          3,
		"crm_lead_expiration_duration_seconds_count": 1,
		"crm_lead_expiration_duration_seconds_sum":   1,
		"crm_lead_expiration_lateness_seconds_count": 3,
		"crm_lead_expiration_lateness_seconds_sum":   (60 + 59 + 58) * 60, // each lead's, from its ExpiresAt to noon
		"crm_lead_expiration_backlog":                0,
		"crm_lead_expiration_errors_total":           0,

		`job_oldest_due_age_seconds{job="lead-expiration"}`:         0,
		`job_quarantined{job="lead-expiration"}`:                    0,
		`job_last_success_timestamp_seconds{job="lead-expiration"}`: 1,
	})
}

func TestLeadExpiration_TellsTheBacklogBeforeTheCycleToo(t *testing.T) {
	o := leadExpiration(t)
	o.make(noon.Add(-time.Minute))
	o.before = func() error {
		o.wantMetrics(map[string]float64{"crm_lead_expiration_backlog": 1})
		o.before = nil
		return nil
	}
	o.must(o.run(noon))
	if o.before != nil {
		t.Error("the cycle took nothing")
	}
	o.wantMetrics(map[string]float64{"crm_lead_expiration_backlog": 0})
}

func TestLeadExpiration_TellsThatTheCapEndedIt(t *testing.T) {
	o := leadExpiration(t)
	for i := range 21 {
		o.make(noon.Add(time.Duration(i-60) * time.Minute))
	}
	o.must(o.run(noon))
	o.wantLines(
		o.about("WARN", "INFO job.completed"),
		"WARN the cap ended the drain with leads still due: the next cycle takes them",
		"INFO job.completed ExpiredCount=20 BatchesProcessed=10 cappedByMaxBatches=true Elapsed=1s",
	)
	o.wantMetrics(map[string]float64{"crm_lead_expiration_backlog": 1, "crm_lead_expiration_errors_total": 0})
}
