package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/adapters/postgres"
	appcalendar "github.com/pin-platform/pinworker/app/calendar"
	appcrm "github.com/pin-platform/pinworker/app/crm"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/ports"
)

// holding has a session of an application's hold what a statement locks, until the test is over or
// let go of it.
func (w *world) holding(application, statement string, args ...any) (pid int, release func()) {
	w.Helper()
	db := openAs(w.T, w.url, application, 1)
	tx, err := db.Pool.Begin(w.Context())
	w.must(err)
	_, err = tx.Exec(w.Context(), statement, args...)
	w.must(err)
	return int(tx.Conn().PgConn().PID()), func() { w.must(tx.Rollback(context.WithoutCancel(w.Context()))) }
}

func (w *world) number(query string, args ...any) (n int) {
	w.Helper()
	w.must(w.db.Pool.QueryRow(w.Context(), query, args...).Scan(&n))
	return n
}

// who are the applications that hold the one item that is due.
func who[A, E any](w *world, preview ports.Preview[A, E], rule ports.Rule[A, E]) (names []string) {
	w.Helper()
	peeked, err := preview.Peek(w.Context(), ports.Claim{AsOf: portstest.Noon, Limit: 10}, rule)
	w.must(err)
	if len(peeked.Items) != 1 || peeked.Items[0].Locked != (len(peeked.Items[0].Lockers) > 0) {
		w.Fatalf("foreseen %+v; want the one item, and who holds it if anybody does", peeked.Items)
	}
	for _, l := range peeked.Items[0].Lockers {
		names = append(names, l.Application)
	}
	slices.Sort(names)
	return names
}

func TestPreview_NamesWhoeverAClaimWouldHaveToWaitFor(t *testing.T) {
	w := newWorld(t)
	lead := portstest.Registration(portstest.Noon.Add(-time.Minute))
	w.given("crm", registered(lead))
	ask := func() []string { w.Helper(); return who(w, w.worker.crm.Preview, appcrm.Expire) }
	wants := func(names ...string) {
		w.Helper()
		if got := ask(); !slices.Equal(got, names) {
			w.Errorf("held by %q; want %q", got, names)
		}
	}
	const row = " FROM crm.leads WHERE id = $1"
	id := uuid.UUID(lead.Lead)
	w.run("nobody", func(*testing.T) { wants() })
	w.run("a row that refers to it is being inserted: that hinders no claim", func(*testing.T) {
		_, release := w.holding("deals", "SELECT 1"+row+" FOR KEY SHARE", id)
		defer release()
		wants()
	})
	w.run("two that share it: one has to be waited for after the other", func(*testing.T) {
		_, one := w.holding("reports", "SELECT 1"+row+" FOR SHARE", id)
		_, another := w.holding("audit", "SELECT 1"+row+" FOR SHARE", id)
		wants("reports")
		one()
		wants("audit")
		another()
	})
	w.run("the holder, not those who wait for it as well", func(*testing.T) {
		pid, release := w.holding("agents", "SELECT 1"+row+" FOR UPDATE", id)
		queueing := openAs(w.T, w.url, "queue", 1)
		ended := make(chan error, 1)
		go func() {
			_, err := queueing.Pool.Exec(context.WithoutCancel(w.Context()), "SELECT 1"+row+" FOR UPDATE", id)
			ended <- err
		}()
		for w.number("SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))", pid) == 0 {
			time.Sleep(time.Millisecond) // until it waits
		}
		wants("agents")
		release()
		w.must(<-ended)
	})
	w.run("a change that is not committed yet", func(*testing.T) {
		_, release := w.holding("crm-api", "UPDATE crm.leads SET updated_at = now() WHERE id = $1", id)
		defer release()
		wants("crm-api")
	})
	w.run("a savepoint's", func(*testing.T) {
		_, release := w.holding("batch", fmt.Sprintf("SAVEPOINT s; SELECT 1 FROM crm.leads WHERE id = '%s' FOR UPDATE", id))
		defer release()
		wants("batch")
	})
	w.run("a prepared transaction", func(*testing.T) {
		execute(w.T, w.db, fmt.Sprintf("BEGIN; SELECT 1 FROM crm.leads WHERE id = '%s' FOR UPDATE; PREPARE TRANSACTION 'forgotten'", id))
		defer execute(w.T, w.db, "ROLLBACK PREPARED 'forgotten'")
		wants("forgotten")
	})
}

func TestPreview_NamesWhoHoldsAPartner(t *testing.T) {
	w := newWorld(t)
	plan := portstest.Plan(portstest.Noon.Add(-time.Minute))
	w.given("calendar", scheduled(plan))
	_, release := w.holding("organiser", "SELECT 1 FROM calendar.calendar_events WHERE id = $1 FOR UPDATE", uuid.UUID(plan.CalendarEvent))
	if got := who(w, w.worker.calendar.ReminderPreview, appcalendar.Dispatch); !slices.Equal(got, []string{"organiser"}) {
		t.Errorf("a reminder, held by %q; want who holds its event", got)
	}
	release()
	due := portstest.Noon.Add(-time.Minute)
	slot, request := portstest.Booking(due)
	w.given("calendar", booked(slot, request, due))
	_, release = w.holding("sales", "SELECT 1 FROM calendar.availability_slots WHERE id = $1 FOR UPDATE", uuid.UUID(slot.Slot))
	if got := who(w, w.worker.calendar.AppointmentPreview, appcalendar.TimeOut); !slices.Equal(got, []string{"sales"}) {
		t.Errorf("an appointment, held by %q; want who holds its slot", got)
	}
	release()
	_, release = w.holding("notifications", "SELECT 1 FROM calendar.event_reminders WHERE id = $1 FOR UPDATE", uuid.UUID(request.Reminders[0].Reminder))
	defer release()
	if got := who(w, w.worker.calendar.AppointmentPreview, appcalendar.TimeOut); !slices.Equal(got, []string{"notifications"}) {
		t.Errorf("an appointment, held by %q; want who holds one of its reminders, which the job waits for", got)
	}
}

// A job leaves what is locked to its next tick, which for leads is an hour away: whoever looks must not
// be the one who locks.
func TestPreview_TakesNoLockWhereNobodyIsAtWork(t *testing.T) {
	w := newWorld(t)
	var makes []func(*world)
	for i := range 50 {
		makes = append(makes, registered(portstest.Registration(portstest.Noon.Add(-time.Duration(i+1)*time.Second))))
	}
	w.given("crm", makes...)
	w.execute("VACUUM FULL crm.leads") // forgets who ever locked a row
	peeked, err := w.worker.crm.Preview.Peek(t.Context(), ports.Claim{AsOf: portstest.Noon, Limit: 100}, appcrm.Expire)
	if err != nil || len(peeked.Items) != 50 {
		t.Fatalf("%d items, %v", len(peeked.Items), err)
	}
	if n := w.number("SELECT count(*) FROM crm.leads WHERE xmax <> 0"); n != 0 {
		t.Errorf("%d rows were locked by looking", n)
	}
}

// Where many are locked, it is asked for some of them who holds them: the rest is known to be locked.
func TestPreview_AsksForAFewOfManyThatAreLocked(t *testing.T) {
	w := newWorld(t)
	var makes []func(*world)
	for i := range 60 {
		makes = append(makes, registered(portstest.Registration(portstest.Noon.Add(-time.Duration(i+1)*time.Second))))
	}
	w.given("crm", makes...)
	_, release := w.holding("migration", "UPDATE crm.leads SET updated_at = now()")
	defer release()
	peeked, err := w.worker.crm.Preview.Peek(t.Context(), ports.Claim{AsOf: portstest.Noon, Limit: 100}, appcrm.Expire)
	w.must(err)
	locked, asked := 0, 0
	for _, item := range peeked.Items {
		if item.Locked {
			locked++
		}
		if len(item.Lockers) == 1 && item.Lockers[0].Application == "migration" {
			asked++
		}
	}
	if locked != 60 || asked != 20 || slices.ContainsFunc(peeked.Items, func(i ports.Foreseen[crm.Lead, crm.Event]) bool { return i.InVain }) {
		t.Errorf("%d locked, for %d of them it is told by whom; want 60 and 20", locked, asked)
	}
}

// With one connection, it can only be asked once the session that waited has given up.
func TestPreview_SaysLockedWhereItAskedInVain(t *testing.T) {
	w := newWorld(t)
	lead := portstest.Registration(portstest.Noon.Add(-time.Minute))
	w.given("crm", registered(lead))
	_, release := w.holding("agents", "SELECT 1 FROM crm.leads WHERE id = $1 FOR UPDATE", uuid.UUID(lead.Lead))
	defer release()
	for _, timeout := range []time.Duration{50 * time.Millisecond, time.Minute} { // shorter than it waits, and longer
		db, err := postgres.Open(postgres.Config{URL: w.url, MaxConnections: 1, StatementTimeout: time.Minute, LockTimeout: timeout})
		w.must(err)
		defer db.Close()
		peeked, err := postgres.NewCRM(db, nil).Preview.Peek(t.Context(), ports.Claim{AsOf: portstest.Noon, Limit: 1}, appcrm.Expire)
		w.must(err)
		if got := peeked.Items[0]; !got.Locked || !got.InVain || len(got.Lockers) > 0 {
			t.Errorf("lock timeout %s: foreseen %+v; want it locked, and that it was asked in vain by whom", timeout, got)
		}
	}
}

func TestPreview_ShowsNoValuesOfOthersStatements(t *testing.T) {
	w := newWorld(t)
	lead := portstest.Registration(portstest.Noon.Add(-time.Minute))
	w.given("crm", registered(lead))
	_, release := w.holding("crm-api", fmt.Sprintf(`/* for Ivan */ SELECT 'Ivan Petrov', 'O''Neil', E'O\'Neil', 'C:\', 79001234567, 1.5e3 AS n1, 0 AS "it's", -- 'Petrov
		$имя$+7 900$имя$ FROM crm.leads WHERE id = '%s' FOR UPDATE`, lead.Lead))
	defer release()
	peeked, err := w.owner.crm.Preview.Peek(t.Context(), ports.Claim{AsOf: portstest.Noon, Limit: 1}, appcrm.Expire)
	w.must(err)
	l := peeked.Items[0].Lockers[0]
	if want := `? SELECT ?, ?, ?, ?, ?, ? AS n1, ? AS "it's", ? ?`; strings.Join(strings.Fields(l.Statement), " ") != want || l.State != "idle in transaction" || l.Hidden || l.Since.IsZero() {
		t.Errorf("locked by %+v; want what it does, without the values", l)
	}
}
