package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pin-platform/pinworker/ports"
)

// Post tells what has become of messages, as far as a context's outbox knows.
type Post struct {
	Pool  *pgxpool.Pool
	Table Table
}

var _ ports.Post = Post{}

// Find implements ports.Post.
func (p Post) Find(ctx context.Context, messages []ports.Announced) (map[uuid.UUID]ports.Whereabouts, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var found map[uuid.UUID]ports.Whereabouts
	err := reading(ctx, p.Pool, func(tx pgx.Tx) (err error) {
		if found, err = p.parked(ctx, tx, messages); err != nil {
			return err
		}
		for _, m := range messages {
			where, err := p.waiting(ctx, tx, m)
			if err != nil {
				return err
			}
			if _, parked := found[m.ID]; where.State == ports.Waiting || where.State == ports.Beyond && !parked {
				found[m.ID] = where
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for messages in outbox %s: %w", p.Table.Schema, err)
	}
	return found, nil
}

func (p Post) parked(ctx context.Context, tx pgx.Tx, messages []ports.Announced) (map[uuid.UUID]ports.Whereabouts, error) {
	found := make(map[uuid.UUID]ports.Whereabouts)
	var ids [][16]byte
	for _, m := range messages {
		ids = append(ids, m.ID)
	}
	rows, err := tx.Query(ctx, `
		SELECT DISTINCT ON (uuid) uuid, parked_at, attempts, error, discarded_at, coalesce(discard_reason, '')
		FROM `+p.Table.parked()+` WHERE uuid = ANY ($1::uuid[])
		ORDER BY uuid, discarded_at DESC NULLS FIRST, parked_at DESC`, ids)
	if err != nil {
		return nil, err
	}
	var id [16]byte
	var parked, discarded *time.Time
	var w ports.Whereabouts
	_, err = pgx.ForEachRow(rows, []any{&id, &parked, &w.Attempts, &w.Error, &discarded, &w.Reason}, func() error {
		w.State, w.Since = ports.Parked, parked.UTC()
		if discarded != nil {
			w.State, w.Since = ports.Discarded, discarded.UTC()
		}
		found[id] = w
		return nil
	})
	return found, err
}

const (
	// skew is how far the database's clock may lag behind ours.
	skew = time.Minute
	// window is how many rows of a lane are looked at from when a message was written on: a cycle of 100,000
	// leads puts an eighth of as many messages into each.
	window = 20_000
)

// waiting looks for a message in its own lane. An index by id would cost every message that is written, and to
// read a whole lane of a long queue takes seconds; but ids grow with time, so that the place from which on the
// message may lie is found by halving. (What was released later lies out of order: so the place looked at is the
// youngest of a few.) The state is none where it does not wait.
func (p Post) waiting(ctx context.Context, tx pgx.Tx, m ports.Announced) (where ports.Whereabouts, err error) {
	var since *time.Time
	err = tx.QueryRow(ctx, `
		WITH RECURSIVE halving (low, high) AS (
			SELECT min(id), max(id) FROM `+p.Table.name()+` WHERE topic = $1 AND shard = $2
			UNION ALL
			SELECT CASE WHEN place.written < $4 THEN (low + high) / 2 + 1 ELSE low END,
			       CASE WHEN place.written < $4 THEN high ELSE (low + high) / 2 END
			FROM halving
			CROSS JOIN LATERAL (
				SELECT max(created_at) AS written FROM (
					SELECT o.created_at FROM `+p.Table.name()+` AS o
					WHERE o.topic = $1 AND o.shard = $2 AND o.id >= (low + high) / 2 ORDER BY o.id LIMIT 10
				) AS few
			) AS place
			WHERE low < high
		), looked AS (
			SELECT w.id, w.uuid, w.created_at FROM `+p.Table.name()+` AS w
			WHERE w.topic = $1 AND w.shard = $2 AND w.id >= (SELECT max(low) FROM halving) - 10
			ORDER BY w.id LIMIT $5
		)
		SELECT n.looked, o.created_at, (SELECT count(*) FROM (
			SELECT FROM `+p.Table.name()+` AS b WHERE b.topic = $1 AND b.shard = $2 AND b.id < o.id LIMIT $6
		) AS capped)
		FROM (SELECT count(*) AS looked FROM looked) AS n
		LEFT JOIN looked AS o ON o.uuid = $3 LIMIT 1`,
		m.Topic, shardOf(m.Key), [16]byte(m.ID), m.Written.Add(-skew), window, BacklogCap+1).Scan(&where.Looked, &since, &where.Ahead)
	switch {
	case err != nil:
		return where, err
	case since != nil:
		return ports.Whereabouts{State: ports.Waiting, Since: since.UTC(), Ahead: min(where.Ahead, BacklogCap), AheadMore: where.Ahead > BacklogCap}, nil
	case where.Looked == window:
		where.State = ports.Beyond
	}
	return where, nil
}
