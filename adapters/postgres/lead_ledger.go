package postgres

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pin-platform/pinworker/adapters/postgres/internal/crmdb"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/ports"
)

// LeadLedger reads leads beside their streams.
type LeadLedger struct{ db *DB }

var _ ports.LeadLedger = (*LeadLedger)(nil)

// NewLeadLedger returns the ledger of a database's leads.
func NewLeadLedger(db *DB) *LeadLedger { return &LeadLedger{db: db} }

type leadEntry = ports.Entry[crm.Lead, crm.Event]

// Entries implements ports.Ledger.
func (l *LeadLedger) Entries(ctx context.Context, since time.Time) iter.Seq2[leadEntry, error] {
	const pageSize = 1000
	from := pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	if !since.IsZero() {
		from = asTimestamptz(since)
	}
	return func(yield func(leadEntry, error) bool) {
		after := asUUID(uuid.Nil)
		for {
			page, err := l.page(ctx, crmdb.LeadPageParams{AfterID: after, Since: from, MaxItems: pageSize})
			if err != nil {
				yield(leadEntry{}, fmt.Errorf("read leads and their streams: %w", err))
				return
			}
			for _, entry := range page {
				if !yield(entry, nil) {
					return
				}
			}
			if len(page) < pageSize {
				return
			}
			after = asUUID(page[len(page)-1].ID)
		}
	}
}

// page reads rows and streams in one snapshot: what commits in between must not look like
// a difference.
func (l *LeadLedger) page(ctx context.Context, p crmdb.LeadPageParams) ([]leadEntry, error) {
	var entries []leadEntry
	err := l.db.snapshot(ctx, func(tx pgx.Tx) error {
		q := crmdb.New(tx)
		ids, err := q.LeadPage(ctx, p)
		if err != nil {
			return err
		}
		rows, err := q.LeadsByID(ctx, ids)
		if err != nil {
			return err
		}
		events, err := q.EventsOf(ctx, ids)
		if err != nil {
			return err
		}
		place := make(map[pgtype.UUID]int, len(ids))
		entries = make([]leadEntry, len(ids))
		for i, id := range ids {
			place[id] = i
			entries[i].ID = id.Bytes
		}
		for _, row := range rows {
			entry := &entries[place[row.ID]]
			entry.HasRow = true
			entry.Row, entry.RowErr = leadFromRow(row)
		}
		for _, event := range events {
			readEvent(&entries[place[event.StreamID]], event)
		}
		return nil
	})
	return entries, err
}

func readEvent(entry *leadEntry, row crmdb.CrmDomainEvent) {
	stored := journalled{
		stream:     row.StreamID.Bytes,
		streamType: row.StreamType,
		version:    int(row.Version),
		eventType:  row.EventType,
		data:       row.Data,
		occurredAt: row.OccurredAt.Time,
	}
	from := origin{ports.Actor(row.Actor), ports.RunID(row.CorrelationID.Bytes)}
	if err := stored.check(from, row.Digest); err != nil {
		entry.Damaged = append(entry.Damaged, err)
	}
	event, err := decodeLeadEvent(stored)
	if err != nil {
		entry.Damaged = append(entry.Damaged, err)
		return
	}
	entry.Stream = append(entry.Stream, eventsourcing.Recorded[crm.Event]{Version: int(row.Version), Event: event})
}
