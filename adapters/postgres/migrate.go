package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/pin-platform/pinworker/sql/migrations"
	"github.com/pin-platform/pinworker/sql/roles"
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

// errNotSetUp is ErrSchemaBehind where all of the set is missing.
var errNotSetUp = fmt.Errorf("nothing of it is set up in this database; %w", ErrSchemaBehind)

// NotOurs reports whether an error of Current says that a context does not live in this database, as
// far as our role may see: it was never set up, or is closed to us.
func NotOurs(err error) bool {
	return errors.Is(err, errNotSetUp) || hasCode(err, insufficientPrivilege)
}

// SQLSTATE codes.
const (
	undefinedTable        = "42P01"
	insufficientPrivilege = "42501"
)

func hasCode(err error, code string) bool {
	var refusal *pgconn.PgError
	return errors.As(err, &refusal) && refusal.Code == code
}

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

// Grant gives the role pinworker what a worker needs of this database, in each context that is in it.
func (m *Migrator) Grant(ctx context.Context) error {
	return m.alone(ctx, func() error {
		if _, err := m.db.ExecContext(ctx, roles.Pinworker); err != nil {
			return fmt.Errorf("give the role pinworker its rights in %s: %w", m.context, err)
		}
		return nil
	})
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
	var partly *goose.PartialError
	if errors.As(err, &partly) {
		results = partly.Applied // before the one that failed
	}
	return m.applied(set, results), m.explain(set, err)
}

// Down takes back the newest migration of a set, with the data in what it drops, and returns it,
// if there is one.
func (m *Migrator) Down(ctx context.Context, set Set) (steps []Migration, err error) {
	err = m.alone(ctx, func() error {
		if applied, err := m.record(ctx, set); err != nil || len(applied) == 0 { // goose would create its table
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

// record returns when each migration of a set was applied, by its version; none where no migration
// ever was. It asks once for all of them, where goose asks once for each: a probe waits for it.
func (m *Migrator) record(ctx context.Context, set Set) (map[int64]time.Time, error) {
	applied := make(map[int64]time.Time)
	rows, err := m.db.QueryContext(ctx, "SELECT version_id, max(tstamp) FROM "+m.table(set)+" GROUP BY version_id") //nolint:gosec // a name of ours
	switch {
	case hasCode(err, undefinedTable):
		return applied, nil
	case err != nil:
		return nil, m.explain(set, err)
	}
	defer rows.Close() //nolint:errcheck // rows.Err tells
	for rows.Next() {
		var version int64
		var at time.Time
		if err := rows.Scan(&version, &at); err != nil {
			return nil, m.explain(set, err)
		}
		applied[version] = at.UTC()
	}
	return applied, m.explain(set, rows.Err())
}

// Status returns the migrations of a set, applied or pending, in order. It only reads.
func (m *Migrator) Status(ctx context.Context, set Set) ([]Migration, error) {
	provider, err := m.provider(set)
	if err != nil {
		return nil, err
	}
	applied, err := m.record(ctx, set)
	if err != nil {
		return nil, err
	}
	var steps []Migration
	for _, source := range provider.ListSources() {
		step := m.step(set, source)
		step.AppliedAt = applied[step.Version]
		steps = append(steps, step)
	}
	return steps, nil
}

// Current returns ErrSchemaBehind where the worker's set has pending migrations, a
// *PlatformError where the platform's tables lack what the worker needs.
func (m *Migrator) Current(ctx context.Context) error {
	steps, err := m.Status(ctx, WorkerSet)
	if err != nil {
		return err
	}
	pending := slices.DeleteFunc(slices.Clone(steps), func(s Migration) bool { return !s.AppliedAt.IsZero() })
	switch len(pending) {
	case 0:
	case len(steps):
		return errNotSetUp
	default:
		return fmt.Errorf("lacks %s: %w", pending[0].Name, ErrSchemaBehind)
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
