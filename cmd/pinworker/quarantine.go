package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/pin-platform/pinworker/cmd/pinworker/internal/settings"
	"github.com/pin-platform/pinworker/ports"
)

func newQuarantine(global *globals, std streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quarantine",
		Short: "Show the items that fail again and again, and let one be tried",
		Long: `An item that its own data keeps from being processed is tried again at the next tick; from
its third failure in a row it is held back for 2, 4, 8 intervals, at most 10. A success, or
someone who settles it otherwise, takes it off the record.`,
	}
	list := &cobra.Command{
		Use: "list", Short: "Show what is on record, the next one to be tried first",
		Example: "  pinworker quarantine list\n  pinworker quarantine list --json",
		Args:    cobra.NoArgs,
	}
	list.RunE = command(func(cmd *cobra.Command, _ []string) error {
		return withReachable(cmd.Context(), global, std, func(_ settings.Settings, w *worker) error {
			var items []ports.Quarantined
			for _, c := range w.contexts {
				listed, err := c.quarantine.List(cmd.Context())
				if err != nil {
					return err
				}
				items = append(items, listed...)
			}
			slices.SortStableFunc(items, func(a, b ports.Quarantined) int { return a.NextAttempt.Compare(b.NextAttempt) })
			return errors.Join(printQuarantine(std, global.json, items, w.unasked), w.incomplete())
		})
	})
	retry := &cobra.Command{
		Use: "retry ID", Short: "Let the next tick take an item",
		Long:    "Lets the next tick take an item that is held back. Its count of failures stays: should it fail again, it is held back for longer still.",
		Example: "  pinworker quarantine retry 018f3a3c-7b1e-7c55-9d5e-2f6b8a1c4e00",
		Args:    oneArgument("ID", "the UUID of an item"),
	}
	retry.RunE = command(func(cmd *cobra.Command, args []string) error {
		item, err := uuid.Parse(args[0])
		if err != nil {
			return usage("%q is no id: allowed is a UUID", args[0])
		}
		return withReachable(cmd.Context(), global, std, func(_ settings.Settings, w *worker) error {
			return w.retry(cmd.Context(), std, global.json, item)
		})
	})
	return parent(cmd, list, retry)
}

// retry lets the next tick take an item, in whichever context it is on record.
func (w *worker) retry(ctx context.Context, std streams, asJSON bool, item uuid.UUID) error {
	at := time.Now().UTC().Truncate(time.Microsecond)
	act := func(c *boundedContext) error { return c.quarantine.Retry(ctx, item, at) }
	if err := w.actOn(std, item, ports.ErrNotQuarantined, "quarantine list", act); err != nil {
		return err
	}
	if asJSON {
		return writeJSON(std.out, map[string]any{"item": item, "next_attempt": moment(at)})
	}
	_, err := fmt.Fprintf(std.out, "The next tick takes %s.\n", item)
	return err
}

func printQuarantine(std streams, asJSON bool, items []ports.Quarantined, notAsked []unasked) error {
	if asJSON {
		type item struct {
			Job           ports.Job `json:"job"`
			Item          uuid.UUID `json:"item"`
			Tenant        string    `json:"tenant"`
			Failures      int       `json:"failures"`
			FirstFailedAt moment    `json:"first_failed_at"`
			LastFailedAt  moment    `json:"last_failed_at"`
			FirstError    string    `json:"first_error"`
			LastError     string    `json:"last_error"`
			NextAttempt   moment    `json:"next_attempt"`
		}
		list := make([]item, len(items))
		for i, q := range items {
			list[i] = item{
				q.Job, q.Item, q.Tenant.String(), q.Streak, moment(q.FirstFailedAt), moment(q.LastFailedAt),
				q.FirstError, q.LastError, moment(q.NextAttempt),
			}
		}
		return writeJSON(std.out, map[string]any{"quarantine": list, "not_asked": notAsked})
	}
	if len(items) == 0 {
		_, err := fmt.Fprintln(std.out, "Nothing is in quarantine.")
		return err
	}
	g := newGrid(std.out, "JOB", "ITEM", "FAILURES", "SINCE", "NEXT ATTEMPT", "LAST ERROR")
	for _, q := range items {
		g.row(q.Job, q.Item, q.Streak, moment(q.FirstFailedAt), moment(q.NextAttempt), q.LastError)
	}
	return g.flush()
}
