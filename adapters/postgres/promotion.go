package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pin-platform/pinworker/adapters/postgres/internal/promotiondb"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/domain/promotion"
	"github.com/pin-platform/pinworker/ports"
)

// Promotion is the promotion context's part of a database.
type Promotion struct {
	Due       ports.DuePurchases
	Preview   ports.PurchasePreview
	Purchases ports.Purchases
	Ledger    ports.PurchaseLedger
}

// NewPromotion returns the promotion context in a database, its messages going to outbox.
func NewPromotion(db *DB, outbox Outbox) Promotion {
	s := &schema[promotion.Event]{db: db, name: "promotion", outbox: outbox, save: savePurchases, codec: purchaseCodec}
	due := &Due[promotion.PromotionPurchase, promotion.Event]{s, polledPurchases}
	return Promotion{
		Due: due, Preview: due,
		Purchases: &Store[promotion.PurchaseID, promotion.PromotionPurchase, promotion.Event]{s, lockPurchase},
		Ledger: &Ledger[promotion.PromotionPurchase, promotion.Event]{
			schema: s, kind: "PromotionPurchase",
			page: func(ctx context.Context, db dbtx, from idPage) ([]pgtype.UUID, error) {
				return promotiondb.New(db).PurchasePage(ctx, promotiondb.PurchasePageParams(from))
			},
			rows: func(ctx context.Context, db dbtx, ids []pgtype.UUID) ([]restored[promotion.PromotionPurchase], error) {
				rows, err := promotiondb.New(db).PurchasesByID(ctx, ids)
				if err != nil {
					return nil, err
				}
				targets, err := targetsOf(ctx, db, ids)
				return restoreAll(rows, func(r promotiondb.PromotionPromotionPurchase) pgtype.UUID { return r.ID }, targets.restore), err
			},
		},
	}
}

var purchaseCodec = newCodec(func(promotion.Event) string { return "PromotionPurchase" }, map[string]promotion.Event{
	"PromotionPurchased":         promotion.Purchased{},
	"PromotionActivated":         promotion.Activated{},
	"PromotionPurchaseExpired":   promotion.PurchaseExpired{},
	"PromotionPurchaseCancelled": promotion.PurchaseCancelled{},
	"PromotionPurchaseImported":  promotion.Imported{},
})

// polledPurchases is the table of expire-promotions.
var polledPurchases = polled[promotion.PromotionPurchase]{
	job: ports.ExpirePromotions,
	claim: func(ctx context.Context, db dbtx, p page) ([]claimed[promotion.PromotionPurchase], func(context.Context, dbtx) error, error) {
		rows, err := promotiondb.New(db).ClaimDuePurchases(ctx, promotiondb.ClaimDuePurchasesParams(p))
		if err != nil || len(rows) == 0 {
			return nil, nil, err
		}
		ids, items := make([]pgtype.UUID, len(rows)), make([]claimed[promotion.PromotionPurchase], len(rows))
		for i, r := range rows {
			purchase := r.PromotionPromotionPurchase
			ids[i] = purchase.ID
			items[i] = claimed[promotion.PromotionPurchase]{id: purchase.ID, tenant: purchase.TenantID, due: purchase.EndsAt, failures: r.Failures}
		}
		return items, func(ctx context.Context, db dbtx) error {
			targets, err := targetsOf(ctx, db, ids)
			for i, r := range rows {
				items[i].item, items[i].err = targets.restore(r.PromotionPromotionPurchase)
			}
			return err
		}, nil
	},
	count: func(ctx context.Context, db dbtx, s span) (int64, error) {
		return promotiondb.New(db).CountDuePurchases(ctx, promotiondb.CountDuePurchasesParams(s))
	},
	held: func(ctx context.Context, db dbtx, p page) ([]heldRow, error) {
		rows, err := promotiondb.New(db).HeldPurchases(ctx, promotiondb.HeldPurchasesParams(p))
		return each(rows, func(r promotiondb.HeldPurchasesRow) heldRow { return heldRow(r) }), err
	},
	tables: []string{"promotion_purchases"},
	release: func(ctx context.Context, db dbtx, asOf pgtype.Timestamptz) error {
		return promotiondb.New(db).ReleaseSettledPurchases(ctx, asOf)
	},
	backlog: func(ctx context.Context, db dbtx, h horizon) (waiting, error) {
		row, err := promotiondb.New(db).PurchaseBacklog(ctx, promotiondb.PurchaseBacklogParams(h))
		return waiting(row), err
	},
}

func lockPurchase(ctx context.Context, db dbtx, id promotion.PurchaseID) (promotion.PromotionPurchase, error) {
	row, err := promotiondb.New(db).LockPurchase(ctx, asUUID(id))
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return promotion.PromotionPurchase{}, nil
	case err != nil:
		return promotion.PromotionPurchase{}, fmt.Errorf("lock the purchase: %w", err)
	}
	targets, err := targetsOf(ctx, db, []pgtype.UUID{row.ID})
	if err != nil {
		return promotion.PromotionPurchase{}, err
	}
	return targets.restore(row)
}

// targets are those of some purchases, by purchase.
type targets map[pgtype.UUID][]promotion.Target

func targetsOf(ctx context.Context, db dbtx, purchases []pgtype.UUID) (targets, error) {
	rows, err := promotiondb.New(db).TargetsOf(ctx, purchases)
	if err != nil {
		return nil, fmt.Errorf("read the targets: %w", err)
	}
	found := make(targets, len(purchases))
	for _, r := range rows {
		found[r.PurchaseID] = append(found[r.PurchaseID], promotion.Target{Type: promotion.TargetType(r.TargetType.String), ID: r.TargetID.Bytes})
	}
	return found, nil
}

// restore takes a purchase out of its row and its targets: a ColumnError or a
// promotion.InvalidError says what it cannot be.
func (t targets) restore(row promotiondb.PromotionPromotionPurchase) (promotion.PromotionPurchase, error) {
	err := finite(
		moment{"starts_at", row.StartsAt}, moment{"ends_at", row.EndsAt},
		moment{"created_at", row.CreatedAt}, moment{"updated_at", row.UpdatedAt},
	)
	if err != nil {
		return promotion.PromotionPurchase{}, err
	}
	return promotion.Restore(promotion.Snapshot{
		ID:            promotion.PurchaseID(row.ID.Bytes),
		TenantID:      ids.TenantID(row.TenantID.Bytes),
		PackageKind:   promotion.PackageKind(row.PackageKind.String),
		Status:        promotion.Status(row.Status.String),
		PaymentStatus: promotion.PaymentStatus(row.PaymentStatus.String),
		StartsAt:      fromTimestamptz(row.StartsAt),
		EndsAt:        fromTimestamptz(row.EndsAt),
		Targets:       t[row.ID],
		Version:       int(row.Version.Int32),
		CreatedAt:     fromTimestamptz(row.CreatedAt),
		UpdatedAt:     fromTimestamptz(row.UpdatedAt),
	})
}

func savePurchases(ctx context.Context, w *writes, parts []changedPart[promotion.Event]) {
	var p promotiondb.UpdatePurchasesParams
	for _, part := range parts {
		s := part.after.(promotion.PromotionPurchase).Snapshot() //nolint:forcetypeassert // the context's only aggregate
		if part.before == nil {
			insertPurchase(ctx, w, s)
			continue
		}
		p.Ids = append(p.Ids, asUUID(s.ID))
		p.SeenVersions = append(p.SeenVersions, asInt4(part.before.Version()))
		p.Statuses = append(p.Statuses, asText(s.Status))
		p.Versions = append(p.Versions, asInt4(s.Version))
		p.UpdatedAt = append(p.UpdatedAt, asTimestamptz(s.UpdatedAt))
	}
	w.update("promotion_purchases", len(p.Ids), func(db dbtx) error {
		_, err := promotiondb.New(db).UpdatePurchases(ctx, p)
		return err
	})
}

func insertPurchase(ctx context.Context, w *writes, s promotion.Snapshot) {
	w.insert("promotion_purchases", 1, func(db dbtx) error {
		return promotiondb.New(db).InsertPurchase(ctx, promotiondb.InsertPurchaseParams{
			ID: asUUID(s.ID), TenantID: asUUID(s.TenantID), PackageKind: asText(s.PackageKind),
			Status: asText(s.Status), PaymentStatus: asText(s.PaymentStatus),
			StartsAt: asTimestamptz(s.StartsAt), EndsAt: asTimestamptz(s.EndsAt),
			Version: asInt4(s.Version), CreatedAt: asTimestamptz(s.CreatedAt), UpdatedAt: asTimestamptz(s.UpdatedAt),
		})
	})
	p := promotiondb.InsertTargetsParams{PurchaseID: asUUID(s.ID)}
	for _, target := range s.Targets {
		p.TargetTypes = append(p.TargetTypes, asText(target.Type))
		p.TargetIds = append(p.TargetIds, asUUID(target.ID))
	}
	w.insert("promotion_targets", len(s.Targets), func(db dbtx) error { return promotiondb.New(db).InsertTargets(ctx, p) })
}
