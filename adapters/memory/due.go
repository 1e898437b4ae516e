package memory

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/ports"
)

// Due implements ports.Due for one job.
type Due[A eventsourcing.State[A, E], E eventsourcing.Event] struct {
	world *World[E]
	job   ports.Job
	// waiting returns everything in the polled state, due or not.
	waiting func() []candidate[A, E]
	// inclusive jobs take what is due at the very moment.
	inclusive bool
}

// candidate is an item in the polled state.
type candidate[A, E any] struct {
	ports.Failure // as it would be told if it failed; Err where it cannot be restored
	due           time.Time
	locks         []eventsourcing.Part[E] // what is locked to take it
	item          A
}

func (c candidate[A, E]) place() ports.Cursor { return ports.Cursor{Due: c.due, ID: c.Item} }

// Transition implements ports.Due.
func (d *Due[A, E]) Transition(ctx context.Context, claim ports.Claim, rule ports.Rule[A, E]) (ports.Outcome[A, E], error) {
	w := d.world
	if err := ctx.Err(); err != nil {
		return ports.Outcome[A, E]{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	outcome := ports.Outcome[A, E]{Next: claim.Until}
	if claim.Until.IsZero() {
		outcome.Next = ports.Cursor{Due: claim.AsOf, ID: uuid.Max}
	}
	var changes []change[A, E]
	var culprits []ports.Failure
	var recovered []uuid.UUID
	for _, c := range d.due(claim) {
		if w.record[recordKey{d.job, c.Item}].NextAttempt.After(claim.AsOf) {
			continue
		}
		if w.holder(c.locks) != nil {
			outcome.SkippedLocked++
			continue
		}
		outcome.Claimed++
		failure := c.Failure
		failure.Streak = w.record[recordKey{d.job, c.Item}].Streak + 1
		var decided change[A, E]
		if failure.Err == nil {
			decided, failure.Err = decide(w, c.item, claim.AsOf, rule)
		}
		switch {
		case failure.Err != nil:
			outcome.Failed = append(outcome.Failed, failure)
		case len(decided.Events) > 0:
			changes, culprits = append(changes, decided), append(culprits, failure)
			recovered = append(recovered, c.Item)
		default:
			recovered = append(recovered, c.Item)
		}
		if outcome.Claimed == claim.Limit {
			outcome.Next = c.place()
			break
		}
	}
	if w.cut.Swap(false) {
		return ports.Outcome[A, E]{Claimed: outcome.Claimed, Next: outcome.Next}, ErrCut
	}
	if slices.ContainsFunc(changes, func(c change[A, E]) bool { return refuses(w, c) }) {
		if len(changes) > 1 {
			return ports.Outcome[A, E]{Claimed: outcome.Claimed, Next: outcome.Next}, &ports.RefusedError{Items: len(changes), Err: ErrRefused}
		}
		culprits[0].Err = ErrRefused
		outcome.Failed = append(outcome.Failed, culprits[0])
		return outcome, nil
	}
	for _, id := range recovered {
		delete(w.record, recordKey{d.job, id})
	}
	if outcome.Claimed < claim.Limit {
		d.releaseSettled(claim.AsOf)
	}
	for _, c := range changes {
		commit(w, c)
		outcome.Applied = append(outcome.Applied, c.Transitioned)
	}
	return outcome, nil
}

// Hold implements ports.Due.
func (d *Due[A, E]) Hold(_ context.Context, at time.Time, held []ports.Held) error {
	d.world.mu.Lock()
	defer d.world.mu.Unlock()
	for _, h := range held {
		key := recordKey{d.job, h.Item}
		q, known := d.world.record[key]
		if !known {
			q = ports.Quarantined{Job: d.job, Item: h.Item, Tenant: h.Tenant, FirstFailedAt: at, FirstError: h.Err.Error()}
		}
		q.Streak, q.LastFailedAt, q.LastError, q.NextAttempt = h.Streak, at, h.Err.Error(), h.NextAttempt
		d.world.record[key] = q
	}
	return nil
}

// releaseSettled takes off the record what is not due any more.
func (d *Due[A, E]) releaseSettled(asOf time.Time) {
	due := make(map[uuid.UUID]bool)
	for _, c := range d.due(ports.Claim{AsOf: asOf}) {
		due[c.Item] = true
	}
	maps.DeleteFunc(d.world.record, func(key recordKey, _ ports.Quarantined) bool { return key.job == d.job && !due[key.item] })
}

// Backlog implements ports.Due.
func (d *Due[A, E]) Backlog(_ context.Context, asOf time.Time, after ports.Cursor) (ports.Backlog, error) {
	d.world.mu.Lock()
	defer d.world.mu.Unlock()
	due := d.due(ports.Claim{AsOf: asOf, After: after})
	backlog := ports.Backlog{Due: len(due), NextHour: len(d.due(ports.Claim{AsOf: asOf.Add(time.Hour), After: after})) - len(due)}
	if len(due) > 0 {
		backlog.Oldest = due[0].due
	}
	for _, c := range due {
		if d.world.record[recordKey{d.job, c.Item}].NextAttempt.After(asOf) {
			backlog.Held++
		}
	}
	return backlog, nil
}

// due returns what lies within a claim's range, in order, whoever holds it.
func (d *Due[A, E]) due(claim ports.Claim) []candidate[A, E] {
	all := slices.DeleteFunc(d.waiting(), func(c candidate[A, E]) bool {
		return c.due.After(claim.AsOf) || c.due.Equal(claim.AsOf) && !d.inclusive ||
			!claim.After.IsZero() && c.place().Compare(claim.After) <= 0 ||
			!claim.Until.IsZero() && c.place().Compare(claim.Until) > 0
	})
	slices.SortFunc(all, func(a, b candidate[A, E]) int { return a.place().Compare(b.place()) })
	return all
}

func failure(item uuid.UUID, tenant ids.TenantID) ports.Failure {
	return ports.Failure{Item: item, Tenant: tenant}
}
