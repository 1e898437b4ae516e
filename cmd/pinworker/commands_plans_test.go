package main

import (
	"maps"
	"slices"
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
	fill := func(name string, items int) {
		t.Helper()
		_, err := p.context("crm").db.Pool.Exec(t.Context(), bench.Statement(name), items, time.Now().UTC())
		p.must(err)
	}
	fill("fill_leads", 3000)
	fill("fill_reminders", 3000)
	fill("fill_promotions", 3000)
	fill("fill_appointments", 500)
	for _, j := range polledJobs {
		p.quarantine(j, slices.Collect(maps.Keys(p.statuses(j)))[0])
	}
	p.execute("VACUUM ANALYZE")
	one := make(map[string]uuid.UUID)
	for _, j := range polledJobs {
		one[j.job] = slices.Collect(maps.Keys(p.statuses(j)))[1]
	}
	_, release := p.hold(polledJobs[3], one["lead-expiration"], "crm-api")
	defer release()

	commands := [][]string{{"backlog"}, {"quarantine", "list"}, {"outbox", "parked"}, {"doctor", "--set", "relay.enabled=false"}}
	for _, j := range polledJobs {
		commands = append(commands, []string{"plan", j.job}, []string{"explain", one[j.job].String()}, []string{"history", one[j.job].String()}, []string{"run", j.job})
	}
	// The test itself reads tables whole; its session's counts are to be seen before.
	p.context("crm").db.Pool.Reset() // an idle one tells of them late
	var before map[string]int
	eventually(t, "the counts stand still", func() bool {
		was := before
		before = p.wholeReads()
		return before["crm.leads"] > 0 && maps.Equal(was, before)
	})
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
