package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/ports"
)

// jobNames are the jobs there are, in the order in which they are shown.
var jobNames = []string{
	string(ports.ReminderDispatch), string(ports.AppointmentTimeout), string(ports.ExpirePromotions), string(ports.LeadExpiration),
}

// contextOfJob is the context that a job belongs to.
var contextOfJob = map[string]string{
	string(ports.ReminderDispatch): "calendar", string(ports.AppointmentTimeout): "calendar",
	string(ports.ExpirePromotions): "promotion", string(ports.LeadExpiration): "crm",
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
		return withContext(cmd.Context(), global, std, contextOfJob[job], func(w *worker) error {
			_, j := w.job(job)
			if j == nil {
				return usage("the job %s is disabled: set jobs.%s.enabled=true to run it", job, job)
			}
			tick := cycle.Begin(moment)
			result, err := j.run(cmd.Context(), tick)
			if err != nil {
				return err
			}
			if global.json {
				document := result.json()
				document["job"], document["run_id"], document["as_of"] = job, tick.Run.String(), tick.AsOf
				return writeJSON(std.out, document)
			}
			g := newGrid(std.out)
			g.row("job", job)
			g.row("run id", tick.Run)
			g.row("as of", tick.AsOf.Format(time.RFC3339Nano))
			for _, f := range result.fields {
				g.row(f.name, f.value)
			}
			if err := g.flush(); err != nil {
				return err
			}
			_, err = fmt.Fprint(std.out, result.advice())
			return err
		})
	})
	return cmd
}

// parsePast reads a moment that is not in the future; empty is now.
func parsePast(flag, text string, now time.Time) (time.Time, error) {
	moment, err := parseMoment(flag, text, now)
	if err == nil && moment.After(now) {
		return moment, usage("%s %s lies in the future: it would take what is not due", flag, text)
	}
	return moment, err
}

// parseMoment reads a moment; empty is now.
func parseMoment(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return now, nil
	}
	moment, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return moment, usage("%s %q: allowed is a moment in RFC 3339, as 2026-03-01T12:00:00Z", flag, text)
	}
	return moment, nil
}
