package main

import (
	"context"
	"encoding/json"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/app/published"
)

// nowhere is a database that is away.
const nowhere = "postgres://127.0.0.1:1/nowhere"

func TestCommands_AboutOneContextDoNotMindThatAnothersDatabaseIsAway(t *testing.T) {
	p := newPlatform(t)
	leads := p.register(3)
	t.Setenv("PINWORKER_CONTEXTS_CALENDAR_DATABASE_URL", nowhere)
	t.Setenv("PINWORKER_CONTEXTS_PROMOTION_DATABASE_URL", nowhere)
	if got := done[runResult](t, "run", "lead-expiration"); *got.ExpiredCount != len(leads) {
		t.Errorf("result %+v; want all leads", got)
	}
	if got := done[verification](t, "verify", "--context", "crm"); got.Streams != len(leads) || !slices.Equal(got.Contexts, []string{"crm"}) {
		t.Errorf("verification %+v; want the leads", got)
	}
	for _, args := range [][]string{{"verify"}, {"verify", "--context", "calendar"}, {"run", "reminder-dispatch"}} {
		if code, _, stderr := pinworker(t, args...); code != exitFailed || !strings.Contains(stderr, "127.0.0.1") {
			t.Errorf("%s: exit %d, %s; want 1 and what is away", args, code, stderr)
		}
	}
}

func TestCommands_AnswerFromTheContextsThatCanBeReachedAndSayWhichWereNotAsked(t *testing.T) {
	p := newPlatform(t)
	j := polledJobs[3]
	lead, held := j.make(p, time.Now().Add(-time.Minute)).String(), j.make(p, time.Now().Add(-time.Minute))
	p.quarantine(j, held)
	park := func() string {
		t.Helper()
		id := uuid.NewString()
		p.execute("INSERT INTO crm.outbox_parked (topic, shard, id, key, uuid, created_at, payload, error, attempts, parked_at) " +
			"VALUES ('" + published.TopicLeadExpired + "', 0, (SELECT count(*) FROM crm.outbox_parked), 'k', '" + id + "', now(), '', 'too large', 2, now())")
		return id
	}
	nobody := uuid.NewString()
	t.Setenv("PINWORKER_CONTEXTS_CALENDAR_DATABASE_URL", nowhere) // asked first, and asked in vain
	const away = "calendar was not asked: context calendar: "
	for _, test := range []struct {
		args []string
		code int
		says string // of what was asked
	}{
		{[]string{"history", lead}, exitDone, "LeadRegistered"},
		{[]string{"explain", lead}, exitDone, "due: "},
		{[]string{"quarantine", "retry", held.String()}, exitDone, "The next tick takes"},
		{[]string{"outbox", "release", park()}, exitDone, "is released"},
		{[]string{"outbox", "discard", park(), "--reason", "no use"}, exitDone, "is discarded"},
		{[]string{"quarantine", "list"}, exitFailed, held.String()}, // what is listed is not all
		{[]string{"outbox", "parked"}, exitFailed, "Nothing is parked"},
		{[]string{"backlog"}, exitFailed, "lead-expiration       2"},
		{[]string{"history", nobody}, exitFailed, ""},
		{[]string{"explain", nobody}, exitFailed, ""},
		{[]string{"quarantine", "retry", nobody}, exitFailed, ""},
		{[]string{"outbox", "release", nobody}, exitFailed, ""},
	} {
		code, stdout, stderr := pinworker(t, test.args...)
		if code != test.code || !strings.Contains(stdout, test.says) || strings.Count(stderr, away) != 1 {
			t.Errorf("%s: exit %d, %s%s; want %d, %q, and once who was not asked", test.args, code, stdout, stderr, test.code, test.says)
		}
	}
	var list struct {
		Quarantine []struct{ Item uuid.UUID }
		NotAsked   []unasked `json:"not_asked"`
	}
	_, stdout, _ := pinworker(t, "quarantine", "list", "--json")
	if err := json.Unmarshal([]byte(stdout), &list); err != nil || len(list.Quarantine) != 1 || len(list.NotAsked) != 1 || list.NotAsked[0].Context != "calendar" {
		t.Errorf("%s: %v; want the lead, and that calendar was not asked", stdout, err)
	}
	t.Setenv("PINWORKER_CONTEXTS_PROMOTION_DATABASE_URL", nowhere)
	t.Setenv("PINWORKER_CONTEXTS_CRM_DATABASE_URL", nowhere)
	if code, stdout, stderr := pinworker(t, "quarantine", "list"); code != exitFailed || stdout != "" || !strings.Contains(stderr, "127.0.0.1") {
		t.Errorf("exit %d, %s%s; want 1: nobody could be asked", code, stdout, stderr)
	}
}

func TestCommands_ASilentDatabaseIsAwayInTime(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // it accepts, and says nothing
	t.Setenv("PINWORKER_DATABASE_URL", "postgres://worker@"+l.Addr().String()+"/pin?sslmode=disable")
	defer func(was time.Duration) { patience = was }(patience)
	patience = 50 * time.Millisecond
	for _, args := range [][]string{
		{"plan", "lead-expiration"}, {"run", "lead-expiration"}, {"explain", uuid.NewString()}, {"history", uuid.NewString()}, {"verify"}, {"backlog"},
		{"quarantine", "list"}, {"quarantine", "retry", uuid.NewString()}, {"outbox", "parked"}, {"outbox", "release", uuid.NewString()},
	} {
		if code, stdout, stderr := pinworker(t, args...); code != exitFailed || stdout != "" || !strings.Contains(stderr, "no answer within 50ms") {
			t.Errorf("%s: exit %d, %s%s; want 1, and for how long it was waited", args, code, stdout, stderr)
		}
	}
}

// A record that another session holds is waited for as long as database.lock_timeout says.
func TestCommands_OnTheQuarantineHaveADeadline(t *testing.T) {
	p := newPlatform(t)
	j := polledJobs[3]
	held := j.make(p, time.Now().Add(-time.Minute))
	p.quarantine(j, held)
	tx, err := p.context("crm").db.Pool.Begin(t.Context())
	p.must(err)
	defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // the test is over
	_, err = tx.Exec(t.Context(), "LOCK TABLE crm.quarantine")
	p.must(err)
	for _, args := range [][]string{{"list"}, {"retry", held.String()}} {
		code, _, stderr := pinworker(t, append([]string{"quarantine", "--set", "database.lock_timeout=10ms"}, args...)...)
		if code != exitFailed || !strings.Contains(stderr, "SQLSTATE 55P03") {
			t.Errorf("quarantine %s: exit %d, %s; want it given up", args[0], code, stderr)
		}
	}
}

func TestCommands_SeeContextsWhoseJobsRunElsewhere(t *testing.T) {
	p := newPlatform(t)
	leads := p.register(3)
	poison := leads[0].Lead.String()
	p.execute("ALTER TABLE crm.leads ADD CONSTRAINT refuse CHECK (id <> '" + poison + "' OR status = 'Active')")
	done[runResult](t, "run", "lead-expiration")
	p.execute("INSERT INTO crm.outbox_parked (topic, shard, id, key, uuid, created_at, payload, error, attempts, parked_at) " +
		"VALUES ('" + published.TopicLeadExpired + "', 0, 1, 'k', gen_random_uuid(), now(), '', 'too large', 2, now())")
	t.Setenv("PINWORKER_JOBS_LEAD_EXPIRATION_ENABLED", "false")
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"verify", "--context", "crm"}, "3 streams, 0 differences"},
		{[]string{"verify"}, "3 streams, 0 differences, 0 rows ahead of their stream; in calendar, promotion, crm"},
		{[]string{"history", leads[1].Lead.String()}, "LeadExpired"},
		{[]string{"quarantine", "list"}, poison},
		{[]string{"quarantine", "retry", poison}, "The next tick takes"},
		{[]string{"outbox", "parked"}, "too large"},
		{[]string{"backlog"}, "lead-expiration         1"},
	} {
		if code, stdout, stderr := pinworker(t, test.args...); code != exitDone || !strings.Contains(stdout, test.says) || stderr != "" {
			t.Errorf("%s: exit %d, %s%s; want %q", test.args, code, stdout, stderr, test.says)
		}
	}
	if code, _, stderr := pinworker(t, "run", "lead-expiration"); code != exitUsage || !strings.Contains(stderr, "the job lead-expiration is disabled") {
		t.Errorf("run: exit %d, %s; want 2", code, stderr)
	}
}

func TestCommands_AContextThatHasNoDatabaseIsBadUsageWhereItIsNamed(t *testing.T) {
	t.Setenv("PINWORKER_CONTEXTS_CALENDAR_DATABASE_URL", nowhere)
	for _, args := range [][]string{{"verify", "--context", "crm"}, {"run", "lead-expiration"}} {
		code, stdout, stderr := pinworker(t, args...)
		if want := "contexts.crm.database.url: is not set, and neither is database.url"; code != exitUsage || !strings.Contains(stderr, want) || stdout != "" {
			t.Errorf("%s: exit %d, %s; want 2 and %q", args, code, stderr, want)
		}
	}
}

func TestCommands_PassOverContextsThatDoNotLiveInTheCommonDatabase(t *testing.T) {
	database := embeddedtest.EmptyDatabase(t)
	t.Setenv("PINWORKER_DATABASE_URL", database)
	for _, job := range []string{"REMINDER_DISPATCH", "APPOINTMENT_TIMEOUT", "EXPIRE_PROMOTIONS"} {
		t.Setenv("PINWORKER_JOBS_"+job+"_ENABLED", "false")
	}
	done[migrationList](t, "migrate", "up", "--with-platform-tables") // crm alone
	code, stdout, stderr := pinworker(t, "verify")
	if code != exitDone || !strings.Contains(stdout, "; in crm\n") {
		t.Errorf("exit %d, %s; want crm verified", code, stdout)
	}
	for _, name := range []string{"calendar", "promotion"} {
		if !strings.Contains(stderr, `"context":"`+name+`"`) {
			t.Errorf("nobody is told that %s is passed over: %s", name, stderr)
		}
	}
	code, _, stderr = pinworker(t, "verify", "--context", "calendar")
	if code != exitUsage || !strings.Contains(stderr, "context calendar: nothing of it is set up in this database") {
		t.Errorf("exit %d, %s; want 2: it was named", code, stderr)
	}
	code, _, stderr = pinworker(t, "verify", "--set", "jobs.expire-promotions.enabled=true")
	if code != exitUsage || !strings.Contains(stderr, "context promotion: nothing of it is set up in this database") {
		t.Errorf("exit %d, %s; want 2: its job is enabled here", code, stderr)
	}
}

func TestCommands_WithoutKafkaDoNotAskForItsFiles(t *testing.T) {
	p := newPlatform(t)
	id := p.register(1)[0].Lead.String()
	t.Setenv("PINWORKER_KAFKA_BROKERS", "127.0.0.1:1")
	t.Setenv("PINWORKER_KAFKA_TLS_ENABLED", "true")
	t.Setenv("PINWORKER_KAFKA_SASL_MECHANISM", "PLAIN")
	t.Setenv("PINWORKER_KAFKA_SASL_USER", "pinworker")
	notMounted := filepath.Join(t.TempDir(), "password")
	for _, name := range []string{"SASL_PASSWORD_FILE", "TLS_CA", "TLS_CERT", "TLS_KEY"} {
		t.Setenv("PINWORKER_KAFKA_"+name, notMounted)
	}
	for _, args := range [][]string{
		{"migrate", "status"}, {"run", "lead-expiration"}, {"backlog"}, {"verify"}, {"history", id}, {"quarantine", "list"}, {"outbox", "parked"}, {"config"},
		{"doctor", "--set", "relay.enabled=false"},
	} {
		if code, _, stderr := pinworker(t, args...); code != exitDone {
			t.Errorf("%s: exit %d, %s", args, code, stderr)
		}
	}
	for _, args := range [][]string{{"serve"}, {"doctor"}, {"simulate"}} {
		code, _, stderr := pinworker(t, args...)
		for _, key := range []string{"kafka.sasl.password_file", "kafka.tls.ca", "kafka.tls.cert", "kafka.tls.key"} {
			if code != exitUsage || !strings.Contains(stderr, key) {
				t.Errorf("%s: exit %d, %s; want 2 and %s", args, code, stderr, key)
			}
		}
	}
}
