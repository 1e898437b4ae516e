// Package cycle is the engine of a job's cycle: it takes page after page of due items
// through a rule until none is left, goes over a refused page one by one, and stops between
// pages when asked to. What a job is, its rule and its limits, lies beside it; what a page
// writes lies behind ports.Due.
package cycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pin-platform/pinworker/ports"
)

// Tick is one cycle's identity: its run id, and the one moment that serves for all of its
// comparisons and timestamps (spec: rules common to all jobs).
type Tick struct {
	Run   ports.RunID
	AsOf  time.Time    // UTC, in PostgreSQL's microseconds
	After ports.Cursor // where the cycle begins: behind what an earlier one of the same tick has seen
}

// Begin starts a cycle at a moment read from a clock.
func Begin(now time.Time) Tick {
	return Tick{Run: ports.NewRunID(), AsOf: ports.Stored(now)}
}

// Limits bound a cycle.
type Limits struct {
	BatchSize  int // items a page, above 0
	MaxBatches int // pages a cycle, above 0
	MaxItems   int // items a cycle, where that is no multiple of BatchSize; 0: the pages bound it
	// Interval is the job's, above 0: what an item that keeps failing is held back by.
	Interval time.Duration
}

// LimitError says that a limit is out of range.
type LimitError struct {
	Limit string
	Value int
}

func (e LimitError) Error() string {
	return fmt.Sprintf("%s is %d: it must be above 0", e.Limit, e.Value)
}

// Validate returns a LimitError for a limit that is not above 0.
func (l Limits) Validate() error {
	if l.BatchSize <= 0 {
		return LimitError{"BatchSize", l.BatchSize}
	}
	if l.MaxBatches <= 0 {
		return LimitError{"MaxBatchesPerCycle", l.MaxBatches}
	}
	if l.Interval <= 0 {
		return LimitError{"Interval", int(l.Interval)}
	}
	return nil
}

// Summary is what a cycle did. It is good beside an error too.
type Summary struct {
	Applied       int
	Failed        int // items left as they were by a data fault
	SkippedLocked int
	Batches       int // pages that committed something
	Faults        int // units rolled back by an infrastructure fault
	Capped        bool
	Next          ports.Cursor // where the next claim would begin
	Full          bool         // the last claim was filled: more may be waiting
}

// Drain takes due items through the rule, page by page, until a page is empty, the limits
// are reached (Capped), or ctx ends.
//
// A page that the database refuses is gone over one item at a time; the item that fails
// alone is left out. A page that an infrastructure fault rolled back is passed over until
// the next cycle. Both count toward MaxBatches. The cycle fails where not even a claim can
// be had, twice in a row, or where the last page that held anything was rolled back so; it does
// not begin where a limit is out of range (LimitError).
//
// count hears of each item that was committed; it may be nil.
func Drain[A, E any](
	ctx context.Context, due ports.Due[A, E], rule ports.Rule[A, E], tick Tick, limits Limits, count func(ports.Transitioned[A, E]),
) (Summary, error) {
	if err := limits.Validate(); err != nil {
		return Summary{}, err
	}
	if count == nil {
		count = func(ports.Transitioned[A, E]) {}
	}
	d := drain[A, E]{due: due, rule: rule, count: count, tick: tick, interval: limits.Interval}
	claim := ports.Claim{AsOf: tick.AsOf, After: tick.After, Limit: limits.BatchSize, Run: tick.Run}
	for page := range limits.MaxBatches {
		if left := limits.MaxItems - page*limits.BatchSize; limits.MaxItems > 0 {
			claim.Limit = min(limits.BatchSize, left)
		}
		before := d.done.Applied
		outcome, err := d.unit(ctx, claim)
		if d.done.Applied > before {
			d.done.Batches++
		}
		switch {
		case err != nil: // nothing follows at once: the place to go on from is not known
			d.done.Full = false
			return d.done, err
		case outcome.Claimed == 0:
			d.done.Full = false
			return d.done, d.last
		}
		d.done.Full = outcome.Claimed >= claim.Limit
		claim.After, d.done.Next = outcome.Next, outcome.Next
	}
	d.done.Capped = true
	return d.done, d.last
}

type drain[A, E any] struct {
	due   ports.Due[A, E]
	rule  ports.Rule[A, E]
	count func(ports.Transitioned[A, E])
	done  Summary
	last  error // the fault that rolled the last unit back that had claimed anything

	tick     Tick
	interval time.Duration
}

// unit runs one claim and counts what became of it. Its error ends the cycle.
func (d *drain[A, E]) unit(ctx context.Context, claim ports.Claim) (ports.Outcome[A, E], error) {
	if err := ctx.Err(); err != nil {
		return ports.Outcome[A, E]{}, err
	}
	outcome, err := d.due.Transition(ctx, claim, d.rule)
	if err != nil && outcome.Claimed == 0 && ctx.Err() == nil {
		// No page was touched: a connection may have died since the last one. A second try
		// tells it from a database that is gone.
		d.done.Faults++
		outcome, err = d.due.Transition(ctx, claim, d.rule)
	}
	if outcome.Claimed > 0 && outcome.Next == claim.After {
		return outcome, errStuck
	}
	if refused := (*ports.RefusedError)(nil); errors.As(err, &refused) && claim.Limit > 1 {
		claim.Until = outcome.Next
		return outcome, d.oneByOne(ctx, claim)
	}
	if err != nil {
		d.done.Faults++
		if outcome.Claimed == 0 || ctx.Err() != nil {
			return outcome, err
		}
		d.last = err
		return outcome, nil
	}
	if outcome.Claimed > 0 {
		d.last = nil
	}
	for _, applied := range outcome.Applied {
		d.count(applied)
	}
	d.done.Applied += len(outcome.Applied)
	d.done.Failed += len(outcome.Failed)
	d.done.SkippedLocked += outcome.SkippedLocked
	d.hold(ctx, outcome.Failed)
	return outcome, nil
}

// hold puts failures on record. Where that fails, no harm is done: they are tried again at the
// next tick, as if for the first time.
func (d *drain[A, E]) hold(ctx context.Context, failures []ports.Failure) {
	if len(failures) == 0 {
		return
	}
	held := make([]ports.Held, len(failures))
	for i, f := range failures {
		held[i] = ports.Held{Failure: f, NextAttempt: d.tick.AsOf.Add(heldBack(f.Streak, d.interval))}
	}
	if err := d.due.Hold(ctx, d.tick.AsOf, held); err != nil {
		d.done.Faults++
	}
}

// heldBack is for how long an item is left out: the first failures in a row cost nothing but
// the rest of the tick, then 2, 4, 8 intervals, at most 10 (spec: departures, backoff of
// poison). Ticks come a little early or late; half an interval less makes it that many of them.
func heldBack(streak int, interval time.Duration) time.Duration {
	const free, most = 3, 10
	beyond := streak - free
	switch {
	case beyond < 0:
		return 0
	case beyond > 2: // 2, 4, 8, and then 16 would be too many
		return most*interval - interval/2
	}
	return interval<<(beyond+1) - interval/2
}

// errStuck guards against a store that would hand out the same items for ever.
var errStuck = errors.New("the cursor does not move on")

// oneByOne goes over a refused page again, so that the culprit alone fails.
func (d *drain[A, E]) oneByOne(ctx context.Context, claim ports.Claim) error {
	claim.Limit = 1
	for {
		outcome, err := d.unit(ctx, claim)
		if err != nil || outcome.Claimed == 0 {
			return err
		}
		claim.After = outcome.Next
	}
}

// Followed is what a cycle tells of itself for another one to follow at once.
type Followed struct {
	Full bool         // its batch was filled: more may be waiting
	Next ports.Cursor // where the next one begins
}

// CatchUp runs cycles of one tick, each with its own run id and moment, for as long as they come
// back full and less than patience has passed (spec: departures, catch-up). What failed or was
// locked lies behind the cursor, and waits for the next tick; so does a page that a fault rolled
// back, which fails its own cycle and not those that follow.
func CatchUp(ctx context.Context, clock func() time.Time, patience time.Duration, run func(context.Context, Tick) Followed) {
	began := clock()
	tick := Begin(began)
	for {
		done := run(ctx, tick)
		now := clock()
		if !done.Full || ctx.Err() != nil || now.Sub(began) >= patience {
			return
		}
		tick = Begin(now)
		tick.After = done.Next
	}
}
