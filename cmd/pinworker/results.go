package main

import (
	"time"

	appcalendar "github.com/pin-platform/pinworker/app/calendar"
	appcrm "github.com/pin-platform/pinworker/app/crm"
	"github.com/pin-platform/pinworker/app/cycle"
	apppromotion "github.com/pin-platform/pinworker/app/promotion"
)

// jobResult is what a cycle did, as people and programs see it: the specification's fields, in its
// order, then ours.
type jobResult struct {
	fields   []resultField
	followed cycle.Followed
	// done counts what changed, the rest what did not and why.
	done, failed, locked, faults int
	capped                       bool
}

type resultField struct {
	name  string
	value any
}

func remindersDispatched(r appcalendar.RemindersDispatched) jobResult {
	return jobResult{
		fields: []resultField{
			{"SentCount", r.SentCount}, {"SkippedCount", r.SkippedCount}, {"SkippedLockedCount", r.SkippedLockedCount},
			{"DurationMs", int(r.Duration.Milliseconds())}, {"FailedCount", r.FailedCount}, {"FaultCount", r.FaultCount},
		},
		followed: r.Followed, done: r.SentCount + r.SkippedCount, failed: r.FailedCount, locked: r.SkippedLockedCount, faults: r.FaultCount,
	}
}

func appointmentsTimedOut(r appcalendar.AppointmentsTimedOut) jobResult {
	return jobResult{
		fields: []resultField{
			{"ExpiredCount", r.ExpiredCount}, {"SlotsReleasedCount", r.SlotsReleasedCount}, {"SlotsExpiredCount", r.SlotsExpiredCount},
			{"SkippedLockedCount", r.SkippedLockedCount}, {"DurationMs", int(r.Duration.Milliseconds())},
			{"FailedCount", r.FailedCount}, {"FaultCount", r.FaultCount},
		},
		followed: r.Followed, done: r.ExpiredCount, failed: r.FailedCount, locked: r.SkippedLockedCount, faults: r.FaultCount,
	}
}

func promotionsExpired(r apppromotion.PromotionsExpired) jobResult {
	return jobResult{
		fields: []resultField{
			{"ExpiredCount", r.ExpiredCount}, {"SkippedLockedCount", r.SkippedLockedCount}, {"DurationMs", int(r.Duration.Milliseconds())},
			{"FailedCount", r.FailedCount}, {"FaultCount", r.FaultCount},
		},
		followed: r.Followed, done: r.ExpiredCount, failed: r.FailedCount, locked: r.SkippedLockedCount, faults: r.FaultCount,
	}
}

func leadsExpired(r appcrm.LeadsExpired) jobResult {
	return jobResult{
		fields: []resultField{
			{"ExpiredCount", r.ExpiredCount}, {"BatchesProcessed", r.BatchesProcessed}, {"Elapsed", span(r.Elapsed)},
			{"CappedByMaxBatches", r.CappedByMaxBatches},
			{"FailedCount", r.FailedCount}, {"SkippedLockedCount", r.SkippedLockedCount}, {"FaultCount", r.FaultCount},
		},
		done: r.ExpiredCount, failed: r.FailedCount, locked: r.SkippedLockedCount, faults: r.FaultCount, capped: r.CappedByMaxBatches,
	}
}

// json is the result as --json prints it.
func (r jobResult) json() map[string]any {
	document := make(map[string]any, len(r.fields))
	for _, f := range r.fields {
		document[f.name] = f.value
	}
	return document
}

// plus adds the results of two cycles of one job.
func (r jobResult) plus(other jobResult) jobResult {
	if len(r.fields) == 0 {
		return other
	}
	sum := r
	sum.fields = make([]resultField, len(r.fields))
	for i, f := range r.fields {
		switch a := f.value.(type) {
		case int:
			f.value = a + other.fields[i].value.(int) //nolint:forcetypeassert // of the same job
		case span:
			f.value = a + other.fields[i].value.(span) //nolint:forcetypeassert // as above
		case bool:
			f.value = a || other.fields[i].value.(bool) //nolint:forcetypeassert // as above
		}
		sum.fields[i] = f
	}
	sum.done, sum.failed, sum.locked, sum.faults = r.done+other.done, r.failed+other.failed, r.locked+other.locked, r.faults+other.faults
	return sum
}

// advice says what to look at next, where there is something.
func (r jobResult) advice() string {
	switch {
	case r.faults > 0:
		return "Some units were rolled back; the log above says why. The next cycle takes them.\n"
	case r.failed > 0:
		return "Some items failed: `pinworker quarantine list` shows which, and why.\n"
	case r.capped:
		return "The cap ended the cycle with leads still due: the next one takes them.\n"
	case r.followed.Full:
		return "The batch was filled: more may be due. `serve` lets another cycle follow at once.\n"
	case r.done == 0 && r.locked > 0:
		return "Nothing was done: what is due is being worked on by someone else.\n"
	case r.done == 0:
		return "Nothing to do: nothing is due that is not held back.\n"
	}
	return ""
}

// span is a duration in Go's form, in JSON too.
type span time.Duration

// MarshalText implements encoding.TextMarshaler.
func (s span) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s span) String() string { return time.Duration(s).Round(time.Microsecond).String() }

// count is one of the result's numbers, 0 where there is none.
func (r jobResult) count(name string) int {
	for _, f := range r.fields {
		if n, ok := f.value.(int); ok && f.name == name {
			return n
		}
	}
	return 0
}
