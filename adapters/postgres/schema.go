package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pin-platform/pinworker/adapters/postgres/internal/journaldb"
	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/ports"
	"github.com/pin-platform/pinworker/sql/migrations"
)

// schema is one context's part of a database, as all its units of work see it: an event store, a
// quarantine and an outbox, which every context has alike, and a way to write its aggregates' rows.
type schema[E eventsourcing.Event] struct {
	db     *DB
	name   string
	outbox Outbox
	codec  codec[E]
	// save writes the rows of aggregates that changed: a statement a table, whatever their number.
	save func(ctx context.Context, w *writes, parts []changedPart[E])
}

// changedPart is an aggregate before and after its events; before is nil where it begins.
type changedPart[E any] struct{ before, after eventsourcing.Part[E] }

// change is what was decided on one item and is still to be written.
type change[A, E any] struct {
	item     ports.Failure // as it would be told if it failed
	before   A
	after    A
	events   []E          // decided
	journal  []journalled // to append: baselines where a stream lags behind its row, and events
	messages []ports.Message
}

// dbtx is what sqlc's packages ask for.
type dbtx interface {
	Exec(ctx context.Context, statement string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, statement string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, statement string, args ...any) pgx.Row
}

// inSchema lets the queries on the tables that all contexts have run in one context's schema.
type inSchema struct {
	db   dbtx
	name string
}

func (s inSchema) Exec(ctx context.Context, statement string, args ...any) (pgconn.CommandTag, error) {
	return s.db.Exec(ctx, s.rename(statement), args...)
}

func (s inSchema) Query(ctx context.Context, statement string, args ...any) (pgx.Rows, error) {
	return s.db.Query(ctx, s.rename(statement), args...)
}

func (s inSchema) QueryRow(ctx context.Context, statement string, args ...any) pgx.Row {
	return s.db.QueryRow(ctx, s.rename(statement), args...)
}

func (s inSchema) rename(statement string) string {
	return strings.ReplaceAll(statement, migrations.AnyContext, s.name+".")
}

// decide applies a rule to one item. The error is its data fault, or the rule's refusal.
func decide[A eventsourcing.State[A, E], E eventsourcing.Event](
	codec codec[E], before A, heads map[uuid.UUID]int, at time.Time, rule ports.Rule[A, E],
) (change[A, E], error) {
	c := change[A, E]{before: before, after: before}
	parts := before.Parts()
	for _, part := range parts {
		if head := heads[part.Stream()]; head > part.Version() {
			return c, StreamAheadError{Row: part.Version(), Stream: head}
		}
	}
	events, err := rule.Decide(before, at)
	if err != nil || len(events) == 0 {
		return c, err
	}
	c.after, c.events = eventsourcing.Fold(before, events...), events
	based := make(map[uuid.UUID]bool, len(parts))
	for _, recorded := range eventsourcing.Number(before, events...) {
		stream := recorded.Event.Stream()
		if !based[stream] {
			based[stream] = true
			i := slices.IndexFunc(parts, func(p eventsourcing.Part[E]) bool { return p.Stream() == stream })
			if i >= 0 && heads[stream] < parts[i].Version() {
				baseline, err := codec.encode(eventsourcing.Recorded[E]{Version: parts[i].Version(), Event: parts[i].Import(at)})
				if err != nil {
					return c, err
				}
				c.journal = append(c.journal, baseline)
			}
		}
		stored, err := codec.encode(recorded)
		if err != nil {
			return c, err
		}
		c.journal = append(c.journal, stored)
	}
	if rule.Announce != nil {
		c.messages, err = rule.Announce(c.after, events)
	}
	return c, err
}

// headsOf returns where some streams stand.
func headsOf(ctx context.Context, db dbtx, streams []pgtype.UUID) (map[uuid.UUID]int, error) {
	rows, err := journaldb.New(db).Heads(ctx, streams)
	if err != nil {
		return nil, fmt.Errorf("read the streams' heads: %w", err)
	}
	heads := make(map[uuid.UUID]int, len(rows))
	for _, row := range rows {
		heads[row.ID.Bytes] = int(row.Head)
	}
	return heads, nil
}

// write stores what was decided, in one trip: rows, events, messages, a statement each.
func write[A eventsourcing.State[A, E], E eventsourcing.Event](
	ctx context.Context, s *schema[E], tx pgx.Tx, changes []change[A, E], from origin,
) error {
	if len(changes) == 0 {
		return nil
	}
	var parts []changedPart[E]
	var events []journalled
	var messages []ports.Message
	for _, c := range changes {
		parts = append(parts, changedParts(c.before.Parts(), c.after.Parts())...)
		events = append(events, c.journal...)
		messages = append(messages, c.messages...)
	}
	var w writes
	s.save(ctx, &w, parts)
	w.add("append events", len(events), func(db dbtx) error {
		_, err := journaldb.New(inSchema{db, s.name}).AppendEvents(ctx, columnsOf(events, from))
		return err
	})
	if len(messages) > 0 {
		statement, args, err := s.outbox.Compose(ctx, from.run, messages)
		if err != nil {
			return err
		}
		w.add("write to the outbox", len(messages), func(db dbtx) error {
			_, err := db.Exec(ctx, statement, args...)
			return err
		})
	}
	return w.send(ctx, tx)
}

// changedParts returns those of a state's aggregates that its events changed.
func changedParts[E any](before, after []eventsourcing.Part[E]) []changedPart[E] {
	var changed []changedPart[E]
	for _, now := range after {
		i := slices.IndexFunc(before, func(was eventsourcing.Part[E]) bool {
			return was.Stream() == now.Stream() && was.Version() > 0
		})
		switch {
		case i < 0 && now.Version() > 0:
			changed = append(changed, changedPart[E]{after: now})
		case i >= 0 && before[i].Version() != now.Version():
			changed = append(changed, changedPart[E]{before[i], now})
		}
	}
	return changed
}

// in returns a transaction in which the queries on what all contexts have mean this context's.
func (s *schema[E]) in(tx pgx.Tx) dbtx { return inSchema{tx, s.name} }

func (s *schema[E]) journal(tx pgx.Tx) *journaldb.Queries { return journaldb.New(s.in(tx)) }
