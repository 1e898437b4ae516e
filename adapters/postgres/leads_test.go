package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/adapters/postgres"
	"github.com/pin-platform/pinworker/domain/crm"
)

func TestMain(m *testing.M) { embeddedtest.Main(m) }

// open connects to a database.
func open(t testing.TB, url string) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(postgres.Config{
		URL: url, MaxConnections: 8, ApplicationName: "pinworker-test",
		StatementTimeout: 30 * time.Second, LockTimeout: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// leadStore is the adapter with its hooks, over a fresh database. The job's side of it runs under
// the worker's role; operations, which are the platform's, and hooks under the owner's.
func leadStore(t *testing.T) (portstest.LeadStore, *postgres.DB) {
	t.Helper()
	url := embeddedtest.Database(t)
	db, workerDB := open(t, url), open(t, embeddedtest.AsWorker(t, url))
	writer := outbox.NewWriter(outbox.Table{Schema: "crm"}, "pin/crm", func() {})
	leads, due := postgres.NewLeads(db, writer), postgres.NewLeads(workerDB, writer)
	return portstest.LeadStore{
		Due: due, Leads: leads, Ledger: postgres.NewLeadLedger(workerDB),
		Messages: func() []uuid.UUID {
			t.Helper()
			rows, err := db.Pool.Query(t.Context(), "SELECT uuid FROM crm.outbox ORDER BY id")
			if err != nil {
				t.Fatal(err)
			}
			ids, err := pgx.CollectRows(rows, pgx.RowTo[[16]byte])
			if err != nil {
				t.Fatal(err)
			}
			messages := make([]uuid.UUID, len(ids))
			for i, id := range ids {
				messages[i] = id
			}
			return messages
		},
		Import: func(lead crm.Lead) {
			t.Helper()
			s := lead.Snapshot()
			execute(t, db, `INSERT INTO crm.leads (id, tenant_id, executor_agent_user_id, primary_investor_user_id,
				status, expires_at, version, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
				s.ID.String(), s.TenantID.String(), s.ExecutorAgentUserID.String(), s.PrimaryInvestorUserID.String(),
				string(s.Status), s.ExpiresAt, s.Version, s.CreatedAt, s.UpdatedAt)
		},
		Lock: func(id crm.LeadID) func() {
			t.Helper()
			tx, err := db.Pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), "SELECT 1 FROM crm.leads WHERE id = $1 FOR UPDATE", id.String()); err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := tx.Rollback(t.Context()); err != nil {
					t.Error(err)
				}
			}
		},
		Refuse: func(id crm.LeadID) {
			t.Helper()
			execute(t, db, fmt.Sprintf("ALTER TABLE crm.leads ADD CONSTRAINT %q CHECK (id <> '%s' OR status = 'Active')", id, id))
		},
		Accept: func(id crm.LeadID) {
			t.Helper()
			execute(t, db, fmt.Sprintf("ALTER TABLE crm.leads DROP CONSTRAINT %q", id))
		},
		Cut: func() {
			t.Helper()
			execute(t, db, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE usename = 'worker' AND datname = current_database() AND xact_start IS NOT NULL`)
		},
		Quarantine: due,
	}, db
}

func execute(t testing.TB, db *postgres.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.Pool.Exec(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
}

func TestLeads_KeepThePortsPromises(t *testing.T) {
	portstest.Leads(t, func(t *testing.T) portstest.LeadStore {
		store, _ := leadStore(t)
		return store
	})
}
