package outbox

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestStalled_TellsALookOrALaneThatHangs(t *testing.T) {
	long := time.Now().Add(-time.Hour).UnixNano()
	newRelay := func() *Relay {
		return NewRelay(nil, Table{Schema: "crm"}, nil, RelayConfig{PollInterval: time.Second}, nil, slog.New(slog.DiscardHandler))
	}
	t.Run("not begun", func(t *testing.T) {
		if err := newRelay().Stalled(); err != nil {
			t.Error(err)
		}
	})
	t.Run("a look that hangs", func(t *testing.T) {
		r := newRelay()
		r.lastLook.Store(long)
		if err := r.Stalled(); err == nil || !strings.Contains(err.Error(), "has not looked for messages") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("a lane that hangs", func(t *testing.T) {
		r := newRelay()
		r.lastLook.Store(time.Now().UnixNano())
		state, _ := r.begin(lane{topic: "pin.crm.lead-expired.v1", shard: 3})
		if err := r.Stalled(); err != nil {
			t.Errorf("a lane that has just begun: %v", err)
		}
		state.progress.Store(long)
		if err := r.Stalled(); err == nil || !strings.Contains(err.Error(), "lane pin.crm.lead-expired.v1/3") {
			t.Errorf("error %v", err)
		}
		state.waits()
		if err := r.Stalled(); err != nil {
			t.Errorf("a lane that waits for others: %v", err)
		}
		r.end(state, 0)
		if err := r.Stalled(); err != nil {
			t.Errorf("a lane that nobody works on: %v", err)
		}
	})
}

func TestRefused_WhatNeverGotAnAnswerIsAnOutage(t *testing.T) {
	r := NewRelay(nil, Table{}, nil, RelayConfig{Refused: func(error) bool { return true }}, nil, slog.New(slog.DiscardHandler))
	for _, err := range []error{errNoAnswer, context.Canceled} {
		if r.refused(err) {
			t.Errorf("%v is taken for a refusal", err)
		}
	}
	if !r.refused(errors.New("too large")) {
		t.Error("a refusal is taken for an outage")
	}
}

func TestBegin_ALookAtALaneThatIsRunningLeadsToAnotherLook(t *testing.T) {
	r := NewRelay(nil, Table{}, nil, RelayConfig{}, nil, slog.New(slog.DiscardHandler))
	state, _ := r.begin(lane{topic: "t"})
	if _, ok := r.begin(lane{topic: "t"}); ok {
		t.Fatal("two workers on one lane")
	}
	r.end(state, 0)
	select {
	case <-r.wake:
	default:
		t.Error("what was committed meanwhile waits for the next poll")
	}
}

func TestHeld_OneKeyAfterAnotherIsTriedUntilOneGetsThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := &laneState{backoff: newBackoff(time.Second, time.Minute)}
		if key, ok := state.try(); ok {
			t.Errorf("tried %q of none", key)
		}
		state.hold([]string{"a", "b"})
		if key, ok := state.try(); ok {
			t.Errorf("tried %q at once", key)
		}
		for _, want := range []string{"a", "b", "a"} {
			time.Sleep(time.Until(state.retryAt))
			if key, ok := state.try(); !ok || key != want {
				t.Errorf("tried %q, %v; want %q", key, ok, want)
			}
			state.hold([]string{want})
		}
		state.release()
		if key, ok := state.try(); ok || len(state.held) > 0 {
			t.Errorf("tried %q after all were let go", key)
		}
	})
}

func TestHeld_AreBounded(t *testing.T) {
	state := &laneState{backoff: newBackoff(time.Second, time.Minute)}
	for range mostHeld + 1 {
		state.hold([]string{"a", "b"})
	}
	if len(state.held) != mostHeld {
		t.Errorf("%d are held; want %d", len(state.held), mostHeld)
	}
}
