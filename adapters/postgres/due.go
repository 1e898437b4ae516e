package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pin-platform/pinworker/adapters/postgres/internal/journaldb"
	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/ports"
)

// Due implements ports.Due for one job: how a page is claimed, decided on and written is the same
// for all of them, what a page is comes from the job's polled table.
type Due[A eventsourcing.State[A, E], E eventsourcing.Event] struct {
	schema *schema[E]
	polled polled[A]
}

// polled is what differs between jobs: the statements on the table that is polled.
type polled[A any] struct {
	job ports.Job
	// claim locks a page of due items that nobody else holds, and returns them restored as far as
	// one statement can. rest, if there is one, completes them with another; it may change their
	// item and err.
	claim func(ctx context.Context, db dbtx, page page) (items []claimed[A], rest func(context.Context, dbtx) error, err error)
	// orphans locks due items that lack a partner which claim would join; nil where there is none.
	orphans func(ctx context.Context, db dbtx, page page) ([]claimed[A], error)
	// count counts what is due in a range, whoever holds it.
	count func(ctx context.Context, db dbtx, within span) (int64, error)
	// heads returns where the streams stand that deciding on the items needs; nil: those of the
	// items alone.
	heads func(ctx context.Context, db dbtx, items []claimed[A]) (map[uuid.UUID]int, error)
	// held returns what is due in a range and held back.
	held func(ctx context.Context, db dbtx, page page) ([]heldRow, error)
	// tables are those whose rows claim locks.
	tables []string
	// release takes off the record what is not due any more.
	release func(ctx context.Context, db dbtx, asOf pgtype.Timestamptz) error
	backlog func(ctx context.Context, db dbtx, behind horizon) (waiting, error)
}

// claimed is one item of a page.
type claimed[A any] struct {
	id       pgtype.UUID
	of       pgtype.UUID // see ports.Failure
	tenant   pgtype.UUID
	due      pgtype.Timestamptz
	failures pgtype.Int4 // in a row, before
	item     A
	err      error // why it could not be restored
}

func (c claimed[A]) failure(err error) ports.Failure {
	return ports.Failure{Item: c.id.Bytes, Of: c.of.Bytes, Tenant: ids.TenantID(c.tenant.Bytes), Err: err, Streak: int(c.failures.Int32) + 1}
}

// Transition implements ports.Due.
func (d *Due[A, E]) Transition(ctx context.Context, claim ports.Claim, rule ports.Rule[A, E]) (ports.Outcome[A, E], error) {
	var outcome ports.Outcome[A, E]
	var changes []change[A, E]
	err := d.schema.db.transact(ctx, func(tx pgx.Tx) (err error) {
		rows, err := d.claim(ctx, tx, claim)
		outcome = ports.Outcome[A, E]{Claimed: len(rows.items), Next: rows.next}
		if err == nil && !rows.full {
			err = d.releaseSettled(ctx, tx, claim)
		}
		if err != nil {
			return err
		}
		standing, due, err := d.look(ctx, tx, claim, rows)
		if err != nil {
			return err
		}
		if due > len(rows.items) && d.polled.orphans != nil {
			if due, err = d.findOrphans(ctx, tx, claim, &rows, due); err != nil {
				return err
			}
			outcome.Claimed, outcome.Next = len(rows.items)+len(rows.orphans), rows.next
		}
		outcome.SkippedLocked = max(0, due-outcome.Claimed)
		var recovered []pgtype.UUID
		changes, recovered, outcome.Failed = d.decide(append(rows.items, rows.orphans...), standing, claim.AsOf, rule)
		if err := d.release(ctx, tx, recovered); err != nil {
			return err
		}
		return write(ctx, d.schema, tx, changes, origin{ports.System, claim.Run})
	})
	if err != nil {
		return undone(outcome, changes, withoutValues(err))
	}
	announced := false
	for _, c := range changes {
		outcome.Applied = append(outcome.Applied, ports.Transitioned[A, E]{After: c.after, Events: c.events})
		announced = announced || len(c.messages) > 0
	}
	if announced {
		d.schema.outbox.Committed()
	}
	return outcome, nil
}

// releaseSettled takes off the record what is not due any more.
func (d *Due[A, E]) releaseSettled(ctx context.Context, tx pgx.Tx, claim ports.Claim) error {
	if err := d.polled.release(ctx, d.schema.in(tx), asTimestamptz(claim.AsOf)); err != nil {
		return fmt.Errorf("take settled items off the record: %w", err)
	}
	return nil
}

// release takes off the record what failed before and did not now.
func (d *Due[A, E]) release(ctx context.Context, tx pgx.Tx, recovered []pgtype.UUID) error {
	if len(recovered) == 0 {
		return nil
	}
	p := journaldb.ReleaseItemsParams{Job: string(d.polled.job), Items: recovered}
	if err := d.schema.journal(tx).ReleaseItems(ctx, p); err != nil {
		return fmt.Errorf("take items off the record: %w", err)
	}
	return nil
}

// claimedPage is what one claim took.
type claimedPage[A any] struct {
	items   []claimed[A]
	rest    func(context.Context, dbtx) error // completes them; nil: they are whole
	orphans []claimed[A]                      // lack a partner: poison
	full    bool                              // more may be waiting
	next    ports.Cursor
}

func (d *Due[A, E]) claim(ctx context.Context, tx pgx.Tx, claim ports.Claim) (claimedPage[A], error) {
	rows, rest, err := d.polled.claim(ctx, d.schema.in(tx), pageOf(claim))
	if err != nil {
		return claimedPage[A]{}, fmt.Errorf("claim what is due: %w", err)
	}
	taken := claimedPage[A]{items: rows, rest: rest, full: len(rows) == claim.Limit, next: endOf(claim)}
	if taken.full {
		taken.next = rows[len(rows)-1].place()
	}
	return taken, nil
}

// undone is the outcome of a unit that was rolled back, once its changes had been decided or
// before.
func undone[A, E any](outcome ports.Outcome[A, E], changes []change[A, E], err error) (ports.Outcome[A, E], error) {
	nothing := ports.Outcome[A, E]{Claimed: outcome.Claimed, Next: outcome.Next}
	switch {
	case !refused(err) || len(changes) == 0:
		return nothing, err
	case len(changes) > 1:
		return nothing, &ports.RefusedError{Items: len(changes), Err: err}
	case lostRace(err):
		return outcome, nil
	}
	culprit := changes[0].item
	culprit.Err = err
	outcome.Failed = append(outcome.Failed, culprit)
	return outcome, nil
}

// look reads, in one trip, what a decision needs beside the rows that are locked by now: what
// completes them, where their streams stand (in the claiming statement that would come from an
// older snapshot), and how much was due in the claim's range, whoever holds it: up to where the
// claim ended.
func (d *Due[A, E]) look(ctx context.Context, tx pgx.Tx, claim ports.Claim, rows claimedPage[A]) (standing map[uuid.UUID]int, due int, err error) {
	var reads []func(dbtx) error
	if rows.rest != nil {
		reads = append(reads, func(db dbtx) error { return rows.rest(ctx, db) })
	}
	if len(rows.items) > 0 {
		reads = append(reads, func(db dbtx) (err error) {
			standing, err = d.heads(ctx, db, rows.items)
			return err
		})
	}
	reads = append(reads, func(db dbtx) (err error) {
		due, err = d.count(ctx, db, claim, rows)
		return err
	})
	if err := together(ctx, tx, d.schema.name, reads...); err != nil {
		return nil, 0, fmt.Errorf("look at what was claimed: %w", err)
	}
	return standing, due, nil
}

func (d *Due[A, E]) count(ctx context.Context, db dbtx, claim ports.Claim, rows claimedPage[A]) (int, error) {
	p := pageOf(rows.within(claim))
	due, err := d.polled.count(ctx, db, span{p.AsOf, p.AfterDue, p.AfterID, p.UntilDue, p.UntilID})
	return int(due), err
}

// findOrphans takes what lacks a partner in a claim's range, where more was due than could be
// claimed. Where there may be more orphans than a claim may take, the page ends with the last of them,
// the items behind it are for the next claim, and fewer were due.
func (d *Due[A, E]) findOrphans(ctx context.Context, tx pgx.Tx, claim ports.Claim, rows *claimedPage[A], due int) (_ int, err error) {
	rows.orphans, err = d.polled.orphans(ctx, d.schema.in(tx), pageOf(rows.within(claim)))
	if err != nil {
		return 0, fmt.Errorf("claim what lacks its partner: %w", err)
	}
	if len(rows.orphans) < claim.Limit {
		return due, nil
	}
	rows.full, rows.next = true, rows.orphans[len(rows.orphans)-1].place()
	rows.items = slices.DeleteFunc(rows.items, func(c claimed[A]) bool { return c.place().Compare(rows.next) > 0 })
	if due, err = d.count(ctx, d.schema.in(tx), claim, *rows); err != nil {
		return 0, fmt.Errorf("count what is held elsewhere: %w", err)
	}
	return due, nil
}

// within narrows a claim to the range that it has seen.
func (p claimedPage[A]) within(claim ports.Claim) ports.Claim {
	if p.full {
		claim.Until = p.next
	}
	return claim
}

func (d *Due[A, E]) heads(ctx context.Context, db dbtx, rows []claimed[A]) (map[uuid.UUID]int, error) {
	if d.polled.heads != nil {
		return d.polled.heads(ctx, db, rows)
	}
	ids := make([]pgtype.UUID, len(rows))
	for i, row := range rows {
		ids[i] = row.id
	}
	return headsOf(ctx, db, ids)
}

// decide applies the rule to every item. What fails is left out before anything is written, what
// failed before and did not now has recovered.
func (d *Due[A, E]) decide(
	rows []claimed[A], standing map[uuid.UUID]int, at time.Time, rule ports.Rule[A, E],
) (changes []change[A, E], recovered []pgtype.UUID, failed []ports.Failure) {
	changes = make([]change[A, E], 0, len(rows))
	for _, row := range rows {
		c, err := d.decideOn(row, standing, at, rule)
		if err != nil {
			failed = append(failed, row.failure(err))
			continue
		}
		if row.failures.Int32 > 0 {
			recovered = append(recovered, row.id)
		}
		if len(c.events) > 0 {
			c.item = row.failure(nil)
			changes = append(changes, c)
		}
	}
	return changes, recovered, failed
}

// decideOn applies the rule to one item. The error is its data fault.
func (d *Due[A, E]) decideOn(row claimed[A], standing map[uuid.UUID]int, at time.Time, rule ports.Rule[A, E]) (change[A, E], error) {
	if row.err != nil {
		return change[A, E]{}, row.err
	}
	return decide(d.schema.codec, row.item, standing, at, rule)
}

// Hold implements ports.Due.
func (d *Due[A, E]) Hold(ctx context.Context, at time.Time, held []ports.Held) error {
	p := journaldb.HoldItemsParams{Job: string(d.polled.job), FailedAt: asTimestamptz(at)}
	for _, h := range held {
		p.Items = append(p.Items, asUUID(h.Item))
		p.TenantIds = append(p.TenantIds, optionalUUID(h.Tenant))
		p.Failures = append(p.Failures, int32(h.Streak))
		p.Errors = append(p.Errors, h.Err.Error())
		p.NextAttempts = append(p.NextAttempts, asTimestamptz(h.NextAttempt))
	}
	err := d.schema.db.transact(ctx, func(tx pgx.Tx) error { return d.schema.journal(tx).HoldItems(ctx, p) })
	if err != nil {
		return fmt.Errorf("put failed items on record: %w", err)
	}
	return nil
}

// Backlog implements ports.Due.
func (d *Due[A, E]) Backlog(ctx context.Context, asOf time.Time, after ports.Cursor) (ports.Backlog, error) {
	from := pageOf(ports.Claim{After: after})
	var row waiting
	err := d.schema.db.transact(ctx, func(tx pgx.Tx) (err error) {
		row, err = d.polled.backlog(ctx, d.schema.in(tx), horizon{
			AsOf: asTimestamptz(asOf), Until: asTimestamptz(asOf.Add(time.Hour)), AfterDue: from.AfterDue, AfterID: from.AfterID,
		})
		return err
	})
	if err != nil {
		return ports.Backlog{}, fmt.Errorf("count what is due: %w", err)
	}
	backlog := ports.Backlog{Due: int(row.Due), NextHour: int(row.NextHour), Held: int(row.Held)}
	if row.Due > 0 {
		backlog.Oldest = fromTimestamptz(row.Oldest)
	}
	return backlog, nil
}
