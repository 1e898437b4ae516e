package main

import (
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/sql/bench"
)

// benchRows is how many leads and reminders the commands are measured with; docs/performance.md has the
// figures for 5000000.
func benchRows(b *testing.B) int {
	b.Helper()
	if text := os.Getenv("PINWORKER_TEST_ROWS"); text != "" {
		rows, err := strconv.Atoi(text)
		if err != nil {
			b.Fatal(err)
		}
		return rows
	}
	return 20_000
}

// benchStore is a database of many leads, with their streams, and as many reminders, without: one of 50
// is due. The outbox has a fifth as many messages, and the quarantine its items.
func benchStore(b *testing.B) (url string, owner *pgx.Conn) {
	b.Helper()
	url = embeddedtest.Database(b)
	owner, err := pgx.Connect(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { owner.Close(b.Context()) }) //nolint:errcheck // the benchmark is over
	exec := func(statement string, args ...any) {
		b.Helper()
		if _, err := owner.Exec(b.Context(), statement, args...); err != nil {
			b.Fatal(err)
		}
	}
	rows, now := benchRows(b), time.Now().UTC()
	due := rows / 50
	exec(bench.Statement("fill_leads"), due, now)
	const chunk = 500_000
	for done := due; done < rows; done += chunk {
		exec(bench.Statement("fill_leads"), min(chunk, rows-done), now.AddDate(1, 0, done/chunk))
	}
	exec("INSERT INTO calendar.calendar_events SELECT gen_random_uuid(), t, t, t, 'Call', 'Manual', 'Planned', NULL, now(), now() + interval '1 hour', "+
		"'Europe/Moscow', NULL, 1, now(), now() FROM (SELECT gen_random_uuid() AS t FROM generate_series(1, $1::integer)) AS tenants", max(due/100, 1))
	exec("ALTER TABLE calendar.event_reminders DISABLE TRIGGER ALL") // it is known that the events are there
	exec("INSERT INTO calendar.event_reminders SELECT gen_random_uuid(), e.id, e.tenant_id, 60, now() + (n - $1) * interval '1 minute', 'Pending', NULL, 1, now(), now() "+
		"FROM generate_series(1, $2::integer) AS n JOIN (SELECT *, row_number() OVER () AS place FROM calendar.calendar_events) AS e ON e.place = 1 + n % $3",
		due, rows, max(due/100, 1))
	exec("ALTER TABLE calendar.event_reminders ENABLE TRIGGER ALL")
	exec("INSERT INTO crm.quarantine SELECT 'lead-expiration', id, tenant_id, 4, now(), now(), 'first', 'last', now() + interval '1 hour' FROM crm.leads WHERE expires_at < now() ORDER BY expires_at LIMIT 100")
	exec("INSERT INTO crm.outbox_parked (topic, shard, id, key, uuid, created_at, payload, error, attempts, parked_at) SELECT $1, 0, n, 'k', gen_random_uuid(), now(), '', 'too large', 2, now() "+
		"FROM generate_series(1, 100) AS n", published.TopicLeadExpired)
	exec("INSERT INTO crm.outbox (topic, shard, key, uuid, payload) SELECT $1, n % 8, gen_random_uuid(), gen_random_uuid(), convert_to(repeat('x', 1000), 'UTF8') "+
		"FROM generate_series(1, $2::integer) AS n", published.TopicLeadExpired, rows/5)
	for _, table := range []string{"crm.leads", "crm.domain_events", "calendar.event_reminders", "calendar.calendar_events", "crm.quarantine", "crm.outbox"} {
		exec("VACUUM (ANALYZE) " + table)
	}
	return url, owner
}

// BenchmarkCommands measures what an operator types, from the settings to the last line, beside a big
// database:
//
//	PINWORKER_TEST_ROWS=5000000 go test ./cmd/pinworker -run '^$' -bench Commands -benchtime 20x -timeout 1h
func BenchmarkCommands(b *testing.B) {
	url, owner := benchStore(b)
	broker := embeddedtest.Kafka(b, 0, published.Topics...)
	b.Setenv("PINWORKER_DATABASE_URL", embeddedtest.AsWorker(b, url))
	b.Setenv("PINWORKER_KAFKA_BROKERS", broker.Brokers()[0])
	id := func(query string) (id string) {
		b.Helper()
		if err := owner.QueryRow(b.Context(), query).Scan(&id); err != nil {
			b.Fatal(err)
		}
		return id
	}
	command := func(args ...string) {
		var said strings.Builder
		if code := run(b.Context(), args, streams{strings.NewReader(""), io.Discard, &said}); code != exitDone {
			b.Fatalf("pinworker %s: exit %d: %s", strings.Join(args, " "), code, said.String())
		}
	}
	page := min(500, benchRows(b)/50/40) // 10,000 messages more, of 5,000,000 leads
	command("run", "lead-expiration", "--set", "jobs.lead-expiration.max_batches_per_cycle=20", "--set", "jobs.lead-expiration.batch_size="+strconv.Itoa(page))
	const due = " FROM crm.leads WHERE status = 'Active' AND expires_at < now() "
	first := id("SELECT id" + due + "AND id NOT IN (SELECT item FROM crm.quarantine) ORDER BY expires_at, id LIMIT 1")
	for _, c := range []struct {
		name string
		args []string
	}{
		{"plan leads", []string{"plan", "lead-expiration"}},
		{"plan reminders", []string{"plan", "reminder-dispatch"}},
		{"explain due", []string{"explain", first}},
		{"explain held back", []string{"explain", id("SELECT item FROM crm.quarantine LIMIT 1")}},
		{"explain not due", []string{"explain", id("SELECT id FROM crm.leads WHERE expires_at > now() LIMIT 1")}},
		{"explain the last that waits", []string{"explain", id("SELECT key FROM crm.outbox ORDER BY outbox.id DESC LIMIT 1")}},
		{"history", []string{"history", first}},
		{"quarantine list", []string{"quarantine", "list"}},
		{"outbox parked", []string{"outbox", "parked"}},
		{"backlog", []string{"backlog"}},
		{"doctor", []string{"doctor"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				command(c.args...)
			}
		})
	}
	holder, err := pgx.Connect(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	defer holder.Close(b.Context()) //nolint:errcheck // the benchmark is over
	if _, err := holder.Exec(b.Context(), "BEGIN; SELECT id"+due+"AND id NOT IN (SELECT item FROM crm.quarantine) ORDER BY expires_at, id LIMIT 10 FOR UPDATE"); err != nil {
		b.Fatal(err)
	}
	b.Run("plan leads, 10 of them held", func(b *testing.B) {
		for b.Loop() {
			command("plan", "lead-expiration")
		}
	})
	b.Run("explain who holds it", func(b *testing.B) {
		for b.Loop() {
			command("explain", first)
		}
	})
}
