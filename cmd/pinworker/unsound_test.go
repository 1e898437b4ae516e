package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/ids"
)

// logged is a line of the log.
type logged struct {
	Level, Msg, JobRunID, LeadID, TenantID, Error string
	Streak                                        int
}

// unsound are leads that nothing can be decided on or written about, all due: what makes one of a
// sound lead, and what must be said of it.
var unsound = []struct{ what, statement, says string }{
	{"due at -infinity", `UPDATE crm.leads SET expires_at = '-infinity' WHERE id = '%s'`, "expires_at is -infinity"},
	{"due before Christ", `UPDATE crm.leads SET expires_at = '4713-01-01 00:00:00Z BC' WHERE id = '%s'`, "year outside of range"},
	{"due in the year one", `UPDATE crm.leads SET expires_at = '0001-01-01 00:00:00Z' WHERE id = '%s'`, "ExpiresAt is missing"},
	{"expired at infinity", `UPDATE crm.leads SET expired_at = 'infinity' WHERE id = '%s'`, "expired_at is infinity"},
	{"created at infinity", `UPDATE crm.leads SET created_at = 'infinity' WHERE id = '%s'`, "created_at is infinity"},
	{"updated at -infinity", `UPDATE crm.leads SET updated_at = '-infinity' WHERE id = '%s'`, "updated_at is -infinity"},
	{"created beyond JSON", `UPDATE crm.leads SET created_at = '12026-01-01 00:00:00Z' WHERE id = '%s'`, "year outside of range"},
	{"no executor", `UPDATE crm.leads SET executor_agent_user_id = NULL WHERE id = '%s'`, "ExecutorAgentUserID is missing"},
	{"no investor", `UPDATE crm.leads SET primary_investor_user_id = NULL WHERE id = '%s'`, "PrimaryInvestorUserID is missing"},
	{"no tenant", `UPDATE crm.leads SET tenant_id = NULL WHERE id = '%s'`, "TenantID is missing"},
	{"no version", `UPDATE crm.leads SET version = NULL WHERE id = '%s'`, "Version is 0"},
	{"version 0", `UPDATE crm.leads SET version = 0 WHERE id = '%s'`, "Version is 0"},
	{"the last version there is", `UPDATE crm.leads SET version = 2147483647 WHERE id = '%s'`, "SQLSTATE 23514"},
	{"stream ahead of its row", `INSERT INTO crm.domain_events SELECT id, 'Lead', 2, 'LeadArchived', '{}', 'someone', id, now(), ''
		FROM crm.leads WHERE id = '%s'`, "the stream is at version 2, ahead of the row at 1"},
	{"refused by a constraint", `ALTER TABLE crm.leads ADD CONSTRAINT refuse CHECK (id <> '%s' OR status = 'Active')`,
		"SQLSTATE 23514, constraint refuse, table leads"},
}

func TestRun_EachUnsoundLeadIsOneErrorAndTheSoundOnesBesideThemExpire(t *testing.T) {
	for _, batch := range []int{500, 4, 1} {
		t.Run(fmt.Sprintf("%d a page", batch), func(t *testing.T) {
			p := newPlatform(t)
			for _, column := range []string{"tenant_id", "executor_agent_user_id", "primary_investor_user_id", "version"} {
				p.execute("ALTER TABLE crm.leads ALTER " + column + " DROP NOT NULL")
			}
			p.execute("ALTER TABLE crm.leads DROP CONSTRAINT leads_status_check, DROP CONSTRAINT leads_version_check")

			// A sound lead before each unsound one; the second has a row alone, the third a row that
			// is ahead of its stream.
			sound := p.register(len(unsound) + 1)
			p.execute(fmt.Sprintf("DELETE FROM crm.domain_events WHERE stream_id = '%s'", sound[1].Lead))
			p.execute(fmt.Sprintf("UPDATE crm.leads SET version = 5 WHERE id = '%s'", sound[2].Lead))
			poison, tenants := make(map[string]string), make(map[string]string)
			for i, u := range unsound {
				id, tenant := uuid.NewString(), uuid.NewString()
				p.execute(fmt.Sprintf(`INSERT INTO crm.leads SELECT '%s', '%s', gen_random_uuid(), gen_random_uuid(),
					'Active', expires_at - interval '1 millisecond', NULL, 1, created_at, updated_at FROM crm.leads WHERE id = '%s'`,
					id, tenant, sound[i].Lead))
				p.execute(fmt.Sprintf(u.statement, id))
				poison[id], tenants[id] = u.says, tenant
				if u.what == "no tenant" {
					tenants[id] = ids.TenantID{}.String()
				}
			}
			// Nobody's: the job takes active leads only.
			p.execute(`INSERT INTO crm.leads SELECT gen_random_uuid(), tenant_id, executor_agent_user_id, primary_investor_user_id,
				'Asleep', expires_at, NULL, 1, created_at, updated_at FROM crm.leads WHERE status = 'Active' AND version = 5`)

			code, stdout, stderr := pinworker(t, "run", "lead-expiration", "--json", "--set", fmt.Sprintf("jobs.lead-expiration.batch_size=%d", batch))
			var result runResult
			if err := json.Unmarshal([]byte(stdout), &result); err != nil || code != exitDone {
				t.Fatalf("exit %d, %v: %s%s", code, err, stdout, stderr)
			}
			if *result.ExpiredCount != len(sound) || *result.FailedCount != len(unsound) || *result.FaultCount != 0 {
				t.Errorf("result %s; want %d expired, %d failed, no faults", stdout, len(sound), len(unsound))
			}
			told := make(map[string]int)
			for text := range strings.Lines(stderr) {
				var line logged
				if err := json.Unmarshal([]byte(text), &line); err != nil {
					t.Fatalf("%q: %v", text, err)
				}
				if line.Level != "ERROR" {
					continue
				}
				told[line.LeadID]++
				if line.Msg != "item.failed" || line.JobRunID != result.RunID || line.TenantID != tenants[line.LeadID] || line.Streak != 1 {
					t.Errorf("told %s; want item.failed, of this run and tenant %s", text, tenants[line.LeadID])
				}
				if says := poison[line.LeadID]; says == "" || !strings.Contains(line.Error, says) {
					t.Errorf("told %s; want %q", text, says)
				}
			}
			for id, says := range poison {
				if told[id] != 1 {
					t.Errorf("lead %s (%s) was told of %d times; want once", id, says, told[id])
				}
			}
			for query, want := range map[string]int{
				"SELECT count(*) FROM crm.leads WHERE status = 'Expired' AND expired_at IS NOT NULL":                 len(sound),
				"SELECT count(DISTINCT stream_id) FROM crm.domain_events WHERE event_type = 'LeadExpired'":           len(sound),
				"SELECT count(DISTINCT key) FROM crm.outbox":                                                         len(sound),
				"SELECT count(*) FROM crm.leads WHERE status = 'Active'":                                             len(unsound),
				"SELECT count(*) FROM crm.quarantine AS q JOIN crm.leads AS l ON l.id = q.item WHERE q.failures = 1": len(unsound),
				"SELECT count(*) FROM crm.quarantine":                                                                len(unsound),
				"SELECT count(*) FROM crm.leads WHERE status = 'Asleep' AND version = 1 AND expired_at IS NULL":      1,
			} {
				if n := p.count(query); n != want {
					t.Errorf("%s: %d; want %d", query, n, want)
				}
			}
			for i, want := range []string{"LeadRegistered 1, LeadExpired 2", "LeadImported 1, LeadExpired 2", "LeadRegistered 1, LeadImported 5, LeadExpired 6"} {
				var events string
				err := p.context("crm").db.Pool.QueryRow(t.Context(), `SELECT string_agg(event_type || ' ' || version, ', ' ORDER BY version)
					FROM crm.domain_events WHERE stream_id = $1`, sound[i].Lead.String()).Scan(&events)
				if err != nil || events != want {
					t.Errorf("sound lead %d has the events %s, %v; want %s", i, events, err, want)
				}
			}
			_, stdout, _ = pinworker(t, "verify", "--json")
			var found verification
			if err := json.Unmarshal([]byte(stdout), &found); err != nil {
				t.Fatal(err)
			}
			for _, f := range found.Items {
				if poison[f.ID] == "" && !strings.Contains(f.What, "Status is neither") {
					t.Errorf("a lead that expired: %+v", f)
				}
			}
		})
	}
}
