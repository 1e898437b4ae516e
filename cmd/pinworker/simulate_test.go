package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/cmd/pinworker/internal/settings"
	"github.com/pin-platform/pinworker/cmd/pinworker/internal/simulation"
)

// serveEachSecond starts a worker whose jobs run each second, and returns the address of its HTTP.
func serveEachSecond(t *testing.T, databaseURL string, broker embeddedtest.Broker) string {
	t.Helper()
	return serveEvery(t, time.Second, "database.url="+databaseURL, "kafka.brokers="+broker.Brokers()[0], "database.max_connections=16")
}

// serveEvery starts a worker all of whose jobs have an interval: expire-promotions is not set to less
// than a minute by settings. It returns the address of its HTTP.
func serveEvery(t *testing.T, interval time.Duration, flags ...string) string {
	t.Helper()
	address := fmt.Sprintf("127.0.0.1:%d", embeddedtest.FreePort(t))
	s, _, err := settings.Load(settings.Sources{
		Flags: append(flags, "http.listen="+address, "relay.poll_interval=50ms", "log.level=warn"),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range []*settings.Job{&s.ReminderDispatch, &s.AppointmentTimeout, &s.ExpirePromotions, &s.LeadExpiration} {
		j.Interval = interval
	}
	var log lockedBuffer
	w, err := newWorker(s, &log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- serve(ctx, s, w) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := w.close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the worker's log: %s", &log)
		}
	})
	return address
}

// simulate runs the command against a platform, under the owner's role, as the platform's services.
func (p *platform) simulate(broker embeddedtest.Broker, args ...string) (code int, report simulationReport) {
	p.Helper()
	args = append([]string{
		"simulate", "--json", "--set", "database.url=" + p.worker.contexts[0].db.Pool.Config().ConnString(), "--set", "kafka.brokers=" + broker.Brokers()[0],
		"--set", "jobs.lead-expiration.interval=1s",
	}, args...)
	code, stdout, stderr := pinworker(p.T, args...)
	p.Logf("%s", stderr)
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		p.Fatalf("exit %d, %q: %v", code, stdout, err)
	}
	return code, report
}

// Eight workers and the platform's operations want the same rows.
func TestSimulate_BesideEightWorkersEverythingHappensAndNothingIsFound(t *testing.T) {
	p := newPlatform(t)
	p.simulateBeside(8, p.url)
}

func TestSimulate_BesideWorkersBehindPgBouncerInTransactionModeNothingIsFound(t *testing.T) {
	p := newPlatform(t)
	p.simulateBeside(4, embeddedtest.PgBouncer(t, p.url, 20))
}

// simulateBeside runs operations beside workers; how long they do is for simulateEnv to say.
func (p *platform) simulateBeside(workers int, databaseURL string) {
	p.Helper()
	const simulateEnv = "PINWORKER_TEST_SIMULATE"
	span := cmp.Or(os.Getenv(simulateEnv), "5s")
	broker := embeddedtest.Kafka(p.T, 0, published.Topics...)
	for range workers {
		serveEachSecond(p.T, databaseURL, broker)
	}
	waits := p.countLockWaits()
	code, report := p.simulate(broker, "--for", span, "--rate", "100")
	if code != exitDone || len(report.Findings) > 0 {
		p.Errorf("exit %d, %d findings: %.3000v", code, len(report.Findings), report.Findings)
	}
	deadlocks := p.count("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
	if n := waits(); deadlocks > 0 || n == 0 {
		p.Errorf("%d deadlocks, %d statements seen to wait for a row; want none, and some", deadlocks, n)
	} else {
		p.Logf("statements were seen to wait for a row %d times", n)
	}
	for _, outcome := range []string{
		"leads expired", "promotions expired", "appointments timed out", "slots released by timeouts", "slots expired by timeouts",
		"reminders sent", "reminders skipped by the worker",
	} {
		if report.Outcomes[outcome] == 0 {
			p.Errorf("no %s", outcome)
		}
	}
	for _, topic := range published.Topics {
		if n := report.Messages[topic]; n.Expected == 0 || n.Read < n.Expected {
			p.Errorf("%s: %+v", topic, n)
		}
	}
	operations := 0
	for kind, n := range report.Operations {
		operations += n.Accepted + n.Already + n.Refused
		if n.Unknown > 0 {
			p.Errorf("%s: %+v", kind, n)
		}
	}
	if operations < 100 || report.Verify.Streams < operations/2 || report.Verify.Differences != 0 {
		p.Errorf("%d operations, verify %+v", operations, report.Verify)
	}
	p.Logf("%.1f operations a second, outcomes %v", report.Rate, report.Outcomes)
}

// countLockWaits looks again and again for statements that wait for a row's lock, until its result is
// asked for.
func (p *platform) countLockWaits() (seen func() int) {
	ctx, stop := context.WithCancel(p.Context())
	n, done := 0, make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			var waiting int
			if p.context("crm").db.Pool.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event IN ('transactionid', 'tuple')`).Scan(&waiting) == nil {
				n += waiting
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return func() int { stop(); <-done; return n }
}

// Two faults of the product, played by the database: a message is lost after it was written, and a
// slot's row is changed behind its stream.
func TestSimulate_ALostMessageAndAWrongRowExitWith3(t *testing.T) {
	p := newPlatform(t)
	for _, statement := range []string{
		"CREATE SEQUENCE crm.written",
		`CREATE FUNCTION crm.lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('crm.written') = 5 THEN DELETE FROM crm.outbox WHERE id = NEW.id; END IF;
			RETURN NULL;
		END $$`,
		"CREATE TRIGGER lose AFTER INSERT ON crm.outbox FOR EACH ROW EXECUTE FUNCTION crm.lose()",
		"CREATE SEQUENCE calendar.written",
		`CREATE FUNCTION calendar.spoil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF NEW.status = 'Expired' AND nextval('calendar.written') = 3 THEN NEW.status := 'Available'; END IF;
			RETURN NEW;
		END $$`,
		"CREATE TRIGGER spoil BEFORE UPDATE ON calendar.availability_slots FOR EACH ROW EXECUTE FUNCTION calendar.spoil()",
		"GRANT USAGE ON SEQUENCE crm.written, calendar.written TO PUBLIC",
	} {
		p.execute(statement)
	}
	broker := embeddedtest.Kafka(t, 0, published.Topics...)
	serveEachSecond(t, p.url, broker)
	code, report := p.simulate(broker, "--for", "4s", "--rate", "100")
	if code != exitNotInOrder || len(report.Findings) > 5 {
		t.Errorf("exit %d, %d findings: %.3000v", code, len(report.Findings), report.Findings)
	}
	for _, what := range []string{"LeadExpired: its message is not in Kafka", "Status: the row says Available, its stream Expired"} {
		if !slices.ContainsFunc(report.Findings, func(f simulation.Finding) bool { return strings.Contains(f.What, what) }) {
			t.Errorf("not found: %s, in %v", what, report.Findings)
		}
	}
}

func TestSimulate_WithNobodyServingSaysSo(t *testing.T) {
	p := newPlatform(t)
	broker := embeddedtest.Kafka(t, 0, published.Topics...)
	code, report := p.simulate(broker, "--for", "2s", "--rate", "50", "--settle", "2s")
	if text := fmt.Sprint(report.Findings); code != exitNotInOrder || !strings.Contains(text, "lead-expiration: it took none") ||
		!strings.Contains(text, "does a relay run?") || len(report.Findings) > 8 {
		t.Errorf("exit %d, %d findings: %v", code, len(report.Findings), report.Findings)
	}
}

func TestSimulate_AnInterruptExitsWith130(t *testing.T) {
	p := newPlatform(t)
	broker := embeddedtest.Kafka(t, 0, published.Topics...)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var log lockedBuffer
	code := make(chan int)
	go func() {
		code <- run(ctx, []string{
			"simulate", "--set", "database.url=" + p.worker.contexts[0].db.Pool.Config().ConnString(), "--set", "kafka.brokers=" + broker.Brokers()[0],
		}, streams{strings.NewReader(""), io.Discard, &log})
	}()
	eventually(t, "leads are registered", func() bool { return p.count("SELECT count(*) FROM crm.leads") > 0 })
	interrupt()
	if c := <-code; c != exitInterrupted {
		t.Errorf("exit %d: %s", c, &log)
	}
}

func TestSimulate_ForPeopleShowsTables(t *testing.T) {
	p := newPlatform(t)
	broker := embeddedtest.Kafka(t, 0, published.Topics...)
	code, stdout, stderr := pinworker(t, "simulate", "--for", "1s", "--settle", "1s",
		"--set", "database.url="+p.worker.contexts[0].db.Pool.Config().ConnString(), "--set", "kafka.brokers="+broker.Brokers()[0])
	if code != exitNotInOrder || !strings.Contains(stderr, "jobs.lead-expiration.interval is 1h0m0s here") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	for _, part := range []string{"register lead", "OPERATION", "IN KAFKA", "FINDING", "verify: "} {
		if !strings.Contains(stdout, part) {
			t.Errorf("it does not tell %q:\n%s", part, stdout)
		}
	}
}

func TestSimulate_TouchesNothingWhereItCannotCheck(t *testing.T) {
	p := newPlatform(t)
	owner := "database.url=" + p.worker.contexts[0].db.Pool.Config().ConnString()
	broker := embeddedtest.Kafka(t, 0, published.Topics...)
	for _, test := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"Kafka is away", []string{"--set", owner, "--set", "kafka.brokers=127.0.0.1:1"}, exitFailed, "Kafka"},
		{"a job is disabled", []string{"--set", owner, "--set", "kafka.brokers=127.0.0.1:1", "--set", "jobs.lead-expiration.enabled=false"}, exitUsage, "jobs.lead-expiration.enabled=true"},
		{"a role without the platform's rights", []string{"--set", "kafka.brokers=" + broker.Brokers()[0], "--rate", "200"}, exitFailed, "the first 20 operations all failed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, _, stderr := pinworker(t, append([]string{"simulate", "--for", "1s"}, test.args...)...)
			if code != test.code || !strings.Contains(stderr, test.says) {
				t.Errorf("exit %d, %s; want %d and %q", code, stderr, test.code, test.says)
			}
			if n := p.count("SELECT count(*) FROM crm.domain_events"); n != 0 {
				t.Errorf("%d events", n)
			}
		})
	}
}
