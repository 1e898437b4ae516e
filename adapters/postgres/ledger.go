package postgres

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pin-platform/pinworker/adapters/postgres/internal/journaldb"
	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/ports"
)

// Ledger implements ports.Ledger: one kind of aggregate, its rows beside their streams.
type Ledger[A any, E eventsourcing.Event] struct {
	schema *schema[E]
	kind   string // of the streams
	page   func(ctx context.Context, db dbtx, from idPage) ([]pgtype.UUID, error)
	rows   func(ctx context.Context, db dbtx, ids []pgtype.UUID) ([]restored[A], error)
}

// idPage asks for the next ids of a table.
type idPage struct {
	AfterID  pgtype.UUID
	Since    pgtype.Timestamptz
	MaxItems int32
}

// restored is a row as the domain sees it.
type restored[A any] struct {
	id   pgtype.UUID
	item A
	err  error
}

// restoreAll turns rows into aggregates.
func restoreAll[R, A any](rows []R, id func(R) pgtype.UUID, restore func(R) (A, error)) []restored[A] {
	all := make([]restored[A], len(rows))
	for i, row := range rows {
		all[i].id = id(row)
		all[i].item, all[i].err = restore(row)
	}
	return all
}

// ledgerPage is how many aggregates are read at once.
const ledgerPage = 1000

// Entries implements ports.Ledger.
func (l *Ledger[A, E]) Entries(ctx context.Context, since time.Time) iter.Seq2[ports.Entry[A, E], error] {
	from := idPage{
		AfterID: asUUID(uuid.Nil), MaxItems: ledgerPage,
		Since: pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true},
	}
	if !since.IsZero() {
		from.Since = asTimestamptz(since)
	}
	return func(yield func(ports.Entry[A, E], error) bool) {
		for {
			page, err := l.entries(ctx, from)
			if err != nil {
				yield(ports.Entry[A, E]{}, fmt.Errorf("read rows and their streams: %w", err))
				return
			}
			for _, entry := range page {
				if !yield(entry, nil) {
					return
				}
			}
			if len(page) < ledgerPage {
				return
			}
			from.AfterID = asUUID(page[len(page)-1].ID)
		}
	}
}

// entries reads rows and streams in one snapshot: what commits in between must not look like
// a difference.
func (l *Ledger[A, E]) entries(ctx context.Context, from idPage) ([]ports.Entry[A, E], error) {
	var entries []ports.Entry[A, E]
	err := l.schema.db.snapshot(ctx, func(tx pgx.Tx) error {
		q := l.schema.journal(tx)
		ids, err := l.nextIDs(ctx, tx, q, from)
		if err != nil {
			return err
		}
		rows, err := l.rows(ctx, tx, ids)
		if err != nil {
			return err
		}
		events, err := q.EventsOf(ctx, ids)
		if err != nil {
			return err
		}
		place := make(map[pgtype.UUID]int, len(ids))
		entries = make([]ports.Entry[A, E], len(ids))
		for i, id := range ids {
			place[id] = i
			entries[i].ID = id.Bytes
		}
		for _, row := range rows {
			entry := &entries[place[row.id]]
			entry.HasRow, entry.Row, entry.RowErr = true, row.item, row.err
		}
		for _, event := range events {
			l.read(&entries[place[event.StreamID]], event)
		}
		return nil
	})
	return entries, err
}

// nextIDs are the next ids, of rows and of streams, after one id.
func (l *Ledger[A, E]) nextIDs(ctx context.Context, tx pgx.Tx, q *journaldb.Queries, from idPage) ([]pgtype.UUID, error) {
	ids, err := l.page(ctx, tx, from)
	if err != nil {
		return nil, err
	}
	streams, err := q.StreamPage(ctx, journaldb.StreamPageParams{
		AfterID: from.AfterID, StreamType: l.kind, Since: from.Since, MaxItems: from.MaxItems,
	})
	if err != nil {
		return nil, err
	}
	ids = append(ids, streams...)
	slices.SortFunc(ids, func(a, b pgtype.UUID) int { return bytes.Compare(a.Bytes[:], b.Bytes[:]) })
	ids = slices.Compact(ids)
	return ids[:min(len(ids), int(from.MaxItems))], nil
}

func (l *Ledger[A, E]) read(entry *ports.Entry[A, E], row journaldb.AnyContextDomainEvent) {
	stored, from := journalledOf(row)
	if err := stored.check(from, row.Digest); err != nil {
		entry.Damaged = append(entry.Damaged, err)
	}
	event, err := l.schema.codec.decode(stored)
	if err != nil {
		entry.Damaged = append(entry.Damaged, err)
		return
	}
	entry.Stream = append(entry.Stream, eventsourcing.Recorded[E]{Version: stored.version, Event: event})
}

func journalledOf(row journaldb.AnyContextDomainEvent) (journalled, origin) {
	return journalled{
		stream: row.StreamID.Bytes, streamType: row.StreamType, version: int(row.Version),
		eventType: row.EventType, data: row.Data, occurredAt: row.OccurredAt.Time,
	}, origin{ports.Actor(row.Actor), ports.RunID(row.CorrelationID.Bytes)}
}
