package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"go.opentelemetry.io/otel/propagation"

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

// Compose wraps messages for the forwarder and returns what inserts them within a transaction,
// with one statement for each topic among them. It touches no database.
func (w *Writer) Compose(
	ctx context.Context, run ports.RunID, messages []ports.Message,
) (write func(context.Context, pgx.Tx) error, err error) {
	statements := &recorder{}
	inner, err := watermillsql.NewPublisher(
		statements, watermillsql.PublisherConfig{SchemaAdapter: schema{table: w.table}}, watermill.NopLogger{},
	)
	if err != nil {
		return nil, fmt.Errorf("write to the outbox: %w", err)
	}
	publisher := forwarder.NewPublisher(inner, forwarder.PublisherConfig{ForwarderTopic: forwarderTopic})
	for topic, batch := range w.byTopic(ctx, run, messages) {
		if err := publisher.Publish(topic, batch...); err != nil {
			return nil, fmt.Errorf("write to the outbox: %w", err)
		}
	}
	return statements.run, nil
}

// byTopic turns messages into Watermill's, keeping their order within a topic.
func (w *Writer) byTopic(ctx context.Context, run ports.RunID, messages []ports.Message) map[string][]*message.Message {
	trace := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, trace)
	topics := make(map[string][]*message.Message)
	for _, m := range messages {
		out := message.NewMessageWithContext(
			context.WithValue(ctx, envelopeKey{}, envelope{topic: m.Topic, key: m.Key, id: pgtype.UUID{Bytes: m.ID, Valid: true}}),
			m.ID.String(), m.Payload,
		)
		out.Metadata = message.Metadata{
			headerContentType:      "application/json",
			headerSpecVersion:      "1.0",
			headerID:               m.ID.String(),
			headerSource:           w.source,
			headerType:             m.Topic,
			headerSubject:          m.Subject.String(),
			headerTime:             m.OccurredAt.Format(time.RFC3339Nano),
			headerCorrelationID:    run.String(),
			headerTenantID:         m.Tenant.String(),
			headerAggregateType:    m.AggregateType,
			headerAggregateVersion: strconv.Itoa(m.AggregateVersion),
			headerContractVersion:  strconv.Itoa(m.ContractVersion),
			HeaderPartitionKey:     m.Key,
		}
		for name, value := range trace {
			out.Metadata[name] = value
		}
		topics[m.Topic] = append(topics[m.Topic], out)
	}
	return topics
}

// envelope is what a row needs beside Watermill's envelope. It travels in the message's
// context, which wrapping keeps; the rest of the message is inside the envelope by then.
type envelope struct {
	topic string
	key   string
	id    pgtype.UUID
}

type envelopeKey struct{}

// schema writes all messages of a call with one statement, one prepared form for any number.
type schema struct{ table Table }

// InsertQuery implements watermill-sql's SchemaAdapter.
func (s schema) InsertQuery(_ string, messages message.Messages) (watermillsql.Query, error) {
	n := len(messages)
	topics, shards, keys := make([]string, n), make([]int16, n), make([]string, n)
	ids, payloads := make([]pgtype.UUID, n), make([][]byte, n)
	for i, m := range messages {
		row, ok := m.Context().Value(envelopeKey{}).(envelope)
		if !ok {
			return watermillsql.Query{}, errors.New("a message came past Writer")
		}
		topics[i], shards[i], keys[i], ids[i], payloads[i] = row.topic, shardOf(row.key), row.key, row.id, m.Payload
	}
	return watermillsql.Query{
		Query: "INSERT INTO " + s.table.name() + " (topic, shard, key, uuid, payload) " +
			"SELECT * FROM unnest($1::text[], $2::smallint[], $3::text[], $4::uuid[], $5::bytea[])",
		Args: []any{topics, shards, keys, ids, payloads},
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

// SwallowedError says that a trigger or a policy kept messages out of the outbox: the database
// refuses them, and their unit must not be committed.
type SwallowedError struct{ Written, Taken int }

func (e SwallowedError) Error() string {
	return fmt.Sprintf("the outbox took %d of %d messages", e.Taken, e.Written)
}

// DataFault says that it is about the data, and not about the database.
func (SwallowedError) DataFault() bool { return true }

var errWriteOnly = errors.New("the outbox is only written to through watermill-sql")

// recorder stands for a database in front of watermill-sql's publisher. It keeps the publisher's
// statements, to be run in the unit's own transaction, with the unit's own context.
type recorder struct{ statements []watermillsql.Query }

func (r *recorder) run(ctx context.Context, tx pgx.Tx) error {
	for _, s := range r.statements {
		tag, err := tx.Exec(ctx, s.Query, s.Args...)
		if err != nil {
			return fmt.Errorf("write to the outbox: %w", err)
		}
		if topics, ok := s.Args[0].([]string); ok && tag.RowsAffected() < int64(len(topics)) {
			return SwallowedError{Written: len(topics), Taken: int(tag.RowsAffected())}
		}
	}
	return nil
}

// ExecContext is the one method that the publisher calls.
func (r *recorder) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	r.statements = append(r.statements, watermillsql.Query{Query: query, Args: args})
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
