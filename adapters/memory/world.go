// Package memory keeps aggregates in memory, for application tests. It passes the same
// conformance suite as the database does (adapters/portstest).
package memory

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/ports"
)

// World holds a context's aggregates, whatever their kind, with their streams, the messages that
// left with them, and the items that are on record for failing.
type World[E eventsourcing.Event] struct {
	mu       sync.Mutex
	rows     map[uuid.UUID]eventsourcing.Part[E]
	streams  map[uuid.UUID][]eventsourcing.Recorded[E]
	messages []ports.Message
	locked   map[uuid.UUID]chan struct{}
	refused  map[uuid.UUID]bool
	record   map[recordKey]ports.Quarantined
	cut      atomic.Bool
}

type recordKey struct {
	job  ports.Job
	item uuid.UUID
}

func newWorld[E eventsourcing.Event]() *World[E] {
	return &World[E]{
		rows:    make(map[uuid.UUID]eventsourcing.Part[E]),
		streams: make(map[uuid.UUID][]eventsourcing.Recorded[E]),
		locked:  make(map[uuid.UUID]chan struct{}),
		refused: make(map[uuid.UUID]bool),
		record:  make(map[recordKey]ports.Quarantined),
	}
}

// ErrRefused is what the store answers for an aggregate that was told to be refused.
var ErrRefused = errors.New("the aggregate is refused by the store")

// ErrCut is what a unit answers that was under way at a Cut.
var ErrCut = errors.New("the connection was cut")

var errStreamAhead = errors.New("the stream is ahead of its row")

// Messages returns what was committed for publication, in order.
func (w *World[E]) Messages() []ports.Message {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.messages)
}

// Import puts an aggregate's row in place without a stream, as a service without a journal would.
func (w *World[E]) Import(part eventsourcing.Part[E]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rows[part.Stream()] = part
}

// Lock locks an aggregate, as an operation in flight would, until release.
func (w *World[E]) Lock(id uuid.UUID) (release func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	locked := make(chan struct{})
	w.locked[id] = locked
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.locked, id)
		close(locked)
	}
}

// Refuse makes the store refuse every write to an aggregate.
func (w *World[E]) Refuse(id uuid.UUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused[id] = true
}

// Accept takes Refuse back.
func (w *World[E]) Accept(id uuid.UUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.refused, id)
}

// Cut makes the unit that is under way fail as if its connection were cut.
func (w *World[E]) Cut() { w.cut.Store(true) }

// List implements ports.Quarantine.
func (w *World[E]) List(context.Context) ([]ports.Quarantined, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.SortedFunc(maps.Values(w.record), func(a, b ports.Quarantined) int {
		return ports.Cursor{Due: a.NextAttempt, ID: a.Item}.Compare(ports.Cursor{Due: b.NextAttempt, ID: b.Item})
	}), nil
}

// Retry implements ports.Quarantine.
func (w *World[E]) Retry(_ context.Context, item uuid.UUID, at time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := ports.ErrNotQuarantined
	for key, q := range w.record {
		if key.item == item {
			q.NextAttempt = at
			w.record[key] = q
			err = nil
		}
	}
	return err
}

// waitFor returns with the world locked, once none of the aggregates is.
func (w *World[E]) waitFor(ctx context.Context, of func() []eventsourcing.Part[E]) error {
	for {
		w.mu.Lock()
		locked := w.holder(of())
		if locked == nil {
			return nil
		}
		w.mu.Unlock()
		select {
		case <-locked:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// holder is what somebody who holds one of the aggregates will close; nil where nobody does.
func (w *World[E]) holder(parts []eventsourcing.Part[E]) chan struct{} {
	for _, part := range parts {
		if locked := w.locked[part.Stream()]; locked != nil {
			return locked
		}
	}
	return nil
}

// change is what was decided and is still to be committed.
type change[A, E any] struct {
	ports.Transitioned[A, E]
	before   A
	recorded []eventsourcing.Recorded[E]
	messages []ports.Message
}

func decide[A eventsourcing.State[A, E], E eventsourcing.Event](
	w *World[E], before A, at time.Time, rule ports.Rule[A, E],
) (change[A, E], error) {
	c := change[A, E]{Transitioned: ports.Transitioned[A, E]{After: before}, before: before}
	behind := make(map[uuid.UUID]eventsourcing.Part[E])
	for _, part := range before.Parts() {
		head := 0
		if stream := w.streams[part.Stream()]; len(stream) > 0 {
			head = stream[len(stream)-1].Version
		}
		switch {
		case head > part.Version():
			return c, errStreamAhead
		case head < part.Version():
			behind[part.Stream()] = part
		}
	}
	events, err := rule.Decide(before, at)
	if err != nil || len(events) == 0 {
		return c, err
	}
	c.After, c.Events = eventsourcing.Fold(before, events...), events
	for _, r := range eventsourcing.Number(before, events...) {
		if part := behind[r.Event.Stream()]; part != nil {
			c.recorded = append(c.recorded, eventsourcing.Recorded[E]{Version: part.Version(), Event: part.Import(at)})
			delete(behind, r.Event.Stream())
		}
		c.recorded = append(c.recorded, r)
	}
	if rule.Announce != nil {
		c.messages, err = rule.Announce(c.After, events)
	}
	return c, err
}

// refuses reports whether one of the aggregates that a change would write is refused.
func refuses[A eventsourcing.State[A, E], E eventsourcing.Event](w *World[E], c change[A, E]) bool {
	return slices.ContainsFunc(c.Events, func(e E) bool { return w.refused[e.Stream()] })
}

func commit[A eventsourcing.State[A, E], E eventsourcing.Event](w *World[E], c change[A, E]) {
	for _, part := range c.After.Parts() {
		ended, can := part.(interface{ Gone() bool })
		switch {
		case part.Version() == 0:
		case can && ended.Gone():
			delete(w.rows, part.Stream())
		default:
			w.rows[part.Stream()] = part
		}
	}
	for _, r := range c.recorded {
		w.streams[r.Event.Stream()] = append(w.streams[r.Event.Stream()], r)
	}
	w.messages = append(w.messages, c.messages...)
}

func sorted[E any](rows map[uuid.UUID]eventsourcing.Part[E]) []eventsourcing.Part[E] {
	return slices.SortedFunc(maps.Values(rows), func(a, b eventsourcing.Part[E]) int {
		x, y := a.Stream(), b.Stream()
		return bytes.Compare(x[:], y[:])
	})
}

// Forget loses every stream, and leaves rows as a service without a journal writes them.
func (w *World[E]) Forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.streams)
}

// MessageIDs returns the ids of what was committed for publication, in order.
func (w *World[E]) MessageIDs() []uuid.UUID {
	var ids []uuid.UUID
	for _, m := range w.Messages() {
		ids = append(ids, m.ID)
	}
	return ids
}
