// Package poller runs a job's cycles: one at the start, then one an interval after the last
// one's tick. Cycles never overlap; one that takes longer than its interval skips ticks.
//
//	tick    |─────────|─────────|─────────|─────────|
//	cycle   ███       █████████████████     ██
//	                            ^ skipped   ^ the next tick, not the moment the cycle ended
package poller

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Poller is one job's loop.
type Poller struct {
	Job      string
	Interval time.Duration // above 0
	// Deadline is how long a cycle may take before the loop counts as stalled.
	Deadline time.Duration
	// Cycle is one cycle, which tells of its own failure; the loop goes on.
	Cycle func(context.Context)
	Log   *slog.Logger

	progress atomic.Int64 // UnixNano of the last cycle's begin or end; 0 before the first
}

// Run runs cycles until ctx ends. ctx reaches the cycle in hand, which finishes or rolls
// back; Run returns after it.
func (p *Poller) Run(ctx context.Context) {
	tick := time.Now()
	for ctx.Err() == nil {
		p.cycle(ctx)
		now := time.Now()
		late := now.Sub(tick)
		if skipped := int(late / p.Interval); skipped > 0 {
			p.Log.Warn("cycle overran its interval: ticks are skipped", "job", p.Job, "skipped", skipped)
		}
		tick = now.Add(p.Interval - late%p.Interval)
		select {
		case <-ctx.Done():
		case <-time.After(tick.Sub(now)):
		}
	}
}

func (p *Poller) cycle(ctx context.Context) {
	p.progress.Store(time.Now().UnixNano())
	defer func() {
		p.progress.Store(time.Now().UnixNano())
		if panicked := recover(); panicked != nil {
			p.Log.Error("cycle panicked; the next one comes at its tick", "job", p.Job,
				"panic", fmt.Sprint(panicked), "stack", string(debug.Stack()))
		}
	}()
	p.Cycle(ctx)
}

// Stalled returns an error where a cycle has neither begun nor ended for longer than the
// interval and the deadline allow.
func (p *Poller) Stalled() error {
	last := p.progress.Load()
	if last == 0 {
		return nil
	}
	silent := time.Since(time.Unix(0, last))
	if allowed := p.Interval + p.Deadline; silent > allowed {
		return fmt.Errorf("job %s: no cycle has begun or ended for %s, %s are allowed", p.Job, silent.Round(time.Second), allowed)
	}
	return nil
}
