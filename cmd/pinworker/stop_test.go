package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/app/published"
)

// stopsEnv set to 1 stops at every message; by default every so many.
const stopsEnv = "PINWORKER_TEST_STOPS"

// stops calls stop at the n-th message that clients send, and passes them all on.
type stops struct {
	mu   sync.Mutex
	n    int
	stop func()
}

func (s *stops) before(m embeddedtest.Message) (pass bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.Client {
		if s.n--; s.n == 0 {
			s.stop()
		}
	}
	return true
}

func (s *stops) at(n int, stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n, s.stop = n, stop
}

// A worker is told to stop at a message that it sends to the database, at each one in turn, until
// it has done everything before.
func TestServe_AStopAtAnyMomentLeavesNothingHalfDone(t *testing.T) {
	const leads = 12
	step := 29 // a prime: no phase of a page is met again and again
	if os.Getenv(stopsEnv) == "1" {
		step = 1
	}
	p := newPlatform(t)
	broker := embeddedtest.Kafka(t, 0, published.TopicLeadExpired)
	proxy, through := embeddedtest.NewProxy(t, p.url)
	var at stops
	proxy.Before(at.before)
	serve := func(ctx context.Context, databaseURL string) *server {
		return serveWorkerUntil(ctx, t, "--set", "database.url="+databaseURL, "--set", "kafka.brokers="+broker.Brokers()[0],
			"--set", "jobs.lead-expiration.batch_size=3")
	}

	phases := make(map[string]int)
	n := 1
	for ; ; n += step {
		p.execute("TRUNCATE crm.leads, crm.domain_events, crm.outbox, crm.quarantine CASCADE")
		p.execute(fmt.Sprintf(`INSERT INTO crm.leads SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(),
			'Active', now() - n * interval '1 second', NULL, 1, now(), now() FROM generate_series(1, %d) AS n`, leads))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		reached := make(chan struct{})
		at.at(n, func() { stop(); close(reached) })
		s := serve(ctx, through)
		early := true
		eventually(t, "it is stopped, or has done everything", func() bool {
			select {
			case <-reached:
				return true
			default:
				early = !p.everythingDone(leads)
				return !early
			}
		})
		code := s.stop()
		at.at(0, nil)
		if code != exitDone {
			t.Errorf("stop %d: exit %d: %s", n, code, &s.log)
		}
		if !early {
			break
		}
		expired, waiting := p.consistent(broker, n)
		switch {
		case expired == 0:
			phases["before the first commit"]++
		case expired < leads:
			phases["between the pages"]++
		case waiting > 0:
			phases["before the outbox was empty"]++
		default:
			phases["after the last message"]++
		}

		// Whoever comes next finishes the work once.
		next := serve(t.Context(), p.url)
		eventually(t, "the next worker finishes the work", func() bool { return p.everythingDone(leads) })
		if code := next.stop(); code != exitDone {
			t.Errorf("after stop %d: exit %d: %s", n, code, &next.log)
		}
		if expired, _ := p.consistent(broker, n); expired != leads {
			t.Errorf("after stop %d: %d of %d leads expired", n, expired, leads)
		}
		if t.Failed() {
			t.FailNow() // the first one tells enough
		}
	}
	count := 0
	for _, times := range phases {
		count += times
	}
	t.Logf("%d stops, all was done before message %d: %v", count, n, phases)
	if count < 6 || phases["before the first commit"] == 0 || phases["between the pages"]+phases["before the outbox was empty"] == 0 {
		t.Errorf("%d stops: %v; want some before the first commit, and some after it", count, phases)
	}
}

func (p *platform) everythingDone(leads int) bool {
	return p.count("SELECT count(*) FROM crm.leads WHERE status = 'Expired'") == leads && p.count("SELECT count(*) FROM crm.outbox") == 0
}

// consistent checks that nobody is in a transaction any more, and that each expired lead has its
// event and its message, in the outbox or in Kafka. A worker that was allowed to finish what it
// had in hand repeats no message.
func (p *platform) consistent(broker embeddedtest.Broker, stop int) (expired, waiting int) {
	p.Helper()
	eventually(p.T, "nobody is in a transaction", func() bool {
		return p.count(`SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND usename = 'worker' AND xact_start IS NOT NULL`) == 0
	})
	expired = p.count("SELECT count(*) FROM crm.leads WHERE status = 'Expired' AND version = 2")
	waiting = p.count("SELECT count(*) FROM crm.outbox")
	events := p.count("SELECT count(*) FROM crm.domain_events WHERE event_type = 'LeadExpired'")
	messages, sent := p.messages(broker)
	if events != expired || messages != expired || waiting+sent != expired {
		p.Errorf("stop %d: half done: %d leads, %d events, %d messages (%d wait, %d are sent)", stop, expired, events, messages, waiting, sent)
	}
	if n := p.count("SELECT count(*) FROM crm.leads WHERE (status, version) NOT IN (('Active', 1), ('Expired', 2))"); n > 0 {
		p.Errorf("stop %d: %d leads are neither as they were nor expired once", stop, n)
	}
	if got := done[verification](p.T, "verify"); got.Differences != 0 {
		p.Errorf("stop %d: verification %+v", stop, got)
	}
	return expired, waiting
}

// messages counts the distinct messages about the database's leads, in the outbox and in Kafka,
// and Kafka's records among them.
func (p *platform) messages(broker embeddedtest.Broker) (distinct, sent int) {
	p.Helper()
	var leads, waiting []string
	err := p.context("crm").db.Pool.QueryRow(p.Context(), `SELECT
		ARRAY (SELECT id::text FROM crm.leads), ARRAY (SELECT uuid::text FROM crm.outbox)`).Scan(&leads, &waiting)
	if err != nil {
		p.Fatal(err)
	}
	records, err := readBack(p.Context(), broker.Brokers(), published.TopicLeadExpired)
	if err != nil {
		p.Fatal(err)
	}
	ours, ids := make(map[string]bool), make(map[string]bool)
	for _, lead := range leads {
		ours[lead] = true
	}
	for _, id := range waiting {
		ids[id] = true
	}
	for _, r := range records {
		if ours[r.Headers["ce_subject"]] {
			ids[r.Headers["ce_id"]] = true
			sent++
		}
	}
	return len(ids), sent
}

// The relay has its messages' acks and cannot delete them, because the test holds their rows: a
// stop would wait for it.
func TestServe_ASecondSIGTERMEndsItAtOnceAndLosesNothing(t *testing.T) {
	p := newPlatform(t)
	broker := embeddedtest.Kafka(t, 0, published.TopicLeadExpired)
	leads := p.register(5)
	done[runResult](t, "run", "lead-expiration")
	hold, err := p.context("crm").db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Rollback(context.Background()) //nolint:errcheck // it is rolled back below
	if _, err := hold.Exec(t.Context(), "SELECT FROM crm.outbox FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	cmd, _, stderr, _ := program(t, "serve", "--set", "database.url="+p.url, "--set", "kafka.brokers="+broker.Brokers()[0],
		"--set", "http.listen=127.0.0.1:0")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cmd.Wait() //nolint:errcheck // its state tells
	}()
	eventually(t, "the relay waits for the rows", func() bool {
		return p.count(`SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND usename = 'worker' AND wait_event_type = 'Lock'`) > 0
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is stopping", func() bool { return strings.Contains(stderr.String(), "worker is stopping") })
	// The program gives the signal its own meaning back right after the first one: a second one
	// that comes before that is lost, as if it were the same.
	eventually(t, "it ends", func() bool {
		cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !status.Signaled() || status.Signal() != syscall.SIGTERM || strings.Contains(stderr.String(), "worker stopped") {
		t.Errorf("%v; want it ended by the signal: %s", cmd.ProcessState, stderr)
	}
	if err := hold.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, _ := p.messages(broker); n != len(leads) {
		t.Errorf("%d distinct messages; want %d", n, len(leads))
	}

	s := serveWorker(t, "--set", "kafka.brokers="+broker.Brokers()[0])
	eventually(t, "the next worker finishes the work", func() bool { return p.everythingDone(len(leads)) })
	if code := s.stop(); code != exitDone {
		t.Errorf("exit %d: %s", code, &s.log)
	}
	p.wantPublishedAtLeast(broker, len(leads))
	if got := done[verification](t, "verify"); got.Differences != 0 {
		t.Errorf("verification %+v", got)
	}
}
