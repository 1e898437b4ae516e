// Package postgres keeps aggregates in PostgreSQL. An aggregate's table row is the inline
// snapshot of its stream in <schema>.domain_events; a unit of work writes rows, events and
// outbox messages in one transaction, with a handful of statements whatever its size.
package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pin-platform/pinworker/ports"
)

// Outbox takes a unit's messages into the unit's own transaction.
type Outbox interface {
	// Compose returns the one statement that writes messages, a row each. It touches no database.
	Compose(ctx context.Context, run ports.RunID, messages []ports.Message) (statement string, args []any, err error)
	// Committed says that messages written before are there to be read now.
	Committed()
}

// Config says how to reach a database and how long a statement may take.
type Config struct {
	URL              string
	MaxConnections   int
	StatementTimeout time.Duration
	// LockTimeout is how long an operation waits for a row. Jobs pass over what is held, but for
	// appointment-timeout: it waits so long, an item, for the reminders of an event that it holds.
	LockTimeout     time.Duration
	ApplicationName string // tells operators whose connection it is
}

// DB is a pool of connections to one context's database.
type DB struct {
	Pool     *pgxpool.Pool
	timeouts string        // set with each transaction
	patience time.Duration // how long a whole unit of work may take; 0: for ever
}

// Open prepares a pool; it does not connect yet, so that a worker may start before its
// database. The error says what is wrong with the URL, and not its password.
func Open(config Config) (*DB, error) {
	c, err := pgxpool.ParseConfig(config.URL)
	if err != nil {
		return nil, fmt.Errorf("read the database's URL: %w", err)
	}
	c.MaxConns = int32(config.MaxConnections)
	c.MaxConnLifetime = 30 * time.Minute // a failed-over server is left behind in time
	// A worker that has nothing to do asks little: a connection is not tried out each time that it
	// was idle for a second. One that died is found out by the first statement, and units that had
	// not begun are tried again.
	c.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration > time.Minute }
	if _, named := c.ConnConfig.RuntimeParams["application_name"]; !named { // the URL may name it
		c.ConnConfig.RuntimeParams["application_name"] = config.ApplicationName
	}
	c.ConnConfig.RuntimeParams["timezone"] = "UTC"
	pool, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		return nil, fmt.Errorf("prepare the connection pool: %w", err)
	}
	return &DB{Pool: pool, patience: 3 * config.StatementTimeout, timeouts: fmt.Sprintf(
		// Set with the transaction, in one round trip: a pooler in transaction mode keeps no
		// session, and refuses timeouts as startup parameters. A unit of one item takes a third
		// longer where its statements are planned anew; they are written to be planned once, by
		// their indexes. A plan that was made while a table was empty would read it whole ever after.
		"; set local statement_timeout = %d; set local lock_timeout = %d"+
			"; set local plan_cache_mode = force_generic_plan; set local enable_seqscan = off; set local jit = off",
		config.StatementTimeout.Milliseconds(), config.LockTimeout.Milliseconds(),
	)}, nil
}

// Close returns once all connections are given back.
func (db *DB) Close() { db.Pool.Close() }

// transact runs work in a READ COMMITTED transaction. What work returns decides: nil commits.
func (db *DB) transact(ctx context.Context, work func(tx pgx.Tx) error) error {
	return db.within(ctx, "begin", work)
}

// snapshot runs work that only reads, all of it as of one moment.
func (db *DB) snapshot(ctx context.Context, work func(tx pgx.Tx) error) error {
	return db.within(ctx, "begin isolation level repeatable read read only", work)
}

// within runs work in a transaction that begin opens.
//
// A server that has fallen silent keeps no timeouts, so the unit has a deadline here as well.
// Where a connection is lost, or is to a server that is only a standby by now, the others of
// the pool are too, and are given up.
func (db *DB) within(ctx context.Context, begin string, work func(tx pgx.Tx) error) error {
	if db.patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, db.patience)
		defer cancel()
	}
	err := pgx.BeginTxFunc(ctx, db.Pool, pgx.TxOptions{BeginQuery: begin + db.timeouts}, work)
	if connectionLost(err) {
		db.Pool.Reset()
	}
	return err
}

// Writable returns nil where the database can be reached and written to. A standby, or a
// primary that was demoted, answers but is of no use.
func (db *DB) Writable(ctx context.Context) error {
	var readOnly bool
	err := db.Pool.QueryRow(ctx,
		"SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean").Scan(&readOnly)
	if err != nil {
		return fmt.Errorf("reach the database: %w", err)
	}
	if readOnly {
		db.Pool.Reset() // after a failover the next connection may lead to the new primary
		return ErrReadOnly
	}
	return nil
}
