package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/pin-platform/pinworker/adapters/postgres"
)

func newMigrate(global *globals, std streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database's schema up to date",
		Long: `Applies the worker's migrations: its event store, its outbox, the indexes that the jobs
poll by. The platform's own tables (crm.leads, ...) are there already in a real system; a new
one, or a test, creates them with --with-platform-tables.`,
	}
	var platform bool
	withPlatform := func(cmd *cobra.Command, about string) *cobra.Command {
		cmd.Flags().BoolVar(&platform, "with-platform-tables", false, about)
		cmd.Args = cobra.NoArgs
		return cmd
	}
	// each runs work on the sets in turn and shows their steps.
	each := func(sets func() []postgres.Set, nothing string, work func(*cobra.Command, *postgres.Migrator, postgres.Set) ([]postgres.Migration, error)) func(*cobra.Command, []string) error {
		return command(func(cmd *cobra.Command, _ []string) error {
			s, _, err := global.load(os.Environ(), databaseURL)
			if err != nil {
				return err
			}
			db, err := openDatabase(s, s.CRMDatabaseURL)
			if err != nil {
				return err
			}
			defer db.Close()
			migrator := postgres.NewMigrator(db, "crm")
			defer migrator.Close() //nolint:errcheck // what it did is known by then
			var steps []postgres.Migration
			for _, set := range sets() {
				done, err := work(cmd, migrator, set)
				steps = append(steps, done...)
				if err != nil {
					return err
				}
			}
			return printSteps(std, global.json, cmd.Name() == "down", steps, nothing)
		})
	}
	up := withPlatform(&cobra.Command{
		Use: "up", Short: "Apply what is pending",
		Example: "  pinworker migrate up\n  pinworker migrate up --with-platform-tables",
	}, "create the platform's tables as well, for a new system")
	up.RunE = each(func() []postgres.Set {
		if platform {
			return []postgres.Set{postgres.PlatformSet, postgres.WorkerSet}
		}
		return []postgres.Set{postgres.WorkerSet}
	}, "Nothing to do: the schema is up to date.", func(cmd *cobra.Command, m *postgres.Migrator, set postgres.Set) ([]postgres.Migration, error) {
		return m.Up(cmd.Context(), set)
	})

	status := withPlatform(&cobra.Command{
		Use: "status", Short: "Show what is applied and what is pending",
		Example: "  pinworker migrate status --json",
	}, "show the platform's set as well")
	status.RunE = each(func() []postgres.Set {
		if platform {
			return []postgres.Set{postgres.PlatformSet, postgres.WorkerSet}
		}
		return []postgres.Set{postgres.WorkerSet}
	}, "There are no migrations.", func(cmd *cobra.Command, m *postgres.Migrator, set postgres.Set) ([]postgres.Migration, error) {
		return m.Status(cmd.Context(), set)
	})

	down := withPlatform(&cobra.Command{
		Use: "down", Short: "Take back the newest migration, and the data in what it drops",
		Long: `Takes back the newest migration of the worker's set, with the data in what it drops: events,
messages that are not published yet. It asks for --yes.`,
		Example: "  pinworker migrate down --yes",
	}, "take back the newest migration of the platform's set instead")
	var yes bool
	down.Flags().BoolVar(&yes, "yes", false, "drop the data as well")
	takeBack := each(func() []postgres.Set {
		if platform {
			return []postgres.Set{postgres.PlatformSet}
		}
		return []postgres.Set{postgres.WorkerSet}
	}, "Nothing to do: nothing is applied.", func(cmd *cobra.Command, m *postgres.Migrator, set postgres.Set) ([]postgres.Migration, error) {
		return m.Down(cmd.Context(), set)
	})
	down.RunE = func(cmd *cobra.Command, args []string) error {
		if !yes {
			return usage("migrate down drops data with what it takes back: say --yes, if that is meant")
		}
		return takeBack(cmd, args)
	}
	return parent(cmd, up, status, down)
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
