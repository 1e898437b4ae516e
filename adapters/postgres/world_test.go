package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/adapters/postgres"
	appcalendar "github.com/pin-platform/pinworker/app/calendar"
	appcrm "github.com/pin-platform/pinworker/app/crm"
	apppromotion "github.com/pin-platform/pinworker/app/promotion"
	"github.com/pin-platform/pinworker/app/verify"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/promotion"
	"github.com/pin-platform/pinworker/ports"
)

// hands do the jobs and the operations of all contexts through one pool.
type hands struct {
	db        *postgres.DB
	crm       postgres.CRM
	promotion postgres.Promotion
	calendar  postgres.Calendar
}

func handsOf(db *postgres.DB) hands {
	writer := func(schema string) *outbox.Writer {
		return outbox.NewWriter(outbox.Table{Schema: schema}, "pin/"+schema, func() {})
	}
	return hands{
		db: db, crm: postgres.NewCRM(db, writer("crm")), promotion: postgres.NewPromotion(db, writer("promotion")),
		calendar: postgres.NewCalendar(db, writer("calendar")),
	}
}

func clock(at time.Time) func() time.Time { return func() time.Time { return at } }

func (h hands) leads(at time.Time) appcrm.Operations {
	return appcrm.Operations{Leads: h.crm.Leads, Clock: clock(at)}
}

func (h hands) purchases(at time.Time) apppromotion.Operations {
	return apppromotion.Operations{Purchases: h.promotion.Purchases, Clock: clock(at)}
}

func (h hands) agenda(at time.Time) appcalendar.Operations {
	return appcalendar.Operations{
		Slots: h.calendar.Slots, Bookable: h.calendar.Bookable, Bookings: h.calendar.Bookings, Schedules: h.calendar.Schedules,
		Clock: clock(at),
	}
}

// taken is what became of the items of a job's page.
type taken struct{ done, passedOver, failed int }

// pageOf claims one page of a job at noon.
func pageOf[A, E any](ctx context.Context, due ports.Due[A, E], rule ports.Rule[A, E], limit int) (taken, error) {
	outcome, err := due.Transition(ctx, ports.Claim{AsOf: portstest.Noon, Limit: limit, Run: ports.NewRunID()}, rule)
	return taken{len(outcome.Applied), outcome.SkippedLocked, len(outcome.Failed)}, err
}

func (h hands) expireLeads(ctx context.Context, limit int) (taken, error) {
	return pageOf(ctx, h.crm.Due, appcrm.Expire, limit)
}

func (h hands) expirePromotions(ctx context.Context, limit int) (taken, error) {
	return pageOf(ctx, h.promotion.Due, apppromotion.Expire, limit)
}

func (h hands) dispatch(ctx context.Context, limit int) (taken, error) {
	return pageOf(ctx, h.calendar.DueReminders, appcalendar.Dispatch, limit)
}

func (h hands) timeOut(ctx context.Context, limit int) (taken, error) {
	return pageOf(ctx, h.calendar.Overdue, appcalendar.TimeOut, limit)
}

// world is a database in which one context at a time has a state that can be put back, read as text
// and verified. Operations are done by owner, jobs by worker.
type world struct {
	*testing.T
	url           string
	db            *postgres.DB // the owner's
	owner, worker hands

	schema  string // the context's
	restore string // puts back what was saved
	read    string // reads all that the context holds
}

func newWorld(t *testing.T) *world {
	t.Helper()
	url := embeddedtest.Database(t)
	db := open(t, url)
	return &world{T: t, url: url, db: db, owner: handsOf(db), worker: handsOf(open(t, embeddedtest.AsWorker(t, url)))}
}

// run is a subtest in the same world.
func (w *world) run(name string, test func(t *testing.T)) {
	whole := w.T
	whole.Run(name, func(t *testing.T) {
		w.T = t
		defer func() { w.T = whole }()
		test(t)
	})
}

// tables are the contexts' aggregates', those first that others refer to.
var tables = map[string][]string{
	"crm":       {"leads"},
	"promotion": {"promotion_purchases", "promotion_targets"},
	"calendar":  {"availability_slots", "calendar_events", "appointments", "event_reminders"},
}

// given empties a context, makes what the test begins with, and saves it. What it published counts
// as gone.
func (w *world) given(schema string, makes ...func(*world)) {
	w.Helper()
	w.schema = schema
	all := append(slices.Clone(tables[schema]), "domain_events")
	var empty, put, save, read []string
	for _, table := range all {
		name := schema + "." + table
		empty = append([]string{"DELETE FROM " + name}, empty...) // those last that others refer to
		put = append(put, fmt.Sprintf("INSERT INTO %s TABLE saved.%s", name, table))
		save = append(save, fmt.Sprintf("CREATE TABLE saved.%s AS TABLE %s", table, name))
		columns := "to_jsonb(x)"
		if table == "domain_events" {
			columns += " - 'correlation_id' - 'digest'" // differ with every run
		}
		read = append(read, fmt.Sprintf("SELECT '%s ' || (%s)::text AS line FROM %s AS x", table, columns, name))
	}
	for _, table := range []string{"outbox", "quarantine"} {
		empty = append(empty, "DELETE FROM "+schema+"."+table)
	}
	read = append(
		read, fmt.Sprintf("SELECT 'outbox ' || uuid || ' ' || topic || ' ' || key FROM %s.outbox", schema),
		fmt.Sprintf("SELECT 'quarantine ' || item FROM %s.quarantine", schema),
	)
	w.restore = strings.Join(append(slices.Clone(empty), put...), "; ")
	w.read = "SELECT coalesce(string_agg(line, E'\\n' ORDER BY line), '') FROM (" + strings.Join(read, " UNION ALL ") + ") AS lines"
	w.execute(strings.Join(empty, "; "))
	for _, thing := range makes {
		thing(w)
	}
	w.execute("DROP SCHEMA IF EXISTS saved CASCADE; CREATE SCHEMA saved; " + strings.Join(save, "; "))
	w.again()
}

// again puts back what was saved.
func (w *world) again() { w.execute(w.restore) }

func (w *world) execute(statements string, args ...any) {
	w.Helper()
	execute(w.T, w.db, statements, args...)
}

// state is all that the context holds, but for what differs with every run.
func (w *world) state() (text string) {
	w.Helper()
	if err := w.db.Pool.QueryRow(w.Context(), w.read).Scan(&text); err != nil {
		w.Fatal(err)
	}
	return text
}

// sound checks that every row of the context is the fold of its stream.
func (w *world) sound(when string) {
	w.Helper()
	for _, f := range w.findings(w.schema) {
		if !f.Ahead {
			w.Errorf("%s: %s: %s", when, f.ID, f.What)
		}
	}
}

// findings are those of `verify` over all aggregates of a context.
func (w *world) findings(schema string) (found []verify.Finding) {
	w.Helper()
	switch schema {
	case "crm":
		found = verified[crm.Lead, crm.Snapshot](w, w.worker.crm.Ledger)
	case "promotion":
		found = verified[promotion.PromotionPurchase, promotion.Snapshot](w, w.worker.promotion.Ledger)
	case "calendar":
		c := w.worker.calendar
		found = slices.Concat(
			verified[calendar.AvailabilitySlot, calendar.SlotSnapshot](w, c.SlotLedger),
			verified[calendar.Appointment, calendar.AppointmentSnapshot](w, c.AppointmentLedger),
			verified[calendar.CalendarEvent, calendar.EventSnapshot](w, c.EventLedger),
			verified[calendar.EventReminder, calendar.ReminderSnapshot](w, c.ReminderLedger),
		)
	}
	return found
}

func verified[A verify.Aggregate[A, S, E], S, E any](w *world, ledger ports.Ledger[A, E]) (found []verify.Finding) {
	w.Helper()
	_, err := verify.Run(w.Context(), ledger, time.Time{}, func(f verify.Finding) { found = append(found, f) })
	if err != nil {
		w.Fatal(err)
	}
	return found
}

// What a test may begin with. All of it was made a month before noon, if nothing else is said.

var monthAgo = portstest.Noon.AddDate(0, -1, 0)

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func registered(r crm.Registration) func(*world) {
	return func(w *world) { w.must(w.owner.leads(monthAgo).Register(w.Context(), "agent", r)) }
}

func purchased(o promotion.Order) func(*world) {
	return func(w *world) { w.must(w.owner.purchases(monthAgo).Purchase(w.Context(), "manager", o)) }
}

func scheduled(p calendar.EventPlan) func(*world) {
	return func(w *world) { w.must(w.owner.agenda(monthAgo).Schedule(w.Context(), "agent", p)) }
}

func published(slot calendar.Publication) func(*world) {
	return func(w *world) { w.must(w.owner.agenda(monthAgo).Publish(w.Context(), "agent", slot)) }
}

// booked makes an appointment of a slot, so that it times out at a moment.
func booked(slot calendar.Publication, r calendar.Request, timesOut time.Time) func(*world) {
	return func(w *world) {
		published(slot)(w)
		w.must(w.owner.agenda(timesOut.Add(-24*time.Hour)).Book(w.Context(), "investor", slot.Slot, r))
	}
}

func confirmed(id calendar.AppointmentID) func(*world) {
	return func(w *world) { w.must(w.owner.agenda(portstest.Noon).Confirm(w.Context(), "agent", id)) }
}

func started(id calendar.EventID) func(*world) {
	return func(w *world) { w.must(w.owner.agenda(portstest.Noon).Start(w.Context(), "agent", id)) }
}

// unjournalled loses aggregates' streams: rows as a service without a journal writes them.
func unjournalled[ID ~[16]byte](ids ...ID) func(*world) {
	return func(w *world) {
		for _, id := range ids {
			w.execute("DELETE FROM "+w.schema+".domain_events WHERE stream_id = $1", uuid.UUID(id))
		}
	}
}

// calledOff is an event that a service without a journal has cancelled, and forgot its reminders.
func calledOff(id calendar.EventID) func(*world) {
	return func(w *world) {
		w.execute("UPDATE calendar.calendar_events SET status = 'Cancelled', version = version + 1 WHERE id = $1", uuid.UUID(id))
	}
}
