// Package calendar holds the use cases of the calendar context: the jobs reminder-dispatch and
// appointment-timeout, and the operations that they race against.
package calendar

import (
	"context"
	"fmt"
	"time"

	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/app/plan"
	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/ports"
)

// Dispatch is the rule of reminder-dispatch (INV-REM-2).
var Dispatch = ports.Rule[calendar.DueReminder, calendar.Event]{
	Decide:   calendar.DueReminder.Dispatch,
	Announce: published.Reminded,
}

// ForeseeReminders foresees the job's cycles.
func ForeseeReminders(reminders ports.ReminderPreview) plan.Foreseer {
	return plan.Of(reminders, Dispatch, func(after calendar.DueReminder) (becomes, why string) {
		return string(after.Reminder.Snapshot().Status), "its event is " + string(after.Event.Snapshot().Status)
	})
}

// DispatchReminders is the job reminder-dispatch: it sends reminders that have come due, and skips
// those whose event has ended or been cancelled (spec: reminder-dispatch).
type DispatchReminders struct {
	Reminders ports.DueReminders
	Limits    cycle.Limits
	Clock     func() time.Time
}

// RemindersDispatched is the result of one cycle, in the specification's words, and what it left.
type RemindersDispatched struct {
	SentCount          int
	SkippedCount       int
	SkippedLockedCount int // reminders that someone else was working on, or their events
	Duration           time.Duration

	FailedCount int // reminders left as they were by their own fault; they fail no cycle
	FaultCount  int // units that the infrastructure rolled back
	cycle.Followed
}

// Run is one cycle: one batch. The result is good beside an error too: an infrastructure fault that
// left no claim to be had, the end of ctx, or a cycle.LimitError.
func (job DispatchReminders) Run(ctx context.Context, tick cycle.Tick) (RemindersDispatched, error) {
	began := job.Clock()
	var result RemindersDispatched
	done, err := cycle.Drain(ctx, job.Reminders, Dispatch, tick, job.Limits, func(t ports.Transitioned[calendar.DueReminder, calendar.Event]) {
		if t.After.Reminder.Snapshot().Status == calendar.ReminderStatusSent {
			result.SentCount++
		} else {
			result.SkippedCount++
		}
	})
	result.SkippedLockedCount, result.FailedCount, result.FaultCount = done.SkippedLocked, done.Failed, done.Faults
	result.Followed = cycle.Followed{Full: done.Full, Next: done.Next}
	result.Duration = job.Clock().Sub(began)
	if err != nil {
		return result, fmt.Errorf("dispatch reminders: %w", err)
	}
	return result, nil
}
