// Package ports is all that the application needs of the world: an architect's whole
// reading list.
//
// There are six shapes, and each context names its own instances of them (crm.go):
//
//   - Due: what a job does to the items whose moment has come, a page at a time.
//   - Preview: what it would do, for `plan` and `explain`.
//   - Store: what an operation does to one item, by its id.
//   - Ledger: rows beside their streams, for `verify`.
//   - Quarantine: the items that keep failing, for operators.
//   - History: what happened to one item, for operators.
//
// A job and an operation are both a Rule: a pure decision, and what others must hear of it.
// No transaction is visible here. Each method says what it commits together.
package ports

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/ids"
)

// RunID identifies a job's cycle or an operation: the correlation id of all that it writes.
type RunID uuid.UUID

// NewRunID returns a fresh, time-ordered run id.
func NewRunID() RunID { return RunID(uuid.Must(uuid.NewV7())) }

// String returns the lower-case text form.
func (r RunID) String() string { return uuid.UUID(r).String() }

// Stored is a moment as the database will hold it, UTC in whole microseconds, so that rows and
// events agree.
func Stored(moment time.Time) time.Time { return moment.UTC().Truncate(time.Microsecond) }

// Actor says who made something happen: System, or a user's id.
type Actor string

// Job names a job, everywhere by the same word: the command's argument, the settings' section,
// the metrics' label, the quarantine.
type Job string

// System is the actor of all jobs.
const System Actor = "System"

// Cursor is a place in the order in which a job takes its items: by the moment due, then by
// id. The zero Cursor is an open end.
type Cursor struct {
	Due time.Time
	ID  uuid.UUID
}

// IsZero reports whether the end is open.
func (c Cursor) IsZero() bool { return c == Cursor{} }

// Compare returns -1 where c lies before d, 1 where it lies behind it, and 0 where they are the same.
func (c Cursor) Compare(d Cursor) int {
	if byDue := c.Due.Compare(d.Due); byDue != 0 {
		return byDue
	}
	return bytes.Compare(c.ID[:], d.ID[:])
}

// Before is the place just ahead of another: nothing lies between them. (An id of all zeros is nobody's.)
func (c Cursor) Before() Cursor {
	for i := len(c.ID) - 1; i >= 0; i-- {
		c.ID[i]--
		if c.ID[i] != 0xff {
			break
		}
	}
	return c
}

// Claim says which due items a unit of work may take. What one claim takes, commits together.
type Claim struct {
	AsOf  time.Time // the cycle's one moment, UTC, in whole microseconds
	After Cursor    // exclusive: where the last claim of this tick ended
	Until Cursor    // inclusive
	Limit int       // how many items at most, from 1; 1 makes the item the unit
	Run   RunID
}

// Rule is a whole decision, pure: which events happen to an item, and which messages others
// must hear of once they have. It may be called more than once for one item.
type Rule[A, E any] struct {
	// Decide returns what happens to item at a moment; nothing, where it has happened already.
	Decide func(item A, at time.Time) ([]E, error)
	// Announce returns the messages to publish once the events have led to after; it may be
	// nil. It is not asked where nothing happened.
	Announce func(after A, events []E) ([]Message, error)
}

// Due is a store of items A, told by events E, whose moment comes.
type Due[A, E any] interface {
	// Transition claims due items that nobody else holds, in their order, without waiting,
	// applies the rule to each and commits rows, events and messages in one transaction.
	//
	// An item that cannot be restored (its row, or row and stream, make no sense) or that the
	// rule refuses is left out before anything is written: Outcome.Failed. So is the item of a
	// unit of one that the database refuses. Where the database refuses a larger unit, nothing
	// is committed, nobody is blamed, and the error is a *RefusedError: go over it one by one.
	// A race that was lost is no failure: the item is not taken. Any other error is an
	// infrastructure fault; nothing is known to be committed.
	//
	// The outcome's Claimed and Next are good beside an error too. Claimed 0 beside an error
	// means that not even the claim came through. SkippedLocked never counts an item twice for
	// claims that follow each other's Next.
	Transition(ctx context.Context, claim Claim, rule Rule[A, E]) (Outcome[A, E], error)

	// Hold puts failures on record, in a transaction of its own, so that claims leave each item
	// out until its NextAttempt. An item that succeeds, or is settled by someone else, is taken
	// off the record in the transaction that finds it so.
	Hold(ctx context.Context, at time.Time, held []Held) error

	// Backlog counts what is due at asOf behind a cursor, locked and held items included.
	Backlog(ctx context.Context, asOf time.Time, after Cursor) (Backlog, error)
}

// Outcome is what became of one claim.
type Outcome[A, E any] struct {
	Applied       []Transitioned[A, E] // committed, in the order claimed
	Failed        []Failure            // left as they were
	SkippedLocked int                  // due within the claim's range, but locked by someone else
	Claimed       int                  // taken into the unit, whatever became of them; 0 ends a drain
	Next          Cursor               // where the next claim begins: behind what a full claim took, or where a short one ended
}

// Transitioned is an item that changed: its new state, and the events that led to it.
type Transitioned[A, E any] struct {
	After  A
	Events []E
}

// Failure is one item's data fault. Tenant is zero where the row did not tell.
type Failure struct {
	Item   uuid.UUID
	Of     uuid.UUID // what the item hangs on (a reminder's event); zero for items that stand alone
	Tenant ids.TenantID
	Err    error
	Streak int // how often in a row it has failed, this time included
}

// Held is a failure that is not tried again before a moment.
type Held struct {
	Failure
	NextAttempt time.Time
}

// Backlog is what waits for a job at a moment.
type Backlog struct {
	Due      int
	Held     int       // of them: on record for failing, and left out of claims until later
	Oldest   time.Time // when the oldest of them came due; zero where none is due
	NextHour int       // comes due in the hour that follows
}

// RefusedError says that the database refused what was decided for a unit of several items
// (a constraint, a value out of range, fewer rows than decided), without telling which.
type RefusedError struct {
	Items int
	Err   error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the database refused a unit of %d items: %v", e.Items, e.Err)
}

func (e *RefusedError) Unwrap() error { return e.Err }

// Message is an integration event on its way out: what events.md fixes, less what the unit
// of work adds (the correlation id, the trace).
type Message struct {
	ID               uuid.UUID // ce_id: the same whenever the same event is published again
	Topic            string
	Key              string // Kafka keeps the order within a topic and key
	Subject          uuid.UUID
	Tenant           ids.TenantID
	AggregateType    string
	AggregateVersion int
	ContractVersion  int
	OccurredAt       time.Time
	DueAt            time.Time // when what it tells of came due; zero where it has no such moment
	Payload          []byte    // JSON; ids and moments only, no personal data
}
