package main

import (
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pin-platform/pinworker/adapters/embedded"
	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/postgres"
	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/cmd/pinworker/internal/settings"
)

// A new operator has the page, a server that never heard of the worker, and a Kafka.
func TestDeploy_TheStepsBringUpAWorker(t *testing.T) {
	anOperatorHas(t, "bash", "psql", "curl")
	p, admin := platformAlone(t)
	p.execute(`INSERT INTO crm.leads SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(),
		'Active', now() - interval '1 minute', NULL, 1, now(), now()`)
	topics := published.Topics
	if os.Getenv(embeddedtest.KafkaJars) != "" {
		topics = nil // Apache Kafka's own program creates them, in a step
	}
	k := newTerminal(p)
	k.broker = embeddedtest.Kafka(t, 0, topics...)
	delete(k.env, "PINWORKER_DATABASE_URL")
	delete(k.env, "PINWORKER_KAFKA_BROKERS")
	k.env["ADMIN_URL"] = admin
	u, err := url.Parse(admin)
	p.must(err)
	broker := k.broker.Brokers()[0]
	k.walk("deploy.md", "By hand", "db:5432", u.Host, "kafka-1:9092, kafka-2:9092", broker, "kafka-1:9092", broker, "sslmode=verify-full", "sslmode=disable")
	eventually(t, "the lead is in Kafka", func() bool {
		records, err := readBack(t.Context(), k.broker.Brokers(), published.TopicLeadExpired)
		return err == nil && len(records) == 1
	})
}

func anOperatorHas(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("an operator has " + program + ": " + err.Error())
		}
	}
}

// walk takes the steps of a page's section in turn. Each command has to end with 0, and to show what the
// page says; a block of yaml is the settings' file, one of sh is Kafka's administrators', for whom Apache
// Kafka is needed. What is called otherwise here is told in pairs.
func (k *terminal) walk(page, section string, here ...string) {
	k.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	k.must(err)
	_, steps, found := strings.Cut(string(text), "\n## "+section+"\n")
	steps, _, _ = strings.Cut(steps, "\n## ")
	commands := 0
	for _, block := range regexp.MustCompile("(?s)\n```([a-z]+)\n(.*?)\n```").FindAllStringSubmatch(steps, -1) {
		language, content := block[1], strings.NewReplacer(here...).Replace(block[2])
		switch {
		case language == "yaml":
			k.must(os.WriteFile(filepath.Join(k.folder, "pinworker.yaml"), []byte(content), 0o600))
		case language == "sh" && os.Getenv(embeddedtest.KafkaJars) != "":
			k.step(content, nil)
		case language == "console":
			for command := range strings.SplitSeq(strings.TrimPrefix(content, "$ "), "\n$ ") {
				lines := strings.Split(command, "\n")
				k.step(lines[0], lines[1:])
				commands++
			}
		}
	}
	if !found || commands == 0 {
		k.Fatalf("%s has no steps in %q", page, section)
	}
}

// step runs one that has to end with 0 and to show what the page says.
func (k *terminal) step(command string, shows []string) {
	k.Helper()
	output, code, _ := strings.Cut(k.run(command+"\necho exit $?"), "exit ")
	if code != "0\n" {
		k.Fatalf("$ %s\nends with %s%s", command, code, output)
	}
	k.wantShown(typed{command, shows}, output)
}

// platformAlone is a server of its own with the platform's tables and nothing of the worker's, and the
// URL of somebody who may create roles. The tables' owner may not.
func platformAlone(t *testing.T) (p *platform, admin string) {
	t.Helper()
	server, err := embedded.StartPostgres(t.Context(), embedded.PostgresConfig{Version: os.Getenv("PINWORKER_TEST_POSTGRES")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	p = &platform{T: t}
	u, err := url.Parse(server.URL())
	p.must(err)
	for _, statement := range []string{"CREATE ROLE owner LOGIN PASSWORD 'owner'", "CREATE DATABASE pin OWNER owner"} {
		out, err := exec.Command("psql", server.URL(), "-c", statement).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	u.Path = "/pin"
	admin = u.String()
	u.User = url.UserPassword("owner", "owner")
	p.owner = u.String()
	s, _, err := settings.Load(settings.Sources{Flags: []string{"database.url=" + p.owner}})
	p.must(err)
	p.worker, err = newWorker(s, io.Discard)
	p.must(err)
	t.Cleanup(func() { p.must(p.worker.close()) })
	for _, c := range p.worker.contexts {
		_, err := c.migrator.Up(t.Context(), postgres.PlatformSet)
		p.must(err)
	}
	return p, admin
}

// What names the topics names all of them, and no others.
func TestDeploy_TheTopicsAreThoseThatThePagesAndTheComposeFileName(t *testing.T) {
	for _, file := range []string{"README.md", "docs/deploy.md", "deploy/compose.yaml"} {
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		named := regexp.MustCompile(`pin\.[a-z]+\.[a-z-]+\.v\d+`).FindAllString(string(text), -1)
		slices.Sort(named)
		if named, want := slices.Compact(named), slices.Sorted(slices.Values(published.Topics)); !slices.Equal(named, want) {
			t.Errorf("%s names %s; want %s", file, named, want)
		}
	}
}
