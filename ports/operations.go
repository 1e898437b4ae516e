package ports

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/domain/ids"
)

// ErrConflict says that someone else changed the aggregate in between: read it again, then
// decide again.
var ErrConflict = errors.New("the aggregate was changed by someone else in between")

// Command says which aggregate an operation is about, who asks for it, and when.
type Command[ID any] struct {
	ID  ID
	At  time.Time // UTC, in whole microseconds
	By  Actor
	Run RunID
}

// Store holds aggregates A by their ID, told by events E.
type Store[ID, A, E any] interface {
	// Change locks the aggregate, waiting for whoever holds it, applies the rule to its state
	// (the zero A where it does not exist yet) and commits row, events and messages in one
	// transaction. Events empty in the answer means that it had happened already.
	//
	// It returns the rule's own error where the rule refuses, ErrConflict where a race was
	// lost; any other error is a data or an infrastructure fault. On any error nothing is
	// committed.
	Change(ctx context.Context, command Command[ID], rule Rule[A, E]) (Transitioned[A, E], error)
}

// Quarantine shows the items that are on record for failing, in all jobs of a context.
type Quarantine interface {
	// List returns them, the next one to be tried first.
	List(ctx context.Context) ([]Quarantined, error)
	// Retry lets the next tick take an item; its streak stays. It returns ErrNotQuarantined
	// where the item is not on record.
	Retry(ctx context.Context, item uuid.UUID, at time.Time) error
}

// ErrNotQuarantined says that an item is not on record for failing.
var ErrNotQuarantined = errors.New("the item is not in quarantine")

// Quarantined is one item on record.
type Quarantined struct {
	Job           Job
	Item          uuid.UUID
	Tenant        ids.TenantID
	Streak        int
	FirstFailedAt time.Time
	LastFailedAt  time.Time
	FirstError    string
	LastError     string
	NextAttempt   time.Time
}

// Ledger reads every aggregate's row beside its stream, both as of one moment, in the order
// of their ids.
type Ledger[A, E any] interface {
	// Entries yields all aggregates, or those with a row or an event changed at or after
	// since. It locks nothing and holds no snapshot for longer than a page. After an error
	// it yields no more.
	Entries(ctx context.Context, since time.Time) iter.Seq2[Entry[A, E], error]
}

// Entry is one aggregate as the database holds it.
type Entry[A, E any] struct {
	ID      uuid.UUID
	HasRow  bool
	Row     A     // restored from the row
	RowErr  error // why the row could not be restored
	Stream  []eventsourcing.Recorded[E]
	Damaged []error // events that are not what was recorded, or cannot be read
}
