package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/cmd/pinworker/internal/settings"
)

func newOutbox(global *globals, std streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "outbox",
		Short: "Show the messages that Kafka refuses for good, and decide on them",
		Long: `A message that Kafka refuses by itself (too large, invalid, an envelope that cannot be opened) is
parked: taken out of its key's way, with the error. Later messages of its key went on. Mend what Kafka
refused (a topic's max.message.bytes, say), then release it; or discard it, with a reason that is kept.`,
	}
	list := &cobra.Command{
		Use: "parked", Short: "Show what is parked, the oldest first",
		Example: "  pinworker outbox parked\n  pinworker outbox parked --json", Args: cobra.NoArgs,
	}
	list.RunE = command(func(cmd *cobra.Command, _ []string) error {
		return withReachable(cmd.Context(), global, std, func(_ settings.Settings, w *worker) error {
			return errors.Join(w.showParked(cmd.Context(), std, global.json), w.incomplete())
		})
	})
	release := &cobra.Command{
		Use: "release ID", Short: "Let the relay send a parked message again",
		Long:    "Puts a parked message back into its outbox, behind what waits there by now. Refused again, it is parked again.",
		Example: "  pinworker outbox release 9efb1de6-3804-559b-a673-67b842c92b95",
		Args:    oneArgument("ID", "the ce_id of a parked message"),
	}
	release.RunE = command(func(cmd *cobra.Command, args []string) error {
		return decideOnParked(cmd.Context(), global, std, args[0], "released", func(c *boundedContext, id uuid.UUID) error {
			return outbox.Release(cmd.Context(), c.db.Pool, c.table, id)
		})
	})
	discard := &cobra.Command{
		Use: "discard ID", Short: "Decide that a parked message is not to be sent",
		Long:    "Takes a parked message off the list. It is kept, with the reason and the time.",
		Example: "  pinworker outbox discard 9efb1de6-3804-559b-a673-67b842c92b95 --reason 'superseded, ticket 4711'",
		Args:    oneArgument("ID", "the ce_id of a parked message"),
	}
	var reason string
	discard.Flags().StringVar(&reason, "reason", "", "why it is not to be sent; required")
	discard.RunE = command(func(cmd *cobra.Command, args []string) error {
		if reason == "" {
			return usage("outbox discard: say --reason, which is kept with the message")
		}
		return decideOnParked(cmd.Context(), global, std, args[0], "discarded", func(c *boundedContext, id uuid.UUID) error {
			return outbox.Discard(cmd.Context(), c.db.Pool, c.table, id, reason)
		})
	})
	return parent(cmd, list, release, discard)
}

func (w *worker) showParked(ctx context.Context, std streams, asJSON bool) error {
	type parked struct {
		Context   string `json:"context"`
		Topic     string `json:"topic"`
		Key       string `json:"key"`
		Message   string `json:"message"`
		CreatedAt moment `json:"created_at"`
		ParkedAt  moment `json:"parked_at"`
		Attempts  int    `json:"attempts"`
		Bytes     int    `json:"bytes"`
		Error     string `json:"error"`
	}
	list := []parked{}
	for _, c := range w.contexts {
		found, err := outbox.ListParked(ctx, c.db.Pool, c.table)
		if err != nil {
			return err
		}
		for _, p := range found {
			list = append(list, parked{
				c.name, p.Topic, p.Key, p.Message.String(), moment(p.CreatedAt), moment(p.ParkedAt), p.Attempts, p.Size, p.Error,
			})
		}
	}
	if asJSON {
		return writeJSON(std.out, map[string]any{"parked": list, "not_asked": w.unasked})
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(std.out, "Nothing is parked.")
		return err
	}
	g := newGrid(std.out, "TOPIC", "MESSAGE", "KEY", "PARKED", "BYTES", "ERROR")
	for _, p := range list {
		g.row(p.Topic, p.Message, p.Key, p.ParkedAt, p.Bytes, p.Error)
	}
	return g.flush()
}

func decideOnParked(
	ctx context.Context, global *globals, std streams, text, what string, decide func(*boundedContext, uuid.UUID) error,
) error {
	id, err := uuid.Parse(text)
	if err != nil {
		return usage("%q is no id: allowed is a UUID", text)
	}
	return withReachable(ctx, global, std, func(_ settings.Settings, w *worker) error {
		act := func(c *boundedContext) error { return decide(c, id) }
		if err := w.actOn(std, id, outbox.ErrNotParked, "outbox parked", act); err != nil {
			return err
		}
		if global.json {
			return writeJSON(std.out, map[string]any{"message": id, "decision": what})
		}
		_, err = fmt.Fprintf(std.out, "Message %s is %s.\n", id, what)
		return err
	})
}
