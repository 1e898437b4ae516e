package postgres

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pin-platform/pinworker/adapters/postgres/internal/calendardb"
	"github.com/pin-platform/pinworker/adapters/postgres/internal/crmdb"
	"github.com/pin-platform/pinworker/adapters/postgres/internal/promotiondb"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/domain/promotion"
	"github.com/pin-platform/pinworker/ports"
)

// Rows implements ports.Rows for one context.
type Rows struct {
	db      *DB
	lookups []lookup
}

var _ ports.Rows = (*Rows)(nil)

// lookup finds the row of one kind of aggregate; none where there is no such row.
type lookup func(ctx context.Context, db dbtx, ids []pgtype.UUID) ([]ports.Row, error)

// NewRows returns the rows of a context.
func NewRows(db *DB, contextName string) *Rows { return &Rows{db, lookups[contextName]} }

// Row implements ports.Rows.
func (r *Rows) Row(ctx context.Context, id uuid.UUID) (found ports.Row, is bool, err error) {
	err = r.db.snapshot(ctx, func(tx pgx.Tx) error {
		for _, look := range r.lookups {
			rows, err := look(ctx, tx, []pgtype.UUID{asUUID(id)})
			if err != nil || len(rows) > 0 {
				found, is = first(rows)
				return err
			}
		}
		return nil
	})
	if err != nil {
		return found, false, fmt.Errorf("look for the row of %s: %w", id, err)
	}
	return found, is, nil
}

func first[T any](all []T) (one T, is bool) {
	if len(all) == 0 {
		return one, false
	}
	return all[0], true
}

var lookups = map[string][]lookup{
	"crm": {func(ctx context.Context, db dbtx, ids []pgtype.UUID) ([]ports.Row, error) {
		rows, err := crmdb.New(db).LeadsByID(ctx, ids)
		return each(rows, func(r crmdb.CrmLead) ports.Row {
			_, unsound := leadFromRow(r)
			row := rowOf("Lead", r.TenantID, r.Status, r.Version, r.UpdatedAt, unsound)
			return polledRow(row, ports.LeadExpiration, string(crm.Active), r.ID, r.ExpiresAt)
		}), err
	}},
	"promotion": {func(ctx context.Context, db dbtx, ids []pgtype.UUID) ([]ports.Row, error) {
		rows, err := promotiondb.New(db).PurchasesByID(ctx, ids)
		if err != nil || len(rows) == 0 {
			return nil, err
		}
		targets, err := targetsOf(ctx, db, ids)
		return each(rows, func(r promotiondb.PromotionPromotionPurchase) ports.Row {
			_, unsound := targets.restore(r)
			row := rowOf("PromotionPurchase", r.TenantID, r.Status, r.Version, r.UpdatedAt, unsound)
			return polledRow(row, ports.ExpirePromotions, string(promotion.Active), r.ID, r.EndsAt)
		}), err
	}},
	"calendar": {
		func(ctx context.Context, db dbtx, ids []pgtype.UUID) ([]ports.Row, error) {
			rows, err := calendardb.New(db).RemindersByID(ctx, ids)
			return each(rows, func(r calendardb.CalendarEventReminder) ports.Row {
				_, unsound := reminderFromRow(r)
				row := rowOf(string(calendar.KindReminder), r.TenantID, r.Status, r.Version, r.UpdatedAt, unsound)
				row.Event = r.EventID.Bytes
				return polledRow(row, ports.ReminderDispatch, string(calendar.ReminderStatusPending), r.ID, r.DueAt)
			}), err
		},
		func(ctx context.Context, db dbtx, ids []pgtype.UUID) ([]ports.Row, error) {
			rows, err := calendardb.New(db).AppointmentsByID(ctx, ids)
			return each(rows, func(r calendardb.CalendarAppointment) ports.Row {
				_, unsound := appointmentFromRow(r)
				row := rowOf(string(calendar.KindAppointment), r.TenantID, r.Status, r.Version, r.UpdatedAt, unsound)
				row.Event = r.CalendarEventID.Bytes
				return polledRow(row, ports.AppointmentTimeout, string(calendar.AppointmentStatusPending), r.ID, r.PendingExpiresAt)
			}), err
		},
		func(ctx context.Context, db dbtx, ids []pgtype.UUID) ([]ports.Row, error) {
			rows, err := calendardb.New(db).EventsByID(ctx, ids)
			return each(rows, func(r calendardb.CalendarCalendarEvent) ports.Row {
				_, unsound := eventFromRow(r)
				return rowOf(string(calendar.KindEvent), r.TenantID, r.Status, r.Version, r.UpdatedAt, unsound)
			}), err
		},
		func(ctx context.Context, db dbtx, ids []pgtype.UUID) ([]ports.Row, error) {
			rows, err := calendardb.New(db).SlotsByID(ctx, ids)
			return each(rows, func(r calendardb.CalendarAvailabilitySlot) ports.Row {
				_, unsound := slotFromRow(r)
				return rowOf(string(calendar.KindSlot), r.TenantID, r.Status, r.Version, r.UpdatedAt, unsound)
			}), err
		},
	},
}

func rowOf(kind string, tenant pgtype.UUID, status pgtype.Text, version pgtype.Int4, updated pgtype.Timestamptz, unsound error) ports.Row {
	return ports.Row{
		Aggregate: kind, Tenant: ids.TenantID(tenant.Bytes), Status: status.String, Version: int(version.Int32),
		UpdatedAt: fromTimestamptz(updated), Err: unsound,
	}
}

// polledRow adds what a job sees of a row. What is due at infinity, or has no moment, never is.
func polledRow(row ports.Row, job ports.Job, state string, id pgtype.UUID, due pgtype.Timestamptz) ports.Row {
	row.Job, row.Polled = job, row.Status == state
	if due.Valid && due.InfinityModifier != pgtype.Infinity {
		row.Place = claimed[any]{id: id, due: due}.place()
	}
	return row
}
