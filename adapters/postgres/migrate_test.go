package postgres_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/postgres"
)

// platformTable is crm.leads as the platform's own services might have it: with more columns.
const platformTable = `CREATE SCHEMA crm; CREATE TABLE crm.leads (
	id uuid PRIMARY KEY, tenant_id uuid NOT NULL, executor_agent_user_id uuid, primary_investor_user_id uuid,
	status varchar(20) NOT NULL, client_name text, notes text, expires_at timestamptz NOT NULL, expired_at timestamptz,
	version integer NOT NULL, created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL)`

func migrator(t *testing.T, statements ...string) (*postgres.Migrator, *postgres.DB) {
	t.Helper()
	db, err := postgres.Open(postgres.Config{URL: embeddedtest.EmptyDatabase(t), MaxConnections: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	for _, s := range statements {
		execute(t, db, s)
	}
	m := postgres.NewMigrator(db, "crm")
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m, db
}

func relations(t *testing.T, db *postgres.DB) (n int) {
	t.Helper()
	err := db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE n.nspname NOT LIKE 'pg\_%' AND n.nspname <> 'information_schema'`).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestMigrator_AppliesTheWorkersSetBesideThePlatformsTables(t *testing.T) {
	m, db := migrator(t, platformTable)
	if steps, err := m.Up(t.Context(), postgres.WorkerSet); err != nil || len(steps) != 6 {
		t.Fatalf("steps %v, %v; want 6", steps, err)
	}
	if err := m.Current(t.Context()); err != nil {
		t.Error(err)
	}
	execute(t, db, "SELECT client_name, notes FROM crm.leads")
	if steps, err := m.Up(t.Context(), postgres.WorkerSet); err != nil || len(steps) != 0 {
		t.Errorf("again: steps %v, %v; want none", steps, err)
	}
}

func TestMigrator_NamesWhatThePlatformsTablesLackBeforeAnythingChanges(t *testing.T) {
	for what, test := range map[string]struct {
		statements []string
		want       []string
	}{
		"no table": {nil, []string{"table crm.leads is missing; for a new system: migrate up --with-platform-tables"}},
		"columns": {
			[]string{platformTable, "ALTER TABLE crm.leads DROP COLUMN expired_at, DROP COLUMN version, ALTER COLUMN tenant_id TYPE text"},
			[]string{
				"crm.leads lacks the column expired_at (timestamp with time zone)",
				"crm.leads lacks the column version (integer)",
				"crm.leads.tenant_id is text: uuid is needed",
			},
		},
		"an index of our name that is another one": {
			[]string{platformTable, "CREATE INDEX ix_leads_expires_at ON crm.leads (expires_at)"},
			[]string{`index crm.ix_leads_expires_at is another one: it is "CREATE INDEX ix_leads_expires_at ON crm.leads USING btree (expires_at)"`},
		},
		"an index that is invalid": {
			[]string{
				platformTable, "CREATE INDEX ix_leads_expires_at ON crm.leads (expires_at, id) WHERE status = 'Active'",
				"UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'crm.ix_leads_expires_at'::regclass",
			},
			[]string{"index crm.ix_leads_expires_at is invalid, its building was broken off: drop it and run this again"},
		},
	} {
		t.Run(what, func(t *testing.T) {
			m, db := migrator(t, test.statements...)
			before := relations(t, db)
			_, err := m.Up(t.Context(), postgres.WorkerSet)
			var lacks *postgres.PlatformError
			if !errors.As(err, &lacks) || !slices.Equal(lacks.Problems, test.want) {
				t.Fatalf("error %v; want\n%s", err, strings.Join(test.want, "\n"))
			}
			if after := relations(t, db); after != before {
				t.Errorf("%d relations before, %d after: something was changed", before, after)
			}
		})
	}
}

func TestMigrator_TakesAnIndexThatIsThereAlreadyForItsOwn(t *testing.T) {
	m, _ := migrator(t, platformTable, "CREATE INDEX ix_leads_expires_at ON crm.leads (expires_at, id) WHERE status = 'Active'")
	if _, err := m.Up(t.Context(), postgres.WorkerSet); err != nil {
		t.Error(err)
	}
}

func TestMigrator_AnIndexThatWasDroppedSinceIsMissed(t *testing.T) {
	m, db := migrator(t, platformTable)
	if _, err := m.Up(t.Context(), postgres.WorkerSet); err != nil {
		t.Fatal(err)
	}
	execute(t, db, "DROP INDEX crm.ix_leads_expires_at")
	var lacks *postgres.PlatformError
	want := []string{"index crm.ix_leads_expires_at is missing, someone dropped it: make it again as the worker's migrations do"}
	if err := m.Current(t.Context()); !errors.As(err, &lacks) || !slices.Equal(lacks.Problems, want) {
		t.Errorf("error %v; want %s", err, want)
	}
}

func TestMigrator_AnEmptyDatabaseIsBehindAndStaysAsItIs(t *testing.T) {
	m, db := migrator(t)
	before := relations(t, db)
	if err := m.Current(t.Context()); !errors.Is(err, postgres.ErrSchemaBehind) {
		t.Errorf("error %v; want ErrSchemaBehind", err)
	}
	if after := relations(t, db); after != before {
		t.Errorf("%d relations before, %d after a look", before, after)
	}
}

func TestMigrator_TellsWhatWasDoneBeforeTheMigrationThatFailed(t *testing.T) {
	m, _ := migrator(t, platformTable, "CREATE TABLE crm.quarantine (someone text)") // in the way of the fourth
	steps, err := m.Up(t.Context(), postgres.WorkerSet)
	if err == nil || len(steps) != 3 || steps[2].Name != "00003_ix_leads_expires_at.sql" || steps[2].AppliedAt.IsZero() {
		t.Errorf("steps %v, %v; want 3 and why the fourth failed", steps, err)
	}
}

func TestMigrator_TellsAContextThatIsNotOursFromOneThatIsBehind(t *testing.T) {
	m, db := migrator(t, platformTable)
	if err := m.Current(t.Context()); !postgres.NotOurs(err) {
		t.Errorf("never set up: error %v; want it not ours", err)
	}
	if _, err := m.Up(t.Context(), postgres.WorkerSet); err != nil {
		t.Fatal(err)
	}
	execute(t, db, "DELETE FROM crm.goose_worker WHERE version_id = 6")
	if err := m.Current(t.Context()); !errors.Is(err, postgres.ErrSchemaBehind) || postgres.NotOurs(err) {
		t.Errorf("a migration lacks: error %v; want it ours, and behind", err)
	}
	closed, err := postgres.Open(postgres.Config{URL: embeddedtest.AsWorker(t, db.Pool.Config().ConnString()), MaxConnections: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer closed.Close()
	stranger := postgres.NewMigrator(closed, "crm")
	defer stranger.Close() //nolint:errcheck // it only looked
	if err := stranger.Current(t.Context()); !postgres.NotOurs(err) {
		t.Errorf("closed to our role: error %v; want it not ours", err)
	}
}

func TestMigrator_SeveralAtOnceWaitForEachOther(t *testing.T) {
	m, _ := migrator(t, platformTable)
	done := make(chan error, 3)
	for range cap(done) {
		go func() {
			_, err := m.Up(t.Context(), postgres.WorkerSet)
			done <- err
		}()
	}
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
