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
)

func TestMain(m *testing.M) { embeddedtest.Main(m) }

// open connects to a database.
func open(t testing.TB, url string) *postgres.DB {
	t.Helper()
	return openAs(t, url, "pinworker-test", 8)
}

// openAs connects under an application_name, with so many connections at most.
func openAs(t testing.TB, url, name string, connections int) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(postgres.Config{
		URL: url, MaxConnections: connections, ApplicationName: name,
		StatementTimeout: 30 * time.Second, LockTimeout: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// settled waits until nobody else is in a transaction: what was given up is rolled back by then.
func settled(t *testing.T, db *postgres.DB) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for busy := true; busy; {
		err := db.Pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL)`).Scan(&busy)
		if err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("a connection stays in its transaction")
		}
	}
}

// hooks are those of a context's polled table. Forget and Refuse are the owner's doing.
func hooks(t *testing.T, db, workerDB *postgres.DB, schema, table string) portstest.Hooks {
	t.Helper()
	return portstest.Hooks{
		Quarantine: postgres.NewQuarantine(workerDB, schema),
		Messages: func() []uuid.UUID {
			t.Helper()
			rows, err := db.Pool.Query(t.Context(), "SELECT uuid FROM "+schema+".outbox ORDER BY id")
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
		Forget: func() {
			t.Helper()
			execute(t, db, "DELETE FROM "+schema+".domain_events")
		},
		Lock: func(id uuid.UUID) func() {
			t.Helper()
			tx, err := db.Pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), "SELECT 1 FROM "+schema+"."+table+" WHERE id = $1 FOR UPDATE", id.String()); err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := tx.Rollback(t.Context()); err != nil {
					t.Error(err)
				}
			}
		},
		Refuse: func(id uuid.UUID) {
			t.Helper()
			execute(t, db, fmt.Sprintf("ALTER TABLE %s.%s ADD CONSTRAINT %q CHECK (id <> '%s' OR status IN ('Active', 'Pending'))", schema, table, id, id))
		},
		Accept: func(id uuid.UUID) {
			t.Helper()
			execute(t, db, fmt.Sprintf("ALTER TABLE %s.%s DROP CONSTRAINT %q", schema, table, id))
		},
		Cut: func() {
			t.Helper()
			execute(t, db, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE usename = 'worker' AND datname = current_database() AND xact_start IS NOT NULL`)
		},
	}
}

// leadStore is the adapter with its hooks, over a fresh database. The job's side of it runs under
// the worker's role; operations, which are the platform's, and hooks under the owner's.
func leadStore(t *testing.T) (portstest.LeadStore, *postgres.DB) {
	t.Helper()
	url := embeddedtest.Database(t)
	db, workerDB := open(t, url), open(t, embeddedtest.AsWorker(t, url))
	writer := outbox.NewWriter(outbox.Table{Schema: "crm"}, "pin/crm", func() {})
	job := postgres.NewCRM(workerDB, writer)
	return portstest.LeadStore{
		Hooks: hooks(t, db, workerDB, "crm", "leads"),
		Due:   job.Due, Leads: postgres.NewCRM(db, writer).Leads, Ledger: job.Ledger,
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

func purchaseStore(t *testing.T) (portstest.PurchaseStore, *postgres.DB) {
	t.Helper()
	url := embeddedtest.Database(t)
	db, workerDB := open(t, url), open(t, embeddedtest.AsWorker(t, url))
	writer := outbox.NewWriter(outbox.Table{Schema: "promotion"}, "pin/promotion", func() {})
	job := postgres.NewPromotion(workerDB, writer)
	return portstest.PurchaseStore{
		Hooks: hooks(t, db, workerDB, "promotion", "promotion_purchases"),
		Due:   job.Due, Purchases: postgres.NewPromotion(db, writer).Purchases, Ledger: job.Ledger,
	}, db
}

func TestPurchases_KeepThePortsPromises(t *testing.T) {
	portstest.Purchases(t, func(t *testing.T) portstest.PurchaseStore {
		store, _ := purchaseStore(t)
		return store
	})
}

// calendarStore is the adapter, its hooks about one of the polled tables.
func calendarStore(t *testing.T, polled string) (portstest.CalendarStore, *postgres.DB) {
	t.Helper()
	url := embeddedtest.Database(t)
	db, workerDB := open(t, url), open(t, embeddedtest.AsWorker(t, url))
	writer := outbox.NewWriter(outbox.Table{Schema: "calendar"}, "pin/calendar", func() {})
	job, operations := postgres.NewCalendar(workerDB, writer), postgres.NewCalendar(db, writer)
	return portstest.CalendarStore{
		Hooks:        hooks(t, db, workerDB, "calendar", polled),
		DueReminders: job.DueReminders, Overdue: job.Overdue,
		Slots: operations.Slots, Bookable: operations.Bookable, Bookings: operations.Bookings, Schedules: operations.Schedules,
		SlotLedger: job.SlotLedger, AppointmentLedger: job.AppointmentLedger, EventLedger: job.EventLedger, ReminderLedger: job.ReminderLedger,
	}, db
}

func TestReminders_KeepThePortsPromises(t *testing.T) {
	portstest.Reminders(t, func(t *testing.T) portstest.CalendarStore {
		store, _ := calendarStore(t, "event_reminders")
		return store
	})
}

func TestAppointments_KeepThePortsPromises(t *testing.T) {
	portstest.Appointments(t, func(t *testing.T) portstest.CalendarStore {
		store, _ := calendarStore(t, "appointments")
		return store
	})
}
