package memory

import (
	"context"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/ports"
)

// Peek implements ports.Preview. Nobody is told who holds what.
func (d *Due[A, E]) Peek(_ context.Context, claim ports.Claim, rule ports.Rule[A, E]) (ports.Peeked[A, E], error) {
	w := d.world
	w.mu.Lock()
	defer w.mu.Unlock()
	peeked := ports.Peeked[A, E]{Next: claim.Until}
	if claim.Until.IsZero() {
		peeked.Next = ports.Cursor{Due: claim.AsOf, ID: uuid.Max}
	}
	for _, c := range d.due(claim) {
		record := w.record[recordKey{d.job, c.Item}]
		if record.NextAttempt.After(claim.AsOf) {
			continue
		}
		item := ports.Foreseen[A, E]{Failure: c.Failure, Place: c.place(), Locked: w.holder(c.locks) != nil}
		item.Streak = record.Streak + 1
		if item.Err == nil {
			var decided change[A, E]
			decided, item.Err = decide(w, c.item, claim.AsOf, rule)
			item.After, item.Events, item.Messages = decided.After, decided.Events, decided.messages
		}
		if peeked.Items = append(peeked.Items, item); len(peeked.Items) == claim.Limit {
			peeked.Full, peeked.Next = true, item.Place
			break
		}
	}
	return peeked, nil
}

// Held implements ports.Preview.
func (d *Due[A, E]) Held(_ context.Context, claim ports.Claim) ([]ports.HeldBack, error) {
	d.world.mu.Lock()
	defer d.world.mu.Unlock()
	var held []ports.HeldBack
	for _, c := range d.due(claim) {
		q := d.world.record[recordKey{d.job, c.Item}]
		if q.NextAttempt.After(claim.AsOf) && len(held) < claim.Limit {
			held = append(held, ports.HeldBack{Quarantined: q, Place: c.place()})
		}
	}
	return held, nil
}
