// Package crm decides what may happen to a lead: a client's interest that an agent holds
// until it expires.
//
//	             ┌──────────── extend ───────────┐
//	             ▼                               │
//	register ▶ Active ──────── expire ───────▶ Expired
//	             │  ▲ extend                     │
//	             │  └──┘                         │
//	             └────── archive ▶ Archived ◀────┘
//
// Only the worker expires a lead, and only once its time is up (INV-LEAD-4).
package crm

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/domain/ids"
)

// LeadID identifies a lead.
type LeadID = ids.ID[Lead]

// Status says where a lead is in its life (spec: domain, crm).
type Status string

// The states of a lead. A lead that is not registered yet has none.
const (
	Active   Status = "Active"
	Expired  Status = "Expired"
	Archived Status = "Archived"
)

// Lead is the aggregate. Its zero value has not happened yet.
type Lead struct{ is Snapshot }

// Snapshot is a lead's whole state at a version: what its table row holds, and what a
// baseline event records. Moments are UTC, in whole microseconds.
type Snapshot struct {
	ID                    LeadID
	TenantID              ids.TenantID
	ExecutorAgentUserID   ids.UserID
	PrimaryInvestorUserID ids.UserID
	Status                Status
	ExpiresAt             time.Time
	ExpiredAt             time.Time // zero: not expired since it was last extended
	Version               int       // from 1, one more with every transition
	CreatedAt             time.Time
	UpdatedAt             time.Time
}

// InvalidError says that a lead cannot be in the state that was given.
type InvalidError struct {
	Lead  LeadID
	Field string
	Why   string
}

func (e InvalidError) Error() string {
	return fmt.Sprintf("lead %s: %s %s", e.Lead, e.Field, e.Why)
}

// NotRegisteredError says that nothing can happen to a lead that does not exist.
type NotRegisteredError struct{}

func (NotRegisteredError) Error() string { return "the lead is not registered" }

// AlreadyRegisteredError says that the id is taken by a lead with other data.
type AlreadyRegisteredError struct{ Lead LeadID }

func (e AlreadyRegisteredError) Error() string {
	return fmt.Sprintf("lead %s is registered already, with other data", e.Lead)
}

// ArchivedError says that an archived lead stays as it is.
type ArchivedError struct{ Lead LeadID }

func (e ArchivedError) Error() string { return fmt.Sprintf("lead %s is archived", e.Lead) }

// NotLaterError says that an extension would not move the lead's ExpiresAt forward.
type NotLaterError struct {
	Lead      LeadID
	ExpiresAt time.Time
	Asked     time.Time
}

func (e NotLaterError) Error() string {
	return fmt.Sprintf("lead %s expires at %s: it cannot be extended to %s, which is not later",
		e.Lead, e.ExpiresAt.Format(time.RFC3339Nano), e.Asked.Format(time.RFC3339Nano))
}

// NotDueError says that the lead's time is not up (INV-LEAD-4).
type NotDueError struct {
	Lead      LeadID
	ExpiresAt time.Time
	At        time.Time
}

func (e NotDueError) Error() string {
	return fmt.Sprintf("INV-LEAD-4: lead %s expires at %s, which is not before %s",
		e.Lead, e.ExpiresAt.Format(time.RFC3339Nano), e.At.Format(time.RFC3339Nano))
}

// Restore takes a lead out of its stored state, or returns an InvalidError where a lead
// cannot be in it: never guess.
func Restore(s Snapshot) (Lead, error) {
	missing := func(field string) (Lead, error) { return Lead{}, InvalidError{s.ID, field, "is missing"} }
	switch {
	case s.ID.IsZero():
		return missing("ID")
	case s.TenantID.IsZero():
		return missing("TenantID")
	case s.ExecutorAgentUserID.IsZero():
		return missing("ExecutorAgentUserID")
	case s.PrimaryInvestorUserID.IsZero():
		return missing("PrimaryInvestorUserID")
	case s.ExpiresAt.IsZero():
		return missing("ExpiresAt")
	case s.Status != Active && s.Status != Expired && s.Status != Archived:
		return Lead{}, InvalidError{s.ID, "Status", "is neither Active, Expired nor Archived"}
	case s.Version < 1:
		return Lead{}, InvalidError{s.ID, "Version", fmt.Sprintf("is %d: versions start at 1", s.Version)}
	}
	return Lead{is: s}, nil
}

// ID returns the lead's id.
func (l Lead) ID() LeadID { return l.is.ID }

// Stream returns the lead's id.
func (l Lead) Stream() uuid.UUID { return uuid.UUID(l.is.ID) }

// Version returns the number of the lead's last transition, 0 before the first.
func (l Lead) Version() int { return l.is.Version }

// Snapshot returns the lead's whole state.
func (l Lead) Snapshot() Snapshot { return l.is }

// Parts returns the lead: it is a unit by itself.
func (l Lead) Parts() []eventsourcing.Part[Event] { return []eventsourcing.Part[Event]{l} }

// Registration is what a new lead begins with.
type Registration struct {
	Lead      LeadID
	Tenant    ids.TenantID
	Executor  ids.UserID // the agent who works on the lead
	Investor  ids.UserID // the client whose interest it is
	ExpiresAt time.Time
}

// Register decides that a lead begins. Registering the same again yields no event; it
// returns an AlreadyRegisteredError where the id is taken by another lead, an InvalidError
// where something is missing or the lead would begin expired.
func (l Lead) Register(r Registration, at time.Time) ([]Event, error) {
	event := LeadRegistered{
		Lead: r.Lead, Tenant: r.Tenant, Executor: r.Executor, Investor: r.Investor,
		ExpiresAt: r.ExpiresAt, At: at,
	}
	if l.is.Version > 0 {
		if l.holds(r) {
			return nil, nil
		}
		return nil, AlreadyRegisteredError{Lead: l.is.ID}
	}
	if _, err := Restore(l.Apply(event).is); err != nil {
		return nil, err
	}
	if !r.ExpiresAt.After(at) {
		return nil, InvalidError{r.Lead, "ExpiresAt", "is not after the registration"}
	}
	return []Event{event}, nil
}

func (l Lead) holds(r Registration) bool {
	return l.is.ID == r.Lead && l.is.TenantID == r.Tenant && l.is.ExecutorAgentUserID == r.Executor &&
		l.is.PrimaryInvestorUserID == r.Investor && l.is.ExpiresAt.Equal(r.ExpiresAt)
}

// Extend decides that the lead lives on until a later moment; an expired lead becomes
// active again (spec: lead-expiration). Extending an active lead to the moment it has
// yields no event. It returns a NotLaterError, an ArchivedError or a NotRegisteredError.
func (l Lead) Extend(to, at time.Time) ([]Event, error) {
	switch {
	case l.is.Version == 0:
		return nil, NotRegisteredError{}
	case l.is.Status == Archived:
		return nil, ArchivedError{Lead: l.is.ID}
	case l.is.Status == Active && to.Equal(l.is.ExpiresAt):
		return nil, nil
	case !to.After(l.is.ExpiresAt):
		return nil, NotLaterError{Lead: l.is.ID, ExpiresAt: l.is.ExpiresAt, Asked: to}
	}
	return []Event{LeadExtended{Lead: l.is.ID, ExpiresAt: to, At: at}}, nil
}

// Archive decides that the lead is put away for good; an archived lead yields no event.
// It returns a NotRegisteredError.
func (l Lead) Archive(at time.Time) ([]Event, error) {
	switch l.is.Status {
	case "":
		return nil, NotRegisteredError{}
	case Archived:
		return nil, nil
	}
	return []Event{LeadArchived{Lead: l.is.ID, At: at}}, nil
}

// Expire decides that the lead's time is up. INV-LEAD-4: only an active lead whose
// ExpiresAt lies strictly before at, else a NotDueError; on a lead that is not active
// (a race that was lost) it yields no event.
func (l Lead) Expire(at time.Time) ([]Event, error) {
	switch {
	case l.is.Status != Active:
		return nil, nil
	case !l.is.ExpiresAt.Before(at):
		return nil, NotDueError{Lead: l.is.ID, ExpiresAt: l.is.ExpiresAt, At: at}
	}
	return []Event{LeadExpired{Lead: l.is.ID, At: at}}, nil
}

// Import is the baseline event of a lead whose row was written by a service that keeps no
// journal: the whole state at its version, from which the stream goes on (spec: domain,
// event sourcing).
func (l Lead) Import(at time.Time) Event { return LeadImported{Lead: l.is, At: at} }

// Apply records what happened and refuses nothing.
func (l Lead) Apply(event Event) Lead {
	next := l.is
	next.Version++
	next.UpdatedAt = event.OccurredAt()
	switch e := event.(type) {
	case LeadRegistered:
		next.ID, next.TenantID = e.Lead, e.Tenant
		next.ExecutorAgentUserID, next.PrimaryInvestorUserID = e.Executor, e.Investor
		next.Status, next.ExpiresAt, next.CreatedAt = Active, e.ExpiresAt, e.At
	case LeadExtended:
		next.Status, next.ExpiresAt, next.ExpiredAt = Active, e.ExpiresAt, time.Time{}
	case LeadExpired:
		next.Status, next.ExpiredAt = Expired, e.At
	case LeadArchived:
		next.Status = Archived
	case LeadImported:
		next = e.Lead
	}
	return Lead{is: next}
}
