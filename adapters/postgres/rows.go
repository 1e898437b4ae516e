package postgres

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// Columns as the driver takes and gives them. The platform owns its tables: a null where the
// domain has no word for one becomes a zero, which the domain refuses; told does where it would not.

// each turns the rows of a query, which sqlc names anew for each of them, into what all of its kind are.
func each[R, S any](rows []R, of func(R) S) []S {
	all := make([]S, len(rows))
	for i, row := range rows {
		all[i] = of(row)
	}
	return all
}

func asUUID[ID ~[16]byte](id ID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

// optionalUUID takes the zero id for null.
func optionalUUID[ID ~[16]byte](id ID) pgtype.UUID {
	var none ID
	return pgtype.UUID{Bytes: id, Valid: [16]byte(id) != [16]byte(none)}
}

// asTimestamptz takes the zero time for null.
func asTimestamptz(t time.Time) pgtype.Timestamptz {
	return pgtype.Timestamptz{Time: t, Valid: !t.IsZero()}
}

// fromTimestamptz takes null for the zero time, as asTimestamptz does the other way.
func fromTimestamptz(t pgtype.Timestamptz) time.Time {
	if !t.Valid {
		return time.Time{}
	}
	return t.Time.UTC()
}

func asText[S ~string](s S) pgtype.Text { return pgtype.Text{String: string(s), Valid: true} }

// optionalText takes the empty string for null.
func optionalText[S ~string](s S) pgtype.Text { return pgtype.Text{String: string(s), Valid: s != ""} }

func asInt4(n int) pgtype.Int4 { return pgtype.Int4{Int32: int32(n), Valid: true} }

// moment is a column that must hold a moment of the calendar, or null.
type moment struct {
	column string
	stored pgtype.Timestamptz
}

// finite returns a ColumnError for the first moment that is infinite: the domain has no such thing.
func finite(moments ...moment) error {
	for _, m := range moments {
		if m.stored.InfinityModifier != pgtype.Finite {
			return ColumnError{m.column, "is " + m.stored.InfinityModifier.String()}
		}
	}
	return nil
}

// column is one that must hold something, where the zero value that null becomes would mean
// something.
type column struct {
	name string
	told bool
}

// told returns a ColumnError for the first column that is null: never guess.
func told(columns ...column) error {
	for _, c := range columns {
		if !c.told {
			return ColumnError{c.name, "is null"}
		}
	}
	return nil
}
