package main

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/pin-platform/pinworker/sql/bench"
)

// wholeReads is how often each big table has been read from end to end, by all sessions that have ended.
func (p *platform) wholeReads() map[string]int {
	p.Helper()
	rows, err := p.context("crm").db.Pool.Query(p.Context(), `SELECT schemaname || '.' || relname, seq_scan FROM pg_stat_user_tables
		WHERE relname IN ('leads', 'event_reminders', 'calendar_events', 'appointments', 'availability_slots', 'promotion_purchases', 'promotion_targets', 'domain_events')`)
	p.must(err)
	reads := make(map[string]int)
	var table string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&table, &n}, func() error { reads[table] = n; return nil })
	p.must(err)
	return reads
}

// What an operator types in the night must answer at once, however big the tables are: by their indexes.
func TestCommands_ReadNoBigTableWhole(t *testing.T) {
	p := newPlatform(t)
	setUp, err := pgx.Connect(t.Context(), p.owner) // a session tells its counts when it ends, at the latest
	p.must(err)
	for name, items := range map[string]int{"fill_leads": 3000, "fill_reminders": 3000, "fill_promotions": 3000, "fill_appointments": 500} {
		_, err := setUp.Exec(t.Context(), bench.Statement(name), items, time.Now().UTC())
		p.must(err)
	}
	_, err = setUp.Exec(t.Context(), "VACUUM ANALYZE")
	p.must(err)
	pid := strconv.Itoa(int(setUp.PgConn().PID()))
	p.must(setUp.Close(t.Context()))
	eventually(t, "its session has ended", func() bool { return p.count("SELECT count(*) FROM pg_stat_activity WHERE pid = "+pid) == 0 })
	one := make(map[string]uuid.UUID)
	for _, j := range polledJobs { // by the index: what the test itself reads whole would be counted, some time later
		two := slices.Collect(maps.Keys(collected[string](p, "SELECT id, '' FROM "+j.schema+"."+j.table+" ORDER BY id LIMIT 2")))
		p.quarantine(j, two[0])
		one[j.job] = two[1]
	}
	_, release := p.hold(polledJobs[3], one["lead-expiration"], "crm-api")
	defer release()

	commands := [][]string{{"backlog"}, {"quarantine", "list"}, {"outbox", "parked"}, {"doctor", "--set", "relay.enabled=false"}}
	for _, j := range polledJobs {
		commands = append(commands, []string{"plan", j.job}, []string{"explain", one[j.job].String()}, []string{"history", one[j.job].String()}, []string{"run", j.job})
	}
	before := p.wholeReads()
	for _, args := range commands {
		if code, _, stderr := pinworker(t, args...); code != exitDone {
			t.Fatalf("%s: exit %d, %s", strings.Join(args, " "), code, stderr)
		}
		eventually(t, "its sessions have ended", func() bool {
			return p.count("SELECT count(*) FROM pg_stat_activity WHERE usename = 'worker' AND datname = current_database()") == 0
		})
		after := p.wholeReads()
		for table, n := range after {
			if n > before[table] {
				t.Errorf("%s has read %s whole, %d times", strings.Join(args, " "), table, n-before[table])
			}
		}
		before = after
	}
}
