// Package eventsourcing holds what the contexts' aggregates share: state changes only by
// applying events, and the same Apply serves a new event and a replayed one.
package eventsourcing

// Aggregate is a state A that events E change. Apply refuses nothing: what happened,
// happened. It raises the version by one, or sets it where the event carries one.
type Aggregate[A, E any] interface {
	Apply(event E) A
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

// Number gives each event the version that its aggregate has once it is applied.
func Number[A interface {
	Aggregate[A, E]
	Version() int
}, E any](state A, events ...E) []Recorded[E] {
	recorded := make([]Recorded[E], len(events))
	for i, event := range events {
		state = state.Apply(event)
		recorded[i] = Recorded[E]{Version: state.Version(), Event: event}
	}
	return recorded
}
