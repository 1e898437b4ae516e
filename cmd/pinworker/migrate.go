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
	cmd.Example = "  pinworker migrate up\n  pinworker migrate up --with-platform-tables"
	cmd.RunE = command(func(cmd *cobra.Command, _ []string) error {
		return m.each(m.sets(), "Nothing to do: the schema is up to date.", false, func(db *postgres.Migrator, set postgres.Set) ([]postgres.Migration, error) {
			return db.Up(cmd.Context(), set)
		})
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
	for _, c := range w.contexts {
		for _, set := range sets {
			done, err := work(c.migrator, set)
			steps = append(steps, done...)
			if err != nil {
				return errors.Join(unready(err), w.close())
			}
		}
	}
	if err := w.close(); err != nil {
		return err
	}
	return printSteps(m.std, m.global.json, takenBack, steps, nothing)
}

func printSteps(std streams, asJSON, takenBack bool, steps []postgres.Migration, nothing string) error {
	if asJSON {
		type step struct {
			Context   string `json:"context"`
			Set       string `json:"set"`
			Version   int64  `json:"version"`
			Name      string `json:"name"`
			AppliedAt moment `json:"applied_at"`
		}
		list := make([]step, len(steps))
		for i, m := range steps {
			list[i] = step{m.Context, string(m.Set), m.Version, m.Name, moment(m.AppliedAt)}
		}
		return writeJSON(std.out, map[string]any{"migrations": list})
	}
	if len(steps) == 0 {
		_, err := fmt.Fprintln(std.out, nothing)
		return err
	}
	g := newGrid(std.out, "CONTEXT", "SET", "MIGRATION", "APPLIED")
	for _, m := range steps {
		applied := moment(m.AppliedAt).String()
		switch {
		case takenBack:
			applied = "taken back"
		case m.AppliedAt.IsZero():
			applied = "pending"
		}
		g.row(m.Context, m.Set, m.Name, applied)
	}
	return g.flush()
}
