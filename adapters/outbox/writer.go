package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pin-platform/pinworker/ports"
)

// Writer puts a unit of work's messages into its context's outbox, within the unit's own
// transaction.
type Writer struct {
	table  Table
	source string
	wake   func()
}

// NewWriter returns the writer of a context's outbox. source is the CloudEvents source of
// its messages; wake is called once they are committed.
func NewWriter(table Table, source string, wake func()) *Writer {
	return &Writer{table: table, source: source, wake: wake}
}

// Committed wakes the relay.
func (w *Writer) Committed() { w.wake() }

// Compose wraps messages for the forwarder and returns the one statement that inserts them, a row
// each, to be run in the unit's own transaction. It touches no database.
func (w *Writer) Compose(ctx context.Context, run ports.RunID, messages []ports.Message) (statement string, args []any, err error) {
	recorded := &recorder{}
	publisher, err := watermillsql.NewPublisher( // it has nothing to log: its errors come back
		recorded, watermillsql.PublisherConfig{SchemaAdapter: schema{table: w.table}}, watermill.NopLogger{},
	)
	if err != nil {
		return "", nil, fmt.Errorf("write to the outbox: %w", err)
	}
	if err := publisher.Publish(forwarderTopic, w.wrap(ctx, run, messages)...); err != nil {
		return "", nil, fmt.Errorf("write to the outbox: %w", err)
	}
	return recorded.statement, recorded.args, nil
}

// wrap puts messages into the forwarder's envelopes.
func (w *Writer) wrap(ctx context.Context, run ports.RunID, messages []ports.Message) []*message.Message {
	traced := traceHeaders(ctx)
	wrapped := make([]*message.Message, len(messages))
	text := make([]byte, 0, len(messages)*envelopeSize)
	for i, m := range messages {
		begin := len(text)
		text = appendEnvelope(text, w.source, run, m, traced)
		wrapped[i] = message.NewMessageWithContext(
			context.WithValue(ctx, envelopeKey{}, envelope{
				topic: m.Topic, key: m.Key, id: pgtype.UUID{Bytes: m.ID, Valid: true},
				due: pgtype.Timestamptz{Time: m.DueAt, Valid: !m.DueAt.IsZero()},
			}),
			"", text[begin:len(text):len(text)],
		)
	}
	return wrapped
}

// envelope is what a row needs beside Watermill's envelope. It travels in the message's context.
type envelope struct {
	topic string
	key   string
	id    pgtype.UUID
	due   pgtype.Timestamptz
}

type envelopeKey struct{}

// schema writes all messages of a call with one statement, one prepared form for any number.
type schema struct{ table Table }

// InsertQuery implements watermill-sql's SchemaAdapter.
func (s schema) InsertQuery(_ string, messages message.Messages) (watermillsql.Query, error) {
	n := len(messages)
	topics, shards, keys := make([]string, n), make([]int16, n), make([]string, n)
	ids, due := make([]pgtype.UUID, n), make([]pgtype.Timestamptz, n)
	// The payloads go as one value, to be cut by the database: the driver would build an array of them
	// by growing it, and copies a megabyte many times.
	begins, sizes, payloads := make([]int32, n), make([]int32, n), make([]byte, 0, n*envelopeSize)
	for i, m := range messages {
		row, ok := m.Context().Value(envelopeKey{}).(envelope)
		if !ok {
			return watermillsql.Query{}, errors.New("a message came past Writer")
		}
		topics[i], shards[i], keys[i], ids[i], due[i] = row.topic, shardOf(row.key), row.key, row.id, row.due
		begins[i], sizes[i] = int32(len(payloads)+1), int32(len(m.Payload)) // a statement takes a gigabyte at most
		payloads = append(payloads, m.Payload...)
	}
	return watermillsql.Query{
		Query: "INSERT INTO " + s.table.name() + " (topic, shard, key, uuid, payload, due_at) " +
			"SELECT topic, shard, key, uuid, substring($8::bytea FROM begins FOR size), due_at " +
			"FROM unnest($1::text[], $2::smallint[], $3::text[], $4::uuid[], $5::timestamptz[], $6::integer[], $7::integer[]) " +
			"AS m (topic, shard, key, uuid, due_at, begins, size)",
		Args: []any{topics, shards, keys, ids, due, begins, sizes, payloads},
	}, nil
}

// The read side of the interface serves watermill-sql's subscriber, which we do not use.

// SelectQuery is never called.
func (schema) SelectQuery(string, string, watermillsql.OffsetsAdapter) watermillsql.Query {
	return watermillsql.Query{}
}

// UnmarshalMessage is never called.
func (schema) UnmarshalMessage(watermillsql.Scanner) (watermillsql.Row, error) {
	return watermillsql.Row{}, errWriteOnly
}

// SchemaInitializingQueries has nothing to add: the tables come from our migrations.
func (schema) SchemaInitializingQueries(string) []watermillsql.Query { return nil }

// SubscribeIsolationLevel is never called.
func (schema) SubscribeIsolationLevel() sql.IsolationLevel { return sql.LevelDefault }

var errWriteOnly = errors.New("the outbox is only written to through watermill-sql")

// recorder stands for a database in front of watermill-sql's publisher. It keeps the publisher's
// statement, to be run in the unit's own transaction, with the unit's own context.
type recorder struct {
	statement string
	args      []any
}

// ExecContext is the one method that the publisher calls.
func (r *recorder) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	r.statement, r.args = query, args
	return driver.RowsAffected(0), nil
}

// Exec is ExecContext.
func (r *recorder) Exec(query string, args ...any) (sql.Result, error) {
	return r.ExecContext(context.Background(), query, args...)
}

// QueryContext is never called.
func (*recorder) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	return nil, errWriteOnly
}

// Query is never called.
func (*recorder) Query(string, ...any) (*sql.Rows, error) { return nil, errWriteOnly }

// QueryRowContext is never called.
func (*recorder) QueryRowContext(context.Context, string, ...any) *sql.Row { return nil }

// QueryRow is never called.
func (*recorder) QueryRow(string, ...any) *sql.Row { return nil }
