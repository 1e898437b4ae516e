// Package memory keeps aggregates in memory, for application tests. It passes the same
// conformance suite as the database does (adapters/portstest).
package memory

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
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
	held     map[crm.LeadID]chan struct{}
	refused  map[crm.LeadID]bool
}

var (
	_ ports.DueLeads   = (*Leads)(nil)
	_ ports.Leads      = (*Leads)(nil)
	_ ports.LeadLedger = (*Leads)(nil)
)

// NewLeads returns an empty store.
func NewLeads() *Leads {
	return &Leads{
		rows:    make(map[crm.LeadID]crm.Lead),
		streams: make(map[crm.LeadID][]eventsourcing.Recorded[crm.Event]),
		held:    make(map[crm.LeadID]chan struct{}),
		refused: make(map[crm.LeadID]bool),
	}
}

// ErrRefused is what the store answers for a lead that was told to be refused.
var ErrRefused = errors.New("the lead is refused by the store")

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
	outcome := leadOutcome{Next: claim.After}
	var changes []change
	for _, lead := range l.due(claim) {
		id := lead.ID()
		if l.held[id] != nil {
			outcome.SkippedLocked++
			continue
		}
		outcome.Claimed++
		outcome.Next = place(lead)
		c, err := l.decide(lead, claim.AsOf, rule)
		switch {
		case err != nil:
			outcome.Failed = append(outcome.Failed, failure(lead, err))
		case len(c.Events) > 0:
			changes = append(changes, c)
		}
		if outcome.Claimed == claim.Limit {
			break
		}
	}
	if slices.ContainsFunc(changes, func(c change) bool { return l.refused[c.After.ID()] }) {
		if len(changes) > 1 {
			return leadOutcome{Claimed: outcome.Claimed, Next: outcome.Next}, &ports.RefusedError{Items: len(changes), Err: ErrRefused}
		}
		outcome.Failed = append(outcome.Failed, failure(changes[0].before, ErrRefused))
		return outcome, nil
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
		held := l.held[command.ID]
		if held == nil {
			break
		}
		l.mu.Unlock()
		select {
		case <-held:
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

// Backlog implements ports.Due.
func (l *Leads) Backlog(_ context.Context, asOf time.Time) (ports.Backlog, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	due := l.due(ports.Claim{AsOf: asOf})
	backlog := ports.Backlog{Due: len(due), NextHour: len(l.due(ports.Claim{AsOf: asOf.Add(time.Hour)})) - len(due)}
	if len(due) > 0 {
		backlog.Oldest = due[0].Snapshot().ExpiresAt
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

// Hold locks a lead, as an operation in flight would, until release.
func (l *Leads) Hold(id crm.LeadID) (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := make(chan struct{})
	l.held[id] = held
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.held, id)
		close(held)
	}
}

// Refuse makes the store refuse every write to a lead.
func (l *Leads) Refuse(id crm.LeadID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused[id] = true
}

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

func failure(lead crm.Lead, err error) ports.Failure {
	return ports.Failure{Item: uuid.UUID(lead.ID()), Tenant: lead.Snapshot().TenantID, Err: err}
}
