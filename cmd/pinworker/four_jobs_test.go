package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/cmd/pinworker/internal/settings"
	"github.com/pin-platform/pinworker/ports"
)

// onDatabases is a platform whose contexts live in these databases, and the flags for a worker of it
// under its own role.
func onDatabases(t *testing.T, calendar, promotion, crm string) (p *platform, flags []string) {
	t.Helper()
	urls := map[string]string{"calendar": calendar, "promotion": promotion, "crm": crm}
	var owner []string
	for _, name := range slices.Sorted(maps.Keys(urls)) {
		key := "contexts." + name + ".database.url="
		owner = append(owner, key+urls[name])
		flags = append(flags, "--set", key+embeddedtest.AsWorker(t, urls[name]))
	}
	s, _, err := settings.Load(settings.Sources{Flags: owner})
	if err != nil {
		t.Fatal(err)
	}
	p = &platform{T: t}
	if p.worker, err = newWorker(s, io.Discard); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.worker.close(); err != nil {
			t.Error(err)
		}
	})
	return p, flags
}

// must fails the test where one of the operations was refused.
func (p *platform) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// populate makes some of everything that is due now, and returns how many messages each topic will
// have.
func (p *platform) populate() map[string]int {
	p.Helper()
	now := time.Now().UTC()
	messages := make(map[string]int)
	for i := range 5 { // the third is of an event that was cancelled, and its reminder is skipped with it
		plan := portstest.Plan(now.Add(-time.Duration(i+1) * time.Second))
		o := p.worker.at(now.AddDate(0, 0, -1)).calendar
		p.must(o.Schedule(p.Context(), "agent", plan))
		messages[published.TopicEventStatusChanged]++
		if i == 2 {
			p.must(o.CancelEvent(p.Context(), "agent", plan.CalendarEvent))
			messages[published.TopicEventStatusChanged]++
			continue
		}
		messages[published.TopicReminderDue]++
	}
	for i := range 4 { // the second is confirmed in time
		due := now.Add(-time.Duration(i+1) * time.Second)
		slot, request := portstest.Booking(due)
		o := p.worker.at(due.AddDate(0, 0, -1)).calendar
		p.must(o.Publish(p.Context(), "agent", slot))
		p.must(o.Book(p.Context(), "investor", slot.Slot, request))
		messages[published.TopicEventStatusChanged]++
		if i == 1 {
			p.must(o.Confirm(p.Context(), "agent", request.Appointment))
			continue
		}
		messages[published.TopicEventStatusChanged]++
		messages[published.TopicAppointmentCancelled]++
	}
	for i := range 3 {
		p.must(p.worker.at(now.AddDate(0, 0, -2)).promotion.Purchase(p.Context(), "manager", portstest.Order(now.Add(-time.Duration(i)*time.Second))))
		messages[published.TopicPurchaseChanged] += 2
	}
	messages[published.TopicLeadExpired] = len(p.register(6))
	return messages
}

// due is how many items wait for their jobs.
func (p *platform) due() (n int) {
	p.Helper()
	for _, c := range p.worker.contexts {
		for _, b := range c.backlogs {
			backlog, err := b.tell(p.Context(), time.Now(), ports.Cursor{})
			if err != nil {
				p.Fatal(err)
			}
			n += backlog.Due
		}
	}
	return n
}

// waiting is how many messages of each topic wait in the outboxes of all contexts.
func (p *platform) waiting() map[string]int {
	p.Helper()
	waiting := make(map[string]int)
	for _, c := range p.worker.contexts {
		rows, err := c.db.Pool.Query(p.Context(), "SELECT topic, count(*) FROM "+c.name+".outbox GROUP BY topic")
		p.must(err)
		var topic string
		var messages int
		_, err = pgx.ForEachRow(rows, []any{&topic, &messages}, func() error { waiting[topic] = messages; return nil })
		p.must(err)
	}
	return waiting
}

// unpublished is how many messages are yet to be written for what is due, or wait: in this order, so
// that none slips by.
func (p *platform) unpublished() int {
	p.Helper()
	n := p.due()
	for _, messages := range p.waiting() {
		n += messages
	}
	return n
}

func (p *platform) wantInKafka(broker embeddedtest.Broker, want map[string]int) {
	p.Helper()
	records, err := readBack(p.Context(), broker.Brokers(), published.Topics...)
	if err != nil {
		p.Fatal(err)
	}
	got, ids := make(map[string]int), make(map[string]bool)
	for _, r := range records {
		got[r.Topic]++
		ids[r.Headers["ce_id"]] = true
	}
	if !maps.Equal(got, want) || len(ids) != len(records) {
		p.Errorf("messages %v, %d of %d distinct; want %v", got, len(ids), len(records), want)
	}
}

func TestServe_AllFourJobsReachKafkaFromOneDatabaseAndFromThree(t *testing.T) {
	for name, databases := range map[string]func(*testing.T) [3]string{
		"one": func(t *testing.T) [3]string {
			url := embeddedtest.Database(t)
			return [3]string{url, url, url}
		},
		"three": func(t *testing.T) [3]string {
			return [3]string{embeddedtest.Database(t), embeddedtest.Database(t), embeddedtest.Database(t)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			urls := databases(t)
			p, flags := onDatabases(t, urls[0], urls[1], urls[2])
			p.wantAllFourJobsInKafka(flags)
		})
	}
}

func TestServe_AllFourJobsReachKafkaThroughPgBouncerInTransactionMode(t *testing.T) {
	database := embeddedtest.Database(t)
	p, _ := onDatabases(t, database, database, database)
	p.wantAllFourJobsInKafka([]string{"--set", "database.url=" + embeddedtest.PgBouncer(t, database, 20)})
}

// wantAllFourJobsInKafka serves a worker until all that is due is done and published.
func (p *platform) wantAllFourJobsInKafka(flags []string) {
	p.Helper()
	broker := embeddedtest.Kafka(p.T, 0, published.Topics...)
	want := p.populate()
	s := serveWorker(p.T, append(flags, "--set", "kafka.brokers="+broker.Brokers()[0])...)
	eventually(p.T, "everything due is done and published", func() bool { return p.unpublished() == 0 })
	if status, body := s.get("/readyz"); status != http.StatusOK {
		p.Errorf("/readyz %d %s", status, body)
	}
	_, metrics := s.get("/metrics")
	for _, line := range []string{
		`calendar_reminder_dispatch_items_total{result="sent"} 4`, `calendar_appointment_timeout_items_total{slot_outcome="released"} 3`,
		`promotion_expire_items_total{outcome="expired"} 3`, `crm_lead_expiration_expired_total 6`,
	} {
		if !strings.Contains(metrics, line) {
			p.Errorf("/metrics does not tell %s", line)
		}
	}
	if code := s.stop(); code != exitDone {
		p.Errorf("exit %d: %s", code, &s.log)
	}
	p.wantInKafka(broker, want)
	if got := done[verification](p.T, append([]string{"verify"}, flags...)...); got.Differences != 0 || got.Streams != 5+5+4*5+3+6 {
		p.Errorf("verification %+v", got)
	}
}

// No cycle calls Kafka: its messages wait, and outlive the worker that wrote them.
func TestServe_AllFourJobsAreDoneWithoutKafkaAndTheirMessagesWaitForIt(t *testing.T) {
	p := newPlatform(t)
	want := p.populate()
	port := embeddedtest.FreePort(t)
	away := serveWorker(t, "--set", fmt.Sprintf("kafka.brokers=127.0.0.1:%d", port))
	eventually(t, "everything due is done", func() bool { return p.due() == 0 })
	if code := away.stop(); code != exitDone {
		t.Errorf("exit %d: %s", code, &away.log)
	}
	if got := p.waiting(); !maps.Equal(got, want) {
		t.Errorf("messages that wait: %v; want all, %v", got, want)
	}

	broker := embeddedtest.Kafka(t, port, published.Topics...)
	s := serveWorker(t, "--set", fmt.Sprintf("kafka.brokers=127.0.0.1:%d", port))
	eventually(t, "everything is published", func() bool { return p.unpublished() == 0 })
	if code := s.stop(); code != exitDone {
		t.Errorf("exit %d: %s", code, &s.log)
	}
	p.wantInKafka(broker, want)
}

func TestServe_AWorkerOfLeadsAloneNeedsNothingOfTheOtherContexts(t *testing.T) {
	owner := embeddedtest.EmptyDatabase(t)
	alone := []string{
		"--set", "jobs.reminder-dispatch.enabled=false", "--set", "jobs.appointment-timeout.enabled=false",
		"--set", "jobs.expire-promotions.enabled=false", "--set", "contexts.crm.database.url=" + owner,
	}
	if got := done[migrationList](t, append([]string{"migrate", "up", "--with-platform-tables"}, alone...)...); len(got.Migrations) != 7 {
		t.Errorf("applied %+v; want the crm's 7", got.Migrations)
	}
	if got := done[runResult](t, append([]string{"run", "lead-expiration"}, alone...)...); *got.ExpiredCount != 0 {
		t.Errorf("result %+v", got)
	}
	code, _, stderr := pinworker(t, append([]string{"run", "expire-promotions"}, alone...)...)
	if code != exitUsage || !strings.Contains(stderr, "contexts.promotion.database.url: is not set") {
		t.Errorf("exit %d, %s; want 2 and the setting", code, stderr)
	}
	s := serveWorker(t, append(alone, "--set", "kafka.brokers=127.0.0.1:1")...)
	eventually(t, "a cycle is done", func() bool { return strings.Contains(s.log.String(), "job.completed") })
	if status, body := s.get("/readyz"); status != http.StatusOK {
		t.Errorf("/readyz %d %s", status, body)
	}
	if code := s.stop(); code != exitDone {
		t.Errorf("exit %d: %s", code, &s.log)
	}
}

// overdue makes n reminders, and the events that they are of, that came due in the last minute.
func (p *platform) overdue(n int) {
	p.Helper()
	p.execute(fmt.Sprintf(`WITH e AS (
		INSERT INTO calendar.calendar_events
		SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), NULL, 'Call', 'Manual', 'Planned', NULL,
			now() + interval '30 minutes', now() + interval '1 hour', 'Europe/Moscow', NULL, 1, now(), now()
		FROM generate_series(1, %d) RETURNING *)
		INSERT INTO calendar.event_reminders
		SELECT gen_random_uuid(), id, tenant_id, 30, now() - random() * interval '1 minute', 'Pending', NULL, 1, now(), now() FROM e`, n))
}

func TestServe_TenThousandRemindersOfOneMinuteGoOutInOneTick(t *testing.T) {
	const n = 10_000
	p := newPlatform(t)
	broker := embeddedtest.Kafka(t, 0, published.Topics...)
	p.overdue(n)
	s := serveWorker(t, "--set", "kafka.brokers="+broker.Brokers()[0], "--set", "log.level=info")
	eventually(t, "all are sent and acked", func() bool { return p.unpublished() == 0 })
	if code := s.stop(); code != exitDone {
		t.Errorf("exit %d", code)
	}
	p.wantInKafka(broker, map[string]int{published.TopicReminderDue: n})
	if sent := p.count("SELECT count(*) FROM calendar.event_reminders WHERE status = 'Sent' AND sent_at < (SELECT min(sent_at) FROM calendar.event_reminders) + interval '30 seconds'"); sent != n {
		t.Errorf("%d were sent within the first tick's 30 s; want %d", sent, n)
	}
	if cycles := p.count("SELECT count(DISTINCT correlation_id) FROM calendar.domain_events WHERE event_type = 'ReminderSent'"); cycles != n/200 {
		t.Errorf("%d cycles; want %d of 200 each, with a run id of its own", cycles, n/200)
	}
}

func TestServe_WithoutCatchUpATickTakesOneBatch(t *testing.T) {
	p := newPlatform(t)
	p.overdue(450)
	s := serveWorker(t, "--set", "kafka.brokers=127.0.0.1:1", "--set", "jobs.reminder-dispatch.catch_up=false", "--set", "jobs.reminder-dispatch.interval=1h")
	eventually(t, "a cycle is done", func() bool { return strings.Contains(s.log.String(), `"SentCount":200`) })
	if code := s.stop(); code != exitDone {
		t.Errorf("exit %d: %s", code, &s.log)
	}
	if sent := p.count("SELECT count(*) FROM calendar.event_reminders WHERE status = 'Sent'"); sent != 200 {
		t.Errorf("%d sent; want 200, as the letter says", sent)
	}
}

func TestHistory_TellsEveryKindOfAggregate(t *testing.T) {
	type history struct {
		Context, Aggregate string
		Events             []struct {
			Version int
			Event   string
			Actor   string
		}
	}
	p := newPlatform(t)
	slot, request := portstest.Booking(time.Now().Add(-time.Second))
	o := p.worker.at(time.Now().AddDate(0, 0, -1)).calendar
	p.must(o.Publish(t.Context(), "agent", slot))
	p.must(o.Book(t.Context(), "investor", slot.Slot, request))
	done[map[string]any](t, "run", "appointment-timeout")
	lead := p.register(1)[0]
	for id, want := range map[string]string{
		slot.Slot.String():                     "calendar AvailabilitySlot SlotPublished/agent SlotBooked/investor SlotReleased/System",
		request.Appointment.String():           "calendar Appointment AppointmentBooked/investor AppointmentExpired/System",
		request.CalendarEvent.String():         "calendar CalendarEvent CalendarEventPlanned/investor CalendarEventCalledOff/System",
		request.Reminders[0].Reminder.String(): "calendar EventReminder ReminderScheduled/investor ReminderSkipped/System",
		lead.Lead.String():                     "crm Lead LeadRegistered/agent",
	} {
		got := done[history](t, "history", id)
		text := got.Context + " " + got.Aggregate
		for i, e := range got.Events {
			text += " " + e.Event + "/" + e.Actor
			if e.Version != i+1 {
				t.Errorf("%s: event %d has version %d", id, i+1, e.Version)
			}
		}
		if text != want {
			t.Errorf("history %q; want %q", text, want)
		}
	}
	if code, stdout, _ := pinworker(t, "history", lead.Lead.String()); code != exitDone || !strings.Contains(stdout, "LeadRegistered") {
		t.Errorf("exit %d, %s", code, stdout)
	}
	if code, _, stderr := pinworker(t, "history", portstest.NewID[platform]().String()); code != exitFailed || !strings.Contains(stderr, "no event of it in calendar, promotion, crm") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

// Whoever holds a reminder without its event's lock is about to let go of it.
func TestRun_AnAppointmentWaitsForItsRemindersAsLongAsTheLockTimeoutAllows(t *testing.T) {
	p := newPlatform(t)
	due := time.Now().Add(-time.Minute)
	slot, request := portstest.Booking(due)
	o := p.worker.at(due.AddDate(0, 0, -1)).calendar
	p.must(o.Publish(t.Context(), "agent", slot))
	p.must(o.Book(t.Context(), "investor", slot.Slot, request))
	holder, err := p.context("calendar").db.Pool.Begin(t.Context())
	p.must(err)
	defer holder.Rollback(context.Background()) //nolint:errcheck // it only held a lock
	_, err = holder.Exec(t.Context(), "SELECT FROM calendar.event_reminders WHERE event_id = $1 FOR UPDATE", request.CalendarEvent)
	p.must(err)
	if code, _, stderr := pinworker(t, "run", "appointment-timeout", "--set", "database.lock_timeout=10ms"); code != exitFailed || !strings.Contains(stderr, "55P03") {
		t.Errorf("while the reminders are held: exit %d, %s; want 1, the lock timeout", code, stderr)
	}
	p.must(holder.Rollback(t.Context()))
	if got := done[runResult](t, "run", "appointment-timeout"); *got.ExpiredCount != 1 || *got.FaultCount != 0 {
		t.Errorf("once they are let go: %d expired, %d faults; want 1 and 0", *got.ExpiredCount, *got.FaultCount)
	}
}
