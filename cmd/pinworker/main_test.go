package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pin-platform/pinworker/adapters/embedded"
	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/cmd/pinworker/internal/settings"
	"github.com/pin-platform/pinworker/domain/crm"
)

// asProgram makes the test binary be pinworker, for tests that need a process of their own.
const asProgram = "BE_PINWORKER"

func TestMain(m *testing.M) {
	embedded.RunChild()
	if os.Getenv(asProgram) != "" {
		main()
	}
	embeddedtest.Main(m)
}

// pinworker runs a command in this process.
func pinworker(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), args, streams{strings.NewReader(""), &out, &err})
	return code, out.String(), err.String()
}

// done runs a command that must succeed, with --json, and reads what it prints.
func done[Document any](t *testing.T, args ...string) Document {
	t.Helper()
	code, stdout, stderr := pinworker(t, append(args, "--json")...)
	if code != exitDone {
		t.Fatalf("pinworker %s: exit %d: %s", strings.Join(args, " "), code, stderr)
	}
	var document Document
	if err := json.Unmarshal([]byte(stdout), &document); err != nil {
		t.Fatalf("pinworker %s printed %q: %v", strings.Join(args, " "), stdout, err)
	}
	return document
}

// platform is a database with leads, and the operations on them, under the owner's role.
// Commands run under the worker's.
type platform struct {
	*testing.T
	url    string // for the worker's role
	worker *worker
}

func newPlatform(t *testing.T) *platform {
	t.Helper()
	owner := embeddedtest.Database(t)
	p := &platform{T: t, url: embeddedtest.AsWorker(t, owner)}
	s, _, err := settings.Load(settings.Sources{Flags: []string{"database.url=" + owner}})
	if err != nil {
		t.Fatal(err)
	}
	if p.worker, err = newWorker(s, io.Discard); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PINWORKER_DATABASE_URL", p.url)
	t.Cleanup(func() {
		if err := p.worker.close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// register makes n leads that came due in the last hour.
func (p *platform) register(n int) []crm.Registration {
	p.Helper()
	operations := p.worker.crm.operations
	operations.Clock = func() time.Time { return time.Now().AddDate(0, -1, 0) }
	leads := make([]crm.Registration, n)
	for i := range leads {
		leads[i] = portstest.Registration(time.Now().UTC().Truncate(time.Microsecond).Add(-time.Duration(i+1) * time.Second))
		if err := operations.Register(p.Context(), "agent", leads[i]); err != nil {
			p.Fatal(err)
		}
	}
	return leads
}

func (p *platform) execute(statement string) {
	p.Helper()
	if _, err := p.worker.crm.db.Pool.Exec(p.Context(), statement); err != nil {
		p.Fatal(err)
	}
}

func (p *platform) count(query string) (n int) {
	p.Helper()
	if err := p.worker.crm.db.Pool.QueryRow(p.Context(), query).Scan(&n); err != nil {
		p.Fatal(err)
	}
	return n
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(60 * time.Second)
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("never: %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

type runResult struct {
	Job                string    `json:"job"`
	RunID              string    `json:"run_id"`
	AsOf               time.Time `json:"as_of"`
	ExpiredCount       *int
	BatchesProcessed   *int
	Elapsed            string
	CappedByMaxBatches *bool
}

func TestRun_ExpiresDueLeadsAndPrintsTheSpecifiedFields(t *testing.T) {
	p := newPlatform(t)
	p.register(5)
	got := done[runResult](t, "run", "lead-expiration", "--set", "jobs.lead-expiration.batch_size=2")
	if got.Job != "lead-expiration" || len(got.RunID) != 36 || *got.ExpiredCount != 5 || *got.BatchesProcessed != 3 || *got.CappedByMaxBatches {
		t.Errorf("result %+v", got)
	}
	if _, err := time.ParseDuration(got.Elapsed); err != nil {
		t.Errorf("Elapsed %q is no duration of Go's", got.Elapsed)
	}
	if n := p.count("SELECT count(*) FROM crm.outbox"); n != 5 {
		t.Errorf("%d messages wait; want 5", n)
	}
	code, stdout, _ := pinworker(t, "run", "lead-expiration")
	if code != exitDone || !strings.Contains(stdout, "Nothing to do") {
		t.Errorf("exit %d, %q; want a clear line that there is nothing to do", code, stdout)
	}
}

func TestRun_AsOfAnEarlierMomentTakesWhatWasDueThen(t *testing.T) {
	p := newPlatform(t)
	leads := p.register(3) // due 1, 2 and 3 seconds ago
	asOf := leads[1].ExpiresAt.Add(time.Microsecond)
	got := done[runResult](t, "run", "lead-expiration", "--as-of", asOf.Format(time.RFC3339Nano))
	if *got.ExpiredCount != 2 || !got.AsOf.Equal(asOf) {
		t.Errorf("result %+v; want the 2 that were due at %s", got, asOf)
	}
}

func TestBacklog_CountsJobsAndOutboxes(t *testing.T) {
	type backlog struct {
		Jobs map[string]struct {
			Due      int
			Oldest   *time.Time
			NextHour int `json:"next_hour"`
		}
		Outbox map[string]struct {
			Unpublished int
			Oldest      *time.Time
			Parked      int
		}
	}
	p := newPlatform(t)
	if got := done[backlog](t, "backlog"); got.Jobs["lead-expiration"].Oldest != nil || got.Outbox["crm"].Oldest != nil {
		t.Errorf("backlog of nothing %+v; want no oldest", got)
	}
	leads := p.register(3)
	done[runResult](t, "run", "lead-expiration", "--as-of", leads[1].ExpiresAt.Format(time.RFC3339Nano))
	got := done[backlog](t, "backlog")
	if job := got.Jobs["lead-expiration"]; job.Due != 2 || !job.Oldest.Equal(leads[1].ExpiresAt) {
		t.Errorf("job %+v; want 2 due", job)
	}
	if box := got.Outbox["crm"]; box.Unpublished != 1 || box.Oldest == nil {
		t.Errorf("outbox %+v; want 1 unpublished", box)
	}
	if code, stdout, _ := pinworker(t, "backlog"); code != exitDone || !strings.Contains(stdout, "lead-expiration     2") {
		t.Errorf("exit %d, %s", code, stdout)
	}
}

func TestVerify_ExitsWith3WhereRowAndStreamDiffer(t *testing.T) {
	p := newPlatform(t)
	p.register(3)
	if got := done[verification](t, "verify"); got.Streams != 3 || got.Differences != 0 || got.Items == nil {
		t.Errorf("verification %+v", got)
	}
	p.execute("UPDATE crm.leads SET expires_at = expires_at + interval '1 day' WHERE expires_at = (SELECT min(expires_at) FROM crm.leads)")
	code, stdout, _ := pinworker(t, "verify", "--context", "crm", "--json")
	var got verification
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	if code != exitNotInOrder || got.Differences != 1 || len(got.Items) != 1 || !strings.HasPrefix(got.Items[0].What, "ExpiresAt:") {
		t.Errorf("exit %d, %+v; want 3 and one difference in ExpiresAt", code, got)
	}
}

func TestQuarantine_ListsWhatFailsAndLetsTheNextTickTakeIt(t *testing.T) {
	type list struct {
		Quarantine []struct {
			Job, Item string
			Failures  int
		}
	}
	p := newPlatform(t)
	leads := p.register(3)
	if code, stdout, _ := pinworker(t, "quarantine", "list"); code != exitDone || !strings.Contains(stdout, "Nothing is in quarantine") {
		t.Errorf("exit %d, %s", code, stdout)
	}
	poison := leads[1].Lead.String()
	p.execute("ALTER TABLE crm.leads ADD CONSTRAINT refuse CHECK (id <> '" + poison + "' OR status = 'Active')")
	for range 3 {
		done[runResult](t, "run", "lead-expiration")
	}
	got := done[list](t, "quarantine", "list")
	if len(got.Quarantine) != 1 || got.Quarantine[0].Item != poison || got.Quarantine[0].Failures != 3 || got.Quarantine[0].Job != "lead-expiration" {
		t.Errorf("quarantine %+v; want the poison, 3 failures", got)
	}
	p.execute("ALTER TABLE crm.leads DROP CONSTRAINT refuse")
	if again := done[runResult](t, "run", "lead-expiration"); *again.ExpiredCount != 0 {
		t.Errorf("result %+v; want the poison held back", again)
	}
	if code, stdout, _ := pinworker(t, "quarantine", "retry", poison); code != exitDone || !strings.Contains(stdout, "The next tick takes "+poison) {
		t.Errorf("exit %d, %s", code, stdout)
	}
	if again := done[runResult](t, "run", "lead-expiration"); *again.ExpiredCount != 1 {
		t.Errorf("result %+v; want the poison taken", again)
	}
	if code, _, stderr := pinworker(t, "quarantine", "retry", poison); code != exitFailed || !strings.Contains(stderr, "not in quarantine") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

func TestUsage_ExitsWith2AndTouchesNothing(t *testing.T) {
	t.Setenv("PINWORKER_DATABASE_URL", "postgres://127.0.0.1:1/nowhere") // whoever connects fails with 1
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"sing"}, `unknown command "sing"`},
		{[]string{"run"}, "takes one JOB: allowed is lead-expiration"},
		{[]string{"migrate"}, "which of up, status, down?"},
		{[]string{"migrate", "sideways"}, "unknown command \"sideways\""},
		{[]string{"migrate", "down"}, "say --yes"},
		{[]string{"quarantine", "empty"}, "unknown command"},
		{[]string{"demo", "--set", "log.level=info"}, "takes no settings"},
		{[]string{"run", "lead-expiration", "--set", "database.url=postgres://db/pin?sslmode=bogus"}, "allowed is a PostgreSQL URL"},
		{[]string{"run", "lead-expiry"}, "allowed are lead-expiration"},
		{[]string{"run", "lead-expiration", "--loud"}, "unknown flag: --loud"},
		{[]string{"run", "lead-expiration", "--as-of", "noon"}, "--as-of \"noon\": allowed is a moment in RFC 3339"},
		{[]string{"run", "lead-expiration", "--as-of", time.Now().Add(time.Hour).Format(time.RFC3339)}, "lies in the future"},
		{[]string{"run", "lead-expiration", "--set", "jobs.lead-expiration.batch_size=0"}, "allowed is a whole number from 1 to 10000"},
		{[]string{"serve"}, "kafka.brokers: is not set"},
		{[]string{"serve", "--config", "none.yaml"}, "none.yaml"},
		{[]string{"verify", "--context", "sales"}, "allowed is crm"},
		{[]string{"verify", "--since", "yesterday"}, "RFC 3339"},
		{[]string{"quarantine", "retry", "lead-7"}, "allowed is a UUID"},
		{[]string{"demo", "--leads", "0"}, "allowed is a whole number from 1 to 1000000"},
		{[]string{"backlog", "extra"}, "unknown command"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			code, stdout, stderr := pinworker(t, test.args...)
			if code != exitUsage || !strings.Contains(stderr, test.says) || stdout != "" {
				t.Errorf("exit %d, stdout %q, stderr %q; want 2 and %q", code, stdout, stderr, test.says)
			}
		})
	}
}

func TestHelp_OfEveryCommandHasAnExample(t *testing.T) {
	root := newRoot(streams{})
	for _, c := range root.Commands() {
		if c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		for _, leaf := range append(c.Commands(), c) {
			if leaf.Example == "" || leaf.Short == "" {
				t.Errorf("pinworker %s: no example or no summary", leaf.CommandPath())
			}
		}
	}
}

func TestRun_WithoutADatabaseExitsWith1(t *testing.T) {
	t.Setenv("PINWORKER_DATABASE_URL", "postgres://127.0.0.1:1/nowhere")
	if code, _, stderr := pinworker(t, "run", "lead-expiration"); code != exitFailed || !strings.Contains(stderr, "127.0.0.1") {
		t.Errorf("exit %d, %s; want 1 and what failed", code, stderr)
	}
}

func TestConfig_ShowsOriginsAndNoSecret(t *testing.T) {
	t.Setenv("PINWORKER_DATABASE_URL", "postgres://pin:hunter2@db:5432/pin")
	code, stdout, _ := pinworker(t, "config", "--set", "log.level=debug")
	if code != exitDone || !strings.Contains(stdout, "PINWORKER_DATABASE_URL") || strings.Contains(stdout, "hunter2") {
		t.Errorf("exit %d, %s", code, stdout)
	}
	if code, stdout, _ := pinworker(t, "config", "--explain"); code != exitDone || !strings.Contains(stdout, "leads that commit together") {
		t.Errorf("exit %d, %s", code, stdout)
	}
}

func TestVersion_TellsGo(t *testing.T) {
	if got := done[map[string]string](t, "version"); !strings.HasPrefix(got["go"], "go1.") || got["version"] == "" {
		t.Errorf("version %v", got)
	}
}

type migrationList struct {
	Migrations []struct {
		Name      string
		Set       string
		AppliedAt *time.Time `json:"applied_at"`
	}
}

func TestMigrate_UpStatusDown(t *testing.T) {
	t.Setenv("PINWORKER_DATABASE_URL", embeddedtest.EmptyDatabase(t))
	pending := func() (n int) {
		t.Helper()
		for _, m := range done[migrationList](t, "migrate", "status", "--with-platform-tables").Migrations {
			if m.AppliedAt == nil {
				n++
			}
		}
		return n
	}
	if n := pending(); n != 5 {
		t.Errorf("%d pending; want 5", n)
	}
	if got := done[migrationList](t, "migrate", "up", "--with-platform-tables"); len(got.Migrations) != 5 || got.Migrations[0].Set != "platform" {
		t.Errorf("applied %+v; want the platform's set, then the worker's", got)
	}
	if n := pending(); n != 0 {
		t.Errorf("%d pending after up", n)
	}
	if code, stdout, _ := pinworker(t, "migrate", "up"); code != exitDone || !strings.Contains(stdout, "Nothing to do") {
		t.Errorf("exit %d, %s", code, stdout)
	}
	for range 4 {
		done[migrationList](t, "migrate", "down", "--yes")
	}
	if code, stdout, _ := pinworker(t, "migrate", "down", "--yes"); code != exitDone || !strings.Contains(stdout, "Nothing to do") {
		t.Errorf("exit %d, %s", code, stdout)
	}
	if got := done[migrationList](t, "migrate", "up"); len(got.Migrations) != 4 {
		t.Errorf("applied %+v again; want the worker's 4", got)
	}
}

// server is pinworker serve, in this process.
type server struct {
	t    *testing.T
	log  lockedBuffer
	http string
	stop func() int
}

// serveWorker starts a worker and returns once it listens.
func serveWorker(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{t: t}
	ctx, cancel := context.WithCancel(context.Background())
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, append([]string{"serve", "--set", "http.listen=127.0.0.1:0", "--set", "relay.poll_interval=50ms"}, args...),
			streams{strings.NewReader(""), io.Discard, &s.log})
	}()
	s.stop = sync.OnceValue(func() int { cancel(); return <-code })
	t.Cleanup(func() { s.stop() })
	eventually(t, "the worker listens", func() bool {
		for line := range strings.Lines(s.log.String()) {
			var started struct{ Msg, HTTP string }
			if json.Unmarshal([]byte(line), &started) == nil && started.Msg == "worker started" {
				s.http = started.HTTP
			}
		}
		return s.http != ""
	})
	return s
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
	records, err := embedded.ReadAll(p.Context(), broker.Brokers(), published.TopicLeadExpired)
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
	port := freePort(t)
	first := p.register(30)
	s := serveWorker(t, "--set", fmt.Sprintf("kafka.brokers=127.0.0.1:%d", port), "--set", "jobs.lead-expiration.interval=1s")
	eventually(t, "the leads expire all the same", func() bool {
		return p.count("SELECT count(*) FROM crm.leads WHERE status = 'Expired'") == len(first)
	})
	// Some expire a second time, in a later cycle: their messages must come in order.
	for _, lead := range first[:10] {
		if err := p.worker.crm.operations.Extend(t.Context(), "agent", lead.Lead, time.Now().UTC().Truncate(time.Microsecond)); err != nil {
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
	records, err := embedded.ReadAll(p.Context(), broker.Brokers(), published.TopicLeadExpired)
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
	t.Setenv("PINWORKER_DATABASE_URL", fmt.Sprintf("postgres://postgres@127.0.0.1:%d/pin", freePort(t)))
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

// program starts pinworker as a process of its own, whose temporary files go to a folder.
func program(t *testing.T, args ...string) (cmd *exec.Cmd, stdout, stderr *lockedBuffer, folder string) {
	t.Helper()
	folder, err := os.MkdirTemp("", "pinworker-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) }) //nolint:errcheck // it is temporary
	if err := os.Chmod(folder, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command("/proc/self/exe", args...)
	cmd.Dir = folder
	cmd.Env = []string{asProgram + "=1", "TMPDIR=" + folder, "HOME=" + folder, "PATH=" + os.Getenv("PATH")}
	stdout, stderr = new(lockedBuffer), new(lockedBuffer)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr, folder
}

// nothingLeft checks that a program left no files (a cache of fetched programs is none) and no
// processes: those of a server are told by its folder.
func nothingLeft(t *testing.T, folder string) {
	t.Helper()
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(commands) == 0 {
		t.Fatalf("no processes at all: %v", err)
	}
	for _, path := range commands {
		command, err := os.ReadFile(path)
		if err == nil && bytes.Contains(command, []byte(folder)) {
			t.Errorf("still runs: %q", command)
		}
	}
	left, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestDemo_AddsUpAndLeavesNothingBehind(t *testing.T) {
	users := map[string]*syscall.Credential{"as this user": nil}
	if os.Getuid() == 0 {
		users["as another user"] = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	for name, credential := range users {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // beside the other one: they must not collide
			cmd, stdout, stderr, folder := program(t, "demo", "--leads", "300", "--json")
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v: %s", err, stderr)
			}
			var got struct {
				Messages map[string]int
				Distinct map[string]int `json:"distinct_ce_ids"`
				Leads    demoCounts
				Verify   verification
			}
			if err := json.Unmarshal([]byte(stdout.String()), &got); err != nil {
				t.Fatalf("%v: %s", err, stdout)
			}
			due, topic := got.Leads.Due, published.TopicLeadExpired
			if due == 0 || got.Messages[topic] != due || got.Distinct[topic] != due || got.Verify.Streams != 300 || got.Verify.Differences != 0 {
				t.Errorf("report %+v", got)
			}
			nothingLeft(t, folder)
		})
	}
}

func TestDemo_TheSameSeedTellsTheSameStory(t *testing.T) {
	first, second := &demo{options: demoOptions{leads: 100, seed: 7}}, &demo{options: demoOptions{leads: 100, seed: 7}}
	day := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	first.cast(day)
	second.cast(day)
	if !slices.Equal(first.leads, second.leads) {
		t.Error("two stories from one seed")
	}
	second.options.seed, second.leads = 8, nil
	if second.cast(day); slices.Equal(first.leads, second.leads) {
		t.Error("one story from two seeds")
	}
}

func TestDemo_ForPeopleShowsTables(t *testing.T) {
	cmd, stdout, stderr, folder := program(t, "demo", "--leads", "200")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	for _, part := range []string{"HOUR", "EXPIRED", "LeadRegistered", "LeadExpired", "LeadExtended", published.TopicLeadExpired, "0 differences"} {
		if !strings.Contains(stdout.String(), part) {
			t.Errorf("the story does not tell %q:\n%s", part, stdout)
		}
	}
	nothingLeft(t, folder)
}

func TestDemo_AnInterruptLeavesNothingBehindEither(t *testing.T) {
	for _, moment := range []string{"Starting", "Registered", "Running until Ctrl-C"} {
		t.Run(moment, func(t *testing.T) {
			cmd, _, stderr, folder := program(t, "demo", "--leads", "300", "--keep")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			eventually(t, moment, func() bool { return strings.Contains(stderr.String(), moment) })
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			cmd.Wait() //nolint:errcheck // its exit code tells
			want := exitInterrupted
			if moment == "Running until Ctrl-C" {
				want = exitDone
			}
			if code := cmd.ProcessState.ExitCode(); code != want {
				t.Errorf("exit %d; want %d: %s", code, want, stderr)
			}
			nothingLeft(t, folder)
		})
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
			lock, err := p.worker.crm.db.Pool.Acquire(t.Context())
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

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // it was only asked for its port
	return l.Addr().(*net.TCPAddr).Port
}

// lockedBuffer is written by a process and read by its test.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
