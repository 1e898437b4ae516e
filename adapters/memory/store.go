package memory

import (
	"bytes"
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/ports"
)

// Store implements ports.Store for what operations change by its id.
type Store[ID ~[16]byte, A eventsourcing.State[A, E], E eventsourcing.Event] struct {
	world *World[E]
	load  func(ID) (A, error)
}

// Change implements ports.Store.
func (s *Store[ID, A, E]) Change(ctx context.Context, command ports.Command[ID], rule ports.Rule[A, E]) (ports.Transitioned[A, E], error) {
	var before A
	var loaded error
	err := s.world.waitFor(ctx, func() []eventsourcing.Part[E] {
		before, loaded = s.load(command.ID)
		return before.Parts()
	})
	if err != nil {
		return ports.Transitioned[A, E]{}, err
	}
	defer s.world.mu.Unlock()
	if loaded != nil {
		return ports.Transitioned[A, E]{}, loaded
	}
	c, err := decide(s.world, before, command.At, rule)
	switch {
	case err != nil || len(c.Events) == 0:
		return ports.Transitioned[A, E]{After: c.After}, err
	case refuses(s.world, c):
		return ports.Transitioned[A, E]{}, ErrRefused
	}
	commit(s.world, c)
	return c.Transitioned, nil
}

// Ledger implements ports.Ledger for one kind of aggregate.
type Ledger[A eventsourcing.Part[E], E eventsourcing.Event] struct {
	world *World[E]
	is    func(E) bool // whether an event is of this kind of aggregate
}

// Entries implements ports.Ledger.
func (l *Ledger[A, E]) Entries(_ context.Context, since time.Time) iter.Seq2[ports.Entry[A, E], error] {
	return func(yield func(ports.Entry[A, E], error) bool) {
		l.world.mu.Lock()
		defer l.world.mu.Unlock()
		entries := make(map[uuid.UUID]ports.Entry[A, E])
		for id, part := range l.world.rows {
			if row, ok := part.(A); ok {
				entries[id] = ports.Entry[A, E]{ID: id, HasRow: true, Row: row, Stream: l.world.streams[id]}
			}
		}
		for id, stream := range l.world.streams {
			if _, has := entries[id]; !has && l.is(stream[0].Event) {
				entries[id] = ports.Entry[A, E]{ID: id, Stream: stream}
			}
		}
		for _, id := range slices.SortedFunc(maps.Keys(entries), func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }) {
			entry := entries[id]
			if n := len(entry.Stream); n > 0 && entry.Stream[n-1].Event.OccurredAt().Before(since) {
				continue
			}
			if !yield(entry, nil) {
				return
			}
		}
	}
}
