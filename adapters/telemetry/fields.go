package telemetry

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/promotion"
)

// field is what a line about a job or an item may carry. Its constructors are the only way to make
// one: ids, numbers, moments, words of the domain and errors, which are redacted where they come
// from. A text has no way in, and so no name, note or phone number has.
type field struct{ attr slog.Attr }

// word is a vocabulary of the specification.
type word interface {
	calendar.EventStatus | promotion.PackageKind | slotOutcome
}

func id[ID ~[16]byte](name string, id ID) field {
	return field{slog.String(name, uuid.UUID(id).String())}
}

func count(name string, n int) field { return field{slog.Int(name, n)} }

func is(name string, yes bool) field { return field{slog.Bool(name, yes)} }

func millis(name string, d time.Duration) field { return field{slog.Int64(name, d.Milliseconds())} }

func elapsed(name string, d time.Duration) field { return field{slog.String(name, d.String())} }

func moment(name string, t time.Time) field { return field{slog.Time(name, t)} }

func term[W word](name string, w W) field { return field{slog.String(name, string(w))} }

func fault(err error) field { return field{slog.Any("error", err)} }

// line is the name of a log line, as the specification spells it.
type line string

// journal writes lines of fields.
type journal struct{ log *slog.Logger }

func (j journal) with(fields ...field) journal {
	attrs := make([]slog.Attr, len(fields))
	for i, f := range fields {
		attrs[i] = f.attr
	}
	return journal{slog.New(j.log.Handler().WithAttrs(attrs))}
}

func (j journal) tell(level slog.Level, what line, fields ...field) {
	if !j.log.Enabled(context.Background(), level) {
		return
	}
	attrs := make([]slog.Attr, len(fields))
	for i, f := range fields {
		attrs[i] = f.attr
	}
	j.log.LogAttrs(context.Background(), level, string(what), attrs...)
}
