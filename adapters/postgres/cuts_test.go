package postgres_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/adapters/postgres"
	appcrm "github.com/pin-platform/pinworker/app/crm"
	"github.com/pin-platform/pinworker/app/verify"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/ports"
)

// cuts loses one message of all that a proxy passes on, in either direction, and counts them.
type cuts struct {
	mu     sync.Mutex
	passed int
	at     int // the message that is lost; 0: none
	lost   string
}

func (c *cuts) before(m embeddedtest.Message) (pass bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passed++
	if c.passed == c.at {
		c.lost = string(m.Kind)
	}
	return c.passed != c.at
}

// begin counts from the next message on, and cuts in place of the n-th.
func (c *cuts) begin(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passed, c.at, c.lost = 0, n, ""
}

func (c *cuts) count() (passed int, lost string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.passed, c.lost
}

func TestLeads_ACutAtAnyProtocolMessageOfAPageLeavesNothingHalfDone(t *testing.T) {
	const page = 3
	database := embeddedtest.Database(t)
	owner := open(t, database)
	p, through := embeddedtest.NewProxy(t, embeddedtest.AsWorker(t, database))
	var cut cuts
	p.Before(cut.before)
	writer := outbox.NewWriter(outbox.Table{Schema: "crm"}, "pin/crm", func() {})
	direct := postgres.NewCRM(open(t, embeddedtest.AsWorker(t, database)), writer).Due

	// attempt expires a fresh page through a connection that is cut at the n-th message. The
	// connection is new, so that each page has the same messages, the start of it included.
	attempt := func(n int) (outcome ports.Outcome[crm.Lead, crm.Event], counted int, lost string, err error) {
		execute(t, owner, "TRUNCATE crm.leads, crm.domain_events, crm.outbox, crm.quarantine CASCADE")
		execute(t, owner, `INSERT INTO crm.leads SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(),
			'Active', $1::timestamptz - n * interval '1 second', NULL, 1, $1, $1 FROM generate_series(1, $2) AS n`, portstest.Noon, page)
		cut.begin(n)
		db := open(t, through)
		defer db.Close()
		claim := ports.Claim{AsOf: portstest.Noon, Limit: page, Run: ports.NewRunID()}
		outcome, err = postgres.NewCRM(db, writer).Due.Transition(t.Context(), claim, appcrm.Expire)
		counted, lost = cut.count()
		return outcome, counted, lost, err
	}
	_, messages, _, err := attempt(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("a page of %d leads takes %d protocol messages", page, messages)

	committed, cuts, kinds := 0, 0, make(map[string]int)
	for n := 1; n <= messages; n++ {
		outcome, _, lost, err := attempt(n)
		if err == nil || len(outcome.Applied) > 0 {
			t.Fatalf("cut %d (%s): outcome %+v, %v; want a fault", n, lost, outcome, err)
		}
		if refused := (*ports.RefusedError)(nil); errors.As(err, &refused) || len(outcome.Failed) > 0 {
			t.Errorf("cut %d (%s): someone was blamed: %+v, %v", n, lost, outcome, err)
		}
		cuts++
		kinds[lost]++
		expired := settled(t, owner, page)
		committed += expired / page

		// The next cycle finds either state right and finishes the work once.
		claim := ports.Claim{AsOf: portstest.Noon, Limit: page, Run: ports.NewRunID()}
		again, err := direct.Transition(t.Context(), claim, appcrm.Expire)
		if err != nil || len(again.Applied)+expired != page {
			t.Fatalf("cut %d (%s): %d expired, then %+v, %v", n, lost, expired, again, err)
		}
		if expired := settled(t, owner, page); expired != page {
			t.Fatalf("cut %d (%s): %d of %d expired in the end", n, lost, expired, page)
		}
	}
	t.Logf("%d cuts, by message: %v; after %d of them the page had been committed", cuts, kinds, committed)
	// The answer to COMMIT is lost both ways: COMMIT itself (nothing is committed) and its
	// answer, CommandComplete and ReadyForQuery (all is).
	if cuts != messages || committed != 2 {
		t.Errorf("%d cuts of %d messages, committed after %d; want every one, and 2 after COMMIT had been heard", cuts, messages, committed)
	}
}

// settled waits until no other connection is in a transaction, checks that the page is whole or
// untouched, and returns how many leads are expired.
func settled(t *testing.T, owner *postgres.DB, page int) (expired int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		var busy int
		err := owner.Pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND usename = 'worker' AND xact_start IS NOT NULL`).Scan(&busy)
		if err != nil {
			t.Fatal(err)
		}
		if busy == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a cut connection stays in its transaction")
		}
	}
	var events, messages int
	err := owner.Pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM crm.leads WHERE status = 'Expired' AND version = 2),
		(SELECT count(*) FROM crm.domain_events WHERE event_type = 'LeadExpired'), (SELECT count(DISTINCT uuid) FROM crm.outbox)`).
		Scan(&expired, &events, &messages)
	if err != nil {
		t.Fatal(err)
	}
	if expired != 0 && expired != page || events != expired || messages != expired {
		t.Fatalf("half done: %d leads, %d events, %d messages", expired, events, messages)
	}
	report, err := verify.Run(t.Context(), postgres.NewCRM(owner, nil).Ledger, time.Time{}, func(f verify.Finding) {
		t.Errorf("%s: %s", f.ID, f.What)
	})
	if err != nil || report.Differences > 0 {
		t.Fatal(fmt.Errorf("verify: %+v, %w", report, err))
	}
	return expired
}
