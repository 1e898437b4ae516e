// Package crm holds the use cases of the crm context: the job lead-expiration, and the
// operations that it races against.
package crm

import (
	"context"
	"fmt"
	"time"

	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/app/plan"
	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/ports"
)

// Expire is the rule of lead-expiration (INV-LEAD-4).
var Expire = ports.Rule[crm.Lead, crm.Event]{
	Decide:   crm.Lead.Expire,
	Announce: published.LeadExpired,
}

// Foresee foresees the job's cycles.
func Foresee(leads ports.LeadPreview) plan.Foreseer {
	return plan.Of(leads, Expire, func(after crm.Lead) (becomes, why string) {
		return string(after.Snapshot().Status), "its time is up"
	})
}

// ExpireLeads is the job lead-expiration: it moves leads whose time is up from Active to
// Expired and tells their agents (spec: lead-expiration).
type ExpireLeads struct {
	Leads  ports.DueLeads
	Limits cycle.Limits
	Clock  func() time.Time
}

// LeadsExpired is the result of one cycle, in the specification's words, and what it left.
type LeadsExpired struct {
	ExpiredCount       int
	BatchesProcessed   int // pages that committed something
	Elapsed            time.Duration
	CappedByMaxBatches bool // the cap ended the drain with leads still due

	FailedCount        int // leads left as they were by their own fault; they fail no cycle
	SkippedLockedCount int // leads that someone else was working on
	FaultCount         int // units that the infrastructure rolled back
}

// Run is one cycle. The result is good beside an error too: an infrastructure fault that
// left no claim to be had, the end of ctx, or a cycle.LimitError.
func (job ExpireLeads) Run(ctx context.Context, tick cycle.Tick) (LeadsExpired, error) {
	began := job.Clock()
	done, err := cycle.Drain(ctx, job.Leads, Expire, tick, job.Limits, nil)
	result := LeadsExpired{
		ExpiredCount: done.Applied, BatchesProcessed: done.Batches, FailedCount: done.Failed,
		SkippedLockedCount: done.SkippedLocked, FaultCount: done.Faults,
		CappedByMaxBatches: done.Capped && job.moreBehind(ctx, tick, done.Next),
	}
	result.Elapsed = job.Clock().Sub(began)
	if err != nil {
		return result, fmt.Errorf("expire leads: %w", err)
	}
	return result, nil
}

// moreBehind reports whether a next page would have found something. Where that cannot be
// told, it may have.
func (job ExpireLeads) moreBehind(ctx context.Context, tick cycle.Tick, last ports.Cursor) bool {
	backlog, err := job.Leads.Backlog(ctx, tick.AsOf, last)
	return err != nil || backlog.Due > backlog.Held
}
