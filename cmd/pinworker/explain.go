package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/pin-platform/pinworker/adapters/kafka"
	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/adapters/postgres"
	"github.com/pin-platform/pinworker/app/explain"
	"github.com/pin-platform/pinworker/app/plan"
	"github.com/pin-platform/pinworker/cmd/pinworker/internal/settings"
	"github.com/pin-platform/pinworker/ports"
)

func newExplain(global *globals, std streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain ID",
		Short: "Show why nothing has happened to an aggregate yet, or what has, and where its messages are",
		Long: `Answers "why was this not sent?" from the id of a lead, a purchase, an appointment, a reminder, a
calendar event or a slot: it is not due yet; it is due, and the next tick takes it; somebody holds it, and
who; it is in quarantine, since when and why; it was skipped, because its event had been cancelled. And of
each message that it was announced with: it waits in the outbox, behind how many; it is parked, and why;
it was published, at which partition, offset and time; Kafka does not have it any more.

It only reads. Where somebody holds the item, it waits for it, for a moment, to learn for whom. Kafka is
asked where kafka.brokers is set: up to ` + strconv.Itoa(kafkaRecords) + ` records from the message's time on, for ` + kafkaPatience.String() + ` at most.`,
		Example: "  pinworker explain 018f3a3c-7b1e-7c55-9d5e-2f6b8a1c4e00\n  pinworker explain 018f3a3c-7b1e-7c55-9d5e-2f6b8a1c4e00 --json",
		Args:    oneArgument("ID", "the UUID of an aggregate"),
	}
	cmd.RunE = command(func(cmd *cobra.Command, args []string) error {
		id, err := uuid.Parse(args[0])
		if err != nil {
			return usage("%q is no id: allowed is a UUID", args[0])
		}
		return withReachable(cmd.Context(), global, std, func(s settings.Settings, w *worker) error {
			post, err := postOf(s)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			for _, c := range w.contexts {
				facts, known, unanswered, err := c.explainer().Explain(cmd.Context(), id, time.Now(), post)
				switch {
				case err != nil:
					return err
				case !known:
					continue
				}
				w.noteUnasked(std)
				if global.json {
					return writeJSON(std.out, explained(facts, unanswered))
				}
				return printFacts(std.out, facts, unanswered)
			}
			return fmt.Errorf("%s: no row and no event of it in %s", id, w.where())
		})
	})
	return cmd
}

// What a look into Kafka may cost.
const (
	kafkaRecords  = 20_000
	kafkaPatience = 5 * time.Second
)

// postOf is how messages are looked for in Kafka.
func postOf(s settings.Settings) (ports.Post, error) {
	if missing := settings.Kafka(s); len(missing) > 0 {
		return noPost(missing), nil
	}
	config, err := kafkaConfig(s)
	return kafka.Post{Config: config, IDHeader: outbox.HeaderID, Records: kafkaRecords, Patience: kafkaPatience}, err
}

// noPost stands for Kafka where the settings do not say how to reach it.
type noPost []string

func (missing noPost) Find(context.Context, []ports.Announced) (map[uuid.UUID]ports.Whereabouts, error) {
	return nil, fmt.Errorf("not asked: %s cannot be used, or is not set", strings.Join(missing, ", "))
}

// explainer is what a context knows, for explain.
func (c *boundedContext) explainer() explain.Context {
	known := explain.Context{
		Name: c.name, Rows: postgres.NewRows(c.db, c.name), History: c.history, Quarantine: c.quarantine,
		Outbox: outbox.Post{Pool: c.db.Pool, Table: c.table}, Jobs: make(map[ports.Job]explain.Job),
	}
	for _, f := range c.foresight {
		enabled := slices.ContainsFunc(c.jobs, func(j *job) bool { return j.name == f.job })
		known.Jobs[f.job] = explain.Job{Foreseer: f.Foreseer, Interval: f.interval, Disabled: !enabled}
	}
	return known
}

// explanation is what --json prints.
type explanation struct {
	ID        uuid.UUID       `json:"id"`
	Context   string          `json:"context"`
	Aggregate string          `json:"aggregate"`
	Verdict   explain.Verdict `json:"verdict"`
	Why       string          `json:"why"`
	Since     moment          `json:"since"` // it is so since
	Next      moment          `json:"next"`  // when something will happen by itself, at the earliest
	Job       ports.Job       `json:"job,omitempty"`
	LockedBy  []lockerJSON    `json:"locked_by,omitempty"`
	Row       *rowJSON        `json:"row"`
	Record    *recordJSON     `json:"quarantine,omitempty"`
	Events    []eventJSON     `json:"events"`
	Messages  []letterJSON    `json:"messages"`
	Kafka     string          `json:"kafka,omitempty"` // why it could not tell
}

type rowJSON struct {
	Tenant    string     `json:"tenant"`
	Status    string     `json:"status"`
	Version   int        `json:"version"`
	DueAt     moment     `json:"due_at"`
	UpdatedAt moment     `json:"updated_at"`
	Event     *uuid.UUID `json:"event,omitempty"` // the calendar event that it belongs to
	Error     string     `json:"error,omitempty"` // why the domain cannot make sense of it
}

type recordJSON struct {
	Failures      int    `json:"failures"`
	FirstFailedAt moment `json:"first_failed_at"`
	LastFailedAt  moment `json:"last_failed_at"`
	LastError     string `json:"last_error"`
	NextAttempt   moment `json:"next_attempt"`
}

type eventJSON struct {
	Version int    `json:"version"`
	Event   string `json:"event"`
	At      moment `json:"at"`
	Actor   string `json:"actor"`
	RunID   string `json:"correlation_id"`
}

type letterJSON struct {
	ID        uuid.UUID     `json:"id"` // its ce_id
	Topic     string        `json:"topic"`
	Key       string        `json:"key"`
	Event     string        `json:"event"`
	At        moment        `json:"at"` // its ce_time
	State     ports.Station `json:"state"`
	Since     moment        `json:"since"`
	Ahead     *int          `json:"ahead,omitempty"` // beside waiting: of its lane, that go first
	Error     string        `json:"error,omitempty"`
	Attempts  int           `json:"attempts,omitempty"`
	Reason    string        `json:"reason,omitempty"`
	Partition *int32        `json:"partition,omitempty"` // beside published
	Offset    *int64        `json:"offset,omitempty"`
}

func explained(f explain.Facts, unanswered error) explanation {
	why := f.Why()
	e := explanation{
		ID: f.ID, Context: f.Context, Aggregate: f.Kind(), Verdict: why.Verdict, Why: why.Why, Since: moment(why.Since), Next: moment(why.Next),
		Job: f.Row.Job, Events: make([]eventJSON, len(f.Events)), Messages: make([]letterJSON, len(f.Messages)),
	}
	if f.HasRow {
		e.Row = rowOf(f.Row)
	}
	if f.Item != nil {
		for _, l := range f.Item.Lockers {
			e.LockedBy = append(e.LockedBy, lockedBy(l))
		}
	}
	if q := f.Record; q != nil {
		e.Record = &recordJSON{q.Streak, moment(q.FirstFailedAt), moment(q.LastFailedAt), q.LastError, moment(q.NextAttempt)}
	}
	for i, h := range f.Events {
		e.Events[i] = eventJSON{h.Version, h.Event, moment(h.At), string(h.Actor), h.Run.String()}
	}
	for i, m := range f.Messages {
		e.Messages[i] = letterOf(m)
	}
	if unanswered != nil {
		e.Kafka = unanswered.Error()
	}
	return e
}

func rowOf(r ports.Row) *rowJSON {
	j := &rowJSON{Tenant: r.Tenant.String(), Status: r.Status, Version: r.Version, DueAt: moment(plan.Moment(r.Place)), UpdatedAt: moment(r.UpdatedAt)}
	if r.Event != uuid.Nil {
		j.Event = &r.Event
	}
	if r.Err != nil {
		j.Error = r.Err.Error()
	}
	return j
}

func letterOf(m explain.Message) letterJSON {
	j := letterJSON{
		ID: m.ID, Topic: m.Topic, Key: m.Key, Event: m.Event, At: moment(m.At), State: m.State, Since: moment(m.Since),
		Error: m.Error, Attempts: m.Attempts, Reason: m.Reason,
	}
	switch m.State {
	case ports.Waiting:
		j.Ahead = &m.Ahead
	case ports.Published:
		j.Partition, j.Offset = &m.Partition, &m.Offset
	}
	return j
}

func printFacts(w io.Writer, f explain.Facts, unanswered error) error {
	why := f.Why()
	lines := []string{
		fmt.Sprintf("%s %s, context %s", f.Kind(), f.ID, f.Context),
		fmt.Sprintf("%s: %s", why.Verdict, why.Why),
	}
	if why.Verdict == explain.Locked {
		lines = append(lines, "locked by "+lockersInWords(*f.Item))
	}
	if _, err := fmt.Fprintln(w, strings.Join(lines, "\n")); err != nil {
		return err
	}
	g := newGrid(w)
	g.row()
	if f.HasRow {
		printRow(g, f.Row)
	}
	if f.CalendarEvent != nil {
		g.row("event", fmt.Sprintf("%s, %s", f.CalendarEvent.ID, orGone(f.CalendarEvent)))
	}
	if q := f.Record; q != nil {
		g.row("quarantine", fmt.Sprintf("failed %s in a row since %s; next attempt %s", times(q.Streak), moment(q.FirstFailedAt), moment(q.NextAttempt)))
		g.row("last error", q.LastError)
	}
	if err := g.flush(); err != nil {
		return err
	}
	return printWhatHappened(w, f, unanswered)
}

func printRow(g *grid, r ports.Row) {
	g.row("status", r.Status)
	g.row("version", strconv.Itoa(r.Version))
	g.row("tenant", r.Tenant)
	if r.Job != "" {
		g.row("job", r.Job)
		g.row("due", moment(plan.Moment(r.Place)))
	}
	g.row("updated", moment(r.UpdatedAt))
	if r.Err != nil {
		g.row("unsound", r.Err)
	}
}

func orGone(f *explain.Facts) string {
	if !f.HasRow {
		return "which does not exist"
	}
	return f.Row.Status
}

// printWhatHappened prints the events, and the messages.
func printWhatHappened(w io.Writer, f explain.Facts, unanswered error) error {
	g := newGrid(w)
	g.row()
	if len(f.Events) == 0 {
		g.row("No event is on record: its service keeps no journal.")
	} else {
		g.row("VERSION", "EVENT", "AT", "ACTOR", "CORRELATION ID")
	}
	for _, e := range f.Events {
		g.row(e.Version, e.Event, moment(e.At), e.Actor, e.Run)
	}
	if err := g.flush(); err != nil || len(f.Messages) == 0 {
		return err
	}
	g = newGrid(w)
	g.row()
	g.row("MESSAGE", "TOPIC", "WHERE")
	for _, m := range f.Messages {
		g.row(m.ID, m.Topic, m.Says())
	}
	err := g.flush()
	if err == nil && unanswered != nil {
		_, err = fmt.Fprintf(w, "Kafka: %v\n", unanswered)
	}
	return err
}
