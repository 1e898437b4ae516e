package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pin-platform/pinworker/adapters/postgres/internal/crmdb"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/ports"
)

// CRM is the crm context's part of a database.
type CRM struct {
	Due     ports.DueLeads
	Preview ports.LeadPreview
	Leads   ports.Leads
	Ledger  ports.LeadLedger
}

// NewCRM returns the crm context in a database, its messages going to outbox.
func NewCRM(db *DB, outbox Outbox) CRM {
	s := &schema[crm.Event]{db: db, name: "crm", outbox: outbox, save: saveLeads, codec: leadCodec}
	due := &Due[crm.Lead, crm.Event]{s, polledLeads}
	return CRM{
		Due: due, Preview: due,
		Leads: &Store[crm.LeadID, crm.Lead, crm.Event]{s, lockLead},
		Ledger: &Ledger[crm.Lead, crm.Event]{
			schema: s, kind: "Lead",
			page: func(ctx context.Context, db dbtx, from idPage) ([]pgtype.UUID, error) {
				return crmdb.New(db).LeadPage(ctx, crmdb.LeadPageParams(from))
			},
			rows: func(ctx context.Context, db dbtx, ids []pgtype.UUID) ([]restored[crm.Lead], error) {
				rows, err := crmdb.New(db).LeadsByID(ctx, ids)
				return restoreAll(rows, func(r crmdb.CrmLead) pgtype.UUID { return r.ID }, leadFromRow), err
			},
		},
	}
}

var leadCodec = newCodec(func(crm.Event) string { return "Lead" }, map[string]crm.Event{
	"LeadRegistered": crm.LeadRegistered{},
	"LeadExtended":   crm.LeadExtended{},
	"LeadExpired":    crm.LeadExpired{},
	"LeadArchived":   crm.LeadArchived{},
	"LeadImported":   crm.LeadImported{},
})

// polledLeads is the table of lead-expiration.
var polledLeads = polled[crm.Lead]{
	job: ports.LeadExpiration,
	claim: func(ctx context.Context, db dbtx, p page) ([]claimed[crm.Lead], func(context.Context, dbtx) error, error) {
		rows, err := crmdb.New(db).ClaimDueLeads(ctx, crmdb.ClaimDueLeadsParams(p))
		items := make([]claimed[crm.Lead], len(rows))
		for i, r := range rows {
			items[i] = claimed[crm.Lead]{id: r.CrmLead.ID, tenant: r.CrmLead.TenantID, due: r.CrmLead.ExpiresAt, failures: r.Failures}
			items[i].item, items[i].err = leadFromRow(r.CrmLead)
		}
		return items, nil, err
	},
	count: func(ctx context.Context, db dbtx, s span) (int64, error) {
		return crmdb.New(db).CountDueLeads(ctx, crmdb.CountDueLeadsParams(s))
	},
	held: func(ctx context.Context, db dbtx, p page) ([]heldRow, error) {
		rows, err := crmdb.New(db).HeldLeads(ctx, crmdb.HeldLeadsParams(p))
		return each(rows, func(r crmdb.HeldLeadsRow) heldRow { return heldRow(r) }), err
	},
	tables: []string{"leads"},
	release: func(ctx context.Context, db dbtx, asOf pgtype.Timestamptz) error {
		return crmdb.New(db).ReleaseSettledLeads(ctx, asOf)
	},
	backlog: func(ctx context.Context, db dbtx, h horizon) (waiting, error) {
		row, err := crmdb.New(db).LeadBacklog(ctx, crmdb.LeadBacklogParams(h))
		return waiting(row), err
	},
}

func lockLead(ctx context.Context, db dbtx, id crm.LeadID) (crm.Lead, error) {
	row, err := crmdb.New(db).LockLead(ctx, asUUID(id))
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return crm.Lead{}, nil
	case err != nil:
		return crm.Lead{}, fmt.Errorf("lock the lead: %w", err)
	}
	return leadFromRow(row)
}

// leadFromRow restores a lead. A row may hold what PostgreSQL can and a lead cannot: a
// ColumnError or a crm.InvalidError says so.
func leadFromRow(row crmdb.CrmLead) (crm.Lead, error) {
	err := finite(
		moment{"expires_at", row.ExpiresAt}, moment{"expired_at", row.ExpiredAt},
		moment{"created_at", row.CreatedAt}, moment{"updated_at", row.UpdatedAt},
	)
	if err != nil {
		return crm.Lead{}, err
	}
	return crm.Restore(crm.Snapshot{
		ID:                    crm.LeadID(row.ID.Bytes),
		TenantID:              ids.TenantID(row.TenantID.Bytes),
		ExecutorAgentUserID:   ids.UserID(row.ExecutorAgentUserID.Bytes),
		PrimaryInvestorUserID: ids.UserID(row.PrimaryInvestorUserID.Bytes),
		Status:                crm.Status(row.Status.String),
		ExpiresAt:             fromTimestamptz(row.ExpiresAt),
		ExpiredAt:             fromTimestamptz(row.ExpiredAt),
		Version:               int(row.Version.Int32),
		CreatedAt:             fromTimestamptz(row.CreatedAt),
		UpdatedAt:             fromTimestamptz(row.UpdatedAt),
	})
}

func saveLeads(ctx context.Context, w *writes, parts []changedPart[crm.Event]) {
	var p crmdb.UpdateLeadsParams
	for _, part := range parts {
		s := part.after.(crm.Lead).Snapshot() //nolint:forcetypeassert // the context's only aggregate
		if part.before == nil {
			w.insert("leads", 1, func(db dbtx) error {
				return crmdb.New(db).InsertLead(ctx, crmdb.InsertLeadParams{
					ID: asUUID(s.ID), TenantID: asUUID(s.TenantID),
					ExecutorAgentUserID: asUUID(s.ExecutorAgentUserID), PrimaryInvestorUserID: asUUID(s.PrimaryInvestorUserID),
					Status: asText(s.Status), ExpiresAt: asTimestamptz(s.ExpiresAt), ExpiredAt: asTimestamptz(s.ExpiredAt),
					Version: asInt4(s.Version), CreatedAt: asTimestamptz(s.CreatedAt), UpdatedAt: asTimestamptz(s.UpdatedAt),
				})
			})
			continue
		}
		p.Ids = append(p.Ids, asUUID(s.ID))
		p.SeenVersions = append(p.SeenVersions, asInt4(part.before.Version()))
		p.Statuses = append(p.Statuses, asText(s.Status))
		p.ExpiresAt = append(p.ExpiresAt, asTimestamptz(s.ExpiresAt))
		p.ExpiredAt = append(p.ExpiredAt, asTimestamptz(s.ExpiredAt))
		p.Versions = append(p.Versions, asInt4(s.Version))
		p.UpdatedAt = append(p.UpdatedAt, asTimestamptz(s.UpdatedAt))
	}
	w.update("leads", len(p.Ids), func(db dbtx) error {
		_, err := crmdb.New(db).UpdateLeads(ctx, p)
		return err
	})
}
