package ports

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// History shows what happened to one aggregate, whatever its kind.
type History interface {
	// Events returns an aggregate's domain events in order, none where the context does not know
	// the id.
	Events(ctx context.Context, id uuid.UUID) ([]Happened, error)
}

// Happened is one domain event as it is on record.
type Happened struct {
	Aggregate string // what kind of aggregate
	Version   int
	Event     string // its stored name
	At        time.Time
	Actor     Actor
	Run       RunID  // the cycle or the operation that wrote it
	Data      []byte // JSON
	Altered   bool   // it is not what was recorded
}
