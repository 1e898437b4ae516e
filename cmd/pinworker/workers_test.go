package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// killsEnv says how many times TestWorkers_... kills: a few by default, 50 for the whole of it.
const killsEnv = "PINWORKER_TEST_KILLS"

// Two workers run side by side and one of them is killed within an open transaction: before the
// first commit of its cycle, or after it.
func TestWorkers_AKillInAnOpenTransactionLosesAndDoublesNothing(t *testing.T) {
	kills := 4
	if text := os.Getenv(killsEnv); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	const leads, batch = 300, 50
	for kill := range kills {
		t.Run(fmt.Sprintf("kill %d, after %d pages", kill+1, kill%2), func(t *testing.T) {
			p := newPlatform(t)
			p.execute(fmt.Sprintf(`INSERT INTO crm.leads SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(),
				'Active', now() - n * interval '1 second', NULL, 1, now(), now() FROM generate_series(1, %d) AS n`, leads))
			// The victim's transaction stands still while it writes its messages, once as many pages
			// are committed as asked for; the test holds the lock that it waits for.
			p.execute(fmt.Sprintf(`CREATE FUNCTION crm.stand_still() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF current_setting('application_name') = 'victim' AND (SELECT count(*) FROM crm.leads WHERE status = 'Expired') > %d THEN
					PERFORM pg_advisory_xact_lock(4711);
				END IF;
				RETURN NULL;
			END $$`, kill%2*batch))
			p.execute("CREATE TRIGGER stand_still AFTER INSERT ON crm.outbox FOR EACH STATEMENT EXECUTE FUNCTION crm.stand_still()")
			lock, err := p.context("crm").db.Pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Release()
			if _, err := lock.Exec(t.Context(), "SELECT pg_advisory_lock(4711)"); err != nil {
				t.Fatal(err)
			}

			start := func(name string) *exec.Cmd {
				cmd, _, _, _ := program(t, "run", "lead-expiration", "--set", "jobs.lead-expiration.batch_size="+strconv.Itoa(batch))
				cmd.Env = append(cmd.Env, "PINWORKER_DATABASE_URL="+p.url+"&application_name="+name)
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				return cmd
			}
			victim := start("victim")
			eventually(t, "the victim stands still in an open transaction", func() bool {
				return p.count(`SELECT count(*) FROM pg_stat_activity WHERE application_name = 'victim'
					AND wait_event_type = 'Lock' AND wait_event = 'advisory' AND backend_xid IS NOT NULL
					AND datname = current_database()`) == 1
			})
			if n := p.count("SELECT count(*) FROM crm.leads WHERE status = 'Expired'"); n != kill%2*batch {
				t.Errorf("%d leads are committed before the kill; want %d", n, kill%2*batch)
			}
			other := start("other")
			if err := victim.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			victim.Wait() //nolint:errcheck // it was killed
			if _, err := lock.Exec(t.Context(), "SELECT pg_advisory_unlock(4711)"); err != nil {
				t.Fatal(err)
			}
			if err := other.Wait(); err != nil {
				t.Error(err)
			}
			eventually(t, "the victim's transaction is gone", func() bool {
				return p.count("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'victim' AND datname = current_database()") == 0
			})
			done[runResult](t, "run", "lead-expiration") // the next cycle takes what the victim held
			for what, query := range map[string]string{
				"expired at version 2":    "SELECT count(*) FROM crm.leads WHERE status = 'Expired' AND version = 2",
				"LeadExpired events":      "SELECT count(*) FROM crm.domain_events WHERE event_type = 'LeadExpired'",
				"streams with one":        "SELECT count(DISTINCT stream_id) FROM crm.domain_events WHERE event_type = 'LeadExpired'",
				"messages by distinct id": "SELECT count(DISTINCT uuid) FROM crm.outbox",
			} {
				if n := p.count(query); n != leads {
					t.Errorf("%d %s; want %d", n, what, leads)
				}
			}
			if got := done[verification](t, "verify"); got.Differences != 0 {
				t.Errorf("verification %+v", got)
			}
		})
	}
}
