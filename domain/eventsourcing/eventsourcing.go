// Package eventsourcing holds what the contexts' aggregates share: state changes only by
// applying events, and the same Apply serves a new event and a replayed one.
package eventsourcing

import (
	"time"

	"github.com/google/uuid"
)

// Event is something that happened to one aggregate, whose stream it belongs to.
type Event interface {
	Stream() uuid.UUID
	OccurredAt() time.Time
}

// Aggregate is a state A that events E change. Apply refuses nothing: what happened,
// happened. It raises the version by one, or sets it where the event carries one.
type Aggregate[A, E any] interface {
	Apply(event E) A
}

// State is what a decision is about: one aggregate, or several that change together.
type State[A, E any] interface {
	Aggregate[A, E]
	Parts() []Part[E]
}

// Part is one aggregate of a state, as its stream sees it.
type Part[E any] interface {
	// Stream returns the aggregate's id.
	Stream() uuid.UUID
	// Version returns the number of the aggregate's last transition, 0 before the first.
	Version() int
	// Import is the baseline event of an aggregate whose row was written by a service that
	// keeps no journal: the whole state at its version (spec: domain, event sourcing).
	Import(at time.Time) E
}

// Fold replays events on a state, in their order. fold(stream) = row is the invariant that
// `pinworker verify` checks.
func Fold[A Aggregate[A, E], E any](state A, events ...E) A {
	for _, event := range events {
		state = state.Apply(event)
	}
	return state
}

// Recorded is an event at its place in its stream.
type Recorded[E any] struct {
	Version int // from 1; the aggregate's version once the event is applied
	Event   E
}

// Number gives each event its place in its stream, which goes on from the version that its
// aggregate has in a state, or begins at 1.
func Number[A State[A, E], E Event](state A, events ...E) []Recorded[E] {
	versions := make(map[uuid.UUID]int, 1)
	for _, part := range state.Parts() {
		versions[part.Stream()] = part.Version()
	}
	recorded := make([]Recorded[E], len(events))
	for i, event := range events {
		versions[event.Stream()]++
		recorded[i] = Recorded[E]{Version: versions[event.Stream()], Event: event}
	}
	return recorded
}
