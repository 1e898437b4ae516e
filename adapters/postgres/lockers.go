package postgres

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pin-platform/pinworker/ports"
)

// Who holds a row, PostgreSQL keeps in the row itself: a row's lock is in no view. But whom a session
// waits for, it tells everybody (pg_blocking_pids). So one session waits for the row, for a moment,
// and another one asks. That needs no right beside those of the job, and cannot mistake one kind of lock
// for another; what other users' sessions do, and since when, is shown to pg_read_all_stats.

const (
	// askedAfter is for how many items at once it is asked who holds them.
	askedAfter = 20
	// waited is for how long one session waits for a row while another asks.
	waited = time.Second
)

// busy reports whether somebody else has rows of some tables locked, or could have: whoever locks a
// row holds a lock on its table, of a mode that only reading does not take.
func (db *DB) busy(ctx context.Context, schemaName string, tables []string) (busy bool, err error) {
	err = db.Pool.QueryRow(ctx, `
		SELECT EXISTS (
			SELECT FROM pg_locks AS l
			JOIN pg_class AS c ON c.oid = l.relation
			WHERE l.locktype = 'relation' AND l.granted AND l.mode <> 'AccessShareLock' AND l.pid IS DISTINCT FROM pg_backend_pid()
			  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
			  AND c.relnamespace = to_regnamespace($1) AND c.relname = ANY ($2::text[])
		)`, schemaName, tables).Scan(&busy)
	return busy, err
}

// errRolledBack ends a transaction that was only to look.
var errRolledBack = errors.New("it was only to look")

// rolledBack runs work in a transaction that leaves nothing behind.
func (db *DB) rolledBack(ctx context.Context, work func(tx pgx.Tx) error) (failed error) {
	err := db.transact(ctx, func(tx pgx.Tx) error {
		failed = work(tx)
		return errRolledBack
	})
	if !errors.Is(err, errRolledBack) {
		return err
	}
	return failed
}

// held is what waiting for an item, for a moment, has shown: that somebody holds it, and who, if
// nothing else is said.
type held struct {
	lockers []ports.Locker
	inVain  bool // it was not found out in time
	free    bool // by now
	settled bool // it is not what a claim looks for any more
}

// waitsFor has one session do what waits for a lock, and asks for whom it waits. What the session
// waited for, it lets go of at once.
func (db *DB) waitsFor(ctx context.Context, lock func(ctx context.Context, tx pgx.Tx) (found bool, err error)) (held, error) {
	waiter, stop := context.WithTimeout(ctx, waited)
	defer stop()
	waiting, ended := make(chan session, 1), make(chan struct{})
	found, failed := false, error(nil) // once it has ended
	go func() {
		defer close(ended)
		failed = db.rolledBack(waiter, func(tx pgx.Tx) error {
			s := session{conn: tx.Conn().PgConn()}
			err := tx.QueryRow(waiter, "SELECT pg_backend_pid()").Scan(&s.pid)
			if err == nil {
				waiting <- s
				found, err = lock(waiter, tx)
			}
			return err
		})
	}()
	var s session
	for {
		select {
		case <-ended:
			if waiter.Err() != nil && ctx.Err() == nil || lockNotAvailable(failed) {
				return held{inVain: true}, nil // database.lock_timeout may be the shorter one
			}
			return held{free: found, settled: !found}, failed
		case s = <-waiting:
		case <-time.After(time.Millisecond):
		}
		if s.pid == 0 {
			continue
		}
		lockers, err := db.ahead(ctx, s.pid)
		if err != nil || len(lockers) > 0 {
			if s.conn.CancelRequest(waiter) != nil { // the connection stays good
				stop()
			}
			<-ended
			return held{lockers: lockers}, err
		}
	}
}

// session is one that waits.
type session struct {
	conn *pgconn.PgConn
	pid  int32 // the server's own: a pooler tells its clients another one
}

// ahead returns whom a session waits for, at the end of the line: those who wait for nobody.
func (db *DB) ahead(ctx context.Context, pid int32) ([]ports.Locker, error) {
	rows, err := db.Pool.Query(ctx, `
		WITH RECURSIVE line (pid) AS (
			SELECT unnest(pg_blocking_pids($1))
			UNION
			SELECT unnest(pg_blocking_pids(line.pid)) FROM line WHERE line.pid <> 0
		)
		SELECT line.pid, coalesce(a.usename, x.owner, '?'), coalesce(a.application_name, x.gid, ''), coalesce(a.xact_start, x.prepared),
		       CASE WHEN x.gid IS NOT NULL THEN 'prepared' ELSE coalesce(a.state, '') END, coalesce(a.query, ''),
		       line.pid <> 0 AND NOT (pg_has_role('pg_read_all_stats', 'USAGE') OR coalesce(pg_has_role(a.usesysid, 'USAGE'), false))
		FROM line
		LEFT JOIN pg_stat_activity AS a ON a.pid = line.pid
		LEFT JOIN LATERAL ( -- which of the prepared ones: the one whose transaction is waited for
			SELECT p.gid, p.owner, p.prepared FROM pg_locks AS l JOIN pg_prepared_xacts AS p ON p.transaction = l.transactionid
			WHERE line.pid = 0 AND l.locktype = 'transactionid' AND NOT l.granted AND l.pid = $1
		) AS x ON true
		WHERE line.pid = 0 OR cardinality(pg_blocking_pids(line.pid)) = 0
		ORDER BY line.pid`, pid)
	if err != nil {
		return nil, fmt.Errorf("ask whom a session waits for: %w", err)
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (l ports.Locker, err error) {
		var since *time.Time
		err = r.Scan(&l.PID, &l.User, &l.Application, &since, &l.State, &l.Statement, &l.Hidden)
		if since != nil {
			l.Since = since.UTC()
		}
		if l.Statement = withoutLiterals(l.Statement); l.Hidden {
			l.State, l.Statement = "", ""
		}
		return l, err
	})
}

// literal is what may hold a value, as far as the text goes: comments, strings and numbers; and quoted names,
// lest a quote in one be taken for a string's. Comments in comments, and what $ quotes, it takes to the text's end.
var literal = regexp.MustCompile(`"(?:[^"]|"")*"?` +
	`|--[^\r\n]*|/\*[^*/]*\*/|/\*[\s\S]*` +
	`|\b[eE]'(?:[^'\\]|''|\\[\s\S])*'?|'(?:[^']|'')*'?` +
	`|\$(?:[\pL_][\pL\pN_]*)?\$[\s\S]*` +
	`|\b\d[\w.]*`)

// withoutLiterals is a statement's text less the values in it: they may be anybody's name.
func withoutLiterals(statement string) string {
	return literal.ReplaceAllStringFunc(statement, func(s string) string {
		if s[0] == '"' {
			return s
		}
		return "?"
	})
}
