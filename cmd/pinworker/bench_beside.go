package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pin-platform/pinworker/adapters/postgres"
	appcalendar "github.com/pin-platform/pinworker/app/calendar"
	appcrm "github.com/pin-platform/pinworker/app/crm"
	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/ports"
	"github.com/pin-platform/pinworker/sql/bench"
)

// benchBeside says how long a cycle of reminders takes, by itself and beside a drain of leads, in a
// database of its own pool each, as serve has them.
type benchBeside struct {
	Cycles    int     `json:"cycles"` // of 20 reminders each, beside the drains
	AloneP99  float64 `json:"alone_p99_ms"`
	BesideP99 float64 `json:"beside_p99_ms"`
	Ratio     float64 `json:"ratio"`
}

func (b *benchJobs) beside(ctx context.Context, databaseURL string) (result benchBeside, err error) {
	const each = 20
	asOf := benchDay(1000)
	if err := b.exec(ctx, bench.Statement("fill_reminders"), 2*each*cyclesInARound*b.rounds, asOf); err != nil {
		return result, err
	}
	calendarDB, err := openBench(databaseURL)
	if err != nil {
		return result, err
	}
	defer calendarDB.Close()
	reminders := appcalendar.DispatchReminders{
		Reminders: postgres.NewCalendar(calendarDB, benchWriter("calendar")).DueReminders, Clock: time.Now,
		Limits: cycle.Limits{BatchSize: each, MaxBatches: 1, Interval: time.Minute},
	}
	cycles := reminderCycles{job: reminders, tick: cycle.Tick{AsOf: asOf}}
	var alone, beside []float64
	for range b.rounds {
		if err := b.exec(ctx, bench.Statement("fill_leads"), b.due, asOf); err != nil {
			return result, err
		}
		for _, statement := range []string{"TRUNCATE crm.outbox, calendar.outbox", "VACUUM ANALYZE", "CHECKPOINT"} {
			if err := b.exec(ctx, statement); err != nil {
				return result, err
			}
		}
		took, err := cycles.measure(ctx, nil)
		if err != nil {
			return result, err
		}
		alone = append(alone, took...)
		drained, failed := make(chan struct{}), error(nil)
		go func() {
			defer close(drained)
			leads := appcrm.ExpireLeads{
				Leads: postgres.NewCRM(b.db, benchWriter("crm")).Due, Clock: time.Now,
				Limits: cycle.Limits{BatchSize: b.batch, MaxBatches: b.due, Interval: time.Hour},
			}
			_, failed = leads.Run(ctx, cycle.Tick{Run: ports.NewRunID(), AsOf: asOf})
		}()
		took, err = cycles.measure(ctx, drained)
		<-drained
		if err := errors.Join(err, failed); err != nil {
			return result, err
		}
		beside = append(beside, took...)
	}
	result = benchBeside{Cycles: len(beside), AloneP99: round3(p99(alone)), BesideP99: round3(p99(beside))}
	result.Ratio = round3(result.BesideP99 / result.AloneP99)
	return result, nil
}

// reminderCycles goes on where its last cycle ended.
type reminderCycles struct {
	job  appcalendar.DispatchReminders
	tick cycle.Tick
}

const cyclesInARound = 300

// measure runs a round's cycles with a pause between them, no more of them once until is closed,
// and says how many milliseconds each took.
func (c *reminderCycles) measure(ctx context.Context, until <-chan struct{}) (took []float64, err error) {
	for range cyclesInARound {
		c.tick.Run = ports.NewRunID()
		began := time.Now()
		done, err := c.job.Run(ctx, c.tick)
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(began).Seconds()*1000)
		c.tick.After = done.Next
		select {
		case <-until:
			return took, nil
		case <-time.After(10 * time.Millisecond):
		}
	}
	return took, nil
}

func p99(took []float64) float64 {
	slices.Sort(took)
	return took[len(took)*99/100]
}
