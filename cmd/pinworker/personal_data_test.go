package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/domain/promotion"
)

// personal is what people would write into the platform's tables. It has a quotation mark and letters
// beyond ASCII, which some encodings would hide: only its first word is looked for.
const personal = `Marker4711 "Иван Петров", +7 900 000-00-00, ivan@example.org`

const traceOfIt = "Marker4711"

// writtenBy are the columns for text that the platform may have beside those that we know.
var writtenBy = []string{"title", "description", "comment", "full_name", "phone", "email", "address", "notes"}

// personify gives each of the platform's tables columns that people write into, of which every row has
// something, and every event a reason for its cancellation in somebody's own words.
func (p *platform) personify() {
	p.Helper()
	quoted := "'" + personal + "'"
	for _, table := range []string{
		"calendar.availability_slots", "calendar.calendar_events", "calendar.event_reminders", "calendar.appointments",
		"promotion.promotion_purchases", "promotion.promotion_targets", "crm.leads", "crm.deals",
	} {
		for _, column := range writtenBy {
			p.execute("ALTER TABLE " + table + " ADD " + column + " text NOT NULL DEFAULT " + quoted)
		}
		p.execute("ALTER TABLE " + table + " ADD details jsonb DEFAULT jsonb_build_object('note', " + quoted + ")")
	}
	p.execute(`CREATE FUNCTION calendar.explain() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.cancel_reason := ` + quoted + `; RETURN NEW; END $$`)
	p.execute("CREATE TRIGGER explain BEFORE INSERT ON calendar.calendar_events FOR EACH ROW EXECUTE FUNCTION calendar.explain()")
}

// refusals are ways in which a database refuses a row and repeats what is in it; what a trigger says
// comes as a notice as well. infrastructure: it is not said to be the row's fault, and undoes the unit.
var refusals = []struct {
	name, statement string // of a trigger's function
	infrastructure  bool
}{
	{"a constraint, whose DETAIL is the row", "", false},
	{"a trigger's own words", `RAISE EXCEPTION '%', words USING DETAIL = words, HINT = words, ERRCODE = 'P0001'`, false},
	{"a trigger that says it was unique", `RAISE unique_violation USING MESSAGE = words, DETAIL = words`, false},
	{"a value that is cast", `PERFORM words::integer`, false},
	{"a trigger that speaks of a lock", `RAISE EXCEPTION '%', words USING DETAIL = words, ERRCODE = '55P03'`, true},
}

// refuseWith has the database refuse an item of each job in one of those ways; "" is the constraint.
func (p *platform) refuseWith(statement string, items []uuid.UUID) {
	p.Helper()
	for i, j := range polledJobs {
		name, table := "refuse_"+strings.ReplaceAll(items[i].String(), "-", ""), j.schema+"."+j.table
		if statement == "" {
			p.execute(fmt.Sprintf("ALTER TABLE %s ADD CONSTRAINT %s CHECK (id <> '%s' OR status IN ('Pending', 'Active'))", table, name, items[i]))
			continue
		}
		p.execute(fmt.Sprintf(`CREATE FUNCTION %s.%s() RETURNS trigger LANGUAGE plpgsql AS
			$$ DECLARE words text := NEW.phone; BEGIN RAISE NOTICE '%%', words; %s; RETURN NEW; END $$`, j.schema, name, statement))
		p.execute(fmt.Sprintf("CREATE TRIGGER %s BEFORE UPDATE ON %s FOR EACH ROW WHEN (OLD.id = '%s') EXECUTE FUNCTION %s.%s()",
			name, table, items[i], j.schema, name))
	}
}

// operations runs every operation on items of its own, and returns what was said of those that the
// database refused.
func (p *platform) operations(refused []uuid.UUID) (said []error) {
	p.Helper()
	now, ctx := time.Now().UTC(), p.Context()
	o := p.worker.at(now)
	plan := func() calendar.EventID {
		plan := portstest.Plan(now.Add(time.Hour))
		p.must(o.calendar.Schedule(ctx, "owner", plan))
		return plan.CalendarEvent
	}
	moved, ended, off := plan(), plan(), plan()
	p.must(o.calendar.Reschedule(ctx, "owner", moved, now.Add(2*time.Hour), now.Add(3*time.Hour),
		[]calendar.ReminderPlan{{Reminder: portstest.NewID[calendar.EventReminder](), OffsetMinutes: 10}}))
	p.must(o.calendar.Start(ctx, "owner", ended))
	p.must(o.calendar.Complete(ctx, "owner", ended))
	p.must(o.calendar.CancelEvent(ctx, "owner", off))
	book := func() (calendar.AppointmentID, calendar.EventID) {
		slot, request := portstest.Booking(now.Add(time.Hour))
		p.must(o.calendar.Publish(ctx, "agent", slot))
		p.must(o.calendar.Book(ctx, "investor", slot.Slot, request))
		return request.Appointment, request.CalendarEvent
	}
	kept, event := book()
	p.must(o.calendar.Confirm(ctx, "agent", kept))
	p.must(o.calendar.Start(ctx, "agent", event))
	p.must(o.calendar.CompleteAppointment(ctx, "agent", kept))
	declined, _ := book()
	p.must(o.calendar.Decline(ctx, "agent", declined))
	cancelled, _ := book()
	p.must(o.calendar.CancelAppointment(ctx, "investor", cancelled, ids.UserID(uuid.New())))
	order := portstest.Order(now.Add(time.Hour))
	p.must(o.promotion.Purchase(ctx, "manager", order))
	p.must(o.promotion.Cancel(ctx, "manager", order.Purchase))
	lead := portstest.Registration(now.Add(time.Hour))
	p.must(o.crm.Register(ctx, "agent", lead))
	p.must(o.crm.Extend(ctx, "agent", lead.Lead, now.Add(2*time.Hour)))
	p.must(o.crm.Archive(ctx, "agent", lead.Lead))
	return []error{
		o.calendar.Decline(ctx, "agent", calendar.AppointmentID(refused[1])), o.promotion.Cancel(ctx, "manager", promotion.PurchaseID(refused[2])),
		o.crm.Archive(ctx, "agent", crm.LeadID(refused[3])),
	}
}

// texts are all values of a query that returns one, as one text.
func (p *platform) texts(query string) string {
	p.Helper()
	var all *string
	p.must(p.context("crm").db.Pool.QueryRow(p.Context(), "SELECT string_agg(t::text, E'\n') FROM ("+query+") AS t").Scan(&all))
	if all == nil {
		return ""
	}
	return *all
}

// Everything that a worker writes or says is searched for what people wrote, at the level debug, under
// its own role and under the owner's, to whom the database tells whole rows.
func TestPersonalData_LeavesThePlatformsTablesNowhere(t *testing.T) {
	for name, role := range map[string]func(*platform) string{
		"the worker's role": func(p *platform) string { return p.url }, "the owner's": func(p *platform) string { return p.owner },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlatform(t)
			t.Setenv("PINWORKER_DATABASE_URL", role(p))
			p.personify()
			broker, spans := embeddedtest.Kafka(t, 0, published.Topics...), newReceiver(t)
			d := drive(t, "database.url="+role(p), "kafka.brokers="+broker.Brokers()[0], "tracing.endpoint="+spans.url)
			places := make(map[string]string)

			// What is due and sound, an event that was called off without its reminders, and a row that is
			// ahead of its stream: its baseline is the whole row.
			p.dueItems()
			off, ahead := p.dueItems(), p.dueItems()
			p.execute("UPDATE calendar.calendar_events SET status = 'Cancelled', version = version + 1 WHERE id = (SELECT event_id FROM calendar.event_reminders WHERE id = '" + off[0].String() + "')")
			p.execute("UPDATE calendar.calendar_events SET version = version + 1 WHERE id = (SELECT calendar_event_id FROM calendar.appointments WHERE id = '" + ahead[1].String() + "')")
			for i, j := range polledJobs {
				p.execute("UPDATE " + j.schema + "." + j.table + " SET version = version + 1 WHERE id = '" + ahead[i].String() + "'")
			}
			if failed := d.cycles(); failed != 0 {
				t.Errorf("%d cycles failed", failed)
			}
			// What the database refuses, in every way that there is.
			for _, r := range refusals {
				items := p.dueItems()
				p.refuseWith(r.statement, items)
				if failed := d.cycles(); failed != 0 != r.infrastructure {
					t.Errorf("%s: %d cycles failed", r.name, failed)
				}
				for i, err := range p.operations(items) {
					if err == nil {
						t.Errorf("%s: operation %d was not refused", r.name, i)
					}
					places[fmt.Sprintf("what an operation returns, %s, %d", r.name, i)] = fmt.Sprint(err)
				}
				if r.infrastructure { // it would undo what follows
					p.execute("DROP TRIGGER refuse_" + strings.ReplaceAll(items[0].String(), "-", "") + " ON calendar.event_reminders")
				}
			}
			p.execute(`INSERT INTO crm.outbox (topic, shard, key, uuid, payload)
				SELECT 'pin.crm.lead-expired.v1', 0, 'key', gen_random_uuid(), convert_to(phone, 'UTF8') FROM crm.leads LIMIT 1`)
			eventually(t, "all is published, or parked", func() bool { return len(p.waiting()) == 0 })

			_, places["/metrics"] = d.get("/metrics")
			if code := d.stop(); code != exitDone {
				t.Errorf("exit %d", code)
			}
			places["log"] = d.log.String()
			places["spans"] = fmt.Sprint(spans.all())
			records, err := readBack(t.Context(), broker.Brokers(), published.Topics...)
			p.must(err)
			for _, r := range records {
				places["messages"] += fmt.Sprintf("%s %s %s %s\n", r.Topic, r.Key, r.Headers, r.Value)
			}
			for _, schema := range []string{"calendar", "promotion", "crm"} {
				places[schema+" event store"] = p.texts("SELECT * FROM " + schema + ".domain_events")
				places[schema+" quarantine"] = p.texts("SELECT * FROM " + schema + ".quarantine")
			}
			places["parked, less the payload"] = p.texts("SELECT topic, key, error FROM crm.outbox_parked")
			for _, args := range [][]string{
				{"quarantine", "list"}, {"outbox", "parked"}, {"backlog"}, {"verify"}, {"plan", "lead-expiration"}, {"plan", "appointment-timeout"},
				{"explain", off[1].String()}, {"history", ahead[1].String()},
			} {
				_, stdout, stderr := pinworker(t, append(args, "--json")...)
				places["pinworker "+args[0]] += stdout + stderr
			}
			for place, text := range places {
				if at := strings.Index(text, traceOfIt); at >= 0 {
					t.Errorf("%s has what people wrote: ...%s...", place, text[max(0, at-300):min(len(text), at+100)])
				}
				if text == "" {
					t.Errorf("nothing is found in %s, and so nothing was searched", place)
				}
			}
			if !strings.Contains(places["messages"], string(calendar.ReasonTimedOut)) {
				t.Error("the one fixed reason is not published")
			}
		})
	}
}

// Without this the test above could not fail: the database does tell.
func TestPersonalData_IsInWhatTheDatabaseSays(t *testing.T) {
	p := newPlatform(t)
	p.personify()
	for _, r := range refusals {
		items := p.dueItems()
		p.refuseWith(r.statement, items)
		for i, j := range polledJobs {
			_, err := p.context(j.schema).db.Pool.Exec(context.Background(), "UPDATE "+j.schema+"."+j.table+" SET status = 'Expired' WHERE id = $1", items[i].String())
			var pg *pgconn.PgError
			if !errors.As(err, &pg) || !strings.Contains(pg.Message+pg.Detail, traceOfIt) {
				t.Errorf("%s, %s: %v; want what is in the row", r.name, j.job, err)
			}
		}
	}
}
