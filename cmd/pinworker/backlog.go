package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/ports"
)

func newBacklog(global *globals, std streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "backlog",
		Short:   "Show what is due and what waits to be published",
		Long:    `Shows for each job what is due now, since when, and what comes due in the next hour; for each outbox what is not published yet, since when, and what is parked. It only reads.`,
		Example: "  pinworker backlog\n  pinworker backlog --json",
		Args:    cobra.NoArgs,
	}
	type jobBacklog struct {
		Due      int    `json:"due"`
		Oldest   moment `json:"oldest"`
		NextHour int    `json:"next_hour"`
	}
	type outboxBacklog struct {
		Unpublished int    `json:"unpublished"`
		Oldest      moment `json:"oldest"`
		Parked      int    `json:"parked"`
	}
	cmd.RunE = command(func(cmd *cobra.Command, _ []string) error {
		return withWorker(cmd.Context(), global, std, func(w *worker) error {
			due, err := w.crm.due.Backlog(cmd.Context(), time.Now(), ports.Cursor{})
			if err != nil {
				return err
			}
			lag, err := outbox.Measure(cmd.Context(), w.crm.db.Pool, w.crm.table)
			if err != nil {
				return err
			}
			jobs := map[string]jobBacklog{string(ports.LeadExpiration): {due.Due, moment(due.Oldest), due.NextHour}}
			outboxes := map[string]outboxBacklog{"crm": {lag.Unpublished, moment(lag.Oldest), lag.Parked}}
			if global.json {
				return writeJSON(std.out, map[string]any{"jobs": jobs, "outbox": outboxes})
			}
			g := newGrid(std.out, "JOB", "DUE", "OLDEST", "NEXT HOUR")
			for _, job := range jobNames {
				g.row(job, jobs[job].Due, jobs[job].Oldest, jobs[job].NextHour)
			}
			g.row()
			if err := g.flush(); err != nil {
				return err
			}
			g = newGrid(std.out, "OUTBOX", "UNPUBLISHED", "OLDEST", "PARKED")
			g.row("crm", lag.Unpublished, moment(lag.Oldest), lag.Parked)
			return g.flush()
		})
	})
	return cmd
}
