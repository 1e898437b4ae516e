package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/app/plan"
	"github.com/pin-platform/pinworker/ports"
)

// polledJob is where a job's items lie, and how one is made that comes due at a moment.
type polledJob struct {
	job, schema, table string
	make               func(p *platform, due time.Time) uuid.UUID
}

var polledJobs = []polledJob{
	{string(ports.ReminderDispatch), "calendar", "event_reminders", func(p *platform, due time.Time) uuid.UUID {
		plan := portstest.Plan(due)
		p.must(p.worker.at(due.AddDate(0, 0, -1)).calendar.Schedule(p.Context(), "agent", plan))
		return uuid.UUID(plan.Reminders[0].Reminder)
	}},
	{string(ports.AppointmentTimeout), "calendar", "appointments", func(p *platform, due time.Time) uuid.UUID {
		slot, request := portstest.Booking(due)
		o := p.worker.at(due.AddDate(0, 0, -1)).calendar
		p.must(o.Publish(p.Context(), "agent", slot))
		p.must(o.Book(p.Context(), "investor", slot.Slot, request))
		return uuid.UUID(request.Appointment)
	}},
	{string(ports.ExpirePromotions), "promotion", "promotion_purchases", func(p *platform, due time.Time) uuid.UUID {
		order := portstest.Order(due)
		p.must(p.worker.at(due.AddDate(0, 0, -2)).promotion.Purchase(p.Context(), "manager", order))
		return uuid.UUID(order.Purchase)
	}},
	{string(ports.LeadExpiration), "crm", "leads", func(p *platform, due time.Time) uuid.UUID {
		lead := portstest.Registration(due)
		p.must(p.worker.at(due.AddDate(0, -1, 0)).crm.Register(p.Context(), "agent", lead))
		return uuid.UUID(lead.Lead)
	}},
}

// poison puts an item's stream ahead of its row: nothing can be decided on it.
func (p *platform) poison(j polledJob, id uuid.UUID) {
	p.Helper()
	p.execute("INSERT INTO " + j.schema + ".domain_events SELECT stream_id, stream_type, version + 100, event_type, data, actor, correlation_id, occurred_at, digest FROM " +
		j.schema + ".domain_events WHERE stream_id = '" + id.String() + "' ORDER BY version DESC LIMIT 1")
}

// quarantine puts an item on record for failing, held back for an hour.
func (p *platform) quarantine(j polledJob, id uuid.UUID) {
	p.Helper()
	p.execute("INSERT INTO " + j.schema + ".quarantine VALUES ('" + j.job + "', '" + id.String() + "', gen_random_uuid(), 4, now(), now(), 'first', 'last', now() + interval '1 hour')")
}

// hold has a session of an application's lock an item, as its operations do, until release is called.
func (p *platform) hold(j polledJob, id uuid.UUID, application string) (pid int, release func()) {
	p.Helper()
	u, err := url.Parse(p.owner)
	p.must(err)
	query := u.Query()
	query.Set("application_name", application)
	u.RawQuery = query.Encode()
	conn, err := pgx.Connect(p.Context(), u.String())
	p.must(err)
	_, err = conn.Exec(p.Context(), "BEGIN; SELECT id FROM "+j.schema+"."+j.table+" WHERE id = '"+id.String()+"' FOR UPDATE")
	p.must(err)
	return int(conn.PgConn().PID()), func() {
		_, err := conn.Exec(context.WithoutCancel(p.Context()), "ROLLBACK")
		p.must(errors.Join(err, conn.Close(context.WithoutCancel(p.Context()))))
	}
}

// statuses are those of all rows of a job's table.
func (p *platform) statuses(j polledJob) map[uuid.UUID]string {
	p.Helper()
	return collected[string](p, "SELECT id, status FROM "+j.schema+"."+j.table)
}

// records are what is in quarantine: how often it failed, and with what at last.
func (p *platform) records(j polledJob) map[uuid.UUID]string {
	p.Helper()
	return collected[string](p, "SELECT item, failures || ' times: ' || last_error FROM "+j.schema+".quarantine WHERE job = '"+j.job+"'")
}

// letters are the keys of what waits in the outbox, by ce_id.
func (p *platform) letters(j polledJob) map[uuid.UUID]string {
	p.Helper()
	return collected[string](p, "SELECT uuid, topic || ' ' || key FROM "+j.schema+".outbox")
}

// collected are a query's second values by its first, which are ids.
func collected[V any](p *platform, query string) map[uuid.UUID]V {
	p.Helper()
	rows, err := p.context("crm").db.Pool.Query(p.Context(), query)
	p.must(err)
	all := make(map[uuid.UUID]V)
	var id [16]byte
	var value V
	_, err = pgx.ForEachRow(rows, []any{&id, &value}, func() error { all[id] = value; return nil })
	p.must(err)
	return all
}

// difference is what changed, or is new.
func difference(before, after map[uuid.UUID]string) map[uuid.UUID]string {
	changed := maps.Clone(after)
	maps.DeleteFunc(changed, func(id uuid.UUID, now string) bool { was, known := before[id]; return known && was == now })
	return changed
}

// by returns what a plan says of its items of one verdict.
func (d planJSON) by(v plan.Verdict, says func(plannedItem) string) map[uuid.UUID]string {
	said := make(map[uuid.UUID]string)
	for _, item := range d.Items {
		if item.Verdict == v {
			said[item.ID] = says(item)
		}
	}
	return said
}

func TestPlan_ListsWhatRunThenDoes(t *testing.T) {
	for _, j := range polledJobs {
		t.Run(j.job, func(t *testing.T) {
			p := newPlatform(t)
			now := time.Now().UTC().Truncate(time.Microsecond)
			ago := func(seconds int) uuid.UUID { return j.make(p, now.Add(-time.Duration(seconds)*time.Second)) }
			first, locked, held, poison := ago(9), ago(8), ago(7), ago(6)
			skipped, last, behind := ago(5), ago(4), ago(3)
			p.poison(j, poison)
			p.quarantine(j, held)
			if j.job == string(ports.ReminderDispatch) { // a service that keeps no journal called its event off
				p.execute("UPDATE calendar.calendar_events SET status = 'Cancelled', version = version + 1 WHERE id = (SELECT event_id FROM calendar.event_reminders WHERE id = '" + skipped.String() + "')")
			}
			pid, release := p.hold(j, locked, "agents-app")
			asOf := []string{j.job, "--as-of", now.Format(time.RFC3339Nano)}
			full := slices.Concat(asOf, []string{"--set", "jobs." + j.job + ".batch_size=4", "--set", "jobs.lead-expiration.max_batches_per_cycle=1"})

			predicted := p.plansWhatRunDoes(j, full)
			want := []uuid.UUID{first, locked, held, poison, skipped, last}
			if got := idsOf(predicted); !slices.Equal(got, want) || !predicted.More {
				t.Errorf("items %v, more %v; want %v, up to the last that the batch takes, and more", got, predicted.More, want)
			}
			who := predicted.Items[1].LockedBy
			if len(who) != 1 || who[0].PID != pid || who[0].User != "postgres" || who[0].Application != "agents-app" || who[0].Lacking != "pg_read_all_stats" {
				t.Errorf("locked by %+v; want pid %d of agents-app, and which right would show more", who, pid)
			}
			if q := predicted.Items[2]; q.Verdict != plan.Quarantined || q.Failures != 4 || q.Error != "last" || time.Until(time.Time(*q.Until)) < 30*time.Minute {
				t.Errorf("held back %+v; want its record", q)
			}

			release()
			rest := p.plansWhatRunDoes(j, asOf)
			if got := idsOf(rest); !slices.Equal(got, []uuid.UUID{locked, held, poison, behind}) || rest.More {
				t.Errorf("items %v; want what was locked, and the rest", got)
			}
			if _, stdout, _ := pinworker(t, slices.Concat([]string{"plan"}, asOf)...); !strings.Contains(stdout, "1 failed, 1 quarantined.") {
				t.Errorf("plan says %s; want what cannot be done", stdout)
			}
		})
	}
}

func idsOf(d planJSON) (all []uuid.UUID) {
	for _, item := range d.Items {
		all = append(all, item.ID)
	}
	return all
}

// plansWhatRunDoes compares a plan with what a cycle then does to rows, outbox and quarantine.
func (p *platform) plansWhatRunDoes(j polledJob, args []string) planJSON {
	p.Helper()
	rows, letters, records := p.statuses(j), p.letters(j), p.records(j)
	predicted := done[planJSON](p.T, slices.Concat([]string{"plan"}, args)...)
	if got := difference(rows, p.statuses(j)); len(got) > 0 {
		p.Errorf("to plan changed %v", got)
	}
	result := done[struct{ SkippedLockedCount, FailedCount int }](p.T, slices.Concat([]string{"run"}, args)...)
	for what, pair := range map[string][2]map[uuid.UUID]string{
		"rows": {predicted.by(plan.Taken, func(i plannedItem) string { return i.Becomes }), difference(rows, p.statuses(j))},
		"failures": {
			predicted.by(plan.Failed, func(i plannedItem) string { return fmt.Sprintf("%d times: %s", i.Failures+1, i.Error) }),
			difference(records, p.records(j)),
		},
		"messages": {predicted.messages(), difference(letters, p.letters(j))},
	} {
		if !maps.Equal(pair[0], pair[1]) {
			p.Errorf("%s: planned %v, done %v", what, pair[0], pair[1])
		}
	}
	if locked := predicted.Totals[string(plan.Locked)]; locked != result.SkippedLockedCount || predicted.Totals[string(plan.Failed)] != result.FailedCount {
		p.Errorf("planned %v; the cycle says %+v", predicted.Totals, result)
	}
	return predicted
}

// messages are the topics and keys of what would be published, by ce_id.
func (d planJSON) messages() map[uuid.UUID]string {
	all := make(map[uuid.UUID]string)
	for _, item := range d.Items {
		for _, m := range item.Messages {
			all[m.ID] = m.Topic + " " + m.Key
		}
	}
	return all
}

func TestPlan_SaysClearlyThatThereIsNothingToDo(t *testing.T) {
	newPlatform(t)
	for _, j := range polledJobs {
		if code, stdout, _ := pinworker(t, "plan", j.job); code != exitDone || !strings.Contains(stdout, "Nothing to do: nothing is due") {
			t.Errorf("%s: exit %d, %s", j.job, code, stdout)
		}
	}
}

func TestPlan_MayLookAhead(t *testing.T) {
	p := newPlatform(t)
	tomorrow := time.Now().UTC().Truncate(time.Microsecond).AddDate(0, 0, 1)
	for _, j := range polledJobs {
		id := j.make(p, tomorrow)
		if got := done[planJSON](t, "plan", j.job); len(got.Items) > 0 {
			t.Errorf("%s: %+v now; want nothing", j.job, got.Items)
		}
		got := done[planJSON](t, "plan", j.job, "--as-of", tomorrow.Add(time.Second).Format(time.RFC3339Nano))
		if !slices.Equal(idsOf(got), []uuid.UUID{id}) || got.Items[0].Verdict != plan.Taken {
			t.Errorf("%s: %+v tomorrow; want %s taken", j.job, got.Items, id)
		}
	}
}

func TestPlan_BadUsageTouchesNothing(t *testing.T) {
	for _, args := range [][]string{{"plan"}, {"plan", "all"}, {"plan", "lead-expiration", "--limit", "0"}, {"plan", "lead-expiration", "--as-of", "noon"}} {
		if code, stdout, stderr := pinworker(t, args...); code != exitUsage || stdout != "" || stderr == "" {
			t.Errorf("%s: exit %d, %q, %q; want 2 and why", args, code, stdout, stderr)
		}
	}
}

func TestPlan_TellsWhyNoLockerIsNamed(t *testing.T) {
	for want, item := range map[string]plan.Item{
		"locked by somebody; it was asked in vain whom":                     {Verdict: plan.Locked, InVain: true},
		"locked by somebody; it was not asked whom: too many are locked":    {Verdict: plan.Locked},
		"locked by pid 7, user u, application a, since -, active: SELECT ?": {Verdict: plan.Locked, Lockers: []ports.Locker{{PID: 7, User: "u", Application: "a", State: "active", Statement: "SELECT ?"}}},
	} {
		if got := whyOf(item); got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
}
