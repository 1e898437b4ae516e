package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/app/explain"
	"github.com/pin-platform/pinworker/app/plan"
	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/ports"
)

// explains runs explain, with --json and for people, and wants it to say something.
func (p *platform) explains(id uuid.UUID, want explain.Verdict, says ...string) explanation {
	p.Helper()
	got := done[explanation](p.T, "explain", id.String())
	if got.ID != id || got.Verdict != want {
		p.Errorf("verdict %q (%s); want %q", got.Verdict, got.Why, want)
	}
	_, stdout, _ := pinworker(p.T, "explain", id.String())
	for _, text := range says {
		if !strings.Contains(stdout, text) {
			p.Errorf("explain does not say %q:\n%s", text, stdout)
		}
	}
	return got
}

func TestExplain_AnItemBeforeItsJob(t *testing.T) {
	for _, j := range polledJobs {
		t.Run(j.job, func(t *testing.T) {
			p := newPlatform(t)
			now := time.Now().UTC().Truncate(time.Microsecond)

			tomorrow := now.AddDate(0, 0, 1)
			notDue := p.explains(j.make(p, tomorrow), explain.NotDue, "it comes due at "+tomorrow.Format(time.RFC3339)+", in 2", "a tick of "+j.job)
			if !time.Time(notDue.Next).Equal(tomorrow) || !time.Time(notDue.Row.DueAt).Equal(tomorrow) {
				t.Errorf("next %v, due %v; want tomorrow", notDue.Next, notDue.Row.DueAt)
			}

			due := j.make(p, now.Add(-3*time.Minute))
			if got := p.explains(due, explain.Due, "the next tick of "+j.job+" takes it, within "); !time.Time(got.Since).Equal(now.Add(-3*time.Minute)) || len(got.Messages) > 0 && j.job == string(ports.LeadExpiration) {
				t.Errorf("since %v, messages %v; want its moment, and none", got.Since, got.Messages)
			}
			disabled := "; " + j.job + " is disabled in these settings"
			if _, stdout, _ := pinworker(t, "explain", due.String(), "--set", "jobs."+j.job+".enabled=false"); !strings.Contains(stdout, disabled) || strings.Contains(stdout, "takes it") {
				t.Errorf("explain says %q; want %q, and that no tick takes it", stdout, disabled)
			}

			poison := j.make(p, now.Add(-2*time.Minute))
			p.poison(j, poison)
			p.explains(poison, explain.Fails, "its own data keep it from being processed: the stream is at version")

			held := j.make(p, now.Add(-time.Minute))
			p.quarantine(j, held)
			got := p.explains(held, explain.Quarantined, "it failed 4 times in a row since", "the last time with: last; it is held back until")
			if got.Record == nil || got.Record.Failures != 4 || !time.Time(got.Next).Equal(time.Time(got.Record.NextAttempt)) {
				t.Errorf("record %+v, next %v; want the record, and its next attempt", got.Record, got.Next)
			}

			pid, release := p.hold(j, due, "agents-app")
			defer release()
			who := fmt.Sprintf("locked by pid %d, user postgres, application agents-app (since when, and what it does, is shown to pg_read_all_stats)", pid)
			p.explains(due, explain.Locked, "somebody holds it", who)
			p.execute("GRANT pg_read_all_stats TO worker")
			defer p.execute("REVOKE pg_read_all_stats FROM worker") // roles belong to the whole server
			seen := p.explains(due, explain.Locked, ", idle in transaction: BEGIN; SELECT id FROM "+j.schema+"."+j.table).LockedBy
			if len(seen) != 1 || seen[0].PID != pid || seen[0].Lacking != "" || time.Since(time.Time(seen[0].Since)) > time.Minute || strings.Contains(seen[0].Statement, due.String()) {
				t.Errorf("locked by %+v; want the session whole, and none of the values in its statement", seen)
			}
		})
	}
}

func TestExplain_TellsOfWhatItsJobDidAndOfItsMessages(t *testing.T) {
	for _, j := range polledJobs {
		t.Run(j.job, func(t *testing.T) {
			p := newPlatform(t)
			now := time.Now().UTC()
			first := j.make(p, now.Add(-2*time.Minute))
			done[struct{}](t, "run", j.job)
			got := p.explains(first, explain.Settled, "by System (", "waits in the outbox since")
			last := got.Messages[len(got.Messages)-1]
			if want := p.ahead(j, last.ID); last.State != ports.Waiting || *last.Ahead != want {
				t.Errorf("message %+v; want it waiting, behind %d", last, want)
			}
			p.execute("WITH parked AS (DELETE FROM " + j.schema + ".outbox WHERE uuid = '" + last.ID.String() + "' RETURNING *) INSERT INTO " + j.schema +
				".outbox_parked (topic, shard, id, key, uuid, created_at, payload, error, attempts, parked_at) SELECT topic, shard, id, key, uuid, created_at, payload, 'too large', 2, now() FROM parked")
			p.explains(first, explain.Settled, "parked since ", "Kafka refused it (too large)")
			done[struct{}](t, "outbox", "discard", last.ID.String(), "--reason", "ticket 4711")
			p.explains(first, explain.Settled, "discarded at ", "ticket 4711")
		})
	}
}

// ahead counts what goes before a message in its lane.
func (p *platform) ahead(j polledJob, message uuid.UUID) int {
	p.Helper()
	return p.count(fmt.Sprintf("SELECT count(*) FROM %[1]s.outbox AS a JOIN %[1]s.outbox AS m USING (topic, shard) WHERE m.uuid = '%[2]s' AND a.id < m.id", j.schema, message))
}

func TestExplain_CountsWhatGoesFirst(t *testing.T) {
	p := newPlatform(t)
	p.register(16)
	done[runResult](t, "run", "lead-expiration")
	for id := range p.statuses(polledJobs[3]) {
		got := done[explanation](t, "explain", id.String())
		m := got.Messages[0]
		if want := p.ahead(polledJobs[3], m.ID); *m.Ahead != want {
			t.Errorf("behind %d; want %d", *m.Ahead, want)
		}
	}
}

func TestExplain_FindsTheMessagesOfEveryEventThatWasAnnounced(t *testing.T) {
	p := newPlatform(t)
	p.populate()
	for _, j := range polledJobs {
		done[struct{}](t, "run", j.job)
	}
	for _, schema := range []string{"calendar", "promotion", "crm"} {
		want := p.letters(polledJob{schema: schema})
		got := make(map[uuid.UUID]string)
		for id := range collected[string](p, "SELECT DISTINCT stream_id, '' FROM "+schema+".domain_events") {
			for _, m := range done[explanation](t, "explain", id.String()).Messages {
				if m.State != ports.Waiting {
					t.Errorf("message %+v; want it waiting", m)
				}
				got[m.ID] = m.Topic + " " + m.Key
			}
		}
		if len(want) == 0 || !maps.Equal(got, want) {
			t.Errorf("%s: messages %v; want %v", schema, got, want)
		}
	}
}

func TestExplain_AReminderThatWasNotSentOnPurpose(t *testing.T) {
	p := newPlatform(t)
	now := time.Now().UTC().Truncate(time.Microsecond)
	cancelled, unjournalled, moved := portstest.Plan(now.Add(-time.Minute)), portstest.Plan(now.Add(-time.Minute)), portstest.Plan(now.Add(-time.Minute))
	o := p.worker.at(now.Add(-time.Hour)).calendar
	p.must(o.Schedule(p.Context(), "agent", cancelled))
	p.must(o.Schedule(p.Context(), "agent", unjournalled))
	p.must(o.Schedule(p.Context(), "agent", moved))
	at := now.Add(-30 * time.Minute)
	p.must(p.worker.at(at).calendar.CancelEvent(p.Context(), "agent-7", cancelled.CalendarEvent))
	p.must(p.worker.at(at).calendar.Reschedule(p.Context(), "agent-7", moved.CalendarEvent, moved.StartAt.AddDate(0, 0, 1), moved.EndAt.AddDate(0, 0, 1), nil))
	p.execute("UPDATE calendar.calendar_events SET status = 'Completed', version = version + 1, updated_at = '" + at.Format(time.RFC3339) + "' WHERE id = '" + unjournalled.CalendarEvent.String() + "'")
	done[struct{}](t, "run", "reminder-dispatch")

	when := at.Format(time.RFC3339)
	p.explains(uuid.UUID(cancelled.Reminders[0].Reminder), explain.Skipped,
		"because its event "+cancelled.CalendarEvent.String()+" was cancelled then: at "+when+", by agent-7")
	p.explains(uuid.UUID(unjournalled.Reminders[0].Reminder), explain.Skipped,
		"because its event "+unjournalled.CalendarEvent.String()+" was not going on; it is Completed since "+when)
	p.explains(uuid.UUID(moved.Reminders[0].Reminder), explain.NoRow, "it gave way to another reminder when its event was rescheduled, at "+when)
	p.explains(uuid.UUID(cancelled.CalendarEvent), explain.NoJob, "no job takes what is of the kind CalendarEvent; it is Cancelled")
}

// The platform's columns hold what PostgreSQL can.
func TestExplain_MomentsThatAreNone(t *testing.T) {
	columns := map[string]string{"event_reminders": "due_at", "appointments": "pending_expires_at", "promotion_purchases": "ends_at", "leads": "expires_at"}
	p := newPlatform(t)
	for _, j := range polledJobs {
		id := j.make(p, time.Now().Add(time.Hour))
		p.execute("UPDATE " + j.schema + "." + j.table + " SET " + columns[j.table] + " = '-infinity'")
		p.explains(id, explain.Fails, columns[j.table]+" is -infinity")
		if got := done[planJSON](t, "plan", j.job); !slices.Equal(idsOf(got), []uuid.UUID{id}) || got.Items[0].Verdict != plan.Failed {
			t.Errorf("%s: %+v; want it to fail", j.job, got.Items)
		}
		_, release := p.hold(j, id, "agents-app")
		p.explains(id, explain.Locked, "application agents-app")
		release()
		p.execute("UPDATE " + j.schema + "." + j.table + " SET " + columns[j.table] + " = 'infinity'")
		p.explains(id, explain.NeverDue, "unsound")
	}
}

// An inner join would hide what lacks its partner.
func TestExplain_WhatLacksItsPartner(t *testing.T) {
	p := newPlatform(t)
	p.execute("ALTER TABLE calendar.event_reminders DROP CONSTRAINT event_reminders_event_id_fkey")
	p.execute("ALTER TABLE calendar.appointments DROP CONSTRAINT appointments_calendar_event_id_fkey")
	for i, says := range []string{"does not exist", "its slot or its calendar event does not exist"} {
		j := polledJobs[i]
		p.execute("DELETE FROM calendar.event_reminders; DELETE FROM calendar.appointments")
		id := j.make(p, time.Now().Add(-time.Minute))
		p.execute("DELETE FROM calendar.calendar_events")
		sound := j.make(p, time.Now().Add(-time.Second))
		p.explains(id, explain.Fails, says, ", which does not exist")
		got := done[planJSON](t, "plan", j.job)
		if !slices.Equal(idsOf(got), []uuid.UUID{id, sound}) || got.Items[0].Verdict != plan.Failed || got.Items[1].Verdict != plan.Taken {
			t.Errorf("%s: %+v; want it to fail, and the other one to be taken", j.job, got.Items)
		}
		_, release := p.hold(j, id, "agents-app")
		p.explains(id, explain.Locked, "application agents-app")
		release()
		p.plansWhatRunDoes(j, []string{j.job})
	}
}

func TestExplain_WhatNeverComesDueAndWhatIsNotThere(t *testing.T) {
	p := newPlatform(t)
	j := polledJobs[1]
	id := j.make(p, time.Now().Add(time.Hour))
	p.execute("UPDATE calendar.appointments SET pending_expires_at = NULL")
	p.explains(id, explain.NeverDue, "it is Pending and has no moment")
	nobody := uuid.NewString()
	if code, stdout, stderr := pinworker(t, "explain", nobody); code != exitFailed || stdout != "" || !strings.Contains(stderr, nobody+": no row and no event of it in calendar, promotion, crm") {
		t.Errorf("exit %d, %q, %q; want 1, and where it was looked for", code, stdout, stderr)
	}
	for _, args := range [][]string{{"explain"}, {"explain", "lead"}} {
		if code, _, _ := pinworker(t, args...); code != exitUsage {
			t.Errorf("%v: exit %d; want 2", args, code)
		}
	}
}

func TestExplain_FindsInKafkaWhatTheRelayHasSent(t *testing.T) {
	p := newPlatform(t)
	p.populate()
	broker := embeddedtest.Kafka(t, 0, published.Topics...)
	t.Setenv("PINWORKER_KAFKA_BROKERS", broker.Brokers()[0])
	w := serveWorker(t)
	eventually(t, "all is published", func() bool { return p.unpublished() == 0 })
	w.stop()
	records, err := readBack(t.Context(), broker.Brokers(), published.Topics...)
	p.must(err)
	at := make(map[uuid.UUID]string)
	for _, r := range records {
		at[uuid.MustParse(r.Headers[outbox.HeaderID])] = fmt.Sprintf("partition %d, offset %d", r.Partition, r.Offset)
	}
	lead := slices.Collect(maps.Keys(p.statuses(polledJobs[3])))[0]
	m := p.explains(lead, explain.Settled, "LeadExpired").Messages[0]
	if got := fmt.Sprintf("partition %d, offset %d", *m.Partition, *m.Offset); m.State != ports.Published || got != at[m.ID] {
		t.Errorf("message %+v; it is at %s", m, at[m.ID])
	}

	t.Setenv("PINWORKER_KAFKA_BROKERS", "127.0.0.1:1")
	away := p.explains(lead, explain.Settled, "only Kafka could tell", "Kafka: read from Kafka: ")
	if away.Messages[0].State != ports.Unknown || away.Kafka == "" {
		t.Errorf("message %+v, Kafka %q; want to hear that Kafka is away", away.Messages[0], away.Kafka)
	}
	p.must(os.Unsetenv("PINWORKER_KAFKA_BROKERS")) // Setenv puts it back
	if got := p.explains(lead, explain.Settled, "Kafka: not asked: kafka.brokers"); got.Messages[0].State != ports.Unknown {
		t.Errorf("message %+v, Kafka %q; want to hear that there is none to ask", got.Messages[0], got.Kafka)
	}
}
