package explain_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/app/explain"
	"github.com/pin-platform/pinworker/app/plan"
	"github.com/pin-platform/pinworker/ports"
)

var (
	noon   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	hence  = func(d time.Duration) ports.Cursor { return ports.Cursor{Due: noon.Add(d), ID: uuid.Max} }
	polled = func(place ports.Cursor) ports.Row {
		return ports.Row{Aggregate: "EventReminder", Status: "Pending", Version: 1, Job: ports.ReminderDispatch, Polled: true, Place: place}
	}
	settled = func(status string, version int) ports.Row {
		return ports.Row{Aggregate: "EventReminder", Status: status, Version: version, UpdatedAt: noon.Add(-time.Hour), Job: ports.ReminderDispatch}
	}
	happened = func(version int, event string, at time.Time) ports.Happened {
		return ports.Happened{Aggregate: "EventReminder", Version: version, Event: event, At: at, Actor: ports.System}
	}
)

func TestWhy(t *testing.T) {
	record := &ports.Quarantined{Streak: 5, FirstFailedAt: noon.Add(-2 * time.Hour), LastFailedAt: noon.Add(-time.Minute), LastError: "no event", NextAttempt: noon.Add(time.Hour)}
	for name, test := range map[string]struct {
		facts explain.Facts
		want  explain.Verdict
		says  string
		next  time.Time
	}{
		"its moment lies ahead": {
			explain.Facts{HasRow: true, Row: polled(hence(time.Hour))},
			explain.NotDue, "it comes due at 2026-03-01T13:00:00Z, in 1h0m0s; a tick of reminder-dispatch within 1m0s takes it", noon.Add(time.Hour),
		},
		"its moment lies ahead, and its job is disabled": {
			explain.Facts{HasRow: true, Row: polled(hence(time.Hour)), Disabled: true},
			explain.NotDue, "it comes due at 2026-03-01T13:00:00Z, in 1h0m0s; reminder-dispatch is disabled in these settings", time.Time{},
		},
		"it is due, and its job is disabled": {
			explain.Facts{HasRow: true, Row: polled(hence(-time.Hour)), Item: &plan.Item{Verdict: plan.Taken, Becomes: "Sent", Why: "its event is Planned"}, Disabled: true},
			explain.Due, "it is due, and would become Sent: its event is Planned; reminder-dispatch is disabled in these settings", time.Time{},
		},
		"its moment is this very one, which is not due yet": {explain.Facts{HasRow: true, Row: polled(hence(0))}, explain.NotDue, "in 0s", noon},
		"it has no moment": {explain.Facts{HasRow: true, Row: polled(ports.Cursor{})}, explain.NeverDue, "it is Pending and has no moment", time.Time{}},
		"it is due": {
			explain.Facts{HasRow: true, Row: polled(hence(-time.Hour)), Item: &plan.Item{Verdict: plan.Taken, Becomes: "Sent", Why: "its event is Planned"}},
			explain.Due, "the next tick of reminder-dispatch takes it, within 1m0s, and it becomes Sent: its event is Planned", noon.Add(time.Minute),
		},
		"it is due after it failed": {
			explain.Facts{HasRow: true, Row: polled(hence(-time.Hour)), Item: &plan.Item{Verdict: plan.Taken}, Record: record},
			explain.Due, "(it failed 5 times in a row, the last time at 2026-03-01T11:59:00Z with: no event)", noon.Add(time.Minute),
		},
		"it is due, and nothing would happen": {
			explain.Facts{HasRow: true, Row: polled(hence(-time.Hour)), Item: &plan.Item{Verdict: plan.Unchanged}},
			explain.Due, "nothing would happen to it", noon.Add(time.Minute),
		},
		"it was settled while it was looked at": {explain.Facts{HasRow: true, Row: polled(hence(-time.Hour))}, explain.Due, "ask again", noon},
		"its data are poison": {
			explain.Facts{HasRow: true, Row: polled(hence(-time.Hour)), Item: &plan.Item{Verdict: plan.Failed, Failure: ports.Failure{Err: errors.New("no tenant")}}},
			explain.Fails, "its own data keep it from being processed: no tenant", noon.Add(time.Minute),
		},
		"somebody holds it": {
			explain.Facts{HasRow: true, Row: polled(hence(-time.Hour)), Item: &plan.Item{Verdict: plan.Locked}},
			explain.Locked, "reminder-dispatch passes over it until it is let go of", time.Time{},
		},
		"it is held back": {
			explain.Facts{HasRow: true, Row: polled(hence(-time.Hour)), Item: &plan.Item{Verdict: plan.Quarantined, Record: record}, Record: record},
			explain.Quarantined, "it failed 5 times in a row since 2026-03-01T10:00:00Z, the last time with: no event; it is held back until 2026-03-01T13:00:00Z", noon.Add(time.Hour),
		},
		"it was sent": {
			explain.Facts{HasRow: true, Row: settled("Sent", 2), Events: []ports.Happened{happened(1, "ReminderScheduled", noon.Add(-time.Hour)), happened(2, "ReminderSent", noon)}},
			explain.Settled, "it is Sent since 2026-03-01T12:00:00Z, by System (ReminderSent)", time.Time{},
		},
		"its service keeps no journal": {
			explain.Facts{HasRow: true, Row: settled("Sent", 7), Events: []ports.Happened{happened(1, "ReminderScheduled", noon)}},
			explain.Settled, "it is Sent since 2026-03-01T11:00:00Z; its service keeps no journal of it", time.Time{},
		},
		"its event was cancelled before it was skipped, and is something else by now": {
			explain.Facts{
				HasRow: true, Row: settled("Skipped", 2), Events: []ports.Happened{happened(2, "ReminderSkipped", noon)},
				CalendarEvent: &explain.Facts{ID: uuid.Max, HasRow: true, Events: []ports.Happened{
					happened(2, "CalendarEventCalledOff", noon.Add(-time.Second)), happened(3, "CalendarEventEnded", noon.Add(time.Second)),
				}},
			},
			explain.Skipped, "because its event ffffffff-ffff-ffff-ffff-ffffffffffff was cancelled then: at 2026-03-01T11:59:59Z, by System", time.Time{},
		},
		"its event ended, in a service that keeps no journal": {
			explain.Facts{
				HasRow: true, Row: settled("Skipped", 2), CalendarEvent: &explain.Facts{HasRow: true, Row: ports.Row{Status: "Completed", UpdatedAt: noon}},
			},
			explain.Skipped, "was not going on; it is Completed since 2026-03-01T12:00:00Z, and its service keeps no journal of that", time.Time{},
		},
		"its event is not there any more": {
			explain.Facts{HasRow: true, Row: settled("Skipped", 2), CalendarEvent: &explain.Facts{}},
			explain.Skipped, "it is not there any more", time.Time{},
		},
		"it gave way to another one": {
			explain.Facts{Events: []ports.Happened{happened(2, "ReminderDropped", noon)}},
			explain.NoRow, "it gave way to another reminder when its event was rescheduled, at 2026-03-01T12:00:00Z by System", time.Time{},
		},
		"its row is gone": {
			explain.Facts{Events: []ports.Happened{happened(1, "ReminderScheduled", noon)}},
			explain.NoRow, "its row is gone; the last that happened to it was ReminderScheduled", time.Time{},
		},
		"no job takes its kind": {
			explain.Facts{HasRow: true, Row: ports.Row{Aggregate: "AvailabilitySlot", Status: "Booked"}},
			explain.NoJob, "no job takes what is of the kind AvailabilitySlot; it is Booked", time.Time{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.facts.At, test.facts.Interval = noon, time.Minute
			got := test.facts.Why()
			if got.Verdict != test.want || !strings.Contains(got.Why, test.says) || !got.Next.Equal(test.next) {
				t.Errorf("%s: %s, next %v; want %s: %s, next %v", got.Verdict, got.Why, got.Next, test.want, test.says, test.next)
			}
		})
	}
}

func TestMessage_SaysWhereItIs(t *testing.T) {
	at := ports.Announced{ID: uuid.Max, At: noon}
	for want, where := range map[string]ports.Whereabouts{
		"waits in the outbox since 2026-03-01T12:00:00Z, first in its lane":               {State: ports.Waiting, Since: noon},
		"behind 3 others of its lane":                                                     {State: ports.Waiting, Since: noon, Ahead: 3},
		"behind more than 10000 others of its lane":                                       {State: ports.Waiting, Since: noon, Ahead: 10000, AheadMore: true},
		"parked since 2026-03-01T12:00:00Z: Kafka refused it (too large)":                 {State: ports.Parked, Since: noon, Error: "too large"},
		"discarded at 2026-03-01T12:00:00Z: superseded; Kafka had refused it (too large)": {State: ports.Discarded, Since: noon, Error: "too large", Reason: "superseded"},
		"published: partition 3, offset 4711, at 2026-03-01T12:00:00Z":                    {State: ports.Published, Since: noon, Partition: 3, Offset: 4711},
		"no longer in Kafka":                                                   {State: ports.Expired},
		"not among the 20000 records that Kafka has from":                      {State: ports.NotFound, Looked: 20000},
		"not in the outbox any more; what became of it, only Kafka could tell": {State: ports.Unknown},
		"not among the first 20000 of its lane from":                           {State: ports.Beyond, Looked: 20000},
	} {
		got := (explain.Message{Announced: at, Whereabouts: where}).Says()
		if !strings.Contains(got, want) || strings.Contains(got, "published") != (where.State == ports.Published) {
			t.Errorf("%s: %q; want %q, and published of what Kafka has alone", where.State, got, want)
		}
	}
}
