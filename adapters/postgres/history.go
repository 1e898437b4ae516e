package postgres

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pin-platform/pinworker/adapters/postgres/internal/journaldb"
	"github.com/pin-platform/pinworker/ports"
)

// History shows the streams of one context.
type History struct {
	db      *DB
	context string
}

var _ ports.History = (*History)(nil)

// NewHistory returns the history of a context.
func NewHistory(db *DB, contextName string) *History {
	return &History{db, contextName}
}

// Events implements ports.History.
func (h *History) Events(ctx context.Context, id uuid.UUID) ([]ports.Happened, error) {
	var rows []journaldb.AnyContextDomainEvent
	err := h.db.snapshot(ctx, func(tx pgx.Tx) (err error) {
		rows, err = journaldb.New(inSchema{tx, h.context}).EventsOf(ctx, []pgtype.UUID{asUUID(id)})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the events of %s: %w", id, err)
	}
	events := make([]ports.Happened, len(rows))
	for i, row := range rows {
		stored, from := journalledOf(row)
		events[i] = ports.Happened{
			Aggregate: stored.streamType, Version: stored.version, Event: stored.eventType, At: stored.occurredAt.UTC(),
			Actor: from.actor, Run: from.run, Data: stored.data, Altered: stored.check(from, row.Digest) != nil,
		}
	}
	return events, nil
}
