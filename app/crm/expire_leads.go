// Package crm holds the use cases of the crm context: the job lead-expiration, and the
// operations that it races against.
package crm

import (
	"context"
	"fmt"
	"time"

	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/ports"
)

// Expire is the rule of lead-expiration (INV-LEAD-4).
var Expire = ports.Rule[crm.Lead, crm.Event]{
	Decide:   crm.Lead.Expire,
	Announce: published.LeadExpired,
}

// ExpireLeads is the job lead-expiration: it moves leads whose time is up from Active to
// Expired and tells their agents (spec: lead-expiration).
type ExpireLeads struct {
	Leads  ports.DueLeads
	Limits cycle.Limits
	Clock  func() time.Time
}

// LeadsExpired is the result of one cycle, in the specification's words. Faults and failed
// items beside it make no cycle fail; they are told by the telemetry.
type LeadsExpired struct {
	ExpiredCount       int
	BatchesProcessed   int // pages that committed something
	Elapsed            time.Duration
	CappedByMaxBatches bool // the cap ended the drain with leads still due
}

// Run is one cycle. The result is good beside an error too: an infrastructure fault that
// left no claim to be had, the end of ctx, or a cycle.LimitError.
func (job ExpireLeads) Run(ctx context.Context, tick cycle.Tick) (LeadsExpired, error) {
	began := job.Clock()
	done, err := cycle.Drain(ctx, job.Leads, Expire, tick, job.Limits)
	result := LeadsExpired{ExpiredCount: done.Applied, BatchesProcessed: done.Batches}
	if err == nil && done.Capped {
		result.CappedByMaxBatches, err = job.moreThan(ctx, tick, done.Failed)
	}
	result.Elapsed = job.Clock().Sub(began)
	if err != nil {
		return result, fmt.Errorf("expire leads: %w", err)
	}
	return result, nil
}

// moreThan reports whether more leads are due than those that this cycle failed to expire.
func (job ExpireLeads) moreThan(ctx context.Context, tick cycle.Tick, failed int) (bool, error) {
	backlog, err := job.Leads.Backlog(ctx, tick.AsOf)
	return backlog.Due > failed, err
}
