package poller_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pin-platform/pinworker/adapters/poller"
)

// start runs a poller whose n-th cycle (from 0) is cycle(n), and returns when each began,
// counted from the start.
func start(t *testing.T, interval time.Duration, cycle func(ctx context.Context, n int)) (
	begun *[]time.Duration, log *bytes.Buffer, p *poller.Poller, stop func(),
) {
	t.Helper()
	begun, log = new([]time.Duration), new(bytes.Buffer)
	began := time.Now()
	p = &poller.Poller{
		Loop: "job lead-expiration", Interval: interval, Deadline: 30 * time.Second,
		Log: slog.New(slog.NewTextHandler(log, nil)),
		Cycle: func(ctx context.Context) {
			n := len(*begun)
			*begun = append(*begun, time.Since(began))
			cycle(ctx, n)
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	return begun, log, p, func() { cancel(); <-done }
}

func TestPoller_BeginsAtTheStartAndThenAtEachTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, _, _, stop := start(t, time.Hour, func(context.Context, int) {
			time.Sleep(10 * time.Minute)
		})
		time.Sleep(2*time.Hour + time.Minute)
		stop()
		if want := []time.Duration{0, time.Hour, 2 * time.Hour}; !slices.Equal(*begun, want) {
			t.Errorf("cycles began at %v; want %v", *begun, want)
		}
	})
}

func TestPoller_AnOverrunSkipsTicksAndNeverOverlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running := false
		begun, log, _, stop := start(t, time.Minute, func(_ context.Context, n int) {
			if running {
				t.Error("two cycles at once")
			}
			running = true
			if n == 0 {
				time.Sleep(150 * time.Second)
			}
			running = false
		})
		time.Sleep(245 * time.Second)
		stop()
		if want := []time.Duration{0, 3 * time.Minute, 4 * time.Minute}; !slices.Equal(*begun, want) {
			t.Errorf("cycles began at %v; want %v", *begun, want)
		}
		if !strings.Contains(log.String(), "skipped=2") {
			t.Errorf("the log does not tell of 2 skipped ticks: %s", log)
		}
	})
}

func TestPoller_APanicIsLoggedWithItsStackAndTheLoopLivesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, log, _, stop := start(t, time.Minute, func(_ context.Context, n int) {
			if n == 0 {
				panic("a nil map")
			}
		})
		time.Sleep(90 * time.Second)
		stop()
		if len(*begun) != 2 {
			t.Errorf("%d cycles; want 2", len(*begun))
		}
		if !strings.Contains(log.String(), "a nil map") || !strings.Contains(log.String(), "poller_test.go") {
			t.Errorf("the log tells neither the panic nor its stack: %s", log)
		}
	})
}

func TestPoller_AStopReachesTheCycleInHandAndWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rolledBack := false
		_, log, _, stop := start(t, time.Minute, func(ctx context.Context, _ int) {
			<-ctx.Done()
			time.Sleep(time.Second) // the roll-back
			rolledBack = true
		})
		time.Sleep(5 * time.Second)
		stop()
		if !rolledBack {
			t.Error("Run returned before the cycle in hand had ended")
		}
		if log.Len() > 0 {
			t.Errorf("a stop is no failure, but the log says: %s", log)
		}
	})
}

func TestPoller_StallsOnlyBeyondIntervalAndDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, p, stop := start(t, time.Minute, func(ctx context.Context, _ int) {
			<-ctx.Done() // it hangs
		})
		time.Sleep(90 * time.Second)
		if err := p.Stalled(); err != nil {
			t.Errorf("stalled within interval and deadline: %v", err)
		}
		time.Sleep(time.Second)
		if err := p.Stalled(); err == nil || !strings.HasPrefix(err.Error(), "job lead-expiration: ") {
			t.Errorf("Stalled() = %v; want an error that names the job", err)
		}
		stop()
	})
}
