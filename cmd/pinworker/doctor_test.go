package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/kafka"
	"github.com/pin-platform/pinworker/app/published"
)

// diagnose runs doctor, and returns its lines by check.
func diagnose(t *testing.T, wantCode int, args ...string) map[string]checked {
	t.Helper()
	code, stdout, stderr := pinworker(t, append([]string{"doctor", "--json"}, args...)...)
	var document struct{ Checks []checked }
	if err := json.Unmarshal([]byte(stdout), &document); err != nil || code != wantCode {
		t.Fatalf("exit %d, %v: %s%s; want %d", code, err, stdout, stderr, wantCode)
	}
	lines := make(map[string]checked)
	for _, l := range document.Checks {
		lines[l.Check] = l
	}
	return lines
}

func TestDoctor_FindsAllInOrder(t *testing.T) {
	newPlatform(t)
	broker := embeddedtest.Kafka(t, 0, published.Topics...)
	lines := diagnose(t, exitDone, "--set", "kafka.brokers="+broker.Brokers()[0])
	for _, check := range []string{
		"settings", "calendar database", "promotion database", "crm database", "crm schema", "crm clock", "crm outbox", "kafka",
	} {
		if lines[check].State != isOK {
			t.Errorf("%s: %+v", check, lines[check])
		}
	}
	if l := lines["topic "+published.TopicLeadExpired]; l.State == isWrong || !strings.Contains(l.Found, "partitions") {
		t.Errorf("topic: %+v", l)
	}
	if l := lines["crm snapshots"]; l.State != isWarning || !strings.Contains(l.Advice, "pg_read_all_stats") {
		t.Errorf("snapshots: %+v; want the right that is missing", l)
	}
	if code, stdout, _ := pinworker(t, "doctor", "--set", "kafka.brokers="+broker.Brokers()[0]); code != exitDone || !strings.Contains(stdout, "CHECK") {
		t.Errorf("exit %d, %s", code, stdout)
	}
}

func TestDoctor_SaysWhatIsWrongAndWhatToDo(t *testing.T) {
	p := newPlatform(t)
	broker := embeddedtest.Kafka(t, 0, published.TopicsOf["calendar"]...)
	brokers := "kafka.brokers=" + broker.Brokers()[0]
	p.execute("ALTER TABLE crm.leads DROP COLUMN expired_at")
	p.execute("DELETE FROM promotion.goose_worker WHERE version_id = 6")
	p.execute("ALTER TABLE calendar.outbox RESET (autovacuum_vacuum_scale_factor)")
	p.execute("INSERT INTO crm.outbox_parked (topic, shard, id, key, uuid, created_at, payload, error, attempts, parked_at) " +
		"VALUES ('" + published.TopicLeadExpired + "', 0, 1, 'k', gen_random_uuid(), now(), '', 'too large', 2, now())")
	lines := diagnose(t, exitNotInOrder, "--set", brokers)
	for check, want := range map[string]checked{
		"crm schema":          {State: isWrong, Found: "expired_at", Advice: "platform's migrations"},
		"promotion schema":    {State: isWrong, Found: "lacks", Advice: "pinworker migrate up"},
		"calendar autovacuum": {State: isWarning, Found: "calendar.outbox", Advice: "00002_outbox.sql"},
		"crm outbox":          {State: isWarning, Found: "1 are parked", Advice: "outbox parked"},
		"topic " + published.TopicPurchaseChanged: {State: isWrong, Found: "not there", Advice: "create it"},
	} {
		if got := lines[check]; got.State != want.State || !strings.Contains(got.Found, want.Found) || !strings.Contains(got.Advice, want.Advice) {
			t.Errorf("%s: %+v; want %+v", check, got, want)
		}
	}
	lines = diagnose(t, exitNotInOrder, "--set", "kafka.brokers=127.0.0.1:1", "--set", "contexts.crm.database.url=postgres://127.0.0.1:1/nowhere")
	for _, check := range []string{"crm database", "kafka"} {
		if lines[check].State != isWrong || lines[check].Advice == "" {
			t.Errorf("%s: %+v; want it wrong, with advice", check, lines[check])
		}
	}
}

func TestDoctor_JudgesATopicByWhatKafkaTellsOfIt(t *testing.T) {
	sound := kafka.Topic{Partitions: 6, Replicas: 3, InSync: 3, MinInSync: 2, MaxMessageBytes: 1048588, Told: true, MayWrite: true}
	for name, test := range map[string]struct {
		change func(*kafka.Topic)
		state  string
		advice string
	}{
		"all in order":             {func(*kafka.Topic) {}, isOK, ""},
		"no authorizer":            {func(t *kafka.Topic) { t.Told, t.MayWrite = false, false }, isOK, ""},
		"missing":                  {func(t *kafka.Topic) { t.Missing, t.Err = true, errors.New("unknown topic") }, isWrong, "create it"},
		"nothing told":             {func(t *kafka.Topic) { t.Err = errors.New("not authorized") }, isWrong, "ask who runs Kafka"},
		"no right to write":        {func(t *kafka.Topic) { t.MayWrite = false }, isWrong, "grant it WRITE"},
		"no leader":                {func(t *kafka.Topic) { t.Leaderless = 1 }, isWrong, "bring the brokers back"},
		"too few replicas":         {func(t *kafka.Topic) { t.InSync = 1 }, isWrong, "nothing is taken until then"},
		"a replica that is behind": {func(t *kafka.Topic) { t.InSync = 2 }, isWarning, "a replica is behind"},
		"settings not told":        {func(t *kafka.Topic) { t.MinInSync, t.MaxMessageBytes = 0, 0 }, isWarning, "DESCRIBE_CONFIGS"},
		"small batches":            {func(t *kafka.Topic) { t.MaxMessageBytes = 1048575 }, isWarning, "set max.message.bytes to 1048576"},
		"one replica":              {func(t *kafka.Topic) { t.Replicas, t.InSync, t.MinInSync = 1, 1, 1 }, isWarning, "survive the loss"},
		"one in sync is enough":    {func(t *kafka.Topic) { t.MinInSync = 1 }, isWarning, "survive the loss"},
	} {
		t.Run(name, func(t *testing.T) {
			topic := sound
			test.change(&topic)
			var d doctor
			d.topic(topic)
			if got := d.lines[0]; got.State != test.state || !strings.Contains(got.Advice, test.advice) {
				t.Errorf("%+v; want %s, %q", got, test.state, test.advice)
			}
		})
	}
}

func TestDoctor_HearsAStopWhereAServerSaysNothing(t *testing.T) {
	newPlatform(t)
	for what, command := range map[string]string{
		"Kafka":      "doctor --set kafka.brokers=%s",
		"a database": "doctor --set kafka.brokers=127.0.0.1:1 --set database.url=postgres://%s/nowhere",
	} {
		t.Run(what, func(t *testing.T) {
			silent, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer silent.Close() //nolint:errcheck // the test is over
			ctx, stop := context.WithCancel(t.Context())
			go func() {
				if conn, err := silent.Accept(); err == nil {
					t.Cleanup(func() { conn.Close() }) //nolint:errcheck // the test is over
				}
				stop()
			}()
			var stderr bytes.Buffer
			code := run(ctx, strings.Fields(fmt.Sprintf(command, silent.Addr())), streams{strings.NewReader(""), io.Discard, &stderr})
			if code != exitInterrupted {
				t.Errorf("exit %d: %s; want it interrupted", code, &stderr)
			}
		})
	}
}
