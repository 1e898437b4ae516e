package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/pin-platform/pinworker/adapters/kafka"
	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/adapters/postgres"
	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/cmd/pinworker/internal/settings"
)

func newDoctor(global *globals, std streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what a worker depends on, and say what to do where it is not in order",
		Long: `Checks the settings, the database of each context that has a job (reachable, writable, its
schema up to date, the platform's columns and the indexes as they are needed, its clock, what keeps
vacuum from cleaning up behind the outbox) and, where the relay is enabled, Kafka (reachable, the
topics, their replication, the right to write). It only reads.

A line a check. Exit code 3: something is not in order. What is only worth knowing is a warning.`,
		Example: "  pinworker doctor\n  pinworker doctor --json",
		Args:    cobra.NoArgs,
	}
	cmd.RunE = command(func(cmd *cobra.Command, _ []string) error {
		s, _, err := global.load(os.Environ(), settings.EveryDatabase, settings.Relay)
		if err != nil {
			return err
		}
		w, err := newWorker(s, std.err)
		if err != nil {
			return err
		}
		d := doctor{worker: w}
		d.ok("settings", "they can be used")
		for _, c := range w.contexts {
			d.database(cmd.Context(), c)
		}
		d.kafka(cmd.Context(), s)
		if err := errors.Join(cmd.Context().Err(), w.close()); err != nil {
			return err
		}
		return d.tell(global.json, std)
	})
	return cmd
}

// checked is one line.
type checked struct {
	Check  string `json:"check"`
	State  string `json:"state"` // ok, warning or wrong
	Found  string `json:"found"`
	Advice string `json:"advice,omitempty"` // what to do
}

// The states of a check.
const (
	isOK      = "ok"
	isWarning = "warning"
	isWrong   = "wrong"
)

type doctor struct {
	worker *worker
	lines  []checked
}

func (d *doctor) ok(check, found string) {
	d.lines = append(d.lines, checked{check, isOK, found, ""})
}

func (d *doctor) warn(check, found, advice string) {
	d.lines = append(d.lines, checked{check, isWarning, found, advice})
}

func (d *doctor) wrong(check string, found any, advice string) {
	d.lines = append(d.lines, checked{check, isWrong, fmt.Sprint(found), advice})
}

// patience bounds each look: a silent server is an answer, too. A test has less of it.
var patience = 15 * time.Second

func withPatience(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %s", patience))
}

func (d *doctor) database(ctx context.Context, c *boundedContext) {
	ctx, cancel := withPatience(ctx)
	defer cancel()
	name := c.name + " database"
	if err := c.db.Writable(ctx); err != nil {
		d.wrong(name, err, "check contexts."+c.name+".database.url or database.url, the server, and the way to it; after a failover the URL must lead to the primary")
		return
	}
	before := time.Now()
	e, err := c.db.Examine(ctx, c.name)
	if err != nil {
		d.wrong(name, err, "run sql/roles/pinworker.sql as the database's owner")
		return
	}
	d.ok(name, "PostgreSQL "+e.Version+", reachable and writable")
	var lacks *postgres.PlatformError
	switch err := c.migrator.Current(ctx); {
	case err == nil:
		d.ok(c.name+" schema", "up to date, and the platform's tables and the indexes as they are needed")
	case errors.As(err, &lacks):
		d.wrong(c.name+" schema", err, "the platform's migrations have to bring what is named; an index of ours that is another one has to be dropped")
	default:
		d.wrong(c.name+" schema", err, "run `pinworker migrate up` as the database's owner, then sql/roles/pinworker.sql")
	}
	skew := e.Now.Sub(before.Add(time.Since(before) / 2)).Round(time.Millisecond)
	if skew.Abs() > 2*time.Second {
		d.warn(c.name+" clock", fmt.Sprintf("the database's is %s off ours", skew), "let NTP set both: a job's moment is ours, a message's age the database's")
	} else {
		d.ok(c.name+" clock", fmt.Sprintf("the database's is %s off ours", skew))
	}
	d.holders(c, e)
	for _, table := range e.Untuned {
		d.warn(c.name+" autovacuum", table+" has lost its settings", "set them as sql/migrations/shared/00002_outbox.sql does")
	}
	d.outbox(ctx, c)
}

// old is when a snapshot begins to matter for the queues, and manyBehind when one does of which it is not
// told how old it is.
var old = 10 * time.Minute

const manyBehind = 100_000

func (d *doctor) holders(c *boundedContext, e postgres.Examination) {
	name := c.name + " snapshots"
	found := false
	for _, h := range e.Holders {
		switch {
		case h.Left:
			d.warn(name, "replication slot "+h.Name+" is not active and holds back vacuum", "drop it where nobody will come back to it: pg_drop_replication_slot")
		case h.Behind > manyBehind:
			d.warn(name, fmt.Sprintf("%s %s holds back vacuum by %d transactions", h.What, h.Name, h.Behind),
				"end the long queries there, or set hot_standby_feedback off; until then the queues grow")
		case h.Age > old:
			d.warn(name, fmt.Sprintf("%s %s is %s old and holds back vacuum", h.What, h.Name, h.Age.Round(time.Second)),
				"end it: pg_terminate_backend, ROLLBACK PREPARED; until then the queues grow")
		default:
			continue
		}
		found = true
	}
	switch {
	case found:
	case !e.SeesOthers:
		d.warn(name, "other users' transactions cannot be seen", "GRANT pg_read_all_stats TO pinworker, to have them watched")
	default:
		d.ok(name, "none is older than "+old.String())
	}
}

func (d *doctor) outbox(ctx context.Context, c *boundedContext) {
	name := c.name + " outbox"
	backlogs, oldest, err := outbox.Depth(ctx, c.db.Pool, c.table, published.TopicsOf[c.name], nil)
	if err != nil {
		d.wrong(name, err, "run sql/roles/pinworker.sql as the database's owner")
		return
	}
	waiting, parked := 0, 0
	for _, b := range backlogs {
		waiting += b.Waiting
		parked += b.Parked
	}
	found := fmt.Sprintf("%d messages wait, the oldest for %s", waiting, oldest.Round(time.Second))
	switch {
	case parked > 0:
		d.warn(name, fmt.Sprintf("%s; %d are parked", found, parked), "`pinworker outbox parked` shows which, and why")
	case oldest > time.Minute:
		d.warn(name, found, "see that somebody serves with relay.enabled, and what Kafka's checks say")
	default:
		d.ok(name, found)
	}
}

func (d *doctor) kafka(ctx context.Context, s settings.Settings) {
	if !s.Relay.Enabled {
		d.ok("kafka", "not used: relay.enabled is false")
		return
	}
	ctx, cancel := withPatience(ctx)
	defer cancel()
	var names []string
	for _, c := range d.worker.contexts {
		names = append(names, published.TopicsOf[c.name]...)
	}
	config, err := kafkaConfig(s)
	var cluster kafka.Cluster
	if err == nil {
		cluster, err = kafka.Describe(ctx, config, names...)
	}
	if err != nil {
		d.wrong("kafka", err, "check kafka.brokers, kafka.tls, kafka.sasl, and the way to them; messages wait in the outboxes meanwhile")
		return
	}
	d.ok("kafka", fmt.Sprintf("reachable, %d brokers", cluster.Brokers))
	for _, t := range cluster.Topics {
		d.topic(t)
	}
}

func (d *doctor) topic(t kafka.Topic) {
	name := "topic " + t.Name
	switch {
	case t.Missing:
		d.wrong(name, "it is not there", "create it: topics are never created by the worker; its messages wait")
	case t.Err != nil:
		d.wrong(name, t.Err, "its messages wait; ask who runs Kafka")
	case t.Told && !t.MayWrite:
		d.wrong(name, "our user may not write to it", "grant it WRITE on the topic; its messages wait")
	case t.Leaderless > 0:
		d.wrong(name, fmt.Sprintf("%d of %d partitions have no leader", t.Leaderless, t.Partitions), "bring the brokers back; what is for them waits")
	case t.MinInSync > t.InSync:
		d.wrong(name, fmt.Sprintf("%d replicas are in sync, and min.insync.replicas is %d", t.InSync, t.MinInSync), "bring the brokers back: nothing is taken until then")
	case t.MinInSync == 0:
		d.warn(name, t.String(), "grant our user DESCRIBE_CONFIGS on the topic, to have them checked")
	case t.MaxMessageBytes < kafka.BatchLimit:
		d.warn(name, t.String(), fmt.Sprintf("set max.message.bytes to %d or more: larger batches of ours are refused, their messages sent again "+
			"one by one, and what is too large even so is parked", kafka.BatchLimit))
	case t.Replicas < 2 || t.MinInSync < 2: // a broker that is lost takes what it acknowledged with it
		d.warn(name, t.String(), "acknowledged messages survive the loss of a broker from 3 replicas and min.insync.replicas=2 on")
	case t.InSync < t.Replicas:
		d.warn(name, t.String(), "see why a replica is behind: nothing is taken any more where fewer than min.insync.replicas are left")
	default:
		d.ok(name, t.String())
	}
}

func (d *doctor) tell(asJSON bool, std streams) error {
	wrong := 0
	for _, l := range d.lines {
		if l.State == isWrong {
			wrong++
		}
	}
	if asJSON {
		if err := writeJSON(std.out, map[string]any{"checks": d.lines, "wrong": wrong}); err != nil {
			return err
		}
	} else {
		g := newGrid(std.out, "CHECK", "STATE", "FOUND")
		for _, l := range d.lines {
			g.row(l.Check, l.State, l.Found)
			if l.Advice != "" {
				g.row("", "", "→ "+l.Advice)
			}
		}
		if err := g.flush(); err != nil {
			return err
		}
	}
	if wrong > 0 {
		return &exitError{code: exitNotInOrder}
	}
	return nil
}
