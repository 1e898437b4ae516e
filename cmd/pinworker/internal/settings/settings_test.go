package settings_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pin-platform/pinworker/cmd/pinworker/internal/settings"
)

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pinworker.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, s settings.Sources, needs ...settings.Need) (settings.Settings, []settings.Value) {
	t.Helper()
	got, values, err := settings.Load(s, needs...)
	if err != nil {
		t.Fatal(err)
	}
	return got, values
}

func refused(t *testing.T, s settings.Sources, needs ...settings.Need) []string {
	t.Helper()
	_, _, err := settings.Load(s, needs...)
	var problems *settings.Error
	if !errors.As(err, &problems) {
		t.Fatalf("error %v; want an Error", err)
	}
	var lines []string
	for _, p := range problems.Problems {
		lines = append(lines, p.String())
	}
	return lines
}

func TestLoad_WithoutSourcesTakesTheDefaults(t *testing.T) {
	s, values := load(t, settings.Sources{})
	if s.LeadExpiration.Interval != time.Hour || s.LeadExpiration.BatchSize != 500 ||
		s.LeadExpiration.MaxBatchesPerCycle != 200 || !s.LeadExpiration.Enabled || s.HTTPListen != ":8080" {
		t.Errorf("settings %+v; want the specification's", s)
	}
	for _, v := range values {
		if v.Origin != "default" {
			t.Errorf("%s comes from %s", v.Key, v.Origin)
		}
	}
}

func TestLoad_TheLaterSourceWins(t *testing.T) {
	sources := settings.Sources{
		File: file(t, `
database: {url: "postgres://file@db/pin"}
kafka:
  brokers: [kafka-1:9092, kafka-2:9092]
jobs:
  lead-expiration: {batch_size: 100, max_batches_per_cycle: 10, interval: 90s}
log: {level: debug}
`),
		Environ: []string{
			"PINWORKER_JOBS_LEAD_EXPIRATION_BATCH_SIZE=200", "PINWORKER_LOG_LEVEL=warn",
			"Crm__Jobs__LeadExpiration__Period=02:30:00", "Crm__Something__Else=1", "PATH=/bin", "=C:=somewhere",
		},
		Flags: []string{"log.level=error"},
	}
	s, values := load(t, sources, settings.EveryDatabase, settings.Kafka)
	if !slices.Equal(s.Kafka.Brokers, []string{"kafka-1:9092", "kafka-2:9092"}) || s.LeadExpiration.MaxBatchesPerCycle != 10 ||
		s.LeadExpiration.BatchSize != 200 || s.LeadExpiration.Interval != 150*time.Minute || s.Log.Level != slog.LevelError {
		t.Errorf("settings %+v", s)
	}
	if got := s.DatabaseURL("crm"); got != "postgres://file@db/pin" {
		t.Errorf("crm's database is %q; want the common one", got)
	}
	origins := make(map[string]string)
	for _, v := range values {
		origins[v.Key] = v.Origin
	}
	for key, want := range map[string]string{
		"jobs.lead-expiration.max_batches_per_cycle": sources.File,
		"jobs.lead-expiration.batch_size":            "PINWORKER_JOBS_LEAD_EXPIRATION_BATCH_SIZE",
		"jobs.lead-expiration.interval":              "Crm__Jobs__LeadExpiration__Period",
		"log.level":                                  "--set",
		"log.format":                                 "default",
	} {
		if origins[key] != want {
			t.Errorf("%s comes from %q; want %q", key, origins[key], want)
		}
	}
}

func TestLoad_TellsEveryProblemAtOnceWithKeyValueOriginAndWhatIsAllowed(t *testing.T) {
	path := file(t, `
database: {url: "mysql://root:hunter2@db/pin", max_connections: 3}
jobs: {lead-expiration: {batch_size: many, cap: 5}}
`)
	got := refused(t, settings.Sources{
		File:    path,
		Environ: []string{"PINWORKER_LOG_LEVEL=loud", "PINWORKER_JOBS_LEADS=1"},
		Flags:   []string{"http.listen=8080", "colour=red", "verbose"},
	}, settings.Kafka)
	want := []string{
		`database.url = "mysql://root:xxxxx@db/pin" (` + path + `): allowed is a PostgreSQL URL`,
		`database.max_connections = "3" (` + path + `): allowed is a whole number from 16 to 1000`,
		`jobs.lead-expiration.batch_size = "many" (` + path + `): allowed is a whole number from 1 to 10000`,
		`jobs.lead-expiration.cap (` + path + `): there is no such setting`,
		`log.level = "loud" (PINWORKER_LOG_LEVEL): allowed is debug, info, warn or error`,
		`PINWORKER_JOBS_LEADS (environment): there is no such setting`,
		`http.listen = "8080" (--set): allowed is an address`,
		`colour (--set): there is no such setting`,
		`--set = "verbose": allowed is key=value`,
		`kafka.brokers: is not set; allowed is host:port, several of them parted by commas. Set it in the file, as PINWORKER_KAFKA_BROKERS`,
	}
	for _, w := range want {
		if !slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, w) }) {
			t.Errorf("not told: %s", w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d problems, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
}

func TestLoad_TwoSpellingsInOneSourceMustAgree(t *testing.T) {
	load(t, settings.Sources{Environ: []string{
		"PINWORKER_JOBS_LEAD_EXPIRATION_INTERVAL=1h", "Crm__Jobs__LeadExpiration__Period=01:00:00",
	}})
	got := refused(t, settings.Sources{Environ: []string{
		"PINWORKER_JOBS_LEAD_EXPIRATION_INTERVAL=1h", "Crm__Jobs__LeadExpiration__Period=02:00:00",
	}})
	want := `jobs.lead-expiration.interval = "1h" (PINWORKER_JOBS_LEAD_EXPIRATION_INTERVAL): disagrees with Crm__Jobs__LeadExpiration__Period = "02:00:00": set one of the two`
	if len(got) != 1 || got[0] != want {
		t.Errorf("problems %q; want %q", got, want)
	}
	if got := refused(t, settings.Sources{Flags: []string{"log.format=json", "log.format=text"}}); len(got) != 1 {
		t.Errorf("problems %q; want one, of the two --set", got)
	}
}

func TestLoad_ALockTimeoutMustBeShorterThanAStatements(t *testing.T) {
	got := refused(t, settings.Sources{Flags: []string{"database.lock_timeout=30s"}})
	if len(got) != 1 || got[0] != `database.lock_timeout = "30s" (--set): must be shorter than database.statement_timeout, which is 20s` {
		t.Errorf("problems %q", got)
	}
	if got := refused(t, settings.Sources{Flags: []string{"database.lock_timeout=30s", "log.level=loud"}}); len(got) != 2 {
		t.Errorf("problems %q; want both at once", got)
	}
}

func TestLoad_KeysAreNestedInTheFileNotDotted(t *testing.T) {
	path := file(t, "jobs.lead-expiration.batch_size: 77\njobs: {lead-expiration: {batch_size: 88}}")
	got := refused(t, settings.Sources{File: path})
	if want := "jobs.lead-expiration.batch_size (" + path + "): keys are nested in the file, not dotted"; len(got) != 1 || got[0] != want {
		t.Errorf("problems %q; want %q", got, want)
	}
}

func TestLoad_AnEmptySectionSetsNothing(t *testing.T) {
	if s, _ := load(t, settings.Sources{File: file(t, "jobs:\n  lead-expiration:\nlog:\n")}); s.LeadExpiration.BatchSize != 500 {
		t.Errorf("settings %+v; want the defaults", s)
	}
}

func TestLoad_TwoFlagsThatMeanTheSameAgree(t *testing.T) {
	load(t, settings.Sources{Flags: []string{"jobs.lead-expiration.interval=1h", "jobs.lead-expiration.interval=60m"}})
}

func TestLoad_AContextsOwnDatabaseIsEnough(t *testing.T) {
	only := []string{"jobs.reminder-dispatch.enabled=false", "jobs.appointment-timeout.enabled=false", "jobs.expire-promotions.enabled=false"}
	s, _ := load(t, settings.Sources{Flags: append(only, "contexts.crm.database.url=postgres://db/crm")}, settings.EveryDatabase)
	if got := s.DatabaseURL("crm"); got != "postgres://db/crm" {
		t.Errorf("crm's database is %q", got)
	}
	if got := refused(t, settings.Sources{Flags: append(only[1:], "contexts.crm.database.url=postgres://db/crm")}, settings.EveryDatabase); len(got) != 1 || !strings.HasPrefix(got[0], "database.url: is not set") {
		t.Errorf("problems %q", got)
	}
}

func TestLoad_WhatKubernetesTellsOfAServiceIsNoSetting(t *testing.T) {
	load(t, settings.Sources{Environ: []string{
		"PINWORKER_SERVICE_HOST=10.0.0.1", "PINWORKER_SERVICE_PORT=8080", "PINWORKER_SERVICE_PORT_HTTP=8080",
		"PINWORKER_PORT=tcp://10.0.0.1:8080", "PINWORKER_PORT_8080_TCP_ADDR=10.0.0.1",
	}})
}

func TestLoad_AURLThatTheDriverRefusesIsAProblem(t *testing.T) {
	for _, url := range []string{"postgres://db/pin?sslmode=bogus", "postgres://db:99999/pin", "mysql://db/pin"} {
		if got := refused(t, settings.Sources{Flags: []string{"database.url=" + url}}); len(got) != 1 {
			t.Errorf("%s: problems %q; want one", url, got)
		}
	}
}

func TestLoad_AFileThatCannotBeReadIsAProblem(t *testing.T) {
	for what, path := range map[string]string{
		"missing":     filepath.Join(t.TempDir(), "none.yaml"),
		"not YAML":    file(t, "jobs: [}"),
		"no mapping":  file(t, "- jobs"),
		"a duplicate": file(t, "log: {level: info}\nlog: {level: warn}"),
	} {
		t.Run(what, func(t *testing.T) {
			if got := refused(t, settings.Sources{File: path}); len(got) != 1 || !strings.Contains(got[0], path) {
				t.Errorf("problems %q; want one that names the file", got)
			}
		})
	}
}

func TestLoad_ShowsNoSecret(t *testing.T) {
	for _, flags := range [][]string{
		{"database.url=postgres://pin:hunter2@db:5432/pin"},
		{"database.url=postgres://db:5432/pin?user=pin&password=hunter2"},
		{"database.url=postgres://db:5432/pin?sslpassword=hunter2"},
		{"database.url=postgres://pin:hunter2@["},
		{"database.url=hunter2@db"},
		{"database.url=postgres://pin:hunter2@db/pin", "database.url=postgres://pin:hunter22@db/pin"},
		{"postgres://pin:hunter2@db/pin"},
	} {
		_, values, err := settings.Load(settings.Sources{Flags: flags})
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error tells the password: %v", err)
		}
		for _, v := range values {
			if strings.Contains(v.Value, "hunter2") {
				t.Errorf("the value tells the password: %s", v.Value)
			}
		}
	}
}

func TestLoad_Durations(t *testing.T) {
	for text, want := range map[string]time.Duration{"90s": 90 * time.Second, "1h30m": 90 * time.Minute, "00:05:00": 5 * time.Minute, "1.02:00:00": 26 * time.Hour} {
		if s, _ := load(t, settings.Sources{Flags: []string{"jobs.lead-expiration.interval=" + text}}); s.LeadExpiration.Interval != want {
			t.Errorf("%s is %s; want %s", text, s.LeadExpiration.Interval, want)
		}
	}
	for _, text := range []string{"", "0s", "-1h", "3600", "1:2", "00:00:00", "a:b:c", "169h", "00:00:90", "24:00:00", "1.2.3:00:00"} {
		if got := refused(t, settings.Sources{Flags: []string{"jobs.lead-expiration.interval=" + text}}); len(got) != 1 {
			t.Errorf("%q: problems %q; want one", text, got)
		}
	}
}

func TestLoad_WhatKafkaAsksForGoesTogether(t *testing.T) {
	const brokers = "kafka.brokers=kafka:9092"
	password := file(t, "secret")
	s, values := load(t, settings.Sources{Flags: []string{
		brokers, "kafka.sasl.mechanism=SCRAM-SHA-512", "kafka.sasl.user=pinworker", "kafka.sasl.password_file=" + password, "kafka.tls.enabled=true",
	}}, settings.Kafka)
	if s.Kafka.SASL.Mechanism != "SCRAM-SHA-512" || s.Kafka.SASL.PasswordFile != password || !s.Kafka.TLS.Enabled {
		t.Errorf("settings %+v", s.Kafka)
	}
	for _, v := range values {
		if v.Value == "secret" {
			t.Errorf("%s shows the password", v.Key)
		}
	}
	for says, flags := range map[string][]string{
		"kafka.sasl.user: is not set": {"kafka.sasl.mechanism=PLAIN", "kafka.sasl.password_file=" + password},
		"kafka.tls.key: is not set":   {"kafka.tls.cert=" + password},
		`kafka.sasl.mechanism = "MD5" (--set): allowed is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512`: {"kafka.sasl.mechanism=MD5", "kafka.sasl.user=a", "kafka.sasl.password_file=" + password},
		`kafka.tls.ca = "/none.pem" (--set): allowed is a PEM file`:                              {"kafka.tls.ca=/none.pem"},
		`kafka.sasl.password_file = "/none" (--set): allowed is a file`:                          {"kafka.sasl.mechanism=PLAIN", "kafka.sasl.user=a", "kafka.sasl.password_file=/none"},
	} {
		if got := refused(t, settings.Sources{Flags: append(flags, brokers)}, settings.Kafka); len(got) != 1 || !strings.HasPrefix(got[0], says) {
			t.Errorf("problems %q; want %q", got, says)
		}
	}
}

func TestLoad_DemandsOfKafkaWhatIsUsedOfIt(t *testing.T) {
	notMounted := []string{"kafka.sasl.mechanism=PLAIN", "kafka.sasl.user=a", "kafka.sasl.password_file=/none", "kafka.tls.cert=/none.pem"}
	load(t, settings.Sources{Flags: notMounted})
	load(t, settings.Sources{Flags: append(notMounted, "relay.enabled=false")}, settings.Relay)
	if got := refused(t, settings.Sources{Flags: notMounted}, settings.Relay); len(got) != 4 {
		t.Errorf("problems %q; want brokers, password, certificate and key", got)
	}
}

func TestLoad_DemandsTheDatabasesThatAreUsed(t *testing.T) {
	crm := settings.Sources{Flags: []string{"contexts.crm.database.url=postgres://db/crm", "jobs.lead-expiration.enabled=false"}}
	s, _ := load(t, crm, settings.AnyDatabase, settings.DatabaseOf("crm"))
	if got := s.Configured(); !slices.Equal(got, []string{"crm"}) {
		t.Errorf("%q have a database; want crm", got)
	}
	if got := s.Served(); !slices.Equal(got, []string{"calendar", "promotion"}) {
		t.Errorf("%q are served; want those that have a job enabled", got)
	}
	if got := refused(t, crm, settings.DatabaseOf("calendar")); len(got) != 1 ||
		!strings.HasPrefix(got[0], "contexts.calendar.database.url: is not set, and neither is database.url; allowed is a PostgreSQL URL") {
		t.Errorf("problems %q", got)
	}
	if got := refused(t, settings.Sources{}, settings.AnyDatabase); len(got) != 1 || !strings.HasPrefix(got[0], "database.url: is not set") {
		t.Errorf("problems %q", got)
	}
}

func TestLoad_SpansGoToAReceiverOfOTLP(t *testing.T) {
	if s, _ := load(t, settings.Sources{}); s.Tracing.Endpoint != "" || s.Tracing.SampleRatio != 1 {
		t.Errorf("tracing %+v; want none to be sent", s.Tracing)
	}
	for given, want := range map[string]string{
		"http://collector:4318":              "http://collector:4318/v1/traces",
		"https://collector/":                 "https://collector/v1/traces",
		"https://collector:4318/otlp/traces": "https://collector:4318/otlp/traces",
	} {
		s, _ := load(t, settings.Sources{Environ: []string{"PINWORKER_TRACING_ENDPOINT=" + given, "PINWORKER_TRACING_SAMPLE_RATIO=0.25"}})
		if s.Tracing.Endpoint != want || s.Tracing.SampleRatio != 0.25 {
			t.Errorf("tracing %+v; want %s and a quarter", s.Tracing, want)
		}
	}
	for _, given := range []string{"collector:4318", "grpc://collector:4317", "http://", "http://pin:hunter2@collector", "http://collector?tenant=pin", ""} {
		if got := refused(t, settings.Sources{Flags: []string{"tracing.endpoint=" + given}}); len(got) != 1 || !strings.HasPrefix(got[0], "tracing.endpoint") ||
			!strings.HasSuffix(got[0], "(--set): allowed is a URL, http://host:port or https://host:port, with a path or without, and without a user") {
			t.Errorf("endpoint %q: %q", given, got)
		}
	}
	for _, given := range []string{"-0.1", "1.5", "NaN", "all"} {
		if got := refused(t, settings.Sources{Flags: []string{"tracing.sample_ratio=" + given}}); len(got) != 1 ||
			got[0] != `tracing.sample_ratio = "`+given+`" (--set): allowed is a number from 0 to 1` {
			t.Errorf("ratio %q: %q", given, got)
		}
	}
}
