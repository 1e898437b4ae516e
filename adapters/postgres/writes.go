package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pin-platform/pinworker/ports"
)

// writes gathers the statements of a unit of work, to be sent in one trip.
type writes struct {
	batch pgx.Batch
	wants []want
}

// want is what one statement is for, and how many rows it must change.
type want struct {
	act  string
	rows int
	into string // the table whose rows must be new; "": it makes none
}

// add gathers the one statement that run executes. Its answer comes with send.
func (w *writes) add(act string, rows int, run func(db dbtx) error) {
	w.gather(want{act: act, rows: rows}, run)
}

func (w *writes) gather(one want, run func(db dbtx) error) {
	if one.rows == 0 {
		return
	}
	if err := run(queue{&w.batch}); err != nil {
		panic(err) // a queue refuses nothing
	}
	w.wants = append(w.wants, one)
}

// insert adds the INSERT of rows that must be new.
func (w *writes) insert(table string, rows int, run func(db dbtx) error) {
	w.gather(want{act: "insert into " + table, rows: rows, into: table}, run)
}

// update adds an UPDATE from arrays.
func (w *writes) update(table string, rows int, run func(db dbtx) error) {
	w.add("update "+table, rows, run)
}

// send runs the statements and checks that each changed as many rows as it should: errFewerRows
// where a trigger or a policy kept it from one, ports.ErrConflict where a new row is there already.
func (w *writes) send(ctx context.Context, tx pgx.Tx) (err error) {
	results := tx.SendBatch(ctx, &w.batch)
	defer func() {
		if closed := results.Close(); err == nil {
			err = closed
		}
	}()
	for _, want := range w.wants {
		tag, err := results.Exec()
		switch {
		case want.into != "" && uniqueViolation(err, want.into): // elsewhere it is a data fault
			return ports.ErrConflict
		case err != nil:
			return fmt.Errorf("%s: %w", want.act, err)
		case tag.RowsAffected() < int64(want.rows):
			return fmt.Errorf("%s: %w", want.act, errFewerRows)
		}
	}
	return nil
}

// queue takes the statements of sqlc's queries into a batch.
type queue struct{ batch *pgx.Batch }

var errQueueOnly = errors.New("a queue takes statements without answers only")

func (q queue) Exec(_ context.Context, statement string, args ...any) (pgconn.CommandTag, error) {
	q.batch.Queue(statement, args...)
	return pgconn.CommandTag{}, nil
}

func (queue) Query(context.Context, string, ...any) (pgx.Rows, error) { return nil, errQueueOnly }

func (queue) QueryRow(context.Context, string, ...any) pgx.Row { panic(errQueueOnly) }
