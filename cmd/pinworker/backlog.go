package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/cmd/pinworker/internal/settings"
	"github.com/pin-platform/pinworker/ports"
)

func newBacklog(global *globals, std streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "backlog",
		Short:   "Show what is due and what waits to be published",
		Long:    `Shows for each job what is due now, since when, and what comes due in the next hour; for each outbox what is not published yet, since when, and what is parked: of every context that has a database, whether or not its jobs are enabled here. It only reads.`,
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
		return withReachable(cmd.Context(), global, std, func(_ settings.Settings, w *worker) error {
			jobs, outboxes := make(map[string]jobBacklog), make(map[string]outboxBacklog)
			byJob, byOutbox := newGrid(std.out, "JOB", "DUE", "OLDEST", "NEXT HOUR"), newGrid(std.out, "OUTBOX", "UNPUBLISHED", "OLDEST", "PARKED")
			for _, c := range w.contexts {
				for _, b := range c.backlogs {
					due, err := b.tell(cmd.Context(), time.Now(), ports.Cursor{})
					if err != nil {
						return err
					}
					jobs[string(b.job)] = jobBacklog{due.Due, moment(due.Oldest), due.NextHour}
					byJob.row(b.job, due.Due, moment(due.Oldest), due.NextHour)
				}
				lag, err := outbox.Measure(cmd.Context(), c.db.Pool, c.table)
				if err != nil {
					return err
				}
				outboxes[c.name] = outboxBacklog{lag.Unpublished, moment(lag.Oldest), lag.Parked}
				byOutbox.row(c.name, lag.Unpublished, moment(lag.Oldest), lag.Parked)
			}
			if global.json {
				return errors.Join(writeJSON(std.out, map[string]any{"jobs": jobs, "outbox": outboxes, "not_asked": w.unasked}), w.incomplete())
			}
			byJob.row()
			return errors.Join(byJob.flush(), byOutbox.flush(), w.incomplete())
		})
	})
	return cmd
}
