package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// together runs some reads, each of one statement, in one trip. Each is called twice: once to learn
// its statement, once to read its answer. The statements run one after the other, each with a
// snapshot of its own.
func together(ctx context.Context, tx pgx.Tx, schemaName string, reads ...func(dbtx) error) (err error) {
	var learned learner
	for _, read := range reads {
		if err := read(inSchema{&learned, schemaName}); !errors.Is(err, errLearned) {
			return errors.Join(errors.New("a read that asks nothing"), err)
		}
	}
	results := tx.SendBatch(ctx, &learned.batch)
	defer func() {
		if closed := results.Close(); err == nil {
			err = closed
		}
	}()
	for _, read := range reads {
		if err := read(answers{results}); err != nil {
			return err
		}
	}
	return nil
}

var errLearned = errors.New("the statement is known by now")

// learner takes statements down and gives no answer.
type learner struct{ batch pgx.Batch }

func (l *learner) Query(_ context.Context, statement string, args ...any) (pgx.Rows, error) {
	l.batch.Queue(statement, args...)
	return nil, errLearned
}

func (l *learner) QueryRow(_ context.Context, statement string, args ...any) pgx.Row {
	l.batch.Queue(statement, args...)
	return noRow{}
}

func (*learner) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, errLearned
}

type noRow struct{}

func (noRow) Scan(...any) error { return errLearned }

// answers gives the answers to statements that were sent already, in their order.
type answers struct{ results pgx.BatchResults }

func (a answers) Query(context.Context, string, ...any) (pgx.Rows, error) { return a.results.Query() }

func (a answers) QueryRow(context.Context, string, ...any) pgx.Row { return a.results.QueryRow() }

func (a answers) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return a.results.Exec()
}
