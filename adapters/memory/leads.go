// Package memory keeps aggregates in memory, for application tests. It passes the same
// conformance suite as the database does (adapters/portstest).
package memory

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/ports"
)

// Leads holds leads with their streams and the messages that left with them.
type Leads struct {
	mu       sync.Mutex
	rows     map[crm.LeadID]crm.Lead
	streams  map[crm.LeadID][]eventsourcing.Recorded[crm.Event]
	messages []ports.Message
	locked   map[crm.LeadID]chan struct{}
	refused  map[crm.LeadID]bool
	record   map[uuid.UUID]ports.Quarantined
	cut      atomic.Bool
}

var (
	_ ports.DueLeads   = (*Leads)(nil)
	_ ports.Leads      = (*Leads)(nil)
	_ ports.LeadLedger = (*Leads)(nil)
	_ ports.Quarantine = (*Leads)(nil)
)

// NewLeads returns an empty store.
func NewLeads() *Leads {
	return &Leads{
		rows:    make(map[crm.LeadID]crm.Lead),
		streams: make(map[crm.LeadID][]eventsourcing.Recorded[crm.Event]),
		locked:  make(map[crm.LeadID]chan struct{}),
		refused: make(map[crm.LeadID]bool),
		record:  make(map[uuid.UUID]ports.Quarantined),
	}
}

// ErrRefused is what the store answers for a lead that was told to be refused.
var ErrRefused = errors.New("the lead is refused by the store")

// ErrCut is what a unit answers that was under way at a Cut.
var ErrCut = errors.New("the connection was cut")

var errStreamAhead = errors.New("the stream is ahead of its row")

type (
	leadRule    = ports.Rule[crm.Lead, crm.Event]
	leadOutcome = ports.Outcome[crm.Lead, crm.Event]
	leadApplied = ports.Transitioned[crm.Lead, crm.Event]
)

// Transition implements ports.Due.
func (l *Leads) Transition(ctx context.Context, claim ports.Claim, rule leadRule) (leadOutcome, error) {
	if err := ctx.Err(); err != nil {
		return leadOutcome{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	outcome := leadOutcome{Next: claim.Until}
	if claim.Until.IsZero() {
		outcome.Next = ports.Cursor{Due: claim.AsOf, ID: uuid.Max}
	}
	var changes []change
	var recovered []uuid.UUID
	for _, lead := range l.due(claim) {
		if l.record[uuid.UUID(lead.ID())].NextAttempt.After(claim.AsOf) {
			continue
		}
		if l.locked[lead.ID()] != nil {
			outcome.SkippedLocked++
			continue
		}
		outcome.Claimed++
		c, err := l.decide(lead, claim.AsOf, rule)
		switch {
		case err != nil:
			outcome.Failed = append(outcome.Failed, l.failure(lead, err))
		case len(c.Events) > 0:
			changes = append(changes, c)
			recovered = append(recovered, uuid.UUID(lead.ID()))
		default:
			recovered = append(recovered, uuid.UUID(lead.ID()))
		}
		if outcome.Claimed == claim.Limit {
			outcome.Next = place(lead)
			break
		}
	}
	if l.cut.Swap(false) {
		return leadOutcome{Claimed: outcome.Claimed, Next: outcome.Next}, ErrCut
	}
	if slices.ContainsFunc(changes, func(c change) bool { return l.refused[c.After.ID()] }) {
		if len(changes) > 1 {
			return leadOutcome{Claimed: outcome.Claimed, Next: outcome.Next}, &ports.RefusedError{Items: len(changes), Err: ErrRefused}
		}
		outcome.Failed = append(outcome.Failed, l.failure(changes[0].before, ErrRefused))
		return outcome, nil
	}
	for _, id := range recovered {
		delete(l.record, id)
	}
	if outcome.Claimed == 0 {
		l.releaseSettled(claim.AsOf)
	}
	for _, c := range changes {
		l.commit(c)
		outcome.Applied = append(outcome.Applied, c.leadApplied)
	}
	return outcome, nil
}

// Change implements ports.Store.
func (l *Leads) Change(ctx context.Context, command ports.Command[crm.LeadID], rule leadRule) (leadApplied, error) {
	for {
		l.mu.Lock()
		locked := l.locked[command.ID]
		if locked == nil {
			break
		}
		l.mu.Unlock()
		select {
		case <-locked:
		case <-ctx.Done():
			return leadApplied{}, ctx.Err()
		}
	}
	defer l.mu.Unlock()
	c, err := l.decide(l.rows[command.ID], command.At, rule)
	if err != nil || len(c.Events) == 0 {
		return leadApplied{After: c.After}, err
	}
	if l.refused[command.ID] {
		return leadApplied{}, ErrRefused
	}
	l.commit(c)
	return c.leadApplied, nil
}

// Hold implements ports.Due.
func (l *Leads) Hold(_ context.Context, at time.Time, held []ports.Held) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range held {
		q, known := l.record[h.Item]
		if !known {
			q = ports.Quarantined{
				Job: ports.LeadExpiration, Item: h.Item, Tenant: h.Tenant, FirstFailedAt: at, FirstError: h.Err.Error(),
			}
		}
		q.Streak, q.LastFailedAt, q.LastError, q.NextAttempt = h.Streak, at, h.Err.Error(), h.NextAttempt
		l.record[h.Item] = q
	}
	return nil
}

// List implements ports.Quarantine.
func (l *Leads) List(context.Context) ([]ports.Quarantined, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(maps.Values(l.record), func(a, b ports.Quarantined) int {
		return comparePlaces(ports.Cursor{Due: a.NextAttempt, ID: a.Item}, ports.Cursor{Due: b.NextAttempt, ID: b.Item})
	}), nil
}

// Retry implements ports.Quarantine.
func (l *Leads) Retry(_ context.Context, item uuid.UUID, at time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	q, known := l.record[item]
	if !known {
		return ports.ErrNotQuarantined
	}
	q.NextAttempt = at
	l.record[item] = q
	return nil
}

// releaseSettled takes off the record what is not due any more.
func (l *Leads) releaseSettled(asOf time.Time) {
	due := make(map[uuid.UUID]bool)
	for _, lead := range l.due(ports.Claim{AsOf: asOf}) {
		due[uuid.UUID(lead.ID())] = true
	}
	maps.DeleteFunc(l.record, func(item uuid.UUID, _ ports.Quarantined) bool { return !due[item] })
}

// Backlog implements ports.Due.
func (l *Leads) Backlog(_ context.Context, asOf time.Time, after ports.Cursor) (ports.Backlog, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	due := l.due(ports.Claim{AsOf: asOf, After: after})
	backlog := ports.Backlog{Due: len(due), NextHour: len(l.due(ports.Claim{AsOf: asOf.Add(time.Hour), After: after})) - len(due)}
	if len(due) > 0 {
		backlog.Oldest = due[0].Snapshot().ExpiresAt
	}
	for _, lead := range due {
		if l.record[uuid.UUID(lead.ID())].NextAttempt.After(asOf) {
			backlog.Held++
		}
	}
	return backlog, nil
}

// Entries implements ports.Ledger.
func (l *Leads) Entries(_ context.Context, since time.Time) iter.Seq2[ports.Entry[crm.Lead, crm.Event], error] {
	return func(yield func(ports.Entry[crm.Lead, crm.Event], error) bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, lead := range l.sorted(func(a, b crm.Lead) int { return compareIDs(a.ID(), b.ID()) }) {
			if lead.Snapshot().UpdatedAt.Before(since) {
				continue
			}
			entry := ports.Entry[crm.Lead, crm.Event]{
				ID: uuid.UUID(lead.ID()), HasRow: true, Row: lead, Stream: l.streams[lead.ID()],
			}
			if !yield(entry, nil) {
				return
			}
		}
	}
}

// Messages returns what was committed for publication, in order.
func (l *Leads) Messages() []ports.Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.messages)
}

// Import puts a lead's row in place without a stream, as a service without a journal would.
func (l *Leads) Import(lead crm.Lead) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows[lead.ID()] = lead
}

// Lock locks a lead, as an operation in flight would, until release.
func (l *Leads) Lock(id crm.LeadID) (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	locked := make(chan struct{})
	l.locked[id] = locked
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.locked, id)
		close(locked)
	}
}

// Refuse makes the store refuse every write to a lead.
func (l *Leads) Refuse(id crm.LeadID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused[id] = true
}

// Accept takes Refuse back.
func (l *Leads) Accept(id crm.LeadID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.refused, id)
}

// Cut makes the unit that is under way fail as if its connection were cut.
func (l *Leads) Cut() { l.cut.Store(true) }

// change is what was decided and is still to be committed.
type change struct {
	leadApplied
	before   crm.Lead
	recorded []eventsourcing.Recorded[crm.Event]
	messages []ports.Message
}

func (l *Leads) decide(lead crm.Lead, at time.Time, rule leadRule) (change, error) {
	head := 0
	if stream := l.streams[lead.ID()]; len(stream) > 0 {
		head = stream[len(stream)-1].Version
	}
	if head > lead.Version() {
		return change{}, errStreamAhead
	}
	events, err := rule.Decide(lead, at)
	if err != nil || len(events) == 0 {
		return change{leadApplied: leadApplied{After: lead}}, err
	}
	c := change{
		leadApplied: leadApplied{After: eventsourcing.Fold(lead, events...), Events: events},
		before:      lead,
		recorded:    eventsourcing.Number(lead, events...),
	}
	if head < lead.Version() {
		c.recorded = slices.Insert(c.recorded, 0,
			eventsourcing.Recorded[crm.Event]{Version: lead.Version(), Event: lead.Import(at)})
	}
	if rule.Announce != nil {
		c.messages, err = rule.Announce(c.After, events)
	}
	return c, err
}

func (l *Leads) commit(c change) {
	id := c.After.ID()
	l.rows[id] = c.After
	l.streams[id] = append(l.streams[id], c.recorded...)
	l.messages = append(l.messages, c.messages...)
}

// due returns what lies within a claim's range, in order, whoever holds it.
func (l *Leads) due(claim ports.Claim) []crm.Lead {
	return slices.DeleteFunc(
		l.sorted(func(a, b crm.Lead) int { return comparePlaces(place(a), place(b)) }),
		func(lead crm.Lead) bool {
			s := lead.Snapshot()
			return s.Status != crm.Active || !s.ExpiresAt.Before(claim.AsOf) ||
				!claim.After.IsZero() && comparePlaces(place(lead), claim.After) <= 0 ||
				!claim.Until.IsZero() && comparePlaces(place(lead), claim.Until) > 0
		})
}

func (l *Leads) sorted(compare func(a, b crm.Lead) int) []crm.Lead {
	leads := make([]crm.Lead, 0, len(l.rows))
	for _, lead := range l.rows {
		leads = append(leads, lead)
	}
	slices.SortFunc(leads, compare)
	return leads
}

func place(lead crm.Lead) ports.Cursor {
	return ports.Cursor{Due: lead.Snapshot().ExpiresAt, ID: uuid.UUID(lead.ID())}
}

func comparePlaces(a, b ports.Cursor) int {
	if byDue := a.Due.Compare(b.Due); byDue != 0 {
		return byDue
	}
	return bytes.Compare(a.ID[:], b.ID[:])
}

func compareIDs(a, b crm.LeadID) int { return bytes.Compare(a[:], b[:]) }

func (l *Leads) failure(lead crm.Lead, err error) ports.Failure {
	id := uuid.UUID(lead.ID())
	return ports.Failure{Item: id, Tenant: lead.Snapshot().TenantID, Err: err, Streak: l.record[id].Streak + 1}
}
