package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/pin-platform/pinworker/adapters/postgres"
	"github.com/pin-platform/pinworker/cmd/pinworker/internal/settings"
)

func newMigrate(global *globals, std streams) *cobra.Command {
	m := migrate{global: global, std: std}
	return parent(&cobra.Command{
		Use:   "migrate",
		Short: "Bring the database's schema up to date",
		Long: `Applies the worker's migrations: its event store, its outbox, its quarantine, the indexes that
the jobs poll by. The platform's own tables (crm.leads, ...) are there already in a real system,
and are checked first: what they lack is named before anything changes. A new system, or a
test, creates them with --with-platform-tables.`,
	}, m.up(), m.status(), m.down())
}

// migrate is what the subcommands share.
type migrate struct {
	global   *globals
	std      streams
	platform bool
}

func (m *migrate) up() *cobra.Command {
	cmd := m.command("up", "Apply what is pending", "create the platform's tables as well, for a new system")
	cmd.Example = "  pinworker migrate up --with-role\n  pinworker migrate up --with-platform-tables"
	var role bool
	cmd.Flags().BoolVar(&role, "with-role", false, "give the role pinworker its rights as well, as sql/roles/pinworker.sql does")
	cmd.RunE = command(func(cmd *cobra.Command, _ []string) error {
		err := m.each(m.sets(), "Nothing to do: the schema is up to date.", false, func(db *postgres.Migrator, set postgres.Set) ([]postgres.Migration, error) {
			steps, err := db.Up(cmd.Context(), set)
			if err == nil && role && set == postgres.WorkerSet {
				err = db.Grant(cmd.Context())
			}
			return steps, err
		})
		if err == nil && role && !m.global.json {
			_, err = fmt.Fprintln(m.std.out, "The role pinworker has its rights.")
		}
		return err
	})
	return cmd
}

func (m *migrate) status() *cobra.Command {
	cmd := m.command("status", "Show what is applied and what is pending", "show the platform's set as well")
	cmd.Example = "  pinworker migrate status --json"
	cmd.RunE = command(func(cmd *cobra.Command, _ []string) error {
		return m.each(m.sets(), "There are no migrations.", false, func(db *postgres.Migrator, set postgres.Set) ([]postgres.Migration, error) {
			return db.Status(cmd.Context(), set)
		})
	})
	return cmd
}

func (m *migrate) down() *cobra.Command {
	cmd := m.command("down", "Take back the newest migration, and the data in what it drops",
		"take back the newest migration of the platform's set instead")
	cmd.Long = `Takes back the newest migration of the worker's set in each context, with the data in what it drops: events,
messages that are not published yet. It asks for --yes.`
	cmd.Example = "  pinworker migrate down --yes"
	var yes bool
	cmd.Flags().BoolVar(&yes, "yes", false, "drop the data as well")
	cmd.RunE = command(func(cmd *cobra.Command, _ []string) error {
		if !yes {
			return usage("migrate down drops data with what it takes back: say --yes, if that is meant")
		}
		newest := m.sets()[:1] // the platform's, where it was asked for
		return m.each(newest, "Nothing to do: nothing is applied.", true, func(db *postgres.Migrator, set postgres.Set) ([]postgres.Migration, error) {
			return db.Down(cmd.Context(), set)
		})
	})
	return cmd
}

func (m *migrate) command(name, short, aboutPlatform string) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short, Args: cobra.NoArgs}
	cmd.Flags().BoolVar(&m.platform, "with-platform-tables", false, aboutPlatform)
	return cmd
}

// sets are those that a command is about, in the order in which they depend on each other.
func (m *migrate) sets() []postgres.Set {
	if m.platform {
		return []postgres.Set{postgres.PlatformSet, postgres.WorkerSet}
	}
	return []postgres.Set{postgres.WorkerSet}
}

// stepRow is a line of the steps' table. It is printed as soon as its step is done, whatever becomes of
// the next one: no column can wait for its longest cell.
const stepRow = "%-9s   %-8s   %-40s   %s\n"

// each runs work on sets in turn and shows their steps, or says that there are none.
func (m *migrate) each(
	sets []postgres.Set, nothing string, takenBack bool,
	work func(*postgres.Migrator, postgres.Set) ([]postgres.Migration, error),
) error {
	s, _, err := m.global.load(os.Environ(), settings.EveryDatabase)
	if err != nil {
		return err
	}
	w, err := newWorker(s, m.std.err)
	if err != nil {
		return err
	}
	var steps []postgres.Migration
	err = inTurn(w.contexts, sets, func(c *boundedContext, set postgres.Set) error {
		done, err := work(c.migrator, set)
		m.tell(done, len(steps) == 0, takenBack)
		steps = append(steps, done...)
		return err
	})
	switch {
	case m.global.json:
		err = errors.Join(err, writeSteps(m.std, steps, err))
	case err == nil && len(steps) == 0:
		_, err = fmt.Fprintln(m.std.out, nothing)
	}
	if len(steps) == 0 { // nothing was touched
		err = unready(err)
	}
	return errors.Join(err, w.close())
}

// inTurn ends with the first set that fails: those behind it may need it.
func inTurn(contexts []*boundedContext, sets []postgres.Set, work func(*boundedContext, postgres.Set) error) error {
	for _, c := range contexts {
		for _, set := range sets {
			if err := work(c, set); err != nil {
				return err
			}
		}
	}
	return nil
}

// tell shows some steps to people, under a heading where they are the first.
func (m *migrate) tell(steps []postgres.Migration, first, takenBack bool) {
	for i, step := range steps {
		if m.global.json {
			return
		}
		if first && i == 0 {
			fmt.Fprintf(m.std.out, stepRow, "CONTEXT", "SET", "MIGRATION", "APPLIED") //nolint:errcheck // the work goes on
		}
		applied := moment(step.AppliedAt).String()
		switch {
		case takenBack:
			applied = "taken back"
		case step.AppliedAt.IsZero():
			applied = "pending"
		}
		fmt.Fprintf(m.std.out, stepRow, step.Context, step.Set, step.Name, applied) //nolint:errcheck // as above
	}
}

// writeSteps is the JSON document: what was done, and the error that ended it, if there is one.
func writeSteps(std streams, steps []postgres.Migration, failed error) error {
	type step struct {
		Context   string `json:"context"`
		Set       string `json:"set"`
		Version   int64  `json:"version"`
		Name      string `json:"name"`
		AppliedAt moment `json:"applied_at"`
	}
	document := struct {
		Migrations []step `json:"migrations"`
		Error      string `json:"error,omitempty"`
	}{Migrations: []step{}}
	for _, m := range steps {
		document.Migrations = append(document.Migrations, step{m.Context, string(m.Set), m.Version, m.Name, moment(m.AppliedAt)})
	}
	if failed != nil {
		document.Error = failed.Error()
	}
	return writeJSON(std.out, document)
}
