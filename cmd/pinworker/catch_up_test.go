package main

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pin-platform/pinworker/adapters/memory"
	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/adapters/telemetry"
	appcalendar "github.com/pin-platform/pinworker/app/calendar"
	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/cmd/pinworker/internal/settings"
	"github.com/pin-platform/pinworker/ports"
)

// Given 1,000 reminders that are due together and a batch of 200, the first tick takes all of them;
// without catch_up, which is the specification's letter, it takes 200.
func TestJob_CatchUpDecidesWhetherAFullCycleIsFollowedAtOnce(t *testing.T) {
	for catchUp, want := range map[bool][2]int{true: {1000, 1000}, false: {200, 400}} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewCalendar()
			operations := appcalendar.Operations{Schedules: store.Schedules, Clock: func() time.Time { return time.Now().AddDate(0, -1, 0) }}
			for range 1000 {
				if err := operations.Schedule(t.Context(), "agent", portstest.Plan(time.Now().Add(-time.Second))); err != nil {
					t.Fatal(err)
				}
			}
			before := len(store.Messages())

			set := settings.Job{Interval: time.Minute, BatchSize: 200, CatchUp: catchUp}
			w, c := &worker{log: slog.New(slog.DiscardHandler), sinks: telemetry.Sinks{Jobs: telemetry.NewJobs(prometheus.NewRegistry())}}, &boundedContext{}
			addJob(w, c, ports.ReminderDispatch, set, appcalendar.DispatchReminders{
				Reminders: store.DueReminders, Clock: time.Now,
				Limits: cycle.Limits{BatchSize: set.BatchSize, MaxBatches: 1, Interval: set.Interval},
			}.Run, remindersDispatched)

			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			go c.jobs[0].poller.Run(ctx)
			for tick, sent := range want {
				synctest.Wait()
				if got := len(store.Messages()) - before; got != sent {
					t.Errorf("catch_up %v: %d sent after tick %d; want %d", catchUp, got, tick+1, sent)
				}
				time.Sleep(set.Interval)
			}
		})
	}
}
