package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pin-platform/pinworker/adapters/postgres"
	"github.com/pin-platform/pinworker/app/verify"
)

// verification is what verify found, as --json prints it.
type verification struct {
	Streams     int       `json:"streams"`
	Differences int       `json:"differences"`
	Ahead       int       `json:"ahead"` // rows written by someone who keeps no journal
	Contexts    []string  `json:"contexts"`
	Items       []finding `json:"items"`
}

type finding struct {
	Context string `json:"context"`
	ID      string `json:"id"`
	What    string `json:"what"`
	Ahead   bool   `json:"ahead,omitempty"`
}

func newVerify(global *globals, std streams) *cobra.Command {
	var only, sinceText string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that every row is the fold of its event stream",
		Long: `Folds every stream and compares it with its row, field by field, and every event with
the digest it was recorded with: in every context that has a database, whether or not its jobs are
enabled here. It only reads, and may run beside a worker.

A row ahead of its stream was written by a service that keeps no journal; it is counted
apart and is no difference. Exit code 3: there are differences.`,
		Example: "  pinworker verify\n  pinworker verify --context crm --since 2026-03-01T00:00:00Z --json",
		Args:    cobra.NoArgs,
	}
	cmd.Flags().StringVar(&only, "context", "", "check one context only: calendar, promotion or crm")
	cmd.Flags().StringVar(&sinceText, "since", "", "check what was changed at or after this moment only, RFC 3339")
	cmd.RunE = command(func(cmd *cobra.Command, _ []string) error {
		if only != "" && !slices.Contains(postgres.Contexts, only) {
			return usage("there is no context %q: allowed is one of %s", only, strings.Join(postgres.Contexts, ", "))
		}
		var since time.Time
		if sinceText != "" {
			var err error
			if since, err = parsePast("--since", sinceText, time.Now()); err != nil {
				return err
			}
		}
		check := func(w *worker) error { return w.showDifferences(cmd.Context(), since, std, global.json) }
		if only != "" {
			return withContext(cmd.Context(), global, std, only, check)
		}
		return withWorker(cmd.Context(), global, std, check)
	})
	return cmd
}

// showDifferences verifies the contexts, and ends with an exit code of its own where there are differences.
func (w *worker) showDifferences(ctx context.Context, since time.Time, std streams, asJSON bool) error {
	result, err := w.verify(ctx, since)
	if err != nil {
		return err
	}
	if asJSON {
		err = writeJSON(std.out, result)
	} else {
		err = result.print(std)
	}
	if err == nil && result.Differences > 0 {
		return &exitError{code: exitNotInOrder}
	}
	return err
}

// verify checks every kind of aggregate of the contexts.
func (w *worker) verify(ctx context.Context, since time.Time) (verification, error) {
	result := verification{Contexts: w.names(), Items: []finding{}}
	for _, c := range w.contexts {
		for _, check := range c.verify {
			report, err := check(ctx, since, func(f verify.Finding) {
				result.Items = append(result.Items, finding{c.name, f.ID.String(), f.What, f.Ahead})
			})
			result.Streams += report.Streams
			result.Differences += report.Differences
			result.Ahead += report.Ahead
			if err != nil {
				return result, err
			}
		}
	}
	return result, nil
}

func (v verification) print(std streams) error {
	if len(v.Items) > 0 {
		g := newGrid(std.out, "CONTEXT", "ID", "WHAT")
		for _, item := range v.Items {
			g.row(item.Context, item.ID, item.What)
		}
		g.row()
		if err := g.flush(); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(std.out, "%d streams, %d differences, %d rows ahead of their stream; in %s\n",
		v.Streams, v.Differences, v.Ahead, strings.Join(v.Contexts, ", "))
	return err
}
