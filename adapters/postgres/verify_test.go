package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/adapters/postgres"
	appcrm "github.com/pin-platform/pinworker/app/crm"
	"github.com/pin-platform/pinworker/app/verify"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/ports"
)

// history makes a lead that was registered, extended and expired: versions 1, 2 and 3.
func history(t *testing.T, store portstest.LeadStore) crm.LeadID {
	t.Helper()
	r := portstest.Registration(portstest.Noon.Add(-2 * time.Hour))
	operations := appcrm.Operations{Leads: store.Leads, Clock: func() time.Time { return portstest.Noon.AddDate(0, -1, 0) }}
	if err := operations.Register(t.Context(), "agent", r); err != nil {
		t.Fatal(err)
	}
	if err := operations.Extend(t.Context(), "agent", r.Lead, portstest.Noon.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	claim := ports.Claim{AsOf: portstest.Noon, Limit: 10, Run: ports.NewRunID()}
	if outcome, err := store.Due.Transition(t.Context(), claim, appcrm.Expire); err != nil || len(outcome.Applied) != 1 {
		t.Fatalf("outcome %+v, %v", outcome, err)
	}
	return r.Lead
}

func findings(t *testing.T, db *postgres.DB, since time.Time) (verify.Report, []verify.Finding) {
	t.Helper()
	var found []verify.Finding
	report, err := verify.Run(t.Context(), postgres.NewCRM(db, nil).Ledger, since, func(f verify.Finding) { found = append(found, f) })
	if err != nil {
		t.Fatal(err)
	}
	return report, found
}

func TestVerify_FindsEveryChangeOfAnEvent(t *testing.T) {
	w := newWorld(t)
	lead := portstest.Registration(portstest.Noon.Add(-2 * time.Hour))
	w.given("crm", registered(lead), func(w *world) {
		w.must(w.owner.leads(monthAgo).Extend(t.Context(), "agent", lead.Lead, portstest.Noon.Add(-time.Hour)))
	}, does(hands.expireLeads))
	if found := w.findings("crm"); len(found) > 0 {
		t.Fatalf("before any change: %+v", found)
	}
	for _, change := range []struct {
		name, statement string
		want            []string // one finding holds each of these
	}{
		{"event stream_id", "UPDATE crm.domain_events SET stream_id = gen_random_uuid() WHERE version = 2", []string{"event 3: stands where event 2 belongs", "event 2 (LeadExtended) is not what was recorded"}},
		{"event stream_type", "UPDATE crm.domain_events SET stream_type = 'Deal' WHERE version = 2", []string{"event 2 (LeadExtended) is not what was recorded"}},
		{"event version", "UPDATE crm.domain_events SET version = 9 WHERE version = 3", []string{"event 9: stands where event 3 belongs"}},
		{"event event_type", "UPDATE crm.domain_events SET event_type = 'LeadArchived' WHERE version = 3", []string{"event 3 (LeadArchived) is not what was recorded", "Status:"}},
		{"event event_type unknown", "UPDATE crm.domain_events SET event_type = 'LeadSold' WHERE version = 3", []string{`there is no event "LeadSold"`}},
		{"event data that a later event overrides", `UPDATE crm.domain_events SET data = replace(data::text, '"ExpiresAt":"2026-03-01T10', '"ExpiresAt":"2026-03-01T09')::json WHERE version = 1`, []string{"event 1 (LeadRegistered) is not what was recorded"}},
		{"event data", `UPDATE crm.domain_events SET data = replace(data::text, '"At":"2026-03-01T12:00', '"At":"2026-03-01T12:01')::json WHERE version = 3`, []string{"event 3 (LeadExpired) is not what was recorded", "ExpiredAt:", "UpdatedAt:"}},
		{"event data broken", `UPDATE crm.domain_events SET data = '{"At": 5}' WHERE version = 3`, []string{"decode event 3 (LeadExpired)"}},
		{"event actor", "UPDATE crm.domain_events SET actor = 'nobody' WHERE version = 1", []string{"event 1 (LeadRegistered) is not what was recorded"}},
		{"event correlation_id", "UPDATE crm.domain_events SET correlation_id = gen_random_uuid() WHERE version = 3", []string{"event 3 (LeadExpired) is not what was recorded"}},
		{"event occurred_at", "UPDATE crm.domain_events SET occurred_at = now() WHERE version = 2", []string{"event 2 (LeadExtended) is not what was recorded"}},
		{"event digest", `UPDATE crm.domain_events SET digest = '\x00' WHERE version = 2`, []string{"event 2 (LeadExtended) is not what was recorded"}},
		{"first event deleted", "DELETE FROM crm.domain_events WHERE version = 1", []string{"event 2: stands where event 1 belongs"}},
		{"event deleted", "DELETE FROM crm.domain_events WHERE version = 2", []string{"event 3: stands where event 2 belongs"}},
	} {
		w.run(change.name, func(t *testing.T) {
			w.again()
			w.execute(change.statement)
			found := w.findings("crm")
			for _, want := range change.want {
				matches := 0
				for _, f := range found {
					if strings.Contains(f.What, want) && !f.Ahead {
						matches++
					}
				}
				if matches != 1 {
					t.Errorf("%d findings say %q: %+v", matches, want, found)
				}
			}
		})
	}
}

func TestVerify_ARowAheadOfItsStreamIsCountedApart(t *testing.T) {
	store, db := leadStore(t)
	history(t, store)
	execute(t, db, "UPDATE crm.leads SET version = version + 1, status = 'Archived'")
	report, found := findings(t, db, time.Time{})
	if report != (verify.Report{Streams: 1, Ahead: 1}) {
		t.Errorf("report %+v; want one row ahead and no difference", report)
	}
	if len(found) != 1 || !found[0].Ahead || found[0].What != "Version: the row is at 4, ahead of its stream at 3" {
		t.Errorf("findings %+v", found)
	}
}

func TestVerify_ARowThatWasNeverJournalledIsCountedApart(t *testing.T) {
	_, db := leadStore(t)
	execute(t, db, `INSERT INTO crm.leads SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(),
		'Active', now(), NULL, 1, now(), now()`)
	if report, found := findings(t, db, time.Time{}); report != (verify.Report{Ahead: 1}) || len(found) > 0 {
		t.Errorf("report %+v, findings %+v; want it counted only", report, found)
	}
}

func TestVerify_SinceLooksAtWhatChangedLaterOnly(t *testing.T) {
	store, db := leadStore(t)
	history(t, store)
	if report, _ := findings(t, db, portstest.Noon); report.Streams != 1 {
		t.Errorf("%d streams changed since noon; want 1", report.Streams)
	}
	if report, _ := findings(t, db, portstest.Noon.Add(time.Microsecond)); report.Streams != 0 {
		t.Errorf("%d streams changed since then; want none", report.Streams)
	}
}

func TestVerify_ReadsMoreThanAPage(t *testing.T) {
	_, db := leadStore(t)
	execute(t, db, `INSERT INTO crm.leads SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(),
		'Active', now(), NULL, 1, now(), now() FROM generate_series(1, 2500)`)
	if report, _ := findings(t, db, time.Time{}); report.Ahead != 2500 {
		t.Errorf("%d rows; want 2500", report.Ahead)
	}
}

// does a page of a job.
func does(page func(hands, context.Context, int) (taken, error)) func(*world) {
	return func(w *world) {
		if took, err := page(w.worker, w.Context(), 10); err != nil || took.done != 1 {
			w.Fatalf("took %+v, %v", took, err)
		}
	}
}

func TestVerify_FindsEveryColumnChangedBehindItsBack(t *testing.T) {
	moment := portstest.Noon.Add(-time.Minute)
	lead, order := portstest.Registration(moment), portstest.Order(moment)
	slot, request := portstest.Booking(moment)
	request.Lead = calendar.LeadID(uuid.New())
	request.Reminders[0].OffsetMinutes = 7 * 24 * 60 // it is sent before the appointment times out
	contexts := map[string][]func(*world){
		"crm":       {registered(lead), does(hands.expireLeads)},
		"promotion": {purchased(order), does(hands.expirePromotions)},
		"calendar":  {booked(slot, request, moment), does(hands.dispatch), does(hands.timeOut)},
	}
	w := newWorld(t)
	w.execute(`ALTER TABLE calendar.appointments DROP CONSTRAINT appointments_slot_id_fkey, DROP CONSTRAINT appointments_calendar_event_id_fkey;
		ALTER TABLE calendar.event_reminders DROP CONSTRAINT event_reminders_event_id_fkey;
		ALTER TABLE promotion.promotion_targets DROP CONSTRAINT promotion_targets_purchase_id_fkey`)
	columns := 0
	for table, row := range map[string]struct {
		id     [16]byte
		status string // another one that its table allows
	}{
		"crm.leads":                     {lead.Lead, "Active"},
		"promotion.promotion_purchases": {order.Purchase, "Active"},
		"calendar.availability_slots":   {slot.Slot, "Withdrawn"},
		"calendar.calendar_events":      {request.CalendarEvent, "Completed"},
		"calendar.appointments":         {request.Appointment, "Declined"},
		"calendar.event_reminders":      {request.Reminders[0].Reminder, "Skipped"},
	} {
		schema, _, _ := strings.Cut(table, ".")
		w.given(schema, contexts[schema]...)
		if found := w.findings(schema); len(found) > 0 {
			t.Fatalf("%s: before any change: %+v", table, found)
		}
		// changed changes the row and wants verify to say so of it, once, and of no other.
		changed := func(name, change, want string) {
			w.run(table+" "+name, func(t *testing.T) {
				w.again()
				w.execute(strings.ReplaceAll(change, "TABLE", table)+" WHERE id = $1", uuid.UUID(row.id))
				found := w.findings(schema)
				if len(found) != 1 || found[0].ID != row.id || found[0].Ahead || !strings.HasPrefix(found[0].What, want) {
					t.Errorf("findings %+v; want one of %s: %s", found, uuid.UUID(row.id), want)
				}
			})
		}
		changed("deleted", "DELETE FROM TABLE", "row: is missing, its stream is at version")
		for _, c := range w.columns(table) {
			columns++
			to, field := c.another(), c.field()
			switch c.name {
			case "id": // under the other id it is a row without a stream, which is only counted
				field = "row: is missing, its stream is at version"
			case "status":
				to = "'" + row.status + "'"
			case "version":
				to = "version - 1"
			}
			changed(c.name, "UPDATE TABLE SET "+c.name+" = "+to, field)
			if c.kind == "timestamp with time zone" {
				changed(c.name+" to infinity", "UPDATE TABLE SET "+c.name+" = 'infinity'", "row: "+c.name+" is infinity")
			}
			if c.nullable && c.name != "cancelled_by" { // by nobody: it is null
				changed(c.name+" to null", "UPDATE TABLE SET "+c.name+" = NULL", field)
			}
		}
	}
	if columns != 10+10+11+15+10+13 { // spec: domain, tables
		t.Errorf("%d columns were changed", columns)
	}
}

// column is one of a table's.
type column struct {
	name, kind string
	nullable   bool
}

// another is another value than the one that it has.
func (c column) another() string {
	switch c.kind {
	case "uuid":
		return "gen_random_uuid()"
	case "timestamp with time zone":
		return "coalesce(" + c.name + ", now()) + interval '1 microsecond'"
	case "boolean":
		return "NOT " + c.name
	case "text":
		return c.name + " || '.'"
	}
	return c.name + " + 1"
}

// field is what a finding about the column begins with.
func (c column) field() string {
	var name strings.Builder
	for word := range strings.SplitSeq(c.name, "_") {
		if word == "id" {
			word = "ID"
		}
		name.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return name.String() + ":"
}

func (w *world) columns(table string) []column {
	w.Helper()
	schema, name, _ := strings.Cut(table, ".")
	rows, err := w.db.Pool.Query(w.Context(), `SELECT column_name, data_type, is_nullable = 'YES' FROM information_schema.columns
		WHERE table_schema = $1 AND table_name = $2 ORDER BY ordinal_position`, schema, name)
	w.must(err)
	columns, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c column, err error) {
		return c, row.Scan(&c.name, &c.kind, &c.nullable)
	})
	w.must(err)
	return columns
}

func TestVerify_FindsATargetThatIsAnotherOneTooManyOrGone(t *testing.T) {
	w := newWorld(t)
	order := portstest.Order(portstest.Noon)
	w.given("promotion", purchased(order))
	for name, change := range map[string]string{
		"type":    "UPDATE promotion.promotion_targets SET target_type = 'Village' WHERE target_id = $1",
		"id":      "UPDATE promotion.promotion_targets SET target_id = gen_random_uuid() WHERE target_id = $1",
		"one too": "INSERT INTO promotion.promotion_targets SELECT purchase_id, 'Village', target_id FROM promotion.promotion_targets WHERE target_id = $1",
		"gone":    "DELETE FROM promotion.promotion_targets WHERE target_id = $1",
	} {
		w.run(name, func(t *testing.T) {
			w.again()
			w.execute(change, order.Targets[1].ID)
			found := w.findings("promotion")
			if len(found) != 1 || found[0].ID != uuid.UUID(order.Purchase) || !strings.HasPrefix(found[0].What, "Targets:") {
				t.Errorf("findings %+v; want one of the targets", found)
			}
		})
	}
}

func TestVerify_AReminderThatGaveWayHasNoRow(t *testing.T) {
	w := newWorld(t)
	plan := portstest.Plan(portstest.Noon.Add(time.Hour))
	dropped := uuid.UUID(plan.Reminders[0].Reminder)
	w.given("calendar", scheduled(plan), func(w *world) {
		w.execute("CREATE TABLE calendar.before AS TABLE calendar.event_reminders")
		moved := []calendar.ReminderPlan{{Reminder: portstest.NewID[calendar.EventReminder](), OffsetMinutes: 5}}
		w.must(w.owner.agenda(portstest.Noon).Reschedule(t.Context(), "agent", plan.CalendarEvent, plan.StartAt.AddDate(0, 0, 1), plan.EndAt.AddDate(0, 0, 1), moved))
	})
	if found := w.findings("calendar"); len(found) > 0 {
		t.Fatalf("findings %+v about a row that is rightly missing", found)
	}
	w.execute("INSERT INTO calendar.event_reminders TABLE calendar.before")
	found := w.findings("calendar")
	if len(found) != 1 || found[0].ID != dropped || found[0].What != "row: is there, though its stream ended at version 2" {
		t.Errorf("findings %+v; want the row that came back", found)
	}
	w.again()
	w.execute("DELETE FROM calendar.event_reminders")
	found = w.findings("calendar")
	if len(found) != 1 || found[0].ID == dropped || found[0].What != "row: is missing, its stream is at version 1" {
		t.Errorf("findings %+v; want the new reminder missing", found)
	}
}
