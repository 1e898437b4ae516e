package postgres

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/ports"
)

// A preview asks the claim's own statements, so that it cannot disagree with the job: less their
// locks, in a transaction that PostgreSQL lets nothing lock or write. Only where somebody else is at
// work on the same tables at that moment does it try for the locks themselves, a few rows at a time,
// and lets go of them at once: a job that came by just then would leave those to its next tick.

// Peek implements ports.Preview.
func (d *Due[A, E]) Peek(ctx context.Context, claim ports.Claim, rule ports.Rule[A, E]) (ports.Peeked[A, E], error) {
	var peeked ports.Peeked[A, E]
	err := d.schema.db.snapshot(ctx, func(locking pgx.Tx) error {
		tx := rewriting{locking, withoutLocks}
		rows, err := d.claim(ctx, tx, claim)
		if err != nil {
			return err
		}
		standing, due, err := d.look(ctx, tx, claim, rows)
		if err == nil && due > len(rows.items) && d.polled.orphans != nil {
			_, err = d.findOrphans(ctx, tx, claim, &rows, due)
		}
		if err != nil {
			return err
		}
		peeked.Next, peeked.Full = rows.next, rows.full
		for _, row := range append(rows.items, rows.orphans...) {
			item := ports.Foreseen[A, E]{Failure: row.failure(nil), Place: row.place()}
			decided, err := d.decideOn(row, standing, claim.AsOf, rule)
			item.Err, item.After, item.Events, item.Messages = err, decided.after, decided.events, decided.messages
			peeked.Items = append(peeked.Items, item)
		}
		return nil
	})
	if err != nil {
		return ports.Peeked[A, E]{}, fmt.Errorf("look at what is due: %w", err)
	}
	slices.SortFunc(peeked.Items, func(a, b ports.Foreseen[A, E]) int { return a.Place.Compare(b.Place) })
	if peeked.Items, err = d.locked(ctx, claim, peeked.Items); err != nil {
		return ports.Peeked[A, E]{}, fmt.Errorf("look for who holds what is due: %w", err)
	}
	return peeked, nil
}

// Held implements ports.Preview.
func (d *Due[A, E]) Held(ctx context.Context, claim ports.Claim) ([]ports.HeldBack, error) {
	var rows []heldRow
	err := d.schema.db.snapshot(ctx, func(tx pgx.Tx) (err error) {
		rows, err = d.polled.held(ctx, d.schema.in(tx), pageOf(claim))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look at what is held back: %w", err)
	}
	held := make([]ports.HeldBack, len(rows))
	for i, r := range rows {
		held[i].Place = claimed[A]{id: r.ID, due: r.Due}.place()
		held[i].Quarantined = ports.Quarantined{
			Job: d.polled.job, Item: r.ID.Bytes, Tenant: ids.TenantID(r.TenantID.Bytes), Streak: int(r.Failures.Int32),
			FirstFailedAt: fromTimestamptz(r.FirstFailedAt), LastFailedAt: fromTimestamptz(r.LastFailedAt),
			FirstError: r.FirstError.String, LastError: r.LastError.String, NextAttempt: fromTimestamptz(r.NextAttempt),
		}
	}
	return held, nil
}

// probed is how many rows are tried at once for their locks: what a job may miss at most.
const probed = 5

// locked finds out which items somebody holds, and who. What was settled in the meantime is left out.
func (d *Due[A, E]) locked(ctx context.Context, claim ports.Claim, items []ports.Foreseen[A, E]) ([]ports.Foreseen[A, E], error) {
	if len(items) == 0 {
		return items, nil
	}
	busy, err := d.schema.db.busy(ctx, d.schema.name, d.polled.tables)
	if err != nil || !busy {
		return items, err
	}
	var settled []uuid.UUID
	asked := 0
	for some := range slices.Chunk(items, probed) {
		free, err := d.free(ctx, claim, some)
		if err != nil {
			return nil, err
		}
		for i := range some {
			item := &some[i]
			if slices.Contains(free, item.Item) {
				continue
			}
			if item.Locked = true; asked == askedAfter {
				continue
			}
			asked++
			held, err := d.heldBy(ctx, within(claim, some[i:i+1]))
			if err != nil {
				return nil, err
			}
			item.Lockers, item.Locked, item.InVain = held.lockers, !held.free, held.inVain
			if held.settled {
				settled = append(settled, item.Item)
			}
		}
	}
	return slices.DeleteFunc(items, func(i ports.Foreseen[A, E]) bool { return slices.Contains(settled, i.Item) }), nil
}

// within narrows a claim to some items that follow each other, with room for others that come up
// between them.
func within[A, E any](claim ports.Claim, items []ports.Foreseen[A, E]) ports.Claim {
	claim.After, claim.Until, claim.Limit = items[0].Place.Before(), items[len(items)-1].Place, 2*len(items)
	return claim
}

// free claims what can be had of some items, and lets go of it at once. An item whose rest is held, which
// a claim would wait for, is none.
func (d *Due[A, E]) free(ctx context.Context, claim ports.Claim, items []ports.Foreseen[A, E]) (free []uuid.UUID, err error) {
	err = d.schema.db.rolledBack(ctx, func(tx pgx.Tx) error {
		free, err = d.take(ctx, d.schema.in(rewriting{tx, impatiently}), within(claim, items))
		return err
	})
	switch {
	case !lockNotAvailable(err):
		return free, err
	case len(items) == 1:
		return nil, nil
	}
	free = nil
	for i := range items {
		one, err := d.free(ctx, claim, items[i:i+1])
		if err != nil {
			return nil, err
		}
		free = append(free, one...)
	}
	return free, nil
}

// take is the claim and no more: what it takes, orphans included.
func (d *Due[A, E]) take(ctx context.Context, db dbtx, claim ports.Claim) ([]uuid.UUID, error) {
	items, rest, err := d.polled.claim(ctx, db, pageOf(claim))
	if err == nil && rest != nil {
		err = rest(ctx, db)
	}
	if err == nil && d.polled.orphans != nil {
		var orphans []claimed[A]
		orphans, err = d.polled.orphans(ctx, db, pageOf(claim))
		items = append(items, orphans...)
	}
	return each(items, func(c claimed[A]) uuid.UUID { return c.id.Bytes }), err
}

// heldBy finds out who holds an item: it waits for the item, for a moment.
func (d *Due[A, E]) heldBy(ctx context.Context, claim ports.Claim) (held, error) {
	return d.schema.db.waitsFor(ctx, func(ctx context.Context, tx pgx.Tx) (bool, error) {
		taken, err := d.take(ctx, d.schema.in(rewriting{tx, patiently}), claim)
		return len(taken) > 0, err
	})
}

// rewriting is a transaction that says statements in another way.
type rewriting struct {
	pgx.Tx
	reword func(statement string) string
}

func (r rewriting) Query(ctx context.Context, statement string, args ...any) (pgx.Rows, error) {
	return r.Tx.Query(ctx, r.reword(statement), args...)
}

func (r rewriting) QueryRow(ctx context.Context, statement string, args ...any) pgx.Row {
	return r.Tx.QueryRow(ctx, r.reword(statement), args...)
}

func (r rewriting) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, q := range b.QueuedQueries {
		q.SQL = r.reword(q.SQL)
	}
	return r.Tx.SendBatch(ctx, b)
}

var locking = regexp.MustCompile(`\sFOR (NO KEY UPDATE|UPDATE|SHARE)( OF \w+)?( SKIP LOCKED)?`)

// withoutLocks has a statement lock nothing. Where it missed a lock, PostgreSQL would refuse it.
func withoutLocks(statement string) string { return locking.ReplaceAllString(statement, "") }

// impatiently has a statement fail where it would wait.
func impatiently(statement string) string {
	if strings.Contains(statement, skipLocked) {
		return statement
	}
	return locking.ReplaceAllString(statement, "$0 NOWAIT")
}

const skipLocked = " SKIP LOCKED"

// patiently has a statement wait for what it would pass over.
func patiently(statement string) string { return strings.ReplaceAll(statement, skipLocked, "") }
