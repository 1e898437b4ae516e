package postgres

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pin-platform/pinworker/adapters/postgres/internal/crmdb"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/ports"
)

// Leads keeps leads in crm.leads and crm.domain_events.
type Leads struct {
	db     *DB
	outbox Outbox
}

var (
	_ ports.DueLeads   = (*Leads)(nil)
	_ ports.Leads      = (*Leads)(nil)
	_ ports.Quarantine = (*Leads)(nil)
)

// NewLeads returns the leads of a database, whose messages go to outbox.
func NewLeads(db *DB, outbox Outbox) *Leads { return &Leads{db: db, outbox: outbox} }

type (
	leadRule    = ports.Rule[crm.Lead, crm.Event]
	leadOutcome = ports.Outcome[crm.Lead, crm.Event]
	leadApplied = ports.Transitioned[crm.Lead, crm.Event]
)

// leadChange is what was decided on one lead and is still to be written.
type leadChange struct {
	before, after crm.Lead
	events        []crm.Event  // decided
	journal       []journalled // to append: a baseline where the stream lags behind, and events
	messages      []ports.Message
	failures      int // in a row, before
}

const leadExpiration = string(ports.LeadExpiration)

// Transition implements ports.Due. Its last claim of a drain, the empty one, also takes off the
// record what others have settled.
func (l *Leads) Transition(ctx context.Context, claim ports.Claim, rule leadRule) (leadOutcome, error) {
	var outcome leadOutcome
	var changes []leadChange
	err := l.db.transact(ctx, func(tx pgx.Tx) error {
		q := crmdb.New(tx)
		rows, err := q.ClaimDueLeads(ctx, claimParams(claim))
		if err != nil {
			return fmt.Errorf("claim due leads: %w", err)
		}
		outcome = leadOutcome{Claimed: len(rows), Next: next(rows, claim)}
		if len(rows) == 0 {
			if err := q.ReleaseSettledLeads(ctx, crmdb.ReleaseSettledLeadsParams{Job: leadExpiration, AsOf: asTimestamptz(claim.AsOf)}); err != nil {
				return fmt.Errorf("take settled leads off the record: %w", err)
			}
		}
		var recovered []pgtype.UUID
		changes, recovered, outcome.Failed, err = l.decide(ctx, q, rows, claim, rule)
		if err != nil {
			return err
		}
		if len(recovered) > 0 {
			if err := q.ReleaseItems(ctx, crmdb.ReleaseItemsParams{Job: leadExpiration, Items: recovered}); err != nil {
				return fmt.Errorf("take leads off the record: %w", err)
			}
		}
		if outcome.SkippedLocked, err = skippedLocked(ctx, q, claim, outcome); err != nil {
			return err
		}
		return l.write(ctx, tx, changes, origin{ports.System, claim.Run})
	})
	if err != nil {
		return undone(outcome, changes, withoutValues(err))
	}
	for _, c := range changes {
		outcome.Applied = append(outcome.Applied, leadApplied{After: c.after, Events: c.events})
	}
	if len(changes) > 0 {
		l.outbox.Committed()
	}
	return outcome, nil
}

// undone is the outcome of a unit that was rolled back, once its changes had been decided or
// before.
func undone(outcome leadOutcome, changes []leadChange, err error) (leadOutcome, error) {
	nothing := leadOutcome{Claimed: outcome.Claimed, Next: outcome.Next}
	switch {
	case !refused(err) || len(changes) == 0:
		return nothing, err
	case len(changes) > 1:
		return nothing, &ports.RefusedError{Items: len(changes), Err: err}
	case lostRace(err):
		return outcome, nil
	}
	culprit := changes[0].before.Snapshot()
	outcome.Failed = append(outcome.Failed, ports.Failure{
		Item: uuid.UUID(culprit.ID), Tenant: culprit.TenantID, Err: err, Streak: changes[0].failures + 1,
	})
	return outcome, nil
}

// decide applies the rule to every row. What fails is left out before anything is written,
// what failed before and did not now has recovered; the error is an infrastructure fault.
func (l *Leads) decide(
	ctx context.Context, q *crmdb.Queries, rows []crmdb.CrmLead, claim ports.Claim, rule leadRule,
) (changes []leadChange, recovered []pgtype.UUID, failed []ports.Failure, err error) {
	if len(rows) == 0 {
		return nil, nil, nil, nil
	}
	streams := make([]pgtype.UUID, len(rows))
	for i, row := range rows {
		streams[i] = row.ID
	}
	pasts, err := leadPasts(ctx, q, streams)
	if err != nil {
		return nil, nil, nil, err
	}
	changes = make([]leadChange, 0, len(rows))
	for _, row := range rows {
		past := pasts[row.ID]
		lead, err := leadFromRow(row)
		var change leadChange
		if err == nil {
			change, err = changeLead(lead, past.head, claim.AsOf, rule)
		}
		if err != nil {
			failed = append(failed, ports.Failure{
				Item: row.ID.Bytes, Tenant: ids.TenantID(row.TenantID.Bytes), Err: err, Streak: past.failures + 1,
			})
			continue
		}
		if past.failures > 0 {
			recovered = append(recovered, row.ID)
		}
		if len(change.events) > 0 {
			change.failures = past.failures
			changes = append(changes, change)
		}
	}
	return changes, recovered, failed, nil
}

// changeLead decides on one lead whose stream is at head. The error is its data fault.
func changeLead(lead crm.Lead, head int, at time.Time, rule leadRule) (leadChange, error) {
	if head > lead.Version() {
		return leadChange{}, StreamAheadError{Row: lead.Version(), Stream: head}
	}
	events, err := rule.Decide(lead, at)
	if err != nil || len(events) == 0 {
		return leadChange{}, err
	}
	change := leadChange{before: lead, after: eventsourcing.Fold(lead, events...), events: events}
	recorded := eventsourcing.Number(lead, events...)
	if head < lead.Version() {
		baseline := eventsourcing.Recorded[crm.Event]{Version: lead.Version(), Event: lead.Import(at)}
		recorded = append([]eventsourcing.Recorded[crm.Event]{baseline}, recorded...)
	}
	for _, r := range recorded {
		stored, err := encodeLeadEvent(r)
		if err != nil {
			return leadChange{}, err
		}
		change.journal = append(change.journal, stored)
	}
	if rule.Announce != nil {
		change.messages, err = rule.Announce(change.after, events)
	}
	return change, err
}

// write stores what was decided: rows, events, messages, a statement each.
func (l *Leads) write(ctx context.Context, tx pgx.Tx, changes []leadChange, from origin) error {
	if len(changes) == 0 {
		return nil
	}
	announce := l.announce(ctx, changes, from.run)
	updated, err := crmdb.New(tx).UpdateLeads(ctx, leadUpdates(changes))
	if err != nil {
		return fmt.Errorf("update leads: %w", err)
	}
	if updated < int64(len(changes)) {
		return errFewerRows
	}
	if err := l.journal(ctx, tx, changes, from); err != nil {
		return err
	}
	return announce(tx)
}

// announce begins to compose the messages of what was decided, and returns what writes them.
func (l *Leads) announce(ctx context.Context, changes []leadChange, run ports.RunID) (write func(pgx.Tx) error) {
	var messages []ports.Message
	for _, c := range changes {
		messages = append(messages, c.messages...)
	}
	if len(messages) == 0 {
		return func(pgx.Tx) error { return nil }
	}
	type composed struct {
		write    func(context.Context, pgx.Tx) error
		err      error
		panicked string
	}
	done := make(chan composed, 1)
	go func() {
		var c composed
		defer func() {
			if value := recover(); value != nil {
				c.panicked = fmt.Sprintf("%v, composing messages:\n%s", value, debug.Stack())
			}
			done <- c
		}()
		c.write, c.err = l.outbox.Compose(ctx, run, messages)
	}()
	return func(tx pgx.Tx) error {
		c := <-done
		switch {
		case c.panicked != "":
			panic(c.panicked) // where the job's loop can hear it
		case c.err != nil:
			return c.err
		}
		return c.write(ctx, tx)
	}
}

func (l *Leads) journal(ctx context.Context, tx pgx.Tx, changes []leadChange, from origin) error {
	events := make([]journalled, 0, len(changes))
	for _, c := range changes {
		events = append(events, c.journal...)
	}
	appended, err := crmdb.New(tx).AppendEvents(ctx, crmdb.AppendEventsParams(columnsOf(events, from)))
	if err != nil {
		return fmt.Errorf("append events: %w", err)
	}
	if appended < int64(len(events)) {
		return errFewerRows
	}
	return nil
}

// Change implements ports.Store.
func (l *Leads) Change(
	ctx context.Context, command ports.Command[crm.LeadID], rule leadRule,
) (leadApplied, error) {
	var change leadChange
	err := l.db.transact(ctx, func(tx pgx.Tx) error {
		q := crmdb.New(tx)
		var lead crm.Lead
		row, err := q.LockLead(ctx, asUUID(command.ID))
		switch {
		case err == nil:
			if lead, err = leadFromRow(row); err != nil {
				return err
			}
		case !errors.Is(err, pgx.ErrNoRows):
			return fmt.Errorf("lock the lead: %w", err)
		}
		pasts, err := leadPasts(ctx, q, []pgtype.UUID{asUUID(command.ID)})
		if err != nil {
			return err
		}
		if change, err = changeLead(lead, pasts[asUUID(command.ID)].head, command.At, rule); err != nil {
			return err
		}
		from := origin{command.By, command.Run}
		switch {
		case len(change.events) == 0:
			return nil
		case lead.Version() > 0:
			return l.write(ctx, tx, []leadChange{change}, from)
		}
		if err := q.InsertLead(ctx, leadInsert(change.after)); err != nil {
			if uniqueViolation(err, "leads") { // somebody registered it in between
				return ports.ErrConflict
			}
			return fmt.Errorf("insert the lead: %w", err)
		}
		if err := l.journal(ctx, tx, []leadChange{change}, from); err != nil {
			return err
		}
		return l.announce(ctx, []leadChange{change}, from.run)(tx)
	})
	switch {
	case lostRace(err):
		return leadApplied{}, ports.ErrConflict
	case err != nil:
		return leadApplied{}, withoutValues(err)
	}
	if len(change.messages) > 0 {
		l.outbox.Committed()
	}
	return leadApplied{After: change.after, Events: change.events}, nil
}

// Backlog implements ports.Due.
func (l *Leads) Backlog(ctx context.Context, asOf time.Time, after ports.Cursor) (ports.Backlog, error) {
	from := claimParams(ports.Claim{After: after})
	var row crmdb.LeadBacklogRow
	err := l.db.transact(ctx, func(tx pgx.Tx) (err error) {
		row, err = crmdb.New(tx).LeadBacklog(ctx, crmdb.LeadBacklogParams{
			AsOf: asTimestamptz(asOf), Until: asTimestamptz(asOf.Add(time.Hour)),
			AfterDue: from.AfterDue, AfterID: from.AfterID,
		})
		return err
	})
	if err != nil {
		return ports.Backlog{}, fmt.Errorf("count due leads: %w", err)
	}
	backlog := ports.Backlog{Due: int(row.Due), NextHour: int(row.NextHour), Held: int(row.Held)}
	if row.Due > 0 {
		backlog.Oldest = row.Oldest.Time.UTC()
	}
	return backlog, nil
}

// skippedLocked counts what a claim passed over because someone else holds it: what is due
// up to where the claim ended, less what it got. A claim that was not filled ended at its end.
func skippedLocked(ctx context.Context, q *crmdb.Queries, claim ports.Claim, outcome leadOutcome) (int, error) {
	if outcome.Claimed == claim.Limit {
		claim.Until = outcome.Next
	}
	p := claimParams(claim)
	due, err := q.CountDueLeads(ctx, crmdb.CountDueLeadsParams{
		AsOf: p.AsOf, AfterDue: p.AfterDue, AfterID: p.AfterID, UntilDue: p.UntilDue, UntilID: p.UntilID,
	})
	if err != nil {
		return 0, fmt.Errorf("count the leads held elsewhere: %w", err)
	}
	return max(0, int(due)-outcome.Claimed), nil
}

// leadPast is what a claim needs to know of a lead beside its row.
type leadPast struct {
	head     int // its stream's version
	failures int // in a row, so far
}

func leadPasts(ctx context.Context, q *crmdb.Queries, streams []pgtype.UUID) (map[pgtype.UUID]leadPast, error) {
	rows, err := q.LeadPasts(ctx, streams)
	if err != nil {
		return nil, fmt.Errorf("read the streams' heads: %w", err)
	}
	pasts := make(map[pgtype.UUID]leadPast, len(rows))
	for _, row := range rows {
		pasts[row.ID] = leadPast{head: int(row.Head), failures: int(row.Failures)}
	}
	return pasts, nil
}

func claimParams(claim ports.Claim) crmdb.ClaimDueLeadsParams {
	p := crmdb.ClaimDueLeadsParams{
		AsOf:     asTimestamptz(claim.AsOf),
		AfterDue: pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true},
		AfterID:  asUUID(uuid.Nil),
		UntilDue: pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true},
		UntilID:  asUUID(uuid.Max),
		MaxItems: int32(claim.Limit),
	}
	if !claim.After.IsZero() {
		p.AfterDue, p.AfterID = cursorDue(claim.After), asUUID(claim.After.ID)
	}
	if !claim.Until.IsZero() {
		p.UntilDue, p.UntilID = cursorDue(claim.Until), asUUID(claim.Until.ID)
	}
	return p
}

// beforeAll stands for -infinity in a cursor: PostgreSQL has no moment as early as that.
var beforeAll = time.Date(-10000, 1, 1, 0, 0, 0, 0, time.UTC)

func cursorDue(c ports.Cursor) pgtype.Timestamptz {
	if c.Due.Equal(beforeAll) {
		return pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	}
	return pgtype.Timestamptz{Time: c.Due, Valid: true}
}

// next is where the claim that follows begins. A claim that was not filled has seen all up to
// its end.
func next(rows []crmdb.CrmLead, claim ports.Claim) ports.Cursor {
	switch {
	case len(rows) == claim.Limit:
		last := rows[len(rows)-1]
		if last.ExpiresAt.InfinityModifier != pgtype.Finite {
			return ports.Cursor{Due: beforeAll, ID: last.ID.Bytes} // what is due at infinity is never claimed
		}
		return ports.Cursor{Due: last.ExpiresAt.Time, ID: last.ID.Bytes}
	case !claim.Until.IsZero():
		return claim.Until
	}
	return ports.Cursor{Due: claim.AsOf, ID: uuid.Max}
}
