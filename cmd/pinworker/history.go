package main

import (
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/pin-platform/pinworker/cmd/pinworker/internal/settings"
	"github.com/pin-platform/pinworker/ports"
)

func newHistory(global *globals, std streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "history ID",
		Short: "Show what happened to one aggregate, event by event",
		Long: `Shows an aggregate's domain events in order, whatever it is (a lead, a purchase, a slot, an
appointment, a calendar event, a reminder): when, who, in which run, and with --json what is
recorded. It only reads.`,
		Example: "  pinworker history 018f3a3c-7b1e-7c55-9d5e-2f6b8a1c4e00\n  pinworker history 018f3a3c-7b1e-7c55-9d5e-2f6b8a1c4e00 --json",
		Args:    oneArgument("ID", "the UUID of an aggregate"),
	}
	type happened struct {
		Version int             `json:"version"`
		Event   string          `json:"event"`
		At      moment          `json:"at"`
		Actor   string          `json:"actor"`
		RunID   string          `json:"correlation_id"`
		Data    json.RawMessage `json:"data"`
		Altered bool            `json:"altered,omitempty"` // it is not what was recorded
	}
	cmd.RunE = command(func(cmd *cobra.Command, args []string) error {
		id, err := uuid.Parse(args[0])
		if err != nil {
			return usage("%q is no id: allowed is a UUID", args[0])
		}
		return withReachable(cmd.Context(), global, std, func(_ settings.Settings, w *worker) error {
			c, events, err := w.contextOf(cmd.Context(), id)
			switch {
			case err != nil:
				return err
			case len(events) == 0:
				return fmt.Errorf("%s: no event of it in %s; a row that no service has journalled yet has none", id, w.where())
			}
			w.noteUnasked(std)
			if global.json {
				list := make([]happened, len(events))
				for i, e := range events {
					list[i] = happened{e.Version, e.Event, moment(e.At), string(e.Actor), e.Run.String(), e.Data, e.Altered}
				}
				return writeJSON(std.out, map[string]any{
					"id": id, "context": c.name, "aggregate": events[0].Aggregate, "events": list,
				})
			}
			return printEvents(std, id, c.name, events)
		})
	})
	return cmd
}

func printEvents(std streams, id uuid.UUID, contextName string, events []ports.Happened) error {
	g := newGrid(std.out, "VERSION", "EVENT", "AT", "ACTOR", "CORRELATION ID")
	for _, e := range events {
		name := e.Event
		if e.Altered {
			name += " (altered)"
		}
		g.row(e.Version, name, moment(e.At), e.Actor, e.Run)
	}
	if _, err := fmt.Fprintf(std.out, "%s %s, context %s\n\n", events[0].Aggregate, id, contextName); err != nil {
		return err
	}
	return g.flush()
}
