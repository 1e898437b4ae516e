package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// The driver's errors are told apart here and nowhere else, by SQLSTATE, never by text.

// ErrReadOnly says that the database answers but cannot be written to.
var ErrReadOnly = errors.New("the database is read-only")

// errFewerRows says that an UPDATE met fewer rows than were decided on: a trigger or a
// policy kept it from one of them.
var errFewerRows = errors.New("the database changed fewer rows than were decided on")

// StreamAheadError says that an aggregate's stream is ahead of its row: the row lost what
// the stream recorded, and nothing can be decided on it.
type StreamAheadError struct{ Row, Stream int } // versions; 0: there is no row

func (e StreamAheadError) Error() string {
	return fmt.Sprintf("the stream is at version %d, ahead of the row at %d", e.Stream, e.Row)
}

// ColumnError says that a row holds what the domain has no value for.
type ColumnError struct {
	Column string
	Why    string
}

func (e ColumnError) Error() string { return e.Column + " " + e.Why }

// refused reports whether the database refused the data it was given: a data fault. A trigger may
// RAISE whatever code it likes, so every class that does not speak of the server, the connection
// or the program is one. Class 42 is the row's fault only where a policy (which has the code of a
// right that was not granted) or a RAISE said it: the routine tells, which no locale translates.
func refused(err error) bool {
	var pg *pgconn.PgError
	switch {
	case !errors.As(err, &pg) || len(pg.Code) != 5:
		return errors.Is(err, errFewerRows)
	case pg.Code[:2] == "42":
		return pg.Routine == ofPolicy || pg.Routine == ofRaise
	}
	return !slices.Contains(infrastructure, pg.Code[:2])
}

// infrastructure are the SQLSTATE classes that tell of no row: connection, feature, transaction,
// statement, authorisation, rollback, resources, limits, object state, operator, system, internal.
var infrastructure = []string{"08", "0A", "25", "26", "28", "2D", "34", "3B", "3D", "3F", "40", "53", "54", "55", "57", "58", "F0", "XX"}

// PostgreSQL's own names of who raised an error.
const (
	ofPolicy = "ExecWithCheckOptions"
	ofRaise  = "exec_stmt_raise"
)

// connectionLost reports whether the connection is of no use any more: it broke, the server ends
// or takes nobody, or it is read-only (25006).
func connectionLost(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code == "25006" || strings.HasPrefix(pg.Code, "08") || strings.HasPrefix(pg.Code, "57P")
	}
	var network net.Error
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) ||
		errors.As(err, &network) && !errors.Is(err, context.Canceled)
}

// lockNotAvailable reports whether a row was held, and not waited for.
func lockNotAvailable(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "55P03"
}

// withoutValues returns err with what the database said of refused data replaced by what it
// said it about: its messages may quote a row's values, and logs and the quarantine carry ids
// only.
func withoutValues(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || !refused(err) && pg.Routine != ofRaise {
		return err
	}
	about := []string{"SQLSTATE " + pg.Code}
	for _, named := range [][2]string{{"constraint", pg.ConstraintName}, {"column", pg.ColumnName}, {"table", pg.TableName}} {
		if named[1] != "" {
			about = append(about, named[0]+" "+named[1])
		}
	}
	return redactedError{err: err, text: strings.ReplaceAll(err.Error(), pg.Error(), "refused by the database: "+strings.Join(about, ", "))}
}

type redactedError struct {
	err  error
	text string
}

func (e redactedError) Error() string { return e.text }
func (e redactedError) Unwrap() error { return e.err }

// lostRace reports whether someone else wrote the next event of the stream first: the
// optimistic lock of last resort.
func lostRace(err error) bool { return uniqueViolation(err, "domain_events") }

func uniqueViolation(err error, table string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23505" && pg.TableName == table
}
