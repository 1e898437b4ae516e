package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/pin-platform/pinworker/sql/migrations"
)

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
func (m *Migrator) Up(ctx context.Context, set Set) ([]Migration, error) {
	if set == WorkerSet {
		if err := m.checkPlatform(ctx); err != nil {
			return nil, err
		}
	}
	schema, err := fs.ReadFile(migrations.FS, m.context+"/schema.sql")
	if err != nil {
		return nil, err
	}
	if _, err := m.db.ExecContext(ctx, string(schema)); err != nil {
		return nil, fmt.Errorf("create schema %s: %w", m.context, err)
	}
	provider, err := m.provider(set)
	if err != nil {
		return nil, err
	}
	results, err := provider.Up(ctx)
	return m.applied(set, results), m.explain(set, err)
}

// Down takes back the newest migration of a set and returns it, if there is one.
func (m *Migrator) Down(ctx context.Context, set Set) ([]Migration, error) {
	provider, err := m.provider(set)
	if err != nil {
		return nil, err
	}
	result, err := provider.Down(ctx)
	if errors.Is(err, goose.ErrNoNextVersion) {
		return nil, nil
	}
	if err != nil {
		return nil, m.explain(set, err)
	}
	return m.applied(set, []*goose.MigrationResult{result}), nil
}

// Status returns the migrations of a set, applied or pending, in order. It only reads.
func (m *Migrator) Status(ctx context.Context, set Set) ([]Migration, error) {
	provider, err := m.provider(set)
	if err != nil {
		return nil, err
	}
	var exists bool
	if err := m.db.QueryRowContext(ctx, "SELECT to_regclass($1) IS NOT NULL", m.table(set)).Scan(&exists); err != nil {
		return nil, m.explain(set, err)
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

// Current returns ErrSchemaBehind where the worker's set has pending migrations.
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
	return nil
}

func (m *Migrator) table(set Set) string { return m.context + ".goose_" + string(set) }

func (m *Migrator) provider(set Set) (*goose.Provider, error) {
	files, err := fs.Sub(migrations.FS, m.context+"/"+string(set))
	if err != nil {
		return nil, err
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, m.db, files,
		goose.WithTableName(m.table(set)), goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
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
