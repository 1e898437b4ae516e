package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pin-platform/pinworker/app/published"
)

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
