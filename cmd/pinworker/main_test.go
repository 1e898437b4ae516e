package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pin-platform/pinworker/adapters/embedded"
	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/cmd/pinworker/internal/settings"
	"github.com/pin-platform/pinworker/domain/crm"
)

// asProgram makes the test binary be pinworker, for tests that need a process of their own.
const asProgram = "BE_PINWORKER"

// untilEnd, as asProgram's value, has it end with the file that it was given, as a child does.
const untilEnd = "UNTIL_END"

// impatient is how old a transaction that doctor tells of is, and for how long a silent database is waited for:
// for tests that cannot wait.
const impatient = "BE_PINWORKER_IMPATIENT"

func TestMain(m *testing.M) {
	embedded.RunChild()
	if os.Getenv(asProgram) != "" {
		if soon, err := time.ParseDuration(os.Getenv(impatient)); err == nil {
			old, patience = soon, soon
		}
		if os.Getenv(asProgram) == untilEnd {
			go func() {
				io.Copy(io.Discard, os.NewFile(3, "alive")) //nolint:errcheck // its end is what is waited for
				os.Exit(exitInterrupted)
			}()
		}
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
	wantShape(t, args, stdout)
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
	owner  string
	worker *worker
}

func newPlatform(t *testing.T) *platform {
	t.Helper()
	owner := embeddedtest.Database(t)
	p := &platform{T: t, url: embeddedtest.AsWorker(t, owner), owner: owner}
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
	operations := p.worker.crm
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

func (p *platform) context(name string) *boundedContext {
	p.Helper()
	for _, c := range p.worker.contexts {
		if c.name == name {
			return c
		}
	}
	p.Fatalf("there is no context %s", name)
	return nil
}

func (p *platform) execute(statement string) {
	p.Helper()
	if _, err := p.context("crm").db.Pool.Exec(p.Context(), statement); err != nil {
		p.Fatal(err)
	}
}

func (p *platform) count(query string) int {
	p.Helper()
	return p.countIn("crm", query)
}

func (p *platform) countIn(contextName, query string) (n int) {
	p.Helper()
	if err := p.context(contextName).db.Pool.QueryRow(p.Context(), query).Scan(&n); err != nil {
		p.Fatal(err)
	}
	return n
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	within(t, 60*time.Second, what, holds)
}

func within(t *testing.T, patience time.Duration, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(patience)
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
	FailedCount        *int
	FaultCount         *int
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
	if code, stdout, _ := pinworker(t, "backlog"); code != exitDone || !strings.Contains(stdout, "lead-expiration         2") {
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
		{[]string{"run"}, "takes one JOB: allowed is reminder-dispatch"},
		{[]string{"migrate"}, "which of up, status, down?"},
		{[]string{"migrate", "sideways"}, "unknown command \"sideways\""},
		{[]string{"migrate", "down"}, "say --yes"},
		{[]string{"quarantine", "empty"}, "unknown command"},
		{[]string{"demo", "--set", "log.level=info"}, "takes no settings"},
		{[]string{"run", "lead-expiration", "--set", "database.url=postgres://db/pin?sslmode=bogus"}, "allowed is a PostgreSQL URL"},
		{[]string{"run", "lead-expiry"}, "allowed are reminder-dispatch"},
		{[]string{"run", "lead-expiration", "--loud"}, "unknown flag: --loud"},
		{[]string{"run", "lead-expiration", "--as-of", "noon"}, "--as-of \"noon\": allowed is a moment in RFC 3339"},
		{[]string{"run", "lead-expiration", "--as-of", time.Now().Add(time.Hour).Format(time.RFC3339)}, "lies in the future"},
		{[]string{"run", "lead-expiration", "--set", "jobs.lead-expiration.batch_size=0"}, "allowed is a whole number from 1 to 10000"},
		{[]string{"serve"}, "kafka.brokers: is not set"},
		{[]string{"serve", "--config", "none.yaml"}, "none.yaml"},
		{[]string{"verify", "--context", "sales"}, "allowed is one of calendar, promotion, crm"},
		{[]string{"verify", "--since", "yesterday"}, "RFC 3339"},
		{[]string{"quarantine", "retry", "lead-7"}, "allowed is a UUID"},
		{[]string{"demo", "--leads", "0"}, "allowed is a whole number from 1 to 1000000"},
		{[]string{"backlog", "extra"}, "unknown command"},
		{[]string{"simulate"}, "kafka.brokers: is not set"},
		{[]string{"simulate", "--rate", "0"}, "--rate 0: allowed is a number above 0"},
		{[]string{"simulate", "--for", "1ms"}, "--for 1ms: allowed is a duration from 1s to 24h"},
		{[]string{"simulate", "--settle", "0s"}, "--settle 0s: allowed is a duration"},
		{[]string{"simulate", "--concurrency", "0"}, "--concurrency 0: allowed is a whole number"},
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
	if n := pending(); n != 21 {
		t.Errorf("%d pending; want 7 of each context", n)
	}
	if got := done[migrationList](t, "migrate", "up", "--with-platform-tables"); len(got.Migrations) != 21 || got.Migrations[0].Set != "platform" {
		t.Errorf("applied %+v; want the platform's set, then the worker's", got)
	}
	if n := pending(); n != 0 {
		t.Errorf("%d pending after up", n)
	}
	if code, stdout, _ := pinworker(t, "migrate", "up"); code != exitDone || !strings.Contains(stdout, "Nothing to do") {
		t.Errorf("exit %d, %s", code, stdout)
	}
	for range 6 {
		done[migrationList](t, "migrate", "down", "--yes")
	}
	if code, stdout, _ := pinworker(t, "migrate", "down", "--yes"); code != exitDone || !strings.Contains(stdout, "Nothing to do") {
		t.Errorf("exit %d, %s", code, stdout)
	}
	if got := done[migrationList](t, "migrate", "up"); len(got.Migrations) != 18 {
		t.Errorf("applied %+v again; want the worker's 6 of each context", got)
	}
}

func TestMigrate_TellsWhatWasDoneWhereALaterContextFails(t *testing.T) {
	type list struct {
		Migrations []struct{ Context string }
		Error      string
	}
	t.Setenv("PINWORKER_DATABASE_URL", embeddedtest.EmptyDatabase(t))
	done[list](t, "migrate", "up", "--with-platform-tables", "--set", "jobs.lead-expiration.enabled=false")
	done[list](t, "migrate", "down", "--yes", "--set", "jobs.lead-expiration.enabled=false")
	// Of calendar and promotion one migration is pending; the tables of crm are missing.
	code, stdout, stderr := pinworker(t, "migrate", "up")
	if code != exitFailed || strings.Count(stdout, "00006_outbox_parked_place.sql") != 2 || !strings.Contains(stderr, "table crm.leads is missing") {
		t.Errorf("exit %d, %q, %q; want 1, two migrations and what failed", code, stdout, stderr)
	}
	done[list](t, "migrate", "down", "--yes", "--set", "jobs.lead-expiration.enabled=false")
	for _, want := range []struct{ code, migrations int }{{exitFailed, 2}, {exitUsage, 0}} { // and again, with nothing left to do
		code, stdout, _ := pinworker(t, "migrate", "up", "--json")
		var got list
		if err := json.Unmarshal([]byte(stdout), &got); err != nil {
			t.Fatalf("%v: %q", err, stdout)
		}
		if code != want.code || len(got.Migrations) != want.migrations || !strings.Contains(got.Error, "table crm.leads is missing") {
			t.Errorf("exit %d, %+v; want %d, %d migrations and what failed", code, got, want.code, want.migrations)
		}
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
