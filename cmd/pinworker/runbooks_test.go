package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/app/published"
)

// terminal is where an operator types: a shell with pinworker, psql and the variables that
// docs/runbooks/README.md names.
type terminal struct {
	*platform
	folder string
	broker embeddedtest.Broker // nil: none was started
	alive  *os.File            // ends with the test: what still runs in the background does, too
	env    map[string]string
	known  map[string]string // what the page's placeholders stand for
}

func newTerminal(p *platform) *terminal {
	p.Helper()
	program, err := os.Executable()
	p.must(err)
	folder, err := os.MkdirTemp("", "pinworker-test-")
	p.must(err)
	p.Cleanup(func() { os.RemoveAll(folder) }) //nolint:errcheck // it is temporary
	k := &terminal{platform: p, folder: folder, known: make(map[string]string)}
	scripts := map[string]string{"pinworker": fmt.Sprintf("%s=%s exec '%s'", asProgram, untilEnd, program)}
	if jars := os.Getenv(embeddedtest.KafkaJars); jars != "" {
		scripts["kafka-topics.sh"] = "exec java -cp '" + jars + "/*' org.apache.kafka.tools.TopicCommand"
		scripts["kafka-configs.sh"] = "exec java -cp '" + jars + "/*' kafka.admin.ConfigCommand"
	}
	for name, what := range scripts {
		p.must(os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+what+" \"$@\"\n"), 0o755))
	}
	var end *os.File
	k.alive, end, err = os.Pipe()
	p.must(err)
	p.Cleanup(func() { k.alive.Close(); end.Close() }) //nolint:errcheck // nothing is written
	worker := fmt.Sprintf("127.0.0.1:%d", embeddedtest.FreePort(p.T))
	k.env = map[string]string{
		"PATH": folder + ":" + os.Getenv("PATH"), "HOME": folder, "TMPDIR": folder,
		"GORACE":                 "atexit_sleep_ms=0", // else each command of a test under the race detector ends with a second of nothing
		"PINWORKER_DATABASE_URL": p.url, "PINWORKER_KAFKA_BROKERS": "127.0.0.1:1", "PINWORKER_HTTP_LISTEN": worker,
		"PINWORKER_RELAY_POLL_INTERVAL": "50ms", "OWNER_URL": p.owner, "WORKER": worker, "LOGS": "cat serve.log",
	}
	// A cycle at the start, and no other while somebody looks.
	for job, most := range map[string]string{"REMINDER_DISPATCH": "1h", "APPOINTMENT_TIMEOUT": "1h", "EXPIRE_PROMOTIONS": "5m"} {
		k.env["PINWORKER_JOBS_"+job+"_INTERVAL"] = most
	}
	return k
}

// run types a command, whose placeholders are known, and returns what it printed.
func (k *terminal) run(command string) string {
	k.Helper()
	for word, value := range k.known {
		command = strings.ReplaceAll(command, word, value)
	}
	cmd := exec.Command("bash", "-c", command)
	cmd.Dir, cmd.ExtraFiles = k.folder, []*os.File{k.alive}
	for name, value := range k.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var output lockedBuffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.Run() //nolint:errcheck // what it printed is what counts
	return output.String()
}

// serve starts a worker, and returns once each of its jobs has had its cycle.
func (k *terminal) serve() {
	k.Helper()
	k.run("pinworker serve >>serve.log 2>&1 &")
	eventually(k.T, "the worker has done its cycles", func() bool {
		return k.run(`test $(grep -cE '"msg":"(cycle completed|job.completed|cycle failed)' serve.log) -ge 4 && echo done`) == "done\n"
	})
}

// eventuallyShows returns once a command's output has a line, or a part of one.
func (k *terminal) eventuallyShows(command, part string) {
	k.Helper()
	eventually(k.T, command+" shows "+part, func() bool { return strings.Contains(flat(k.run(command)), part) })
}

// kafka starts a Kafka with all topics, and has the commands know it.
func (k *terminal) kafka() {
	k.Helper()
	k.broker = embeddedtest.Kafka(k.T, 0, published.Topics...)
	k.env["PINWORKER_KAFKA_BROKERS"] = k.broker.Brokers()[0]
}

// follow does what the page says of a cause: looks, finds its row the first that fits, mends, and sees it
// mended. What the page says that the first look shows, it shows where its first row is the cause.
func (k *terminal) follow(r runbook, cause string, others func(*terminal)) {
	k.Helper()
	look := ""
	for _, t := range r.firstLook {
		if _, unknown := pattern(t.command, k.known); len(unknown) > 0 {
			continue // nobody asks for one of them
		}
		output := k.run(t.command)
		if cause == r.causes[0].name {
			k.wantShown(t, output)
		}
		look += flat(output)
	}
	found := slices.IndexFunc(r.causes, func(s symptom) bool { return k.has(look, s.seen) })
	if found < 0 || r.causes[found].name != cause {
		k.Fatalf("row %d of the causes is the first that fits what the first look shows:\n%s", found+1, look)
	}
	for _, t := range r.mend[cause] {
		k.wantShown(t, k.run(t.command))
	}
	if others != nil {
		others(k)
	}
	for _, t := range r.mended {
		output := ""
		k.Cleanup(func() {
			if k.Failed() {
				k.Logf("$ %s\nshows in the end\n%s", t.command, output)
			}
		})
		eventually(k.T, "$ "+t.command+"\n"+strings.Join(t.shows, "\n"), func() bool {
			output = k.run(t.command)
			return fits(output, t.shows, k.known)
		})
	}
}

func (k *terminal) wantShown(t typed, output string) {
	k.Helper()
	if t.shows != nil && !fits(output, t.shows, k.known) {
		k.Fatalf("$ %s\nshows\n%s\nand the page says\n%s\n%v", t.command, output, strings.Join(t.shows, "\n"), k.known)
	}
}

// has reports whether the look has all these parts of lines, and learns what their placeholders stand for.
func (k *terminal) has(look string, parts []string) bool {
	values := maps.Clone(k.known)
	for _, part := range parts {
		if !search(`(?m)`, part, ``, look, values) {
			return false
		}
	}
	maps.Copy(k.known, values)
	return true
}

// situation brings about what a cause of a runbook is about.
type situation struct {
	page, cause string
	given       func(k *terminal)
	others      func(k *terminal) // what the page has others do, after its own commands; nil: nothing
	then        func(k *terminal) // what must be so once it is mended, beside what the page shows
}

// Each cause of each page has a situation, and each situation a cause.
func TestRunbooks_WhatTheySayIsShownAndMendsEachCause(t *testing.T) {
	for _, program := range []string{"bash", "psql", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("an operator has " + program + ": " + err.Error())
		}
	}
	pages, err := filepath.Glob("../../docs/runbooks/*-*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	situations := slices.Concat(leadExpirationSituations, outboxSituations, appointmentSituations, reminderSituations, promotionSituations)
	for _, path := range pages {
		page := strings.TrimSuffix(filepath.Base(path), ".md")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		r, wrong := readRunbook(string(text))
		for _, w := range wrong {
			t.Errorf("%s: %s", page, w)
		}
		var causes, proved []string
		for _, c := range r.causes {
			causes = append(causes, c.name)
		}
		for _, s := range situations {
			if s.page == page {
				proved = append(proved, s.cause)
			}
		}
		slices.Sort(causes)
		slices.Sort(proved)
		if mends := slices.Sorted(maps.Keys(r.mend)); !slices.Equal(causes, mends) || !slices.Equal(causes, proved) {
			t.Errorf("%s: its causes are %q, mended are %q, proved %q", page, causes, mends, proved)
		}
		for _, s := range situations {
			if s.page != page {
				continue
			}
			t.Run(page+"/"+s.cause, func(t *testing.T) {
				k := newTerminal(newPlatform(t))
				s.given(k)
				k.follow(r, s.cause, s.others)
				s.then(k)
			})
		}
	}
}

// A page names the alerts whose link leads to it, and no others; so does the list of all pages. The links
// are those of the cases, which promtool has checked: one may depend on the alert's job.
func TestRunbooks_NameTheAlertsThatLinkToThem(t *testing.T) {
	linked := make(map[string][]string)
	for _, e := range expectations(t) {
		for _, a := range e.Alerts {
			page, ok := strings.CutPrefix(a.Annotations["runbook_url"], "https://github.com/pin-platform/pinworker/blob/main/docs/runbooks/")
			if !ok {
				t.Errorf("%s links to no runbook", e.Alert)
			}
			linked[page] = append(linked[page], e.Alert)
		}
	}
	read := func(page string) string {
		text, err := os.ReadFile(filepath.Join("../../docs/runbooks", page))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	named := func(text string) (alerts []string) {
		for _, span := range codeSpan.FindAllStringSubmatch(text, -1) {
			alerts = append(alerts, span[1])
		}
		slices.Sort(alerts)
		return alerts
	}
	listed := make(map[string][]string)
	for _, row := range regexp.MustCompile(`(?m)^\| .*\]\((.*)\) \| (.*) \|$`).FindAllStringSubmatch(read("README.md"), -1) {
		listed[row[1]] = named(row[2])
	}
	for page, alerts := range linked {
		slices.Sort(alerts)
		alerts = slices.Compact(alerts)
		head, _, _ := strings.Cut(read(page), "\n## ")
		if !slices.Equal(named(head), alerts) || !slices.Equal(listed[page], alerts) {
			t.Errorf("%s names the alerts %q, the list %q; these link to it: %q", page, named(head), listed[page], alerts)
		}
	}
}
