package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/pin-platform/pinworker/adapters/postgres/internal/journaldb"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/ports"
)

// Quarantine shows what is on record for failing in one context.
type Quarantine struct {
	db      *DB
	context string
}

var _ ports.Quarantine = (*Quarantine)(nil)

// NewQuarantine returns the quarantine of a context.
func NewQuarantine(db *DB, contextName string) *Quarantine {
	return &Quarantine{db, contextName}
}

// List implements ports.Quarantine.
func (k *Quarantine) List(ctx context.Context) ([]ports.Quarantined, error) {
	var rows []journaldb.AnyContextQuarantine
	err := k.db.snapshot(ctx, func(tx pgx.Tx) (err error) {
		rows, err = k.queries(tx).ListQuarantine(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the quarantine: %w", err)
	}
	list := make([]ports.Quarantined, len(rows))
	for i, row := range rows {
		list[i] = ports.Quarantined{
			Job: ports.Job(row.Job), Item: row.Item.Bytes, Tenant: ids.TenantID(row.TenantID.Bytes), Streak: int(row.Failures),
			FirstFailedAt: row.FirstFailedAt.Time.UTC(), LastFailedAt: row.LastFailedAt.Time.UTC(),
			FirstError: row.FirstError, LastError: row.LastError, NextAttempt: row.NextAttempt.Time.UTC(),
		}
	}
	return list, nil
}

// Retry implements ports.Quarantine.
func (k *Quarantine) Retry(ctx context.Context, item uuid.UUID, at time.Time) error {
	var found int64
	err := k.db.transact(ctx, func(tx pgx.Tx) (err error) {
		found, err = k.queries(tx).RetryItem(ctx, journaldb.RetryItemParams{Item: asUUID(item), At: asTimestamptz(at)})
		return err
	})
	if err != nil {
		return fmt.Errorf("retry item %s: %w", item, err)
	}
	if found == 0 {
		return ports.ErrNotQuarantined
	}
	return nil
}

func (k *Quarantine) queries(tx pgx.Tx) *journaldb.Queries {
	return journaldb.New(inSchema{tx, k.context})
}
