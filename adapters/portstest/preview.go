package portstest

import (
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/ports"
)

// What a preview promises: to see what a claim would find and what would become of it, and to leave
// all as it is.

func (s *suite[A, E]) peek(claim ports.Claim, rule ports.Rule[A, E]) ports.Peeked[A, E] {
	s.Helper()
	peeked, err := s.preview.Peek(s.Context(), claim, rule)
	if err != nil {
		s.Fatal(err)
	}
	return peeked
}

// foreseen are the ids of what was seen.
func foreseen[A, E any](p ports.Peeked[A, E]) (ids []uuid.UUID) {
	for _, item := range p.Items {
		ids = append(ids, item.Item)
	}
	return ids
}

func (s *suite[A, E]) foreseesATransition() {
	third, first, second := s.register(-time.Minute), s.register(-3*time.Minute), s.register(-2*time.Minute)
	s.register(time.Minute)
	messages := len(s.Messages())
	for _, limit := range []int{2, 10} {
		page := s.peek(s.claim(limit), s.Rule)
		if want := []uuid.UUID{first, second, third}[:min(limit, 3)]; !slices.Equal(foreseen(page), want) || page.Full != (limit == 2) {
			s.Errorf("limit %d: foreseen %v, full %v; want %v", limit, foreseen(page), page.Full, want)
		}
	}
	if s.Done(s.T, first) || len(s.Messages()) != messages {
		s.Error("to look has changed something")
	}
	peeked := s.peek(s.claim(10), s.Rule)
	done := s.transition(s.claim(10))
	if len(done.Applied) != 3 || peeked.Next != done.Next {
		s.Fatalf("%d done up to %v; want the three, up to %v", len(done.Applied), done.Next, peeked.Next)
	}
	var published []uuid.UUID
	for i, item := range peeked.Items {
		if item.Item != s.Item(done.Applied[i].After) || len(item.Events) != len(done.Applied[i].Events) || item.Err != nil || item.Locked || item.Streak != 1 {
			s.Errorf("foreseen %+v; done %+v", item, done.Applied[i])
		}
		for _, m := range item.Messages {
			published = append(published, m.ID)
		}
	}
	if got := s.Messages()[messages:]; !slices.Equal(got, published) {
		s.Errorf("messages %v; foreseen %v", got, published)
	}
}

func (s *suite[A, E]) foreseesLocks() {
	free, locked, last := s.register(-3*time.Minute), s.register(-2*time.Minute), s.register(-time.Minute)
	release := s.Lock(locked)
	peeked := s.peek(s.claim(10), s.Rule)
	if want := []uuid.UUID{free, locked, last}; !slices.Equal(foreseen(peeked), want) {
		s.Fatalf("foreseen %v; want %v", foreseen(peeked), want)
	}
	for i, item := range peeked.Items {
		if item.Locked != (i == 1) {
			s.Errorf("item %d: locked %v", i, item.Locked)
		}
	}
	release()
	if peeked := s.peek(s.claim(10), s.Rule); slices.ContainsFunc(peeked.Items, func(i ports.Foreseen[A, E]) bool { return i.Locked }) {
		s.Errorf("foreseen %+v; want none locked", peeked.Items)
	}
	s.wantApplied(s.transition(s.claim(10)), free, locked, last) // and to look has left no lock
}

func (s *suite[A, E]) foreseesFailures() {
	poison, sound := s.register(-2*time.Minute), s.register(-time.Minute)
	refusal := errors.New("poison")
	peeked := s.peek(s.claim(10), s.decideOn(poison, func(A, time.Time) ([]E, error) { return nil, refusal }))
	if len(peeked.Items) != 2 || !errors.Is(peeked.Items[0].Err, refusal) || peeked.Items[0].Tenant.IsZero() || peeked.Items[1].Err != nil {
		s.Errorf("foreseen %+v; want %s refused, and %s sound", peeked.Items, poison, sound)
	}
	peeked = s.peek(s.claim(10), s.decideOn(poison, func(A, time.Time) ([]E, error) { return nil, nil }))
	if len(peeked.Items) != 2 || peeked.Items[0].Err != nil || len(peeked.Items[0].Events)+len(peeked.Items[0].Messages) > 0 {
		s.Errorf("foreseen %+v; want nothing to happen to %s", peeked.Items, poison)
	}
}

func (s *suite[A, E]) foreseesTheQuarantine() {
	poison, sound := s.register(-2*time.Minute), s.register(-time.Minute)
	s.fail(poison, time.Microsecond)
	if peeked := s.peek(s.claim(10), s.Rule); !slices.Equal(foreseen(peeked), []uuid.UUID{sound}) {
		s.Errorf("foreseen %v; want %s alone", foreseen(peeked), sound)
	}
	held, err := s.preview.Held(s.Context(), s.claim(10))
	if err != nil || len(held) != 1 || held[0].Item != poison || held[0].Job != s.Name || held[0].Streak != 1 || held[0].LastError == "" ||
		!held[0].NextAttempt.Equal(Noon.Add(time.Microsecond)) || held[0].Place.ID != poison || !held[0].Place.Due.Equal(Noon.Add(-2*time.Minute)) {
		s.Errorf("held back %+v, %v; want the poison with its record", held, err)
	}
	ahead := s.claim(10)
	ahead.Until = held[0].Place.Before()
	if held, err := s.preview.Held(s.Context(), ahead); err != nil || len(held) > 0 {
		s.Errorf("held back %+v, %v; want none ahead of it", held, err)
	}
	later := s.claim(10)
	later.AsOf = Noon.Add(time.Microsecond)
	peeked := s.peek(later, s.Rule)
	if !slices.Equal(foreseen(peeked), []uuid.UUID{poison, sound}) || peeked.Items[0].Streak != 2 {
		s.Errorf("foreseen %+v; want the poison tried again, after its failure", peeked.Items)
	}
	if held, err := s.preview.Held(s.Context(), later); err != nil || len(held) > 0 {
		s.Errorf("held back %+v, %v; want none any more", held, err)
	}
}
