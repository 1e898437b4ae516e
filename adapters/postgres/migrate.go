package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/pin-platform/pinworker/sql/migrations"
)

// Contexts are the contexts that have a schema, by its name.
var Contexts = []string{"calendar", "promotion", "crm"}

// Set is one of a context's two sets of migrations.
type Set string

// The sets. Each keeps its own account in the context's schema.
const (
	PlatformSet Set = "platform" // the tables that the platform's services own
	WorkerSet   Set = "worker"   // event store, outbox, and the indexes that jobs poll by
)

// Migration is one step of a set.
type Migration struct {
	Context   string
	Set       Set
	Version   int64
	Name      string
	AppliedAt time.Time // zero: pending
}

// ErrSchemaBehind says that the database lacks migrations of the worker's set.
var ErrSchemaBehind = errors.New("the database's schema is behind: run `pinworker migrate up`")

// Migrator brings one context's schema up to date.
type Migrator struct {
	db      *sql.DB
	context string
}

// NewMigrator returns the migrator of a context's database. Close it after use, before db.
func NewMigrator(db *DB, contextName string) *Migrator {
	return &Migrator{db: stdlib.OpenDBFromPool(db.Pool), context: contextName}
}

// Close gives the connections back.
func (m *Migrator) Close() error { return m.db.Close() }

// Up applies what is pending of a set and returns it. Several processes may do so at once:
// they wait for each other. The worker's set needs the platform's tables: a *PlatformError says
// what they lack, before anything is changed.
func (m *Migrator) Up(ctx context.Context, set Set) (steps []Migration, err error) {
	err = m.alone(ctx, func() error {
		if set == WorkerSet {
			if err := m.checkPlatform(ctx, false); err != nil {
				return err
			}
		}
		steps, err = m.up(ctx, set)
		return err
	})
	return steps, err
}

// UpAll applies both sets, the platform's first: for a database that is this program's own.
func (m *Migrator) UpAll(ctx context.Context) error {
	for _, set := range []Set{PlatformSet, WorkerSet} {
		if _, err := m.Up(ctx, set); err != nil {
			return err
		}
	}
	return nil
}

// alone runs work while no other process migrates this database.
func (m *Migrator) alone(ctx context.Context, work func() error) (err error) {
	conn, err := m.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect to migrate %s: %w", m.context, err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	const try, unlock = "SELECT pg_try_advisory_lock(hashtext('pinworker migrate'))", "SELECT pg_advisory_unlock(hashtext('pinworker migrate'))"
	for {
		var locked bool
		if err := conn.QueryRowContext(ctx, try).Scan(&locked); err != nil {
			return fmt.Errorf("wait for other migrations of %s: %w", m.context, err)
		}
		if locked {
			break
		}
		// Waiting within the database would keep a snapshot open, which an index that is
		// built concurrently waits for in turn.
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	defer func() {
		_, unlocked := conn.ExecContext(context.WithoutCancel(ctx), unlock)
		err = errors.Join(err, unlocked)
	}()
	return work()
}

func (m *Migrator) up(ctx context.Context, set Set) ([]Migration, error) {
	if _, err := m.db.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS "+m.context); err != nil {
		return nil, fmt.Errorf("create schema %s: %w", m.context, err)
	}
	provider, err := m.provider(set)
	if err != nil {
		return nil, err
	}
	results, err := provider.Up(ctx)
	return m.applied(set, results), m.explain(set, err)
}

// Down takes back the newest migration of a set, with the data in what it drops, and returns it,
// if there is one.
func (m *Migrator) Down(ctx context.Context, set Set) (steps []Migration, err error) {
	err = m.alone(ctx, func() error {
		if exists, err := m.begun(ctx, set); err != nil || !exists {
			return err
		}
		provider, err := m.provider(set)
		if err != nil {
			return err
		}
		result, err := provider.Down(ctx)
		switch {
		case errors.Is(err, goose.ErrNoNextVersion):
			return nil
		case err != nil:
			return m.explain(set, err)
		}
		steps = []Migration{m.step(set, result.Source)}
		return nil
	})
	return steps, err
}

// begun reports whether any migration of a set was ever applied.
func (m *Migrator) begun(ctx context.Context, set Set) (exists bool, err error) {
	err = m.db.QueryRowContext(ctx, "SELECT to_regclass($1) IS NOT NULL", m.table(set)).Scan(&exists)
	return exists, m.explain(set, err)
}

// Status returns the migrations of a set, applied or pending, in order. It only reads.
func (m *Migrator) Status(ctx context.Context, set Set) ([]Migration, error) {
	provider, err := m.provider(set)
	if err != nil {
		return nil, err
	}
	exists, err := m.begun(ctx, set)
	if err != nil {
		return nil, err
	}
	var steps []Migration
	if !exists { // goose would create its table
		for _, source := range provider.ListSources() {
			steps = append(steps, m.step(set, source))
		}
		return steps, nil
	}
	status, err := provider.Status(ctx)
	for _, s := range status {
		step := m.step(set, s.Source)
		if s.State == goose.StateApplied {
			step.AppliedAt = s.AppliedAt.UTC()
		}
		steps = append(steps, step)
	}
	return steps, m.explain(set, err)
}

// Current returns ErrSchemaBehind where the worker's set has pending migrations, a
// *PlatformError where the platform's tables lack what the worker needs.
func (m *Migrator) Current(ctx context.Context) error {
	steps, err := m.Status(ctx, WorkerSet)
	if err != nil {
		return err
	}
	for _, step := range steps {
		if step.AppliedAt.IsZero() {
			return fmt.Errorf("context %s lacks %s: %w", m.context, step.Name, ErrSchemaBehind)
		}
	}
	return m.checkPlatform(ctx, true)
}

func (m *Migrator) table(set Set) string { return m.context + ".goose_" + string(set) }

func (m *Migrator) provider(set Set) (*goose.Provider, error) {
	files, err := migrations.Set(m.context, string(set))
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, m.db, files,
		goose.WithTableName(m.table(set)), goose.WithDisableGlobalRegistry(true))
}

func (m *Migrator) step(set Set, source *goose.Source) Migration {
	return Migration{Context: m.context, Set: set, Version: source.Version, Name: source.Path}
}

func (m *Migrator) applied(set Set, results []*goose.MigrationResult) []Migration {
	var steps []Migration
	for _, result := range results {
		step := m.step(set, result.Source)
		step.AppliedAt = time.Now().UTC()
		steps = append(steps, step)
	}
	return steps
}

func (m *Migrator) explain(set Set, err error) error {
	if err != nil {
		return fmt.Errorf("migrate the %s set of %s: %w", set, m.context, err)
	}
	return nil
}
