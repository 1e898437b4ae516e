package main

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/app/published"
)

func TestOperations_ARestoredDatabaseSendsAgainUnderTheOldIDs(t *testing.T) {
	anOperatorHas(t, "bash", "createdb", "pg_dump", "pg_restore")
	p := newPlatform(t)
	k := newTerminal(p)
	k.kafka()
	// Given leads that are published, wait in the outbox, and are due; and an event that is planned.
	p.register(2)
	event := portstest.Plan(time.Now().Add(time.Hour))
	p.must(p.worker.calendar.Schedule(t.Context(), "agent", event))
	k.publishAll(p, p.url)
	p.register(3)
	done[runResult](t, "run", "lead-expiration")
	p.register(4)

	k.walk("operations.md", "Back up")
	p.must(p.worker.calendar.CancelEvent(t.Context(), "agent", event.CalendarEvent))
	k.publishAll(p, p.url)
	u, err := url.Parse(p.owner)
	p.must(err)
	u.Path += "_restored"
	k.env["RESTORED_URL"] = u.String()
	k.walk("operations.md", "Restore", "pin_restored", strings.TrimPrefix(u.Path, "/"))
	restored, _ := onDatabases(t, u.String(), u.String(), u.String())
	p.must(restored.worker.calendar.Start(t.Context(), "agent", event.CalendarEvent)) // this time it takes place
	k.publishAll(restored, embeddedtest.AsWorker(t, u.String()))

	leads, err := readBack(t.Context(), k.broker.Brokers(), published.TopicLeadExpired)
	p.must(err)
	times := make(map[string]int)
	for _, r := range leads {
		times[r.Headers["ce_id"]]++
	}
	if len(leads) != 2+3+4+3+4 || len(times) != 2+3+4 {
		t.Errorf("%d messages of leads, of %d ids; want 16 of 9", len(leads), len(times))
	}
	events, err := readBack(t.Context(), k.broker.Brokers(), published.TopicEventStatusChanged)
	p.must(err)
	if len(events) != 3 { // planned, cancelled, and started after the restore
		t.Fatalf("%d messages of the event; want 3", len(events))
	}
	if cancelled, started := events[1], events[2]; cancelled.Headers["ce_id"] != started.Headers["ce_id"] || bytes.Equal(cancelled.Value, started.Value) {
		t.Errorf("cancelled %s %s, started %s %s; want one id, as the page warns", cancelled.Headers["ce_id"], cancelled.Value, started.Headers["ce_id"], started.Value)
	}
}

// publishAll serves a worker until all that is due is done and published.
func (k *terminal) publishAll(p *platform, databaseURL string) {
	k.Helper()
	s := serveWorker(k.T, "--set", "database.url="+databaseURL, "--set", "kafka.brokers="+k.broker.Brokers()[0])
	eventually(k.T, "all is published", func() bool { return p.unpublished() == 0 })
	if code := s.stop(); code != exitDone {
		k.Errorf("exit %d: %s", code, &s.log)
	}
}

// A roll-out goes on for a while after its migrations, and may be taken back.
func TestOperations_AWorkerServesBesideASchemaThatIsNewer(t *testing.T) {
	p := newPlatform(t)
	p.execute(`INSERT INTO calendar.goose_worker (version_id, is_applied) VALUES (9999, true);
		INSERT INTO promotion.goose_worker (version_id, is_applied) VALUES (9999, true);
		INSERT INTO crm.goose_worker (version_id, is_applied) VALUES (9999, true)`)
	leads := p.register(3)
	s := serveWorker(t, "--set", "relay.enabled=false")
	eventually(t, "the leads are expired", func() bool { return p.count("SELECT count(*) FROM crm.outbox") == len(leads) })
	if status, body := s.get("/readyz"); status != http.StatusOK {
		t.Errorf("/readyz %d %s", status, body)
	}
	if code, stdout, stderr := pinworker(t, "doctor", "--set", "relay.enabled=false"); code != exitDone {
		t.Errorf("doctor: exit %d, %s%s", code, stdout, stderr)
	}
}

func TestOperations_AURLMayNameSeveralServersOfWhichOneCanBeWrittenTo(t *testing.T) {
	p := newPlatform(t)
	p.register(3)
	u, err := url.Parse(p.url)
	p.must(err)
	u.Host = "127.0.0.1:1," + u.Host
	several := u.String() + "&target_session_attrs=read-write"
	if got := done[runResult](t, "run", "lead-expiration", "--set", "database.url="+several); *got.ExpiredCount != 3 {
		t.Errorf("%d expired; want 3", *got.ExpiredCount)
	}
}
