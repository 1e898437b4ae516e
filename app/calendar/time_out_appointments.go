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

// TimeOut is the rule of appointment-timeout (INV-APT-6).
var TimeOut = ports.Rule[calendar.Booking, calendar.Event]{
	Decide:   calendar.Booking.TimeOut,
	Announce: published.BookingEnded,
}

// ForeseeAppointments foresees the job's cycles.
func ForeseeAppointments(appointments ports.AppointmentPreview) plan.Foreseer {
	return plan.Of(appointments, TimeOut, func(after calendar.Booking) (becomes, why string) {
		return string(after.Appointment.Snapshot().Status), "its agent did not decide in time; its slot becomes " + string(after.Slot.Snapshot().Status)
	})
}

// TimeOutAppointments is the job appointment-timeout: it expires appointments that their agents did
// not decide on in time, and gives their slots back (spec: appointment-timeout). The appointment is
// the unit: the limits' BatchSize is how many share a transaction, their MaxBatches how many
// transactions a cycle has.
type TimeOutAppointments struct {
	Appointments ports.OverdueAppointments
	Limits       cycle.Limits
	Clock        func() time.Time
}

// AppointmentsTimedOut is the result of one cycle, in the specification's words, and what it left.
type AppointmentsTimedOut struct {
	ExpiredCount       int
	SlotsReleasedCount int // slots that can be sold again
	SlotsExpiredCount  int // slots that came back too late
	SkippedLockedCount int // appointments that someone else was working on
	Duration           time.Duration

	FailedCount int // appointments left as they were by their own fault; they fail no cycle
	FaultCount  int // units that the infrastructure rolled back
	cycle.Followed
}

// Run is one cycle. The result is good beside an error too: an infrastructure fault that left no
// claim to be had, the end of ctx, or a cycle.LimitError.
func (job TimeOutAppointments) Run(ctx context.Context, tick cycle.Tick) (AppointmentsTimedOut, error) {
	began := job.Clock()
	var result AppointmentsTimedOut
	done, err := cycle.Drain(ctx, job.Appointments, TimeOut, tick, job.Limits, func(t ports.Transitioned[calendar.Booking, calendar.Event]) {
		if t.After.Slot.Snapshot().Status == calendar.SlotStatusAvailable {
			result.SlotsReleasedCount++
		} else {
			result.SlotsExpiredCount++
		}
	})
	result.ExpiredCount, result.SkippedLockedCount = done.Applied, done.SkippedLocked
	result.FailedCount, result.FaultCount = done.Failed, done.Faults
	result.Followed = cycle.Followed{Full: done.Full, Next: done.Next}
	result.Duration = job.Clock().Sub(began)
	if err != nil {
		return result, fmt.Errorf("time out appointments: %w", err)
	}
	return result, nil
}
