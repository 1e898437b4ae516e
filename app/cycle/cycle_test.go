package cycle_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/ports"
)

// queue is a store of due items, numbered from 1 and due in that order, that misbehaves where
// it is told to.
type queue struct {
	items    int
	poison   map[int]bool  // refused by the database: any unit with one of them
	fault    map[int]error // an infrastructure fault of the page that begins with it, once
	noClaim  int           // from this item on no claim can be had
	noClaims int           // so many times only; 0: for good
	stuck    bool          // the cursor does not move on
	onClaim  func(claim ports.Claim)
	onDone   func()
	applied  []int
	units    [][]int // what each unit claimed
	streak   int     // of the failures that come
	held     []ports.Held
	noRecord error
}

func number(c ports.Cursor) int {
	if c.IsZero() {
		return 0
	}
	return int(c.ID[15])
}

func place(n int) ports.Cursor {
	return ports.Cursor{Due: time.Unix(int64(n), 0), ID: uuid.UUID{15: byte(n)}}
}

func (q *queue) Transition(ctx context.Context, claim ports.Claim, _ ports.Rule[int, string]) (ports.Outcome[int, string], error) {
	if q.onClaim != nil {
		q.onClaim(claim)
	}
	if err := ctx.Err(); err != nil {
		return ports.Outcome[int, string]{}, err
	}
	last := q.items
	if !claim.Until.IsZero() {
		last = number(claim.Until)
	}
	var unit []int
	for n := number(claim.After) + 1; n <= last && len(unit) < claim.Limit; n++ {
		if !slices.Contains(q.applied, n) {
			unit = append(unit, n)
		}
	}
	if len(unit) == 0 {
		return ports.Outcome[int, string]{Next: claim.After}, nil
	}
	if q.noClaim > 0 && unit[0] >= q.noClaim {
		if q.noClaims--; q.noClaims == 0 {
			q.noClaim = 0
		}
		return ports.Outcome[int, string]{}, errGone
	}
	q.units = append(q.units, unit)
	outcome := ports.Outcome[int, string]{Claimed: len(unit), Next: place(unit[len(unit)-1])}
	if q.stuck {
		outcome.Next = claim.After
	}
	if err := q.fault[unit[0]]; err != nil {
		delete(q.fault, unit[0])
		return outcome, err
	}
	if i := slices.IndexFunc(unit, func(n int) bool { return q.poison[n] }); i >= 0 {
		if len(unit) > 1 {
			return outcome, &ports.RefusedError{Items: len(unit), Err: errPoison}
		}
		outcome.Failed = []ports.Failure{{Item: place(unit[i]).ID, Err: errPoison, Streak: max(1, q.streak)}}
		return outcome, nil
	}
	q.applied = append(q.applied, unit...)
	for _, n := range unit {
		outcome.Applied = append(outcome.Applied, ports.Transitioned[int, string]{After: n})
	}
	outcome.SkippedLocked = 1
	if q.onDone != nil {
		q.onDone()
	}
	return outcome, nil
}

func (q *queue) Hold(_ context.Context, at time.Time, held []ports.Held) error {
	if !at.Equal(tick.AsOf) {
		return errors.New("another moment than the cycle's")
	}
	q.held = append(q.held, held...)
	return q.noRecord
}

func (q *queue) Backlog(context.Context, time.Time, ports.Cursor) (ports.Backlog, error) {
	return ports.Backlog{}, nil
}

var (
	errGone     = errors.New("connection refused")
	errPoison   = errors.New("check constraint violated")
	errDeadlock = errors.New("deadlock detected")
)

var tick = cycle.Begin(time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.FixedZone("MSK", 3*3600)))

func drain(t *testing.T, q *queue, batchSize, maxBatches int) (cycle.Summary, error) {
	t.Helper()
	return cycle.Drain(t.Context(), q, ports.Rule[int, string]{}, tick, cycle.Limits{BatchSize: batchSize, MaxBatches: maxBatches, Interval: time.Hour}, nil)
}

func want(t *testing.T, got cycle.Summary, err error, want cycle.Summary) {
	t.Helper()
	got.Next = ports.Cursor{} // told by a test of its own
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("summary %+v; want %+v", got, want)
	}
}

func upTo(n int) []int {
	var numbers []int
	for i := range n {
		numbers = append(numbers, i+1)
	}
	return numbers
}

func TestBegin_TruncatesToPostgresMicrosecondsInUTC(t *testing.T) {
	if want := time.Date(2026, 3, 1, 9, 0, 0, 123456000, time.UTC); tick.AsOf != want {
		t.Errorf("AsOf %v; want %v", tick.AsOf, want)
	}
	if cycle.Begin(time.Now()).Run == tick.Run {
		t.Error("two cycles with one run id")
	}
}

func TestDrain_TakesPageAfterPageUntilOneIsEmpty(t *testing.T) {
	q := &queue{items: 7, onClaim: func(c ports.Claim) {
		if !c.AsOf.Equal(tick.AsOf) || c.Run != tick.Run || c.Limit != 3 {
			t.Errorf("claim %+v; want the tick's moment and run on every page", c)
		}
	}}
	got, err := drain(t, q, 3, 10)
	want(t, got, err, cycle.Summary{Applied: 7, Batches: 3, SkippedLocked: 3})
	if !slices.Equal(q.applied, upTo(7)) {
		t.Errorf("applied %v; want 1 to 7 in order", q.applied)
	}
}

func TestDrain_OfNothingIsASuccess(t *testing.T) {
	got, err := drain(t, &queue{}, 3, 10)
	want(t, got, err, cycle.Summary{})
}

func TestDrain_StopsAtTheCap(t *testing.T) {
	q := &queue{items: 7}
	got, err := drain(t, q, 3, 2)
	if got.Next != place(6) {
		t.Errorf("the next claim would begin behind %v; want 6", got.Next)
	}
	want(t, got, err, cycle.Summary{Applied: 6, Batches: 2, SkippedLocked: 2, Capped: true, Full: true})
}

func TestDrain_GoesOverARefusedPageOneByOneAndOnlyTheCulpritFails(t *testing.T) {
	q := &queue{items: 7, poison: map[int]bool{2: true}}
	got, err := drain(t, q, 3, 10)
	want(t, got, err, cycle.Summary{Applied: 6, Failed: 1, Batches: 3, SkippedLocked: 4})
	if want := [][]int{{1, 2, 3}, {1}, {2}, {3}, {4, 5, 6}, {7}}; !slices.EqualFunc(q.units, want, slices.Equal) {
		t.Errorf("units %v; want %v: the culprit is tried alone once", q.units, want)
	}
}

func TestDrain_ARefusedPageCountsOnceTowardTheCap(t *testing.T) {
	q := &queue{items: 7, poison: map[int]bool{2: true}}
	got, err := drain(t, q, 3, 2)
	want(t, got, err, cycle.Summary{Applied: 5, Failed: 1, Batches: 2, SkippedLocked: 3, Capped: true, Full: true})
}

func TestDrain_APageOfPoisonDoesNotStopIt(t *testing.T) {
	q := &queue{items: 5, poison: map[int]bool{1: true, 2: true, 3: true}}
	got, err := drain(t, q, 3, 10)
	want(t, got, err, cycle.Summary{Applied: 2, Failed: 3, Batches: 1, SkippedLocked: 1})
}

func TestDrain_PassesOverAPageThatAFaultRolledBack(t *testing.T) {
	q := &queue{items: 7, fault: map[int]error{1: errDeadlock}}
	got, err := drain(t, q, 3, 10)
	want(t, got, err, cycle.Summary{Applied: 4, Faults: 1, Batches: 2, SkippedLocked: 2})
	if !slices.Equal(q.applied, []int{4, 5, 6, 7}) {
		t.Errorf("applied %v; want 4 to 7, and the first page left for the next cycle", q.applied)
	}
}

func TestDrain_FailsOnlyWhereNoClaimCanBeHad(t *testing.T) {
	q := &queue{items: 7, noClaim: 4}
	got, err := drain(t, q, 3, 10)
	if !errors.Is(err, errGone) {
		t.Fatalf("error %v; want %v", err, errGone)
	}
	if want := (cycle.Summary{Applied: 3, Faults: 2, Batches: 1, SkippedLocked: 1, Next: place(3)}); got != want {
		t.Errorf("summary %+v; want %+v: it is good beside the error", got, want)
	}
}

func TestDrain_StopsBetweenPages(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	q := &queue{items: 7}
	claims := 0
	q.onClaim = func(ports.Claim) { claims++ }
	q.onDone = stop // the stop comes while the first page commits
	got, err := cycle.Drain(ctx, q, ports.Rule[int, string]{}, tick, cycle.Limits{BatchSize: 3, MaxBatches: 10, Interval: time.Hour}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v; want context.Canceled", err)
	}
	if got.Applied != 3 || claims != 1 {
		t.Errorf("summary %+v after %d claims; want one page and no claim after the stop", got, claims)
	}
}

func TestDrain_RefusesLimitsThatAreNotAbove0(t *testing.T) {
	for _, limits := range []cycle.Limits{
		{BatchSize: 0, MaxBatches: 1, Interval: 1}, {BatchSize: 1, MaxBatches: 0, Interval: 1},
		{BatchSize: -1, MaxBatches: 1, Interval: 1}, {BatchSize: 1, MaxBatches: 1, Interval: 0},
	} {
		q := &queue{items: 1}
		_, err := cycle.Drain(t.Context(), q, ports.Rule[int, string]{}, tick, limits, nil)
		if limit := (cycle.LimitError{}); !errors.As(err, &limit) || len(q.units) > 0 {
			t.Errorf("%+v: error %v, units %v; want a LimitError before anything is touched", limits, err, q.units)
		}
	}
}

func TestDrain_HoldsAFailureBackForLongerAndLongerFromTheThirdInARow(t *testing.T) {
	for streak, want := range map[int]int{1: 0, 2: 0, 3: 2, 4: 4, 5: 8, 6: 10, 7: 10, 100: 10} {
		q := &queue{items: 3, poison: map[int]bool{2: true}, streak: streak}
		if _, err := drain(t, q, 3, 10); err != nil {
			t.Fatal(err)
		}
		if len(q.held) != 1 || q.held[0].Item != place(2).ID || !errors.Is(q.held[0].Err, errPoison) ||
			q.held[0].NextAttempt != tick.AsOf.Add(max(0, time.Duration(want)*time.Hour-30*time.Minute)) {
			t.Errorf("failure %d in a row: held %+v; want the culprit, until %d ticks later, be it early", streak, q.held, want)
		}
	}
}

func TestDrain_TakesNoMoreThanItsItems(t *testing.T) {
	q := &queue{items: 20}
	got, err := cycle.Drain(t.Context(), q, ports.Rule[int, string]{}, tick, cycle.Limits{BatchSize: 7, MaxBatches: 2, MaxItems: 10, Interval: time.Hour}, nil)
	want(t, got, err, cycle.Summary{Applied: 10, Batches: 2, SkippedLocked: 2, Capped: true, Full: true})
}

func TestDrain_GoesOnWhereAFailureCannotBePutOnRecord(t *testing.T) {
	q := &queue{items: 3, poison: map[int]bool{2: true}, noRecord: errDeadlock}
	got, err := drain(t, q, 3, 10)
	want(t, got, err, cycle.Summary{Applied: 2, Failed: 1, Faults: 1, Batches: 1, SkippedLocked: 2})
}

func TestDrain_OneConnectionThatDiedBetweenPagesDoesNotEndIt(t *testing.T) {
	q := &queue{items: 7, noClaim: 4, noClaims: 1}
	got, err := drain(t, q, 3, 10)
	want(t, got, err, cycle.Summary{Applied: 7, Faults: 1, Batches: 3, SkippedLocked: 3})
}

func TestDrain_EndsWhereTheCursorDoesNotMoveOn(t *testing.T) {
	for _, poison := range []map[int]bool{nil, {1: true, 2: true}} {
		q := &queue{items: 7, stuck: true, poison: poison}
		if _, err := drain(t, q, 3, 10); err == nil || len(q.units) > 2 {
			t.Errorf("error %v after units %v; want an end", err, q.units)
		}
	}
}

func TestDrain_ACycleWhoseLastPageWasRolledBackHasFailed(t *testing.T) {
	for what, test := range map[string]struct {
		items, maxBatches, applied int
		fault                      map[int]error
	}{
		"its only one":                   {3, 1, 0, map[int]error{1: errDeadlock}},
		"its only one, and none is left": {3, 2, 0, map[int]error{1: errDeadlock}},
		"each":                           {6, 9, 0, map[int]error{1: errDeadlock, 4: errDeadlock}},
		"the last one":                   {6, 9, 3, map[int]error{4: errDeadlock}},
	} {
		q := &queue{items: test.items, fault: test.fault}
		faults := len(test.fault)
		got, err := drain(t, q, 3, test.maxBatches)
		if !errors.Is(err, errDeadlock) || got.Faults != faults || got.Applied != test.applied {
			t.Errorf("%s: summary %+v, %v; want the fault to fail the cycle", what, got, err)
		}
	}
}

func TestDrain_NothingFollowsAtOnceWhereAClaimCannotBeHadAnyMore(t *testing.T) {
	q := &queue{items: 3, poison: map[int]bool{1: true}, noClaim: 2} // gone while the page is gone over one by one
	got, err := drain(t, q, 3, 1)
	if !errors.Is(err, errGone) || got.Full {
		t.Errorf("summary %+v, %v; want no cycle to follow", got, err)
	}
}
