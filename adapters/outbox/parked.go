package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Parked is a message that Kafka refuses for good.
type Parked struct {
	Topic     string
	Key       string
	Message   uuid.UUID // its ce_id
	CreatedAt time.Time
	ParkedAt  time.Time
	Error     string
	Attempts  int
	Size      int // bytes, in its envelope
}

// ErrNotParked says that no parked message has the id.
var ErrNotParked = errors.New("no message of this id is parked")

// ListParked returns what is parked, the oldest first.
func ListParked(ctx context.Context, pool *pgxpool.Pool, table Table) ([]Parked, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	rows, err := pool.Query(ctx, `SELECT topic, key, uuid, created_at, parked_at, error, attempts, length(payload)
		FROM `+table.parked()+` WHERE discarded_at IS NULL ORDER BY parked_at, place`)
	if err == nil {
		var list []Parked
		list, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (p Parked, err error) {
			err = r.Scan(&p.Topic, &p.Key, (*[16]byte)(&p.Message), &p.CreatedAt, &p.ParkedAt, &p.Error, &p.Attempts, &p.Size)
			p.CreatedAt, p.ParkedAt = p.CreatedAt.UTC(), p.ParkedAt.UTC()
			return p, err
		})
		if err == nil {
			return list, nil
		}
	}
	return nil, fmt.Errorf("list what is parked in %s: %w", table.Schema, err)
}

// Release puts a parked message back, behind what waits by now: the next round sends it again. It
// returns ErrNotParked.
func Release(ctx context.Context, pool *pgxpool.Pool, table Table, id uuid.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	tag, err := pool.Exec(ctx, `
		WITH released AS (
			DELETE FROM `+table.parked()+` WHERE uuid = $1 AND discarded_at IS NULL
			RETURNING topic, shard, key, uuid, created_at, payload, due_at
		)
		INSERT INTO `+table.name()+` (topic, shard, key, uuid, created_at, payload, due_at)
		SELECT topic, shard, key, uuid, created_at, payload, due_at FROM released`, [16]byte(id))
	return parkedOr(err, tag.RowsAffected(), "release", id)
}

// Discard decides that a parked message is not to be sent, and keeps it with the reason. It returns
// ErrNotParked.
func Discard(ctx context.Context, pool *pgxpool.Pool, table Table, id uuid.UUID, reason string) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	tag, err := pool.Exec(ctx, "UPDATE "+table.parked()+` SET discarded_at = now(), discard_reason = $2
		WHERE uuid = $1 AND discarded_at IS NULL`, [16]byte(id), reason)
	return parkedOr(err, tag.RowsAffected(), "discard", id)
}

func parkedOr(err error, found int64, act string, id uuid.UUID) error {
	switch {
	case err != nil:
		return fmt.Errorf("%s message %s: %w", act, id, err)
	case found == 0:
		return ErrNotParked
	}
	return nil
}

// Backlog is how much of a topic waits.
type Backlog struct {
	Topic   string
	Waiting int // at most BacklogCap are counted
	Parked  int
}

// BacklogCap is where counting what waits of a topic ends: more is a backlog all the same.
const BacklogCap = 10_000

// Other stands for all topics that are not the caller's: a newer version's, say, or a mistake. A metric's
// labels are a finite set.
const Other = "other"

// Depth tells how much waits, by topic and, where there are any, of others, and for how long the oldest
// message has, by the database's clock. It counts no more than BacklogCap a topic, and costs little on a long queue. A relay, where
// there is one, knows how far to pass over dead rows; what commits late below that is counted a minute later.
func Depth(
	ctx context.Context, pool *pgxpool.Pool, table Table, topics []string, relay *Relay,
) (backlogs []Backlog, oldest time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	found, err := strangers(ctx, lanes{pool, table}, topics, relay)
	if err != nil {
		return nil, 0, err
	}
	var ofTopic []string
	var shards []int16
	var behind []int64
	all := slices.Concat(topics, found)
	for _, topic := range all {
		for shard := range int16(Shards) {
			floor := int64(0)
			if relay != nil {
				floor = relay.floors.of(lane{topic, shard})
			}
			ofTopic, shards, behind = append(ofTopic, topic), append(shards, shard), append(behind, floor)
		}
	}
	rows, err := pool.Query(ctx, `
		WITH floor AS (SELECT * FROM unnest($3::text[], $4::smallint[], $5::bigint[]) AS floor (topic, shard, id))
		SELECT t.topic,
		       (SELECT count(*) FROM (
		           SELECT FROM floor CROSS JOIN LATERAL (
		               SELECT FROM `+table.name()+` AS o WHERE o.topic = floor.topic AND o.shard = floor.shard AND o.id > floor.id LIMIT $2
		           ) AS waiting WHERE floor.topic = t.topic LIMIT $2
		       ) AS capped),
		       (SELECT count(*) FROM `+table.parked()+` AS p WHERE p.topic = t.topic AND p.discarded_at IS NULL),
		       coalesce(extract(epoch FROM clock_timestamp() - (
		           SELECT min(head.created_at) FROM floor CROSS JOIN LATERAL (
		               SELECT o.created_at FROM `+table.name()+` AS o
		               WHERE o.topic = floor.topic AND o.shard = floor.shard AND o.id > floor.id ORDER BY o.id LIMIT 1
		           ) AS head WHERE floor.topic = t.topic
		       )), 0)::double precision
		FROM unnest($1::text[]) AS t (topic)`, pgx.QueryExecModeExec, all, BacklogCap, ofTopic, shards, behind)
	if err == nil {
		backlogs, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (b Backlog, err error) {
			var seconds float64
			err = r.Scan(&b.Topic, &b.Waiting, &b.Parked, &seconds)
			oldest = max(oldest, time.Duration(seconds*float64(time.Second)))
			return b, err
		})
	}
	if err != nil {
		return nil, 0, fmt.Errorf("measure outbox %s: %w", table.Schema, err)
	}
	if len(found) == 0 {
		return backlogs, oldest, nil
	}
	other := Backlog{Topic: Other}
	backlogs = slices.DeleteFunc(backlogs, func(b Backlog) bool {
		if slices.Contains(topics, b.Topic) {
			return false
		}
		other.Waiting, other.Parked = other.Waiting+b.Waiting, other.Parked+b.Parked
		return true
	})
	return append(backlogs, other), oldest, nil
}

// strangers returns the topics in an outbox that are not known: those that have messages parked, and those that a
// relay has seen or, where there is none, that have messages now.
func strangers(ctx context.Context, q lanes, known []string, relay *Relay) (topics []string, err error) {
	rows, err := q.pool.Query(ctx, "SELECT DISTINCT topic, shard FROM "+q.table.parked()+" WHERE discarded_at IS NULL")
	var seen []lane
	if err == nil {
		seen, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (l lane, err error) { return l, r.Scan(&l.topic, &l.shard) })
	}
	if err != nil {
		return nil, fmt.Errorf("look for topics of parked messages: %w", err)
	}
	if relay != nil {
		seen = append(seen, relay.floors.lanes()...)
	} else {
		heads, err := q.waiting(ctx, nil)
		if err != nil {
			return nil, err
		}
		for _, h := range heads {
			seen = append(seen, h.lane)
		}
	}
	for _, l := range seen {
		if !slices.Contains(known, l.topic) && !slices.Contains(topics, l.topic) {
			topics = append(topics, l.topic)
		}
	}
	return topics, nil
}
