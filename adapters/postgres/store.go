package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/ports"
)

// Store implements ports.Store for what operations change by its id.
type Store[ID ~[16]byte, A eventsourcing.State[A, E], E eventsourcing.Event] struct {
	schema *schema[E]
	// lock waits for the rows of an item and returns it restored; the zero A where there is none.
	lock func(ctx context.Context, db dbtx, id ID) (A, error)
}

// Change implements ports.Store.
func (s *Store[ID, A, E]) Change(ctx context.Context, command ports.Command[ID], rule ports.Rule[A, E]) (ports.Transitioned[A, E], error) {
	var c change[A, E]
	err := s.schema.db.transact(ctx, func(tx pgx.Tx) error {
		before, err := s.lock(ctx, tx, command.ID)
		if err != nil {
			return err
		}
		var streams []pgtype.UUID
		for _, part := range before.Parts() {
			streams = append(streams, asUUID(part.Stream()))
		}
		standing, err := headsOf(ctx, s.schema.in(tx), streams)
		if err != nil {
			return err
		}
		if c, err = decide(s.schema.codec, before, standing, command.At, rule); err != nil || len(c.events) == 0 {
			return err
		}
		return write(ctx, s.schema, tx, []change[A, E]{c}, origin{command.By, command.Run})
	})
	switch {
	case lostRace(err):
		return ports.Transitioned[A, E]{}, ports.ErrConflict
	case err != nil:
		return ports.Transitioned[A, E]{}, withoutValues(err)
	}
	if len(c.messages) > 0 {
		s.schema.outbox.Committed()
	}
	return ports.Transitioned[A, E]{After: c.after, Events: c.events}, nil
}
