package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/pin-platform/pinworker/app/plan"
	"github.com/pin-platform/pinworker/ports"
)

func newPlan(global *globals, std streams) *cobra.Command {
	var asOf string
	var limit int
	cmd := &cobra.Command{
		Use:   "plan JOB",
		Short: "Show what a cycle of a job would do, and do nothing",
		Long: `Shows what a cycle would do to which items and why, what it would publish, and what it would leave:
items that somebody holds, and whom to ask for them; items in quarantine, and until when. It asks the
job's own statements and rule, and writes nothing. Where others are at work on the same tables, it
tries for the items' locks, a few at a time, and lets go of them at once.

It does not foresee that the database itself refuses a write (a constraint, a trigger); an item that
failed before is told with its count of failures.

Jobs: ` + strings.Join(jobNames, ", "),
		Example: `  pinworker plan reminder-dispatch
  pinworker plan lead-expiration --as-of 2026-03-01T12:00:00Z --limit 1000 --json`,
		Args:      oneArgument("JOB", strings.Join(jobNames, ", ")),
		ValidArgs: jobNames,
	}
	cmd.Flags().StringVar(&asOf, "as-of", "", "the cycle's moment, RFC 3339: any, also in the future; empty: now")
	cmd.Flags().IntVar(&limit, "limit", 200, "end with so many items that the cycle would take, or that are locked")
	cmd.RunE = command(func(cmd *cobra.Command, args []string) error {
		job := args[0]
		if !slices.Contains(jobNames, job) {
			return usage("there is no job %q: allowed are %s", job, strings.Join(jobNames, ", "))
		}
		if limit < 1 {
			return usage("--limit %d: allowed is a whole number from 1", limit)
		}
		moment, err := parseMoment("--as-of", asOf, time.Now())
		if err != nil {
			return err
		}
		moment = ports.Stored(moment)
		return withContext(cmd.Context(), global, std, contextOfJob[job], func(w *worker) error {
			f := w.foresee(ports.Job(job))
			foreseen, err := f.Foresee(cmd.Context(), moment, min(limit, f.most))
			if err != nil {
				return err
			}
			if global.json {
				return writeJSON(std.out, planned(job, moment, foreseen))
			}
			return printPlan(std.out, moment, foreseen)
		})
	})
	return cmd
}

// foresee returns the foresight of a job.
func (w *worker) foresee(job ports.Job) foresight {
	for _, c := range w.contexts {
		for _, f := range c.foresight {
			if f.job == job {
				return f
			}
		}
	}
	panic("no context has the job " + string(job)) // contextOfJob is wrong
}

// planJSON is what --json prints.
type planJSON struct {
	Job    string         `json:"job"`
	AsOf   time.Time      `json:"as_of"`
	Totals map[string]int `json:"totals"` // by verdict
	Items  []plannedItem  `json:"items"`  // in the job's order
	More   bool           `json:"more"`   // more may be due: the list, or a cycle, ends here
}

type plannedItem struct {
	ID       uuid.UUID        `json:"id"`
	Of       *uuid.UUID       `json:"of,omitempty"` // a reminder's event
	Tenant   string           `json:"tenant"`
	DueAt    moment           `json:"due_at"`
	Verdict  plan.Verdict     `json:"verdict"`
	Becomes  string           `json:"becomes,omitempty"`
	Why      string           `json:"why,omitempty"`
	Failures int              `json:"failures"` // in a row, until now
	Error    string           `json:"error,omitempty"`
	Until    *moment          `json:"until,omitempty"` // beside quarantined
	LockedBy []lockerJSON     `json:"locked_by,omitempty"`
	Messages []plannedMessage `json:"messages,omitempty"`
}

type plannedMessage struct {
	ID    uuid.UUID `json:"id"` // its ce_id
	Topic string    `json:"topic"`
	Key   string    `json:"key"`
}

// lockerJSON is a session that holds an item.
type lockerJSON struct {
	PID         int    `json:"pid"` // 0: a prepared transaction
	User        string `json:"user"`
	Application string `json:"application"`
	Since       moment `json:"since"`
	State       string `json:"state,omitempty"`
	Statement   string `json:"statement,omitempty"`
	Lacking     string `json:"lacking,omitempty"` // the right without which more is not told
}

// rightToSee is what our role lacks where it may not see what a session does.
const rightToSee = "pg_read_all_stats"

func planned(job string, asOf time.Time, p plan.Plan) planJSON {
	document := planJSON{Job: job, AsOf: asOf, Totals: make(map[string]int), Items: make([]plannedItem, len(p.Items)), More: p.More}
	for _, v := range []plan.Verdict{plan.Taken, plan.Unchanged, plan.Failed, plan.Locked, plan.Quarantined} {
		document.Totals[string(v)] = p.Count(v)
	}
	for i, item := range p.Items {
		document.Items[i] = itemJSON(item)
	}
	return document
}

func itemJSON(item plan.Item) plannedItem {
	j := plannedItem{
		ID: item.Item, Tenant: item.Tenant.String(), DueAt: moment(item.Due), Verdict: item.Verdict, Becomes: item.Becomes, Why: item.Why,
		Failures: item.Streak - 1,
	}
	if item.Of != uuid.Nil {
		j.Of = &item.Of
	}
	if item.Err != nil {
		j.Error = item.Err.Error()
	}
	if q := item.Record; q != nil {
		until := moment(q.NextAttempt)
		j.Failures, j.Error, j.Until = q.Streak, q.LastError, &until
	}
	for _, l := range item.Lockers {
		j.LockedBy = append(j.LockedBy, lockedBy(l))
	}
	for _, m := range item.Messages {
		j.Messages = append(j.Messages, plannedMessage{m.ID, m.Topic, m.Key})
	}
	return j
}

func lockedBy(l ports.Locker) lockerJSON {
	j := lockerJSON{l.PID, l.User, l.Application, moment(l.Since), l.State, l.Statement, ""}
	if l.Hidden {
		j.Lacking = rightToSee
	}
	return j
}

func printPlan(w io.Writer, asOf time.Time, p plan.Plan) error {
	at := moment(asOf).String()
	if len(p.Items) == 0 {
		_, err := fmt.Fprintf(w, "Nothing to do: nothing is due at %s.\n", at)
		return err
	}
	g := newGrid(w, "WOULD BE", "ITEM", "DUE", "WHY", "PUBLISHES")
	becomes := make(map[string]int)
	for _, item := range p.Items {
		would := string(item.Verdict)
		if item.Verdict == plan.Taken {
			would = item.Becomes
		}
		becomes[would]++
		g.row(would, item.Item, moment(item.Due), whyOf(item), publishes(item.Messages))
	}
	if err := g.flush(); err != nil {
		return err
	}
	var counts []string
	for _, would := range slices.Sorted(maps.Keys(becomes)) {
		counts = append(counts, fmt.Sprintf("%d %s", becomes[would], would))
	}
	_, err := fmt.Fprintf(w, "\nA cycle as of %s: %s.\n", at, strings.Join(counts, ", "))
	if err == nil && p.More {
		_, err = fmt.Fprintln(w, "More may be due: a cycle, or --limit, ends here.")
	}
	return err
}

// whyOf tells in words why an item would become what it would.
func whyOf(item plan.Item) string {
	var why string
	switch item.Verdict {
	case plan.Taken:
		why = item.Why
	case plan.Unchanged:
		why = "it has happened already"
	case plan.Failed:
		why = item.Err.Error()
	case plan.Locked:
		return "locked by " + lockersInWords(item)
	case plan.Quarantined:
		return fmt.Sprintf("failed %s; held back until %s: %s", times(item.Record.Streak), moment(item.Record.NextAttempt), item.Record.LastError)
	}
	if item.Streak > 1 {
		why += "; it failed " + times(item.Streak-1) + " before"
	}
	return why
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// lockersInWords names who holds an item, and says what our role lacks to see more.
func lockersInWords(item plan.Item) string {
	lockers := item.Lockers
	switch {
	case item.InVain:
		return "somebody; it was asked in vain whom"
	case len(lockers) == 0:
		return "somebody; it was not asked whom: too many are locked"
	}
	names := make([]string, len(lockers))
	for i, l := range lockers {
		application := l.Application
		if application == "" {
			application = "?"
		}
		names[i] = fmt.Sprintf("pid %d, user %s, application %s", l.PID, l.User, application)
		switch {
		case l.PID == 0:
			names[i] = fmt.Sprintf("the prepared transaction %s of %s, since %s", l.Application, l.User, moment(l.Since))
		case l.Hidden:
			names[i] += " (since when, and what it does, is shown to " + rightToSee + ")"
		default:
			names[i] += fmt.Sprintf(", since %s, %s: %s", moment(l.Since), l.State, shortened(l.Statement))
		}
	}
	return strings.Join(names, "; and by ")
}

// shortened is a statement in a line.
func shortened(statement string) string {
	const most = 60
	line := []rune(strings.Join(strings.Fields(statement), " "))
	if len(line) > most {
		return string(line[:most]) + "..."
	}
	return string(line)
}

func publishes(messages []ports.Message) string {
	var topics []string
	for _, m := range messages {
		topics = append(topics, m.Topic+" (key "+m.Key+")")
	}
	return strings.Join(topics, ", ")
}
