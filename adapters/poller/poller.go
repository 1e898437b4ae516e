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

// Poller is one loop: a job's, or one that keeps house.
type Poller struct {
	Loop     string        // what people know it by
	Interval time.Duration // above 0
	// Deadline is how long a cycle may take before the loop counts as stalled.
	Deadline time.Duration
	// Cycle is one cycle, which tells of its own failure; the loop goes on.
	Cycle func(context.Context)
	Log   *slog.Logger

	progress Progress
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
			p.Log.Warn("cycle overran its interval: ticks are skipped", "loop", p.Loop, "skipped", skipped)
		}
		tick = now.Add(p.Interval - late%p.Interval)
		select {
		case <-ctx.Done():
		case <-time.After(tick.Sub(now)):
		}
	}
}

func (p *Poller) cycle(ctx context.Context) {
	p.progress.Made()
	defer func() {
		p.progress.Made()
		if panicked := recover(); panicked != nil {
			p.Log.Error("cycle panicked; the next one comes at its tick", "loop", p.Loop,
				"panic", fmt.Sprint(panicked), "stack", string(debug.Stack()))
		}
	}()
	p.Cycle(ctx)
}

// Stalled returns an error where a cycle has neither begun nor ended for longer than the
// interval and the deadline allow.
func (p *Poller) Stalled() error { return p.progress.Stalled(p.Loop, p.Interval+p.Deadline) }

// Progress is when a loop last gave a sign of life. Its zero value is one that does not run.
type Progress struct{ last atomic.Int64 } // UnixNano

// Made gives a sign of life: a round has begun or ended.
func (p *Progress) Made() { p.last.Store(time.Now().UnixNano()) }

// Ended says that no more is to be expected.
func (p *Progress) Ended() { p.last.Store(0) }

// Stalled returns an error, which names the loop, where it has shown no sign of life for longer than is
// allowed.
func (p *Progress) Stalled(loop string, allowed time.Duration) error {
	last := p.last.Load()
	if last == 0 {
		return nil
	}
	if silent := time.Since(time.Unix(0, last)); silent > allowed {
		return fmt.Errorf("%s: no cycle has begun or ended for %s, %s are allowed", loop, silent.Round(time.Second), allowed)
	}
	return nil
}
