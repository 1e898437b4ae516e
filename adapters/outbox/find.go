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

// Find implements ports.Post. A message is looked for in its own lane, as the relay reads it: an
// index by id would cost every message that is written.
func (p Post) Find(ctx context.Context, messages []ports.Announced) (map[uuid.UUID]ports.Whereabouts, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	found := make(map[uuid.UUID]ports.Whereabouts)
	var topics []string
	var shards []int16
	var ids [][16]byte
	for _, m := range messages {
		topics, shards, ids = append(topics, m.Topic), append(shards, shardOf(m.Key)), append(ids, m.ID)
	}
	rows, err := p.Pool.Query(ctx, `
		SELECT DISTINCT ON (uuid) uuid, parked_at, attempts, error, discarded_at, coalesce(discard_reason, '')
		FROM `+p.Table.parked()+` WHERE uuid = ANY ($1::uuid[])
		ORDER BY uuid, discarded_at DESC NULLS FIRST, parked_at DESC`, ids)
	if err == nil {
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
	}
	if err != nil {
		return nil, fmt.Errorf("look among what is parked in %s: %w", p.Table.Schema, err)
	}
	rows, err = p.Pool.Query(ctx, `
		SELECT m.uuid, o.created_at,
		       (SELECT count(*) FROM (
		           SELECT FROM `+p.Table.name()+` AS b WHERE b.topic = m.topic AND b.shard = m.shard AND b.id < o.id LIMIT $4
		       ) AS capped)
		FROM unnest($1::text[], $2::smallint[], $3::uuid[]) AS m (topic, shard, uuid)
		CROSS JOIN LATERAL (
		    SELECT w.id, w.created_at FROM `+p.Table.name()+` AS w
		    WHERE w.topic = m.topic AND w.shard = m.shard AND w.uuid = m.uuid ORDER BY w.id LIMIT 1
		) AS o`, topics, shards, ids, BacklogCap+1)
	if err == nil {
		var id [16]byte
		var since time.Time
		var ahead int
		_, err = pgx.ForEachRow(rows, []any{&id, &since, &ahead}, func() error {
			found[id] = ports.Whereabouts{State: ports.Waiting, Since: since.UTC(), Ahead: min(ahead, BacklogCap), AheadMore: ahead > BacklogCap}
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("look among what waits in outbox %s: %w", p.Table.Schema, err)
	}
	return found, nil
}
