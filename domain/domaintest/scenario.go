// Package domaintest tells a decision's test as given, when, then:
//
//	domaintest.Given[crm.Lead](t, registered).When(expire).Then(expired)
package domaintest

import (
	"reflect"
	"testing"

	"github.com/pin-platform/pinworker/domain/eventsourcing"
)

// Scenario is an aggregate to which some events have happened.
type Scenario[A eventsourcing.Aggregate[A, E], E any] struct {
	t     testing.TB
	state A
}

// Given begins with what has happened so far; nothing, for an aggregate that is new.
func Given[A eventsourcing.Aggregate[A, E], E any](t testing.TB, history ...E) Scenario[A, E] {
	t.Helper()
	var unborn A
	return Scenario[A, E]{t: t, state: eventsourcing.Fold(unborn, history...)}
}

// When asks for a decision. Deciding must change nothing, whatever the answer.
func (s Scenario[A, E]) When(decide func(A) ([]E, error)) Decision[A, E] {
	s.t.Helper()
	events, err := decide(s.state)
	again, againErr := decide(s.state)
	if !reflect.DeepEqual(events, again) || !reflect.DeepEqual(err, againErr) {
		s.t.Errorf("the decision is not pure: first %v, %v; then %v, %v", events, err, again, againErr)
	}
	return Decision[A, E]{t: s.t, state: s.state, events: events, err: err}
}

// Decision is what an aggregate answered.
type Decision[A eventsourcing.Aggregate[A, E], E any] struct {
	t      testing.TB
	state  A
	events []E
	err    error
}

// Then expects exactly these events and returns the state that they lead to.
func (d Decision[A, E]) Then(want ...E) A {
	d.t.Helper()
	if d.err != nil {
		d.t.Fatalf("refused: %v; want events %+v", d.err, want)
	}
	if len(d.events) != len(want) || len(want) > 0 && !reflect.DeepEqual(d.events, want) {
		d.t.Fatalf("events %+v; want %+v", d.events, want)
	}
	return eventsourcing.Fold(d.state, d.events...)
}

// ThenNothing expects neither an event nor an error: it had happened already.
func (d Decision[A, E]) ThenNothing() {
	d.t.Helper()
	d.Then()
}

// ThenRefused expects an error of the same type as want, and no event.
func (d Decision[A, E]) ThenRefused(want error) {
	d.t.Helper()
	if len(d.events) > 0 {
		d.t.Errorf("a refused decision yielded %+v", d.events)
	}
	if reflect.TypeOf(d.err) != reflect.TypeOf(want) {
		d.t.Fatalf("error %#v; want a %T", d.err, want)
	}
}
