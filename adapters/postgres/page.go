package postgres

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pin-platform/pinworker/ports"
)

// The parameters and results of the jobs' queries, which sqlc names anew for each of them.
type (
	page struct {
		AsOf     pgtype.Timestamptz
		AfterDue pgtype.Timestamptz
		AfterID  pgtype.UUID
		UntilDue pgtype.Timestamptz
		UntilID  pgtype.UUID
		MaxItems int32
	}
	span struct {
		AsOf     pgtype.Timestamptz
		AfterDue pgtype.Timestamptz
		AfterID  pgtype.UUID
		UntilDue pgtype.Timestamptz
		UntilID  pgtype.UUID
	}
	horizon struct {
		AsOf     pgtype.Timestamptz
		Until    pgtype.Timestamptz
		AfterDue pgtype.Timestamptz
		AfterID  pgtype.UUID
	}
	heldRow struct {
		ID            pgtype.UUID
		TenantID      pgtype.UUID
		Due           pgtype.Timestamptz
		Failures      pgtype.Int4
		FirstFailedAt pgtype.Timestamptz
		LastFailedAt  pgtype.Timestamptz
		FirstError    pgtype.Text
		LastError     pgtype.Text
		NextAttempt   pgtype.Timestamptz
	}
	waiting struct {
		Due      int64
		Oldest   pgtype.Timestamptz
		NextHour int64
		Held     int64
	}
)

func pageOf(claim ports.Claim) page {
	p := page{
		AsOf:     asTimestamptz(claim.AsOf),
		AfterDue: pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true},
		AfterID:  asUUID(uuid.Nil),
		UntilDue: pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true},
		UntilID:  asUUID(uuid.Max),
		MaxItems: int32(claim.Limit),
	}
	if !claim.After.IsZero() {
		p.AfterDue, p.AfterID = cursorDue(claim.After), asUUID(claim.After.ID)
	}
	if !claim.Until.IsZero() {
		p.UntilDue, p.UntilID = cursorDue(claim.Until), asUUID(claim.Until.ID)
	}
	return p
}

// beforeAll stands for -infinity in a cursor: PostgreSQL has no moment as early as that.
var beforeAll = time.Date(-10000, 1, 1, 0, 0, 0, 0, time.UTC)

func cursorDue(c ports.Cursor) pgtype.Timestamptz {
	if c.Due.Equal(beforeAll) {
		return pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	}
	return pgtype.Timestamptz{Time: c.Due, Valid: true}
}

// place is where an item stands in the order.
func (c claimed[A]) place() ports.Cursor {
	if c.due.InfinityModifier != pgtype.Finite {
		return ports.Cursor{Due: beforeAll, ID: c.id.Bytes} // what is due at infinity is never claimed
	}
	return ports.Cursor{Due: c.due.Time, ID: c.id.Bytes}
}

// endOf is where a claim ended that was not filled: it has seen all up to its end.
func endOf(claim ports.Claim) ports.Cursor {
	if !claim.Until.IsZero() {
		return claim.Until
	}
	return ports.Cursor{Due: claim.AsOf, ID: uuid.Max}
}
