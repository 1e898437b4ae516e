package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pin-platform/pinworker/adapters/postgres/internal/crmdb"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/ports"
)

// Hold implements ports.Due.
func (l *Leads) Hold(ctx context.Context, at time.Time, held []ports.Held) error {
	p := crmdb.HoldItemsParams{Job: leadExpiration, FailedAt: asTimestamptz(at)}
	for _, h := range held {
		p.Items = append(p.Items, asUUID(h.Item))
		p.TenantIds = append(p.TenantIds, pgtype.UUID{Bytes: h.Tenant, Valid: !h.Tenant.IsZero()})
		p.Failures = append(p.Failures, int32(h.Streak))
		p.Errors = append(p.Errors, h.Err.Error())
		p.NextAttempts = append(p.NextAttempts, asTimestamptz(h.NextAttempt))
	}
	err := l.db.transact(ctx, func(tx pgx.Tx) error { return crmdb.New(tx).HoldItems(ctx, p) })
	if err != nil {
		return fmt.Errorf("put failed leads on record: %w", err)
	}
	return nil
}

// List implements ports.Quarantine.
func (l *Leads) List(ctx context.Context) ([]ports.Quarantined, error) {
	rows, err := crmdb.New(l.db.Pool).ListQuarantine(ctx)
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
func (l *Leads) Retry(ctx context.Context, item uuid.UUID, at time.Time) error {
	found, err := crmdb.New(l.db.Pool).RetryItem(ctx, crmdb.RetryItemParams{Item: asUUID(item), At: asTimestamptz(at)})
	if err != nil {
		return fmt.Errorf("retry item %s: %w", item, err)
	}
	if found == 0 {
		return ports.ErrNotQuarantined
	}
	return nil
}
