package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Examination is what a database tells of its health, as far as our role may see.
type Examination struct {
	Version string    // the server's
	Now     time.Time // by the database's clock
	// Holders keep vacuum from cleaning up behind the outbox, the oldest first.
	Holders []Holder
	// SeesOthers says whether our role may see how old other users' transactions are (pg_read_all_stats).
	SeesOthers bool
	// Untuned are the queue tables that lack the autovacuum settings of their migration.
	Untuned []string
}

// Holder is something that holds an old snapshot.
type Holder struct {
	What string // transaction, prepared transaction, replication slot, standby (without a slot)
	Name string // pid, user and application; the prepared transaction's or the slot's name
	Age  time.Duration
	// Xmin is the transaction that a slot or a standby stands at, Behind how many have begun since; "" and 0 of
	// anything else. For how long it stands there, the database does not tell.
	Xmin   string
	Behind int
	// Left is whether nobody uses the slot now.
	Left bool
}

// Examine looks at one context's database.
func (db *DB) Examine(ctx context.Context, contextName string) (Examination, error) {
	var e Examination
	err := db.Pool.QueryRow(ctx, `SELECT current_setting('server_version'), clock_timestamp(),
		pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')`).Scan(&e.Version, &e.Now, &e.SeesOthers)
	if err != nil {
		return e, fmt.Errorf("examine the database: %w", err)
	}
	if e.Holders, err = db.Holders(ctx); err != nil {
		return e, err
	}
	rows, err := db.Pool.Query(ctx, `SELECT t.name FROM unnest($1::text[]) AS t (name)
		WHERE NOT EXISTS (
			SELECT FROM pg_class AS c WHERE c.oid = to_regclass(t.name) AND c.reloptions @> ARRAY['autovacuum_vacuum_scale_factor=0']
		)`, []string{contextName + ".outbox"})
	if err == nil {
		e.Untuned, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		return e, fmt.Errorf("examine the queue tables: %w", err)
	}
	return e, nil
}

// Holders returns what holds a snapshot in this database, the oldest first: transactions as far as our role may see
// them; prepared transactions; and first of all what holds it for a standby's queries (hot_standby_feedback): replication
// slots and, as far as we may see, standbys without one. A slot for logical replication holds back the catalog alone,
// and no queue.
func (db *DB) Holders(ctx context.Context) ([]Holder, error) {
	rows, err := db.Pool.Query(ctx, `
		SELECT what, name, extract(epoch FROM age)::double precision, coalesce(xmin::text, ''), coalesce(age(xmin), 0), left_alone FROM (
			SELECT 'transaction' AS what,
			       format('pid %s, user %s, application %s', pid, usename, coalesce(nullif(application_name, ''), '?')) AS name,
			       clock_timestamp() - xact_start AS age, NULL::xid AS xmin, false AS left_alone
			FROM pg_stat_activity
			WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND xact_start IS NOT NULL
			  AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND datname = current_database()
			UNION ALL
			SELECT 'prepared transaction', gid, clock_timestamp() - prepared, NULL, false FROM pg_prepared_xacts WHERE database = current_database()
			UNION ALL
			SELECT 'replication slot', slot_name, NULL, xmin, NOT active FROM pg_replication_slots WHERE xmin IS NOT NULL
			UNION ALL
			SELECT 'standby', format('pid %s, user %s, application %s', pid, usename, coalesce(nullif(application_name, ''), '?')), NULL, backend_xmin, false
			FROM pg_stat_activity WHERE backend_type = 'walsender' AND backend_xmin IS NOT NULL
		) AS held
		ORDER BY age DESC NULLS FIRST`)
	if err == nil {
		var holders []Holder
		holders, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (h Holder, err error) {
			var seconds *float64
			if err = r.Scan(&h.What, &h.Name, &seconds, &h.Xmin, &h.Behind, &h.Left); seconds != nil {
				h.Age = time.Duration(*seconds * float64(time.Second))
			}
			return h, err
		})
		if err == nil {
			return holders, nil
		}
	}
	return nil, fmt.Errorf("look for old snapshots: %w", err)
}
