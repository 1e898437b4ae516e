package memory_test

import (
	"testing"

	"github.com/pin-platform/pinworker/adapters/memory"
	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/domain/eventsourcing"
)

func hooks[E eventsourcing.Event](w *memory.World[E]) portstest.Hooks {
	return portstest.Hooks{
		Quarantine: w, Messages: w.MessageIDs, Forget: w.Forget, Lock: w.Lock, Refuse: w.Refuse, Accept: w.Accept, Cut: w.Cut,
	}
}

func TestLeads_KeepThePortsPromises(t *testing.T) {
	portstest.Leads(t, func(*testing.T) portstest.LeadStore {
		c := memory.NewCRM()
		return portstest.LeadStore{Hooks: hooks(c.World), Due: c.Due, Leads: c.Leads, Ledger: c.Ledger}
	})
}

func TestPurchases_KeepThePortsPromises(t *testing.T) {
	portstest.Purchases(t, func(*testing.T) portstest.PurchaseStore {
		c := memory.NewPromotion()
		return portstest.PurchaseStore{Hooks: hooks(c.World), Due: c.Due, Purchases: c.Purchases, Ledger: c.Ledger}
	})
}

func calendarStore(*testing.T) portstest.CalendarStore {
	c := memory.NewCalendar()
	return portstest.CalendarStore{
		Hooks: hooks(c.World), DueReminders: c.DueReminders, Overdue: c.Overdue,
		Slots: c.Slots, Bookable: c.Bookable, Bookings: c.Bookings, Schedules: c.Schedules,
		SlotLedger: c.SlotLedger, AppointmentLedger: c.AppointmentLedger, EventLedger: c.EventLedger, ReminderLedger: c.ReminderLedger,
	}
}

func TestReminders_KeepThePortsPromises(t *testing.T) { portstest.Reminders(t, calendarStore) }

func TestAppointments_KeepThePortsPromises(t *testing.T) { portstest.Appointments(t, calendarStore) }
