package main

import (
	"bytes"
	"encoding/json"
	"fmt"
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
			cmd, stdout, stderr, folder := program(t, "demo", "--leads", "300", "--bookings", "60", "--events", "60", "--promotions", "40", "--json")
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v: %s", err, stderr)
			}
			var got struct {
				Jobs     map[string]map[string]any
				Messages map[string]int
				Distinct map[string]int `json:"distinct_ce_ids"`
				Due      int            `json:"leads_due"`
				Verify   verification
			}
			if err := json.Unmarshal([]byte(stdout.String()), &got); err != nil {
				t.Fatalf("%v: %s", err, stdout)
			}
			if topic := published.TopicLeadExpired; got.Due == 0 || got.Messages[topic] != got.Due || got.Verify.Streams < 500 || got.Verify.Differences != 0 {
				t.Errorf("report %+v", got)
			}
			for _, topic := range published.Topics {
				if n := got.Messages[topic]; n == 0 || got.Distinct[topic] != n {
					t.Errorf("%s: %d messages, %d distinct", topic, n, got.Distinct[topic])
				}
			}
			for _, job := range jobNames {
				if got.Jobs[job]["FailedCount"] != 0.0 || got.Jobs[job]["ExpiredCount"] == 0.0 || got.Jobs[job]["SentCount"] == 0.0 {
					t.Errorf("%s: %v; want something done, and nothing failed", job, got.Jobs[job])
				}
			}
			nothingLeft(t, folder)
		})
	}
}

func TestDemo_TheSameSeedTellsTheSameStory(t *testing.T) {
	day := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	tell := func(seed uint64) (acts []string) {
		s := newStory(seed, day, storySizes{leads: 50, bookings: 50, events: 50, promotions: 50})
		for _, a := range s.acts {
			acts = append(acts, fmt.Sprint(a.at, a.subject, a.name))
		}
		return append(acts, fmt.Sprint(s.follow))
	}
	if !slices.Equal(tell(7), tell(7)) {
		t.Error("two stories from one seed")
	}
	if slices.Equal(tell(7), tell(8)) {
		t.Error("one story from two seeds")
	}
}

func TestDemo_ForPeopleShowsTables(t *testing.T) {
	cmd, stdout, stderr, folder := program(t, "demo", "--leads", "200")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	for _, part := range []string{"HOUR", "SLOTS FREED", "AppointmentExpired", "SlotReleased", "ReminderSent", "LeadRegistered", "LeadExpired", "LeadExtended", published.TopicLeadExpired, "0 differences"} {
		if !strings.Contains(stdout.String(), part) {
			t.Errorf("the story does not tell %q:\n%s", part, stdout)
		}
	}
	nothingLeft(t, folder)
}

func TestDemo_AnInterruptLeavesNothingBehindEither(t *testing.T) {
	for _, moment := range []string{"Starting", "The working day begins", "Running until Ctrl-C"} {
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
