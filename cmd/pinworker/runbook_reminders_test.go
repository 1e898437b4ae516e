package main

import (
	"fmt"
	"time"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/domain/calendar"
)

const reminderDispatch = "reminder-dispatch"

var reminderSituations = []situation{
	{
		page: reminderDispatch, cause: "No worker serves",
		given: func(k *terminal) {
			k.kafka()
			k.overdue(20)
		},
		then: func(k *terminal) { k.wantReminders("Sent", 20) },
	},
	{
		page: reminderDispatch, cause: "The database takes no writes",
		given: func(k *terminal) {
			k.kafka()
			k.serve()
			k.overdue(20)
			database := k.context("crm").db.Pool.Config().ConnConfig.Database
			k.execute("ALTER DATABASE " + database + " SET default_transaction_read_only = on")
			k.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" + database + "' AND usename = 'worker'")
			k.eventuallyShows(`curl -s "http://$WORKER/readyz"`, "calendar: the database is read-only")
		},
		then: func(k *terminal) { k.wantReminders("Sent", 20) },
	},
	{
		page: reminderDispatch, cause: "The database is slow",
		given: func(k *terminal) {
			k.kafka()
			k.overdue(20)
			k.execute(`CREATE FUNCTION calendar.tell_warehouse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(2); RETURN NEW; END $$`)
			k.execute(`CREATE TRIGGER warehouse BEFORE UPDATE ON calendar.event_reminders FOR EACH ROW EXECUTE FUNCTION calendar.tell_warehouse()`)
			k.env["PINWORKER_DATABASE_STATEMENT_TIMEOUT"], k.env["PINWORKER_DATABASE_LOCK_TIMEOUT"] = "1s", "500ms"
			k.serve()
		},
		then: func(k *terminal) { k.wantReminders("Sent", 20) },
	},
	{
		page: reminderDispatch, cause: "Somebody locks a whole table",
		given: func(k *terminal) {
			k.kafka()
			k.serve()
			k.overdue(20)
			k.forget("migration", "ALTER TABLE calendar.event_reminders ADD channel text")
		},
		then: func(k *terminal) { k.wantReminders("Sent", 20) },
	},
	{
		page: reminderDispatch, cause: "Somebody holds them",
		given: func(k *terminal) {
			k.kafka()
			k.overdue(3)
			k.forget("calendar-api", "SELECT FROM calendar.calendar_events FOR UPDATE")
			k.serve()
		},
		then: func(k *terminal) { k.wantReminders("Sent", 3) },
	},
	{
		page: reminderDispatch, cause: "Its event does not exist",
		given: func(k *terminal) {
			k.kafka()
			k.overdue(3)
			k.execute("ALTER TABLE calendar.event_reminders DROP CONSTRAINT event_reminders_event_id_fkey")
			k.execute("DELETE FROM calendar.calendar_events WHERE id = (SELECT event_id FROM calendar.event_reminders LIMIT 1)")
			k.runUntilHeld(reminderDispatch)
			k.serve()
		},
		then: func(k *terminal) { k.wantReminders("Sent", 2) },
	},
	{
		page: reminderDispatch, cause: "Catch-up is off",
		given: func(k *terminal) {
			k.kafka()
			k.overdue(450)
			k.env["PINWORKER_JOBS_REMINDER_DISPATCH_CATCH_UP"] = "false"
			k.serve()
			k.eventuallyShows("pinworker backlog", "calendar 0")
		},
		then: func(k *terminal) { k.wantReminders("Sent", 450) },
	},
	{
		page: reminderDispatch, cause: "Its event had ended",
		given: func(k *terminal) {
			k.kafka()
			plan := k.oneReminder()
			k.must(k.worker.at(time.Now()).calendar.CancelEvent(k.Context(), "agent", plan.CalendarEvent))
			k.serve()
		},
		then: func(k *terminal) { k.wantReminders("Skipped", 1) },
	},
	{
		page: reminderDispatch, cause: "Sent, and Kafka is away",
		given: func(k *terminal) {
			k.env["PINWORKER_KAFKA_BROKERS"] = fmt.Sprintf("127.0.0.1:%d", embeddedtest.FreePort(k.T))
			k.oneReminder()
			k.serve()
		},
		others: kafkaComesBack,
		then:   (*terminal).wantTheReminderInKafka,
	},
	{
		page: reminderDispatch, cause: "Sent, and its topic is missing",
		given: func(k *terminal) {
			k.kafkaAndItsTools()
			k.run(`kafka-topics.sh --bootstrap-server "$PINWORKER_KAFKA_BROKERS" --delete --topic pin.calendar.reminder-due.v1`)
			k.oneReminder()
			k.serve()
		},
		then: (*terminal).wantTheReminderInKafka,
	},
	{
		page: reminderDispatch, cause: "Sent, and the relay is behind",
		given: func(k *terminal) {
			k.kafka()
			k.oneReminder()
			k.env["PINWORKER_RELAY_ENABLED"] = "false"
			k.serve()
		},
		then: (*terminal).wantTheReminderInKafka,
	},
	{
		page: reminderDispatch, cause: "Sent, and Kafka refuses its message",
		given: func(k *terminal) {
			k.kafka()
			k.oneReminder()
			done[runResult](k.T, "run", reminderDispatch)
			k.execute(`WITH parked AS (DELETE FROM calendar.outbox WHERE topic = 'pin.calendar.reminder-due.v1' RETURNING *)
				INSERT INTO calendar.outbox_parked (topic, shard, id, key, uuid, created_at, payload, error, attempts, parked_at)
				SELECT topic, shard, id, key, uuid, created_at, payload, 'too large', 2, now() FROM parked`)
			k.serve()
			k.eventuallyShows("pinworker backlog", "calendar 0")
		},
		then: (*terminal).wantTheReminderInKafka,
	},
	{
		page: reminderDispatch, cause: "Sent and published",
		given: func(k *terminal) {
			k.kafka()
			k.oneReminder()
			k.serve()
			k.eventuallyShows("pinworker backlog", "calendar 0")
		},
		then: (*terminal).wantTheReminderInKafka,
	},
}

// oneReminder makes one that is due, and that somebody asks for.
func (k *terminal) oneReminder() calendar.EventPlan {
	k.Helper()
	now := time.Now()
	plan := portstest.Plan(now.Add(-time.Second))
	k.must(k.worker.at(now.AddDate(0, 0, -1)).calendar.Schedule(k.Context(), "agent", plan))
	k.known["<reminder>"] = plan.Reminders[0].Reminder.String()
	return plan
}

func (k *terminal) wantReminders(status string, want int) {
	k.Helper()
	if n := k.count("SELECT count(*) FROM calendar.event_reminders WHERE status = '" + status + "'"); n != want {
		k.Errorf("%d reminders are %s; want %d", n, status, want)
	}
}

func (k *terminal) wantTheReminderInKafka() {
	k.Helper()
	k.wantInKafka(k.broker, map[string]int{published.TopicReminderDue: 1, published.TopicEventStatusChanged: 1})
}
