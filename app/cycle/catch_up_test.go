package cycle_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/ports"
)

// catchUp runs the cycles of one tick, each of which takes some time and is told by follow, and
// returns what each was.
func catchUp(ctx context.Context, takes time.Duration, follow func(n int) cycle.Followed) (ticks []cycle.Tick) {
	now := tick.AsOf
	cycle.CatchUp(ctx, func() time.Time { return now }, 30*time.Second, func(_ context.Context, tick cycle.Tick) cycle.Followed {
		ticks = append(ticks, tick)
		now = now.Add(takes)
		return follow(len(ticks))
	})
	return ticks
}

func full(n int) cycle.Followed { return cycle.Followed{Full: true, Next: place(n)} }

func TestCatchUp_FollowsAFullCycleAtOnceUntilOneComesBackShort(t *testing.T) {
	ticks := catchUp(t.Context(), 100*time.Millisecond, func(n int) cycle.Followed {
		return cycle.Followed{Full: n < 3, Next: place(n)}
	})
	if len(ticks) != 3 {
		t.Fatalf("%d cycles; want 3", len(ticks))
	}
	runs := make(map[ports.RunID]bool)
	for n, of := range ticks {
		runs[of.Run] = true
		if want := tick.AsOf.Add(time.Duration(n) * 100 * time.Millisecond); of.AsOf != want {
			t.Errorf("cycle %d is as of %v; want its own moment, %v", n+1, of.AsOf, want)
		}
		if n > 0 && of.After != place(n) || n == 0 && !of.After.IsZero() {
			t.Errorf("cycle %d begins behind %v; want where the last one ended", n+1, of.After)
		}
	}
	if len(runs) != 3 {
		t.Errorf("%d run ids; want one each", len(runs))
	}
}

func TestCatchUp_StopsAfterThirtySeconds(t *testing.T) {
	for takes, want := range map[time.Duration]int{time.Second: 30, 29 * time.Second: 2, 30 * time.Second: 1, time.Minute: 1} {
		if ticks := catchUp(t.Context(), takes, full); len(ticks) != want {
			t.Errorf("%d full cycles of %v; want %d", len(ticks), takes, want)
		}
	}
}

func TestCatchUp_EndsWhereItIsToldToStop(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	ticks := catchUp(ctx, time.Second, func(n int) cycle.Followed { stop(); return full(n) })
	if len(ticks) != 1 {
		t.Errorf("%d cycles; want the one in hand", len(ticks))
	}
}

// A page that a fault rolled back, or whose items failed, is passed over until the next tick.
func TestCatchUp_WhatFailedWaitsForTheNextTick(t *testing.T) {
	q := &queue{items: 7, poison: map[int]bool{2: true}, fault: map[int]error{4: errDeadlock}}
	var summaries []cycle.Summary
	var failed error
	cycle.CatchUp(t.Context(), func() time.Time { return tick.AsOf }, 30*time.Second, func(ctx context.Context, of cycle.Tick) cycle.Followed {
		done, err := cycle.Drain(ctx, q, ports.Rule[int, string]{}, of, cycle.Limits{BatchSize: 3, MaxBatches: 1, Interval: time.Hour}, nil)
		summaries = append(summaries, done)
		failed = errors.Join(failed, err)
		return cycle.Followed{Full: done.Full, Next: done.Next}
	})
	if !errors.Is(failed, errDeadlock) || len(summaries) != 3 || summaries[0].Failed != 1 || summaries[1].Faults != 1 || summaries[2].Applied != 1 {
		t.Errorf("cycles %+v, %v; want the poison's, the fault's and a short one", summaries, failed)
	}
	if want := []int{1, 3, 7}; !slices.Equal(q.applied, want) {
		t.Errorf("applied %v; want %v: the rest waits", q.applied, want)
	}
}
