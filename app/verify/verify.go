// Package verify checks the master invariant of event sourcing over a whole context:
// fold(stream) = row, for every aggregate (spec: domain, event sourcing).
package verify

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/ports"
)

// Finding is one thing that is not in order. What begins with the field.
type Finding struct {
	ID   uuid.UUID
	What string
	// Ahead marks a row that is ahead of its stream: the work of a service that keeps no
	// journal, which is no fault. The next transition here takes a baseline of it.
	Ahead bool
}

// Report counts what was looked at.
type Report struct {
	Streams     int // aggregates that have a stream
	Differences int // findings that are faults
	Ahead       int // rows ahead of their stream, or with none at all
}

// Aggregate is what can be compared: a state S at a version, changed by events E.
type Aggregate[A, S, E any] interface {
	eventsourcing.Aggregate[A, E]
	Version() int
	Snapshot() S
}

// Run compares every row of the ledger with its stream and hands each finding to found. Rows
// without any stream are only counted. since limits it to what was changed at or after it;
// zero means all. The error is an infrastructure fault; the report is good beside it.
func Run[A Aggregate[A, S, E], S, E any](
	ctx context.Context, ledger ports.Ledger[A, E], since time.Time, found func(Finding),
) (Report, error) {
	var report Report
	for entry, err := range ledger.Entries(ctx, since) {
		if err != nil {
			return report, fmt.Errorf("verify: %w", err)
		}
		if len(entry.Stream) > 0 || len(entry.Damaged) > 0 {
			report.Streams++
		}
		difference := func(format string, args ...any) {
			report.Differences++
			found(Finding{ID: entry.ID, What: fmt.Sprintf(format, args...)})
		}
		for _, damage := range entry.Damaged {
			difference("%v", damage)
		}
		folded, whole := replay[A, S](entry.Stream, difference)
		switch gone := gone(folded); {
		case !whole: // what the fold says would only repeat it
		case gone && entry.HasRow:
			difference("row: is there, though its stream ended at version %d", folded.Version())
		case gone: // as it should be
		case !entry.HasRow:
			difference("row: is missing, its stream is at version %d", folded.Version())
		case entry.RowErr != nil:
			difference("row: %v", entry.RowErr)
		case len(entry.Stream) == 0:
			report.Ahead++
		case entry.Row.Version() > folded.Version():
			report.Ahead++
			found(Finding{
				ID: entry.ID, Ahead: true,
				What: fmt.Sprintf("Version: the row is at %d, ahead of its stream at %d", entry.Row.Version(), folded.Version()),
			})
		case entry.Row.Version() < folded.Version():
			difference("Version: the row is at %d, behind its stream at %d", entry.Row.Version(), folded.Version())
		default:
			compare(entry.Row.Snapshot(), folded.Snapshot(), difference)
		}
	}
	return report, nil
}

// gone reports whether an aggregate's stream has ended: a reminder that gave way to another one
// has no row.
func gone(aggregate any) bool {
	ended, can := aggregate.(interface{ Gone() bool })
	return can && ended.Gone()
}

// replay folds a stream. It reports the first event that does not stand where it belongs,
// and then answers false.
func replay[A Aggregate[A, S, E], S, E any](
	stream []eventsourcing.Recorded[E], difference func(string, ...any),
) (A, bool) {
	var state A
	for _, recorded := range stream {
		state = state.Apply(recorded.Event)
		if state.Version() != recorded.Version {
			difference("event %d: stands where event %d belongs", recorded.Version, state.Version())
			return state, false
		}
	}
	return state, true
}

// compare reports each field of two snapshots that differs.
func compare(row, folded any, difference func(string, ...any)) {
	r, f := reflect.ValueOf(row), reflect.ValueOf(folded)
	for i := range r.NumField() {
		was, is := f.Field(i).Interface(), r.Field(i).Interface()
		if moment, ok := is.(time.Time); ok { // as text: == would compare time zones too
			is, was = spell(moment), spell(was.(time.Time)) //nolint:forcetypeassert // both are of one struct
		}
		if reflect.DeepEqual(is, was) {
			continue
		}
		difference("%s: the row says %v, its stream %v", r.Type().Field(i).Name, is, was)
	}
}

func spell(moment time.Time) string {
	if moment.IsZero() {
		return "none"
	}
	return moment.UTC().Format(time.RFC3339Nano)
}
