package ports

import (
	"context"
	"time"
)

// Preview shows what the next Transition of a Due would do, and does nothing: it writes nothing, and
// keeps nobody from an item for longer than a moment.
type Preview[A, E any] interface {
	// Peek returns what a claim would find, in its order, and what the rule would make of it: also
	// of items that somebody holds, which a claim would pass over. Claim.Limit counts both.
	//
	// What only a write can tell, that the database refuses it, is not foreseen.
	Peek(ctx context.Context, claim Claim, rule Rule[A, E]) (Peeked[A, E], error)
	// Held returns what a claim of this range leaves out because it is held back, in its order, at
	// most Claim.Limit.
	Held(ctx context.Context, claim Claim) ([]HeldBack, error)
}

// Peeked is what a claim would find.
type Peeked[A, E any] struct {
	Items []Foreseen[A, E]
	Next  Cursor // where the next claim begins
	Full  bool   // more may be due behind it
}

// Foreseen is what would become of one item.
type Foreseen[A, E any] struct {
	Failure        // Err is set where the item would fail; Streak counts that failure, too
	Place   Cursor // in the job's order
	After   A
	Events  []E // none beside no error: it has happened already
	// Messages are what would be published. Their payloads are not for showing.
	Messages []Message
	// Locked says that somebody holds the item, or what has to be locked with it.
	Locked bool
	// Lockers are those whom a claim would have to wait for first (of several that share the item, one);
	// none where it was not found out.
	Lockers []Locker
	// InVain says that it was asked for them, and nothing was found out in time.
	InVain bool
}

// Locker is a session that holds what others want, as far as our role may see it.
type Locker struct {
	PID         int    // 0: a prepared transaction, Application its name
	User        string // the database's
	Application string
	Since       time.Time // when its transaction began; zero where we may not see it
	State       string    // active, idle in transaction, prepared; "" where we may not see it
	Statement   string    // the last one, without the values in it; "" where we may not see it
	// Hidden says that our role may not see since when and what it does (pg_read_all_stats).
	Hidden bool
}

// HeldBack is an item that is due and on record for failing, until its NextAttempt.
type HeldBack struct {
	Quarantined
	Place Cursor
}
