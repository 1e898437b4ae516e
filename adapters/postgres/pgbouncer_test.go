package postgres_test

import (
	"testing"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/adapters/postgres"
)

// A pooler in transaction mode keeps nothing of a session: no named prepared statements, no
// settings beyond a transaction, no session locks.
func TestJobs_KeepThePortsPromisesThroughPgBouncerInTransactionMode(t *testing.T) {
	through := func(t *testing.T, db *postgres.DB) hands {
		return handsOf(open(t, embeddedtest.PgBouncer(t, db.Pool.Config().ConnString(), 2)))
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
