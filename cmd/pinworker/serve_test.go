package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/opshttp"
	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/domain/crm"
)

// server is pinworker serve, in this process.
type server struct {
	t    *testing.T
	log  lockedBuffer
	http string
	stop func() int
}

// serveWorker starts a worker that looks for messages often, and returns once it listens.
func serveWorker(t *testing.T, args ...string) *server {
	t.Helper()
	return serveWorkerUntil(context.Background(), t, append(args, "--set", "relay.poll_interval=50ms")...)
}

// serveWorkerUntil starts a worker that is told to stop when ctx ends, as by SIGTERM.
func serveWorkerUntil(ctx context.Context, t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{t: t}
	s.start(ctx, func(ctx context.Context) int {
		return run(ctx, append([]string{"serve", "--set", "http.listen=127.0.0.1:0"}, args...), streams{strings.NewReader(""), io.Discard, &s.log})
	})
	return s
}

// start returns once the worker listens.
func (s *server) start(ctx context.Context, work func(context.Context) int) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	code := make(chan int, 1)
	go func() { code <- work(ctx) }()
	s.stop = sync.OnceValue(func() int { cancel(); return <-code })
	s.t.Cleanup(func() { s.stop() })
	eventually(s.t, "the worker listens", func() bool {
		for line := range strings.Lines(s.log.String()) {
			var started struct{ Msg, HTTP string }
			if json.Unmarshal([]byte(line), &started) == nil && started.Msg == "worker started" {
				s.http = started.HTTP
			}
		}
		return s.http != ""
	})
}

func (s *server) get(path string) (int, string) {
	s.t.Helper()
	response, err := http.Get("http://" + s.http + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestServe_ADueLeadReachesKafka(t *testing.T) {
	p := newPlatform(t)
	broker := embeddedtest.Kafka(t, 0, published.TopicLeadExpired)
	leads := p.register(40)
	s := serveWorker(t, "--set", "kafka.brokers="+broker.Brokers()[0])
	eventually(t, "all leads are expired and published", func() bool {
		return p.count("SELECT count(*) FROM crm.leads WHERE status = 'Expired'") == len(leads) &&
			p.count("SELECT count(*) FROM crm.outbox") == 0
	})
	if status, body := s.get("/readyz"); status != http.StatusOK {
		t.Errorf("/readyz %d %s", status, body)
	}
	if _, body := s.get("/metrics"); !strings.Contains(body, "crm_lead_expiration_expired_total 40") {
		t.Errorf("/metrics tells of no 40 leads")
	}
	p.execute("DELETE FROM crm.goose_worker WHERE version_id = 4")
	if status, body := s.get("/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "pinworker migrate up") {
		t.Errorf("/readyz %d %s; want 503, the schema is behind", status, body)
	}
	p.execute("INSERT INTO crm.goose_worker (version_id, is_applied) VALUES (4, true)")
	if code := s.stop(); code != exitDone {
		t.Errorf("exit %d: %s", code, &s.log)
	}
	p.wantPublished(broker, leads)
	if got := done[verification](t, "verify"); got.Streams != 40 || got.Differences != 0 {
		t.Errorf("verification %+v", got)
	}
}

// wantPublished checks that Kafka holds exactly one message of each lead, in order for each
// subject.
func (p *platform) wantPublished(broker embeddedtest.Broker, leads []crm.Registration) {
	p.Helper()
	records, err := readBack(p.Context(), broker.Brokers(), published.TopicLeadExpired)
	if err != nil {
		p.Fatal(err)
	}
	ids, versions := make(map[string]bool), make(map[string]int)
	for _, r := range records {
		ids[r.Headers["ce_id"]] = true
		version, err := strconv.Atoi(r.Headers["ce_aggregateversion"])
		if err != nil || version <= versions[r.Headers["ce_subject"]] {
			p.Errorf("subject %s: version %q after %d", r.Headers["ce_subject"], r.Headers["ce_aggregateversion"], versions[r.Headers["ce_subject"]])
		}
		versions[r.Headers["ce_subject"]] = version
		var event published.LeadExpiredEvent
		if err := json.Unmarshal(r.Value, &event); err != nil || event.LeadID.String() != r.Headers["ce_subject"] {
			p.Errorf("payload %s: %v", r.Value, err)
		}
	}
	if len(records) != len(leads) || len(ids) != len(leads) {
		p.Errorf("%d messages, %d distinct ce_ids; want %d", len(records), len(ids), len(leads))
	}
	for _, lead := range leads {
		if versions[lead.Lead.String()] == 0 {
			p.Errorf("no message of lead %s", lead.Lead)
		}
	}
}

func TestServe_KafkaAwayForAWholeCycle(t *testing.T) {
	p := newPlatform(t)
	port := embeddedtest.FreePort(t)
	first := p.register(30)
	s := serveWorker(t, "--set", fmt.Sprintf("kafka.brokers=127.0.0.1:%d", port), "--set", "jobs.lead-expiration.interval=1s")
	eventually(t, "the leads expire all the same", func() bool {
		return p.count("SELECT count(*) FROM crm.leads WHERE status = 'Expired'") == len(first)
	})
	// Some expire a second time, in a later cycle: their messages must come in order.
	for _, lead := range first[:10] {
		if err := p.worker.crm.Extend(t.Context(), "agent", lead.Lead, time.Now().UTC().Truncate(time.Microsecond)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "they expire again", func() bool {
		return p.count("SELECT count(*) FROM crm.domain_events WHERE event_type = 'LeadExpired'") == 40
	})
	if n := p.count("SELECT count(*) FROM crm.outbox"); n != 40 {
		t.Errorf("%d messages wait; want 40", n)
	}
	if status, body := s.get("/livez"); status != http.StatusOK {
		t.Errorf("/livez %d %s; Kafka's outage is no reason to be killed", status, body)
	}
	broker := embeddedtest.Kafka(t, port, published.TopicLeadExpired)
	eventually(t, "the outbox is empty", func() bool { return p.count("SELECT count(*) FROM crm.outbox") == 0 })
	if code := s.stop(); code != exitDone {
		t.Errorf("exit %d: %s", code, &s.log)
	}
	p.wantPublishedAtLeast(broker, 40)
}

func (p *platform) wantPublishedAtLeast(broker embeddedtest.Broker, distinct int) {
	p.Helper()
	records, err := readBack(p.Context(), broker.Brokers(), published.TopicLeadExpired)
	if err != nil {
		p.Fatal(err)
	}
	ids, versions := make(map[string]bool), make(map[string][]int)
	for _, r := range records {
		if id := r.Headers["ce_id"]; !ids[id] { // a repetition, after an outage, is no new message
			ids[id] = true
			version, _ := strconv.Atoi(r.Headers["ce_aggregateversion"])
			versions[r.Headers["ce_subject"]] = append(versions[r.Headers["ce_subject"]], version)
		}
	}
	if len(ids) != distinct {
		p.Errorf("%d distinct ce_ids; want %d", len(ids), distinct)
	}
	for subject, v := range versions {
		if !slices.IsSorted(v) {
			p.Errorf("subject %s: versions %v out of order", subject, v)
		}
	}
}

func TestServe_ASchemaThatIsBehindExitsWith2AndNamesTheRemedy(t *testing.T) {
	t.Setenv("PINWORKER_DATABASE_URL", embeddedtest.EmptyDatabase(t))
	s := serveWorker(t, "--set", "kafka.brokers=127.0.0.1:1")
	code := make(chan int, 1)
	eventually(t, "it gives up", func() bool {
		if !strings.Contains(s.log.String(), "pinworker migrate up") {
			return false
		}
		code <- s.stop()
		return true
	})
	if c := <-code; c != exitUsage {
		t.Errorf("exit %d; want 2", c)
	}
}

func TestServe_WaitsForADatabaseThatIsAwayAliveAndNotReady(t *testing.T) {
	t.Setenv("PINWORKER_DATABASE_URL", fmt.Sprintf("postgres://postgres@127.0.0.1:%d/pin", embeddedtest.FreePort(t)))
	s := serveWorker(t, "--set", "kafka.brokers=127.0.0.1:1")
	if status, body := s.get("/livez"); status != http.StatusOK {
		t.Errorf("/livez %d %s", status, body)
	}
	if status, body := s.get("/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "crm: ") {
		t.Errorf("/readyz %d %s; want 503 and why", status, body)
	}
	if code := s.stop(); code != exitDone {
		t.Errorf("exit %d: %s", code, &s.log)
	}
}

func TestServe_AContextWhoseDatabaseIsAwayAtTheStartKeepsNoOtherWaiting(t *testing.T) {
	database, empty := embeddedtest.Database(t), embeddedtest.EmptyDatabase(t)
	p, _ := onDatabases(t, database, database, empty)
	u, err := url.Parse(empty)
	p.must(err)
	way := newLine(t, u.Host)
	way.cut()
	u.Host = way.address
	now := time.Now()
	p.must(p.worker.at(now.AddDate(0, 0, -1)).calendar.Schedule(t.Context(), "agent", portstest.Plan(now.Add(-time.Second))))
	broker := embeddedtest.Kafka(t, 0, published.Topics...)

	s := serveWorker(t, "--set", "database.url="+embeddedtest.AsWorker(t, database), "--set", "contexts.crm.database.url="+u.String(),
		"--set", "kafka.brokers="+broker.Brokers()[0], "--set", "jobs.lead-expiration.interval=1s")
	eventually(t, "the reminder is sent and published", func() bool {
		return p.countIn("calendar", "SELECT count(*) FROM calendar.event_reminders WHERE status = 'Sent'") == 1 &&
			p.countIn("calendar", "SELECT count(*) FROM calendar.outbox") == 0
	})
	if status, body := s.get("/livez"); status != http.StatusOK {
		t.Errorf("/livez %d %s", status, body)
	}
	if status, body := s.get("/readyz"); status != http.StatusServiceUnavailable || !strings.HasPrefix(body, "crm: ") || strings.Contains(body, "calendar: ") {
		t.Errorf("/readyz %d %s; want 503, for crm alone", status, body)
	}

	way.mend()
	eventually(t, "it is told to be migrated, and does not end the others for it", func() bool {
		status, body := s.get("/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "pinworker migrate up")
	})
	p.must(p.context("crm").migrator.UpAll(t.Context()))
	leads := p.register(3)
	eventually(t, "the leads expire and are published", func() bool { return p.everythingDone(len(leads)) })
	eventually(t, "it is ready", func() bool { status, _ := s.get("/readyz"); return status == http.StatusOK })
	if code := s.stop(); code != exitDone {
		t.Errorf("exit %d: %s", code, &s.log)
	}
}

func TestServe_WithoutARelayNeedsNoKafka(t *testing.T) {
	p := newPlatform(t)
	leads := p.register(3)
	s := serveWorker(t, "--set", "relay.enabled=false")
	eventually(t, "the leads expire, and their messages wait for another worker's relay", func() bool {
		return p.count("SELECT count(*) FROM crm.outbox") == len(leads)
	})
	if status, body := s.get("/readyz"); status != http.StatusOK {
		t.Errorf("/readyz %d %s", status, body)
	}
	if code := s.stop(); code != exitDone {
		t.Errorf("exit %d: %s", code, &s.log)
	}
}

// 12 trips of 25 ms are less than half of what a probe waits for; contexts are looked at side by side.
func TestServe_AHealthyWorkerWhoseDatabasesAreFarAwayIsReady(t *testing.T) {
	const trips = 12
	database := embeddedtest.Database(t)
	asked := make([]atomic.Int64, 3)
	urls := make([]string, len(asked))
	for i := range asked {
		var proxy *embeddedtest.Proxy
		proxy, urls[i] = embeddedtest.NewProxy(t, database)
		proxy.Before(func(m embeddedtest.Message) bool {
			if m.Asks() {
				asked[i].Add(1)
			}
			return true
		})
	}
	p, _ := onDatabases(t, urls[0], urls[1], urls[2]) // no connection is open yet, no statement known
	w := httptest.NewRecorder()
	opshttp.Handler(p.worker.checks(), p.worker.metrics).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	if w.Code != http.StatusOK {
		t.Errorf("/readyz %d %s", w.Code, w.Body)
	}
	for i, name := range []string{"calendar", "promotion", "crm"} {
		if n := asked[i].Load(); n == 0 || n > trips {
			t.Errorf("%s: %d trips one after the other; want %d at most", name, n, trips)
		}
	}
}

func TestServe_AnAddressInUseExitsWith1(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // it only had to be taken
	t.Setenv("PINWORKER_DATABASE_URL", "postgres://127.0.0.1:1/nowhere")
	code, _, stderr := pinworker(t, "serve", "--set", "kafka.brokers=127.0.0.1:1", "--set", "http.listen="+l.Addr().String())
	if code != exitFailed || !strings.Contains(stderr, "http.listen") {
		t.Errorf("exit %d, %s; want 1 and the setting", code, stderr)
	}
}

func TestServe_StopsAtSIGTERM(t *testing.T) {
	p := newPlatform(t)
	p.register(3)
	cmd, _, stderr, _ := program(t, "serve", "--set", "database.url="+p.url, "--set", "kafka.brokers=127.0.0.1:1", "--set", "http.listen=127.0.0.1:0")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first cycle is done", func() bool { return strings.Contains(stderr.String(), "job.completed") })
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() //nolint:errcheck // its exit code tells
	if code := cmd.ProcessState.ExitCode(); code != exitDone || !strings.Contains(stderr.String(), "worker stopped") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if n := p.count("SELECT count(*) FROM crm.outbox"); n != 3 {
		t.Errorf("%d messages wait; want 3", n)
	}
}

// line is a connection to a server that can be cut and mended.
type line struct {
	t       *testing.T
	address string
	target  string

	mu       sync.Mutex
	listener net.Listener
	open     []net.Conn
}

func newLine(t *testing.T, target string) *line {
	t.Helper()
	l := &line{t: t, target: target, address: fmt.Sprintf("127.0.0.1:%d", embeddedtest.FreePort(t))}
	l.mend()
	t.Cleanup(l.cut)
	return l
}

func (l *line) mend() {
	l.t.Helper()
	listener, err := net.Listen("tcp", l.address)
	if err != nil {
		l.t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listener = listener
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", l.target)
			if err != nil {
				client.Close() //nolint:errcheck // it is the server that is missing
				continue
			}
			l.mu.Lock()
			l.open = append(l.open, client, server)
			l.mu.Unlock()
			for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
				go func() {
					io.Copy(way[0], way[1]) //nolint:errcheck // it ends when it is cut
					way[0].Close()          //nolint:errcheck // as above
				}()
			}
		}
	}()
}

func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listener.Close() //nolint:errcheck // that is the point
	for _, conn := range l.open {
		conn.Close() //nolint:errcheck // that is the point
	}
	l.open = nil
}

func TestServe_LivesThroughADatabaseThatGoesAwayAndComesBack(t *testing.T) {
	p := newPlatform(t)
	broker := embeddedtest.Kafka(t, 0, published.TopicLeadExpired)
	u, err := url.Parse(p.url)
	if err != nil {
		t.Fatal(err)
	}
	database := newLine(t, u.Host)
	u.Host = database.address
	first := p.register(10)
	s := serveWorker(t, "--set", "database.url="+u.String(), "--set", "kafka.brokers="+broker.Brokers()[0],
		"--set", "jobs.lead-expiration.interval=1s")
	eventually(t, "the first leads are published", func() bool {
		return p.count("SELECT count(*) FROM crm.leads WHERE status = 'Expired'") == len(first) && p.count("SELECT count(*) FROM crm.outbox") == 0
	})
	database.cut()
	second := p.register(10)
	eventually(t, "it is not ready", func() bool { status, _ := s.get("/readyz"); return status == http.StatusServiceUnavailable })
	eventually(t, "a cycle fails", func() bool { return strings.Contains(s.log.String(), "cycle failed") })
	if status, body := s.get("/livez"); status != http.StatusOK {
		t.Errorf("/livez %d %s; being restarted would not mend the database", status, body)
	}
	database.mend()
	eventually(t, "the second leads are published", func() bool {
		return p.count("SELECT count(*) FROM crm.leads WHERE status = 'Expired'") == len(first)+len(second) && p.count("SELECT count(*) FROM crm.outbox") == 0
	})
	eventually(t, "it is ready", func() bool { status, _ := s.get("/readyz"); return status == http.StatusOK })
	if code := s.stop(); code != exitDone {
		t.Errorf("exit %d: %s", code, &s.log)
	}
	p.wantPublishedAtLeast(broker, len(first)+len(second))
}
