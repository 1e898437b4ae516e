package ports

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/ids"
)

// Rows finds one context's aggregates by their id, sound or not.
type Rows interface {
	// Row returns an aggregate's row, whatever its kind; false where no table of the context has the id.
	Row(ctx context.Context, id uuid.UUID) (Row, bool, error)
}

// Row is what an aggregate's row says of it. What the database holds, it holds.
type Row struct {
	Aggregate string // its kind, as its stream calls it
	Tenant    ids.TenantID
	Status    string
	Version   int
	UpdatedAt time.Time
	Event     uuid.UUID // the calendar event that it belongs to; zero: none
	Err       error     // why the domain cannot make sense of it

	Job    Job    // that polls its kind; "": none does
	Polled bool   // whether it is in the one state that the job takes
	Place  Cursor // where it stands in the job's order; zero: it has no moment, and never comes due
}

// Post tells what has become of messages. The outbox knows of those that wait or are parked, Kafka
// of those that it has.
type Post interface {
	// Find returns what is known of messages, by their id; nothing of those that are not there.
	Find(ctx context.Context, messages []Announced) (map[uuid.UUID]Whereabouts, error)
}

// Announced is a message that an event was announced with, when it was committed.
type Announced struct {
	ID    uuid.UUID // its ce_id
	Topic string
	Key   string
	Event string    // the domain event's stored name
	At    time.Time // its ce_time
	// Written is no later than when it was committed, by our clock, and not much earlier.
	Written time.Time
}

// Whereabouts say where a message is.
type Whereabouts struct {
	State Station
	Since time.Time // it waits since; was parked at; was discarded at; its record's time in Kafka

	Ahead     int  // beside Waiting: of its lane, that go first
	AheadMore bool // there are more than that

	Attempts int    // beside Parked and Discarded
	Error    string // as above: what Kafka said
	Reason   string // beside Discarded

	Partition int32 // beside Published
	Offset    int64
	Looked    int // beside NotFound and Beyond: how many from its time on were looked at
}

// Station is where a message may be.
type Station string

// The stations.
const (
	Waiting   Station = "waiting"   // in the outbox, for the relay
	Beyond    Station = "beyond"    // not among those of its lane that were looked at, nor in Kafka: it may wait behind them
	Parked    Station = "parked"    // Kafka refused it for good
	Discarded Station = "discarded" // an operator decided that it is not to be sent
	Published Station = "published" // Kafka has it
	Expired   Station = "expired"   // Kafka does not have it any more: its retention took what was there at that time
	NotFound  Station = "not found" // it is not among the records that were looked at
	Unknown   Station = "unknown"   // it is not in the outbox, and Kafka was not asked or did not answer
)
