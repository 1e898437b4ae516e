package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The statements stand here and not in sql/queries. sqlc would take most of them, for any_context, but
// refuses two as they are (an unnest of several arrays, and the move to outbox_parked), and what it
// generates for any_context must be renamed on its way to the database: adapters/postgres does that, and
// adapters do not know each other. What sqlc would check, the tests of the relay do: they run each of
// these on PostgreSQL.

type lane struct {
	topic string
	shard int16
}

func (l lane) String() string { return fmt.Sprintf("%s/%d", l.topic, l.shard) }

// row is a message as it waits.
type row struct {
	id      int64
	key     string
	uuid    [16]byte
	payload []byte // Watermill's envelope
}

// lanes reads and empties an outbox.
type lanes struct {
	pool  *pgxpool.Pool
	table Table
}

// waiting returns the first message of each lane that has any, behind floors or, where there are none, of
// all there is: a jump over the primary key from one lane to the next, whatever the number of messages. It
// is planned each time: a plan from when the outbox was empty would read all of it for each lane.
func (q lanes) waiting(ctx context.Context, floors map[lane]int64) ([]head, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	statement, args := `
		WITH RECURSIVE lane AS (
			(SELECT topic, shard, id FROM `+q.table.name()+` ORDER BY topic, shard, id LIMIT 1)
			UNION ALL
			SELECT next.topic, next.shard, next.id
			FROM lane CROSS JOIN LATERAL (
				SELECT topic, shard, id FROM `+q.table.name()+` AS o
				WHERE (o.topic, o.shard) > (lane.topic, lane.shard)
				ORDER BY topic, shard, id LIMIT 1
			) AS next
		)
		SELECT topic, shard, id FROM lane`, []any{pgx.QueryExecModeExec}
	if floors != nil {
		var topics []string
		var shards []int16
		var behind []int64
		for l, id := range floors {
			topics, shards, behind = append(topics, l.topic), append(shards, l.shard), append(behind, id)
		}
		statement, args = `
			SELECT lane.topic, lane.shard, lane.id
			FROM unnest($1::text[], $2::smallint[], $3::bigint[]) AS floor (topic, shard, id) CROSS JOIN LATERAL (
				SELECT topic, shard, id FROM `+q.table.name()+` AS o
				WHERE o.topic = floor.topic AND o.shard = floor.shard AND o.id > floor.id
				ORDER BY topic, shard, id LIMIT 1
			) AS lane`, append(args, topics, shards, behind)
	}
	rows, err := q.pool.Query(ctx, statement, args...)
	if err == nil {
		var found []head
		found, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (h head, err error) {
			return h, r.Scan(&h.topic, &h.shard, &h.id)
		})
		if err == nil {
			return found, nil
		}
	}
	return nil, fmt.Errorf("look for waiting messages: %w", err)
}

// statementTimeout bounds every statement of a relay, here and in the database.
const statementTimeout = 30 * time.Second

// beginRound is sent whole: a pooler in transaction mode keeps no session. A round is idle while
// it waits for Kafka, and the server's own patience with that may be short. A lane is read by its
// index: plans outlive an outbox that was empty when they were made.
var beginRound = fmt.Sprintf("begin isolation level read committed; set local statement_timeout = %d; "+
	"set local lock_timeout = %d; set local idle_in_transaction_session_timeout = %d; set local enable_seqscan = off",
	statementTimeout.Milliseconds(), lockTimeout.Milliseconds(), roundTimeout.Milliseconds())

// lockTimeout is for how long a statement waits for who changes its table: well below the time that it has.
const lockTimeout = 5 * time.Second

// roundTimeout is how long a round is idle at most, and a little more: after that the database frees the lane
// of a host that has vanished.
const roundTimeout = sendFor + ackDeadline + statementTimeout

func (q lanes) begin(ctx context.Context) (pgx.Tx, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	tx, err := q.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginRound})
	if err != nil {
		return nil, fmt.Errorf("begin a round: %w", err)
	}
	return tx, nil
}

// end commits a round, which gives the lane up: also where it failed, because what it deleted was
// acked.
func (q lanes) end(ctx context.Context, tx pgx.Tx) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	err := tx.Commit(ctx)
	switch {
	case errors.Is(err, pgx.ErrTxCommitRollback): // a statement failed before, and told it
		return nil
	case err != nil:
		return errors.Join(fmt.Errorf("end a round: %w", err), ignoreClosed(tx.Rollback(ctx)))
	}
	return nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, pgx.ErrTxClosed) {
		return nil
	}
	return err
}

// errReadOnly says that the database answers and cannot be written to.
var errReadOnly = errors.New("the database is read-only")

// lock takes a lane until the transaction ends, or answers that another relay has it. It
// writes nothing, and leaves no snapshot open while Kafka is waited for. A database that is read-only is an
// error: what is sent from it could not be deleted, and would be sent again and again. All transactions that are
// older than xmin have ended.
func (q lanes) lock(ctx context.Context, tx pgx.Tx, l lane) (locked bool, xmin int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var readOnly bool
	err = tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock(hashtext($1), hashtext($2)), current_setting('transaction_read_only')::boolean,
		pg_snapshot_xmin(pg_current_snapshot())::text::bigint`, q.table.name(), l.String()).Scan(&locked, &readOnly, &xmin)
	if err == nil && readOnly {
		q.pool.Reset() // after a failover the next connection may lead to the new primary
		err = errReadOnly
	}
	if err != nil {
		return false, 0, fmt.Errorf("lock lane %s: %w", l, err)
	}
	return locked, xmin, nil
}

// pageBytes is where a page of large messages ends, before it has all that it may.
const pageBytes = 2 << 20

// read returns a lane's messages behind an id, in order, without those of some keys.
func (q lanes) read(ctx context.Context, tx pgx.Tx, l lane, after int64, without []string, limit int) ([]row, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	rows, err := tx.Query(ctx, `
		SELECT id, key, uuid, payload FROM (
			SELECT id, key, uuid, payload, sum(octet_length(payload)) OVER (ORDER BY id) - octet_length(payload) AS before
			FROM (
				SELECT id, key, uuid, payload FROM `+q.table.name()+`
				WHERE topic = $1 AND shard = $2 AND id > $3 AND key <> ALL ($4)
				ORDER BY id LIMIT $5
			) AS page
		) AS measured
		WHERE before < $6 ORDER BY id`, l.topic, l.shard, after, without, limit, pageBytes)
	if err == nil {
		var found []row
		found, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (w row, err error) {
			return w, r.Scan(&w.id, &w.key, &w.uuid, &w.payload)
		})
		if err == nil {
			return found, nil
		}
	}
	return nil, fmt.Errorf("read lane %s: %w", l, err)
}

// remove deletes what was acked, and returns for how long each had been due, by the database's clock,
// where it had come due at all, and the id of the transaction.
func (q lanes) remove(ctx context.Context, tx pgx.Tx, l lane, ids []int64) (lags []time.Duration, xid int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	// The bounds: the planner may take all of the lane for less than so many ids, and pass over its dead rows.
	rows, err := tx.Query(ctx, "DELETE FROM "+q.table.name()+` WHERE topic = $1 AND shard = $2 AND id = ANY ($3) AND id BETWEEN $4 AND $5
		RETURNING extract(epoch FROM clock_timestamp() - due_at)::double precision, pg_current_xact_id()::text::bigint`,
		l.topic, l.shard, ids, slices.Min(ids), slices.Max(ids))
	if err == nil {
		var seconds []*float64
		seconds, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (s *float64, err error) { return s, r.Scan(&s, &xid) })
		for _, s := range seconds {
			if s != nil {
				lags = append(lags, time.Duration(*s*float64(time.Second)))
			}
		}
	}
	if err != nil {
		return nil, 0, fmt.Errorf("remove acked messages from lane %s: %w", l, err)
	}
	return lags, xid, nil
}

// park takes a message that Kafka refuses for good out of its key's way.
func (q lanes) park(ctx context.Context, tx pgx.Tx, l lane, id int64, why error) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	err := pgx.BeginFunc(ctx, tx, func(own pgx.Tx) error { // what fails takes nothing else with it
		_, err := own.Exec(ctx, `
		WITH refused AS (
			DELETE FROM `+q.table.name()+` WHERE topic = $1 AND shard = $2 AND id = $3
			RETURNING topic, shard, id, key, uuid, created_at, payload, due_at
		)
		INSERT INTO `+q.table.parked()+` (topic, shard, id, key, uuid, created_at, payload, due_at, error, attempts, parked_at)
		SELECT topic, shard, id, key, uuid, created_at, payload, due_at, $4, $5, now() FROM refused`,
			l.topic, l.shard, id, text(why), attempts(why))
		return err
	})
	if err != nil {
		return fmt.Errorf("park message %d of lane %s: %w", id, l, err)
	}
	return nil
}

// text is what an error says, as PostgreSQL takes it: an envelope of somebody else's may be quoted in it.
func text(err error) string {
	return strings.ToValidUTF8(strings.ReplaceAll(err.Error(), "\x00", ""), "?")
}

// attempts is how often a message was sent, as its refusal tells. One that tells nothing of it did not
// come as far as Kafka's client, and was tried once.
func attempts(refusal error) int {
	var counted interface{ Attempts() int }
	if errors.As(refusal, &counted) {
		return counted.Attempts()
	}
	return 1
}

// Lag is how far behind an outbox is.
type Lag struct {
	Unpublished int
	Oldest      time.Time // when the oldest of them was written; zero where there is none
	Parked      int
}

// Measure counts what waits in an outbox. The oldest is sought at the heads of its lanes: to read them whole takes
// seconds where a million wait.
func Measure(ctx context.Context, pool *pgxpool.Pool, table Table) (Lag, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var lag Lag
	var oldest *time.Time
	err := reading(ctx, pool, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `
			WITH RECURSIVE lanes AS (
				(SELECT topic, shard, created_at FROM `+table.name()+` ORDER BY topic, shard, id LIMIT 1)
				UNION ALL
				SELECT head.* FROM lanes CROSS JOIN LATERAL (
					SELECT o.topic, o.shard, o.created_at FROM `+table.name()+` AS o
					WHERE (o.topic, o.shard) > (lanes.topic, lanes.shard) ORDER BY o.topic, o.shard, o.id LIMIT 1
				) AS head
			)
			SELECT (SELECT count(*) FROM `+table.name()+`), (SELECT min(created_at) FROM lanes),
			       (SELECT count(*) FROM `+table.parked()+` WHERE discarded_at IS NULL)`).Scan(&lag.Unpublished, &oldest, &lag.Parked)
	})
	if err != nil {
		return Lag{}, fmt.Errorf("measure outbox %s: %w", table.Schema, err)
	}
	if oldest != nil {
		lag.Oldest = oldest.UTC()
	}
	return lag, nil
}

// reading runs work that only reads, all of it as of one moment. A plan that is compiled first (jit) takes longer than all of it.
func reading(ctx context.Context, pool *pgxpool.Pool, work func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{BeginQuery: "begin isolation level repeatable read read only; set local jit = off"}, work)
}
