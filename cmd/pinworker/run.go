package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	appcrm "github.com/pin-platform/pinworker/app/crm"
	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/ports"
)

// jobNames are the jobs there are.
var jobNames = []string{string(ports.LeadExpiration)}

// leadsExpired is the result of lead-expiration as --json prints it: Elapsed as Go spells it.
type leadsExpired struct {
	appcrm.LeadsExpired
	Elapsed span
}

func leadsExpiredOf(r appcrm.LeadsExpired) leadsExpired { return leadsExpired{r, span(r.Elapsed)} }

// advice says what to look at next, where there is something.
func (r leadsExpired) advice() string {
	switch {
	case r.FaultCount > 0:
		return "Some batches were rolled back; the log above says why. The next cycle takes them.\n"
	case r.FailedCount > 0:
		return "Some leads failed: `pinworker quarantine list` shows which, and why.\n"
	case r.CappedByMaxBatches:
		return "The cap ended the cycle with leads still due: the next one takes them.\n"
	case r.ExpiredCount == 0 && r.SkippedLockedCount > 0:
		return "Nothing was done: what is due is being worked on by someone else.\n"
	case r.ExpiredCount == 0:
		return "Nothing to do: no lead is due that is not held back.\n"
	}
	return ""
}

func newRun(global *globals, std streams) *cobra.Command {
	var asOf string
	cmd := &cobra.Command{
		Use:   "run JOB",
		Short: "Run one cycle of a job, now or as of an earlier moment",
		Long: `Runs one cycle of a job beside whatever instances serve it, and prints its result.
Its messages wait in the outbox for an instance that serves. Items that fail do not fail the
cycle; they are logged and counted.

Jobs: ` + strings.Join(jobNames, ", "),
		Example: `  pinworker run lead-expiration
  pinworker run lead-expiration --as-of 2026-03-01T12:00:00Z --json`,
		Args:      oneArgument("JOB", strings.Join(jobNames, ", ")),
		ValidArgs: jobNames,
	}
	cmd.Flags().StringVar(&asOf, "as-of", "", "the cycle's moment, RFC 3339, not in the future")
	cmd.RunE = command(func(cmd *cobra.Command, args []string) error {
		job := args[0]
		if !slices.Contains(jobNames, job) {
			return usage("there is no job %q: allowed are %s", job, strings.Join(jobNames, ", "))
		}
		moment, err := parsePast("--as-of", asOf, time.Now())
		if err != nil {
			return err
		}
		return withWorker(cmd.Context(), global, std, func(w *worker) error {
			tick := cycle.Begin(moment)
			result, err := w.crm.expireLeads(cmd.Context(), tick)
			if err != nil {
				return err
			}
			fields := leadsExpiredOf(result)
			if global.json {
				return writeJSON(std.out, struct {
					Job   string    `json:"job"`
					RunID string    `json:"run_id"`
					AsOf  time.Time `json:"as_of"`
					leadsExpired
				}{job, tick.Run.String(), tick.AsOf, fields})
			}
			g := newGrid(std.out)
			g.row("job", job)
			g.row("run id", tick.Run)
			g.row("as of", tick.AsOf.Format(time.RFC3339Nano))
			g.row("ExpiredCount", fields.ExpiredCount)
			g.row("BatchesProcessed", fields.BatchesProcessed)
			g.row("Elapsed", fields.Elapsed)
			g.row("CappedByMaxBatches", fields.CappedByMaxBatches)
			g.row("FailedCount", fields.FailedCount)
			g.row("SkippedLockedCount", fields.SkippedLockedCount)
			g.row("FaultCount", fields.FaultCount)
			if err := g.flush(); err != nil {
				return err
			}
			_, err = fmt.Fprint(std.out, fields.advice())
			return err
		})
	})
	return cmd
}

// parsePast reads a moment that is not in the future; empty is now.
func parsePast(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return now, nil
	}
	moment, err := time.Parse(time.RFC3339Nano, text)
	switch {
	case err != nil:
		return moment, usage("%s %q: allowed is a moment in RFC 3339, as 2026-03-01T12:00:00Z", flag, text)
	case moment.After(now):
		return moment, usage("%s %s lies in the future: it would take what is not due", flag, text)
	}
	return moment, nil
}
