package postgres_test

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/adapters/postgres"
)

// A pooler in transaction mode keeps nothing of a session: no named prepared statements, no
// settings beyond a transaction, no session locks.
func TestJobs_KeepThePortsPromisesThroughPgBouncerInTransactionMode(t *testing.T) {
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Skip("needs PgBouncer (CI installs it): ", err)
	}
	through := func(t *testing.T, db *postgres.DB) hands {
		return handsOf(open(t, pgbouncer(t, program, db.Pool.Config().ConnString())))
	}
	t.Run("lead-expiration", func(t *testing.T) {
		portstest.Leads(t, func(t *testing.T) portstest.LeadStore {
			store, db := leadStore(t)
			h := through(t, db)
			store.Due, store.Ledger, store.Quarantine = h.crm.Due, h.crm.Ledger, postgres.NewQuarantine(h.db, "crm")
			return store
		})
	})
	t.Run("expire-promotions", func(t *testing.T) {
		portstest.Purchases(t, func(t *testing.T) portstest.PurchaseStore {
			store, db := purchaseStore(t)
			h := through(t, db)
			store.Due, store.Ledger, store.Quarantine = h.promotion.Due, h.promotion.Ledger, postgres.NewQuarantine(h.db, "promotion")
			return store
		})
	})
	ofCalendar := func(polled string) func(*testing.T) portstest.CalendarStore {
		return func(t *testing.T) portstest.CalendarStore {
			store, db := calendarStore(t, polled)
			h := through(t, db)
			c := h.calendar
			store.DueReminders, store.Overdue, store.Quarantine = c.DueReminders, c.Overdue, postgres.NewQuarantine(h.db, "calendar")
			store.SlotLedger, store.AppointmentLedger, store.EventLedger, store.ReminderLedger = c.SlotLedger, c.AppointmentLedger, c.EventLedger, c.ReminderLedger
			return store
		}
	}
	t.Run("reminder-dispatch", func(t *testing.T) { portstest.Reminders(t, ofCalendar("event_reminders")) })
	t.Run("appointment-timeout", func(t *testing.T) { portstest.Appointments(t, ofCalendar("appointments")) })
}

// pgbouncer starts a pooler in front of a database and returns the URL through it, for the
// worker's role, as README tells operators to spell it.
func pgbouncer(t *testing.T, program, database string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	folder, err := os.MkdirTemp("", "pgbouncer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) }) //nolint:errcheck // it is temporary
	port := embeddedtest.FreePort(t)
	config := filepath.Join(folder, "pgbouncer.ini")
	text := fmt.Sprintf(`[databases]
* = host=%s port=%s user=worker password=worker
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
`, u.Hostname(), u.Port(), port)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, config)
	if os.Getuid() == 0 { // it refuses root
		nobody, err := user.Lookup("nobody")
		if err != nil {
			t.Fatal(err)
		}
		uid, err := strconv.Atoi(nobody.Uid)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // the test is over
		cmd.Wait()         //nolint:errcheck // it was killed
	})
	u.Host = fmt.Sprintf("127.0.0.1:%d", port)
	u.User = url.User("worker")
	query := u.Query()
	query.Set("default_query_exec_mode", "cache_describe")
	u.RawQuery = query.Encode()
	deadline := time.Now().Add(10 * time.Second)
	for {
		conn, err := net.Dial("tcp", u.Host)
		if err == nil {
			conn.Close() //nolint:errcheck // it was only a knock
			return u.String()
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
