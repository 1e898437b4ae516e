package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/app/published"
)

// commandsPage is docs/commands.md: what is typed into it, in order, and the shape of each command's JSON, by
// its name.
type commandsPage struct {
	typed    []typed
	shapes   map[string]any
	sections []string // the commands that it has, with or without a shape
}

var readCommandsPage = sync.OnceValues(func() (p commandsPage, err error) {
	text, err := os.ReadFile("../../docs/commands.md")
	if err != nil {
		return p, err
	}
	p.shapes = make(map[string]any)
	var names []string
	fence, shape := "", ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, " \n")
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case strings.HasPrefix(line, "```"):
			if fence == "json" {
				var is any
				if err := json.Unmarshal([]byte(shape), &is); err != nil {
					return p, fmt.Errorf("the shape of %s: %w", names, err)
				}
				for _, name := range names {
					p.shapes[name] = is
				}
			}
			if shape = ""; fence == "" {
				fence = strings.TrimPrefix(line, "```")
			} else {
				fence = ""
			}
		case fence == "json":
			shape += line
		case fence == "console" && isCommand:
			p.typed = append(p.typed, typed{command, []string{}})
		case fence == "console":
			last := &p.typed[len(p.typed)-1]
			last.shows = append(last.shows, line)
		case strings.HasPrefix(line, "## "):
			names = nil
			for name := range strings.SplitSeq(strings.TrimPrefix(line, "## "), ", ") {
				name = strings.TrimSuffix(strings.TrimSuffix(name, " ID"), " JOB")
				names = append(names, name)
				p.sections = append(p.sections, name)
			}
		}
	}
	return p, nil
})

// wantShape holds what a command printed with --json to the shape that docs/commands.md gives it.
func wantShape(t testing.TB, args []string, stdout string) {
	t.Helper()
	page, err := readCommandsPage()
	if err != nil {
		t.Fatal(err)
	}
	shape, known := page.shapes[args[0]]
	if !known && len(args) > 1 {
		shape, known = page.shapes[args[0]+" "+args[1]]
	}
	if !known {
		t.Errorf("docs/commands.md has no shape of %q", args)
		return
	}
	var document any
	if err := json.Unmarshal([]byte(stdout), &document); err != nil {
		t.Errorf("%q printed %q: %v", args, stdout, err)
		return
	}
	for _, wrong := range misfits(shape, document, "") {
		t.Errorf("%q --json: docs/commands.md has it otherwise: %s", args, wrong)
	}
}

// misfits tells where a document is not of a shape.
func misfits(shape, document any, at string) (wrong []string) {
	misfit := func(format string, args ...any) { wrong = append(wrong, at+": "+fmt.Sprintf(format, args...)) }
	switch s := shape.(type) {
	case string:
		if !fitsType(s, document) {
			misfit("%v is not of the type %q", document, s)
		}
	case []any:
		list, is := document.([]any)
		if !is {
			misfit("%v is no list", document)
		}
		for i, element := range list {
			wrong = append(wrong, misfits(s[0], element, fmt.Sprintf("%s[%d]", at, i))...)
		}
	case map[string]any:
		fields, is := document.(map[string]any)
		if document == nil && at == ".row" { // what has no row any more
			return nil
		}
		if !is {
			misfit("%v is no object", document)
			return wrong
		}
		for name := range s {
			_, there := fields[name]
			if optional := strings.HasSuffix(name, "?") || strings.HasPrefix(name, "<"); !there && !optional {
				misfit("%q is missing", name)
			}
		}
		for name, value := range fields {
			of, known := fieldOf(s, name)
			if !known {
				misfit("%q is not in it", name)
				continue
			}
			wrong = append(wrong, misfits(of, value, at+"."+name)...)
		}
	}
	return wrong
}

// fieldOf is the shape of a field: by its name, or of any.
func fieldOf(shape map[string]any, name string) (any, bool) {
	for key, of := range shape {
		if strings.TrimSuffix(key, "?") == name || strings.HasPrefix(key, "<") {
			return of, true
		}
	}
	return nil, false
}

func fitsType(kind string, value any) (fits bool) {
	kind, nullable := strings.CutSuffix(kind, " or null")
	text, isText := value.(string)
	switch {
	case value == nil:
		return nullable || kind == "any"
	case kind == "any":
		return true
	case kind == "text":
		return isText
	case kind == "id":
		_, err := uuid.Parse(text)
		return isText && err == nil
	case kind == "time":
		_, err := time.Parse(time.RFC3339Nano, text)
		return isText && err == nil
	case kind == "number":
		_, fits = value.(float64)
	case kind == "boolean":
		_, fits = value.(bool)
	}
	return fits
}

func TestCommandsPage_HasEveryCommand(t *testing.T) {
	page, err := readCommandsPage()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	var walk func(prefix string, cmd *cobra.Command)
	walk = func(prefix string, cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			if child.HasSubCommands() {
				walk(prefix+child.Name()+" ", child)
			} else if child.Name() != "help" && child.Name() != "completion" {
				all = append(all, prefix+child.Name())
			}
		}
	}
	walk("", newRoot(streams{}))
	slices.Sort(all)
	if got := slices.Sorted(slices.Values(page.sections)); !slices.Equal(got, all) {
		t.Errorf("the page has %q; there are %q", got, all)
	}
	if got := slices.Sorted(maps.Keys(page.shapes)); len(got) != len(all)-1 || slices.Contains(got, "serve") {
		t.Errorf("shapes of %q; want one of each but serve", got)
	}
}

// shownWorld is what the examples of the page are typed into: three leads that are due, of which one is in
// quarantine and one is held by a session; and two messages that Kafka has refused.
func shownWorld(t *testing.T) *terminal {
	t.Helper()
	k := newTerminal(newPlatform(t))
	k.kafka()
	j := polledJobs[3]
	now := time.Now().UTC().Truncate(time.Second)
	poison := portstest.Registration(now.Add(-3 * time.Minute))
	made := k.worker.at(now.AddDate(0, -1, 0)).crm
	k.must(made.Register(t.Context(), "agent", poison))
	k.must(made.Extend(t.Context(), "agent", poison.Lead, now.AddDate(0, 1, 0)))
	k.execute("UPDATE crm.leads SET version = 1, expires_at = '" + poison.ExpiresAt.Format(time.RFC3339) + "'") // an older state, over the newer one
	k.runUntilHeld("lead-expiration")
	held := j.make(k.platform, now.Add(-2*time.Minute))
	j.make(k.platform, now.Add(-time.Minute))
	_, release := k.hold(j, held, "crm-api")
	t.Cleanup(release)
	k.execute("INSERT INTO crm.outbox_parked (topic, shard, id, key, uuid, created_at, payload, error, attempts, parked_at) " +
		"SELECT '" + published.TopicLeadExpired + "', 0, n, gen_random_uuid(), gen_random_uuid(), now(), convert_to(repeat('x', 200), 'UTF8'), 'too large', 2, now() FROM generate_series(1, 2) AS n")
	return k
}

func TestCommandsPage_ShowsWhatIsPrinted(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("an operator has a shell: " + err.Error())
	}
	page, err := readCommandsPage()
	if err != nil {
		t.Fatal(err)
	}
	k := shownWorld(t)
	for _, typed := range page.typed {
		k.wantShown(typed, k.run(typed.command))
	}
}

func TestShapes_WhatDoesNotFitIsFound(t *testing.T) {
	const shape = `{"id": "id", "at?": "time or null", "list": [{"n": "number"}], "by": {"<job>": "boolean"}, "row": {"a": "text"}, "data": "any"}`
	for document, wrong := range map[string]int{
		`{"id": "00000000-0000-0000-0000-000000000000", "at": null, "list": [], "by": {}, "row": null, "data": null}`:                                                         0,
		`{"id": "00000000-0000-0000-0000-000000000000", "at": "2026-03-01T12:00:00Z", "list": [{"n": 1}], "by": {"x": true, "y": false}, "row": {"a": ""}, "data": {"b": 1}}`: 0,
		`{"id": "7", "at": "noon", "list": [{"n": "1"}, {}], "by": {"x": 1}, "row": {"a": null}, "data": 1, "more": 1}`:                                                       7,
		`{"list": {}, "by": [], "row": {"a": 1}}`: 5,
		`[]`: 1,
	} {
		var s, d any
		if err := json.Unmarshal([]byte(shape), &s); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(document), &d); err != nil {
			t.Fatal(err)
		}
		if got := misfits(s, d, ""); len(got) != wrong {
			t.Errorf("%s: %q; want %d", document, got, wrong)
		}
	}
}
