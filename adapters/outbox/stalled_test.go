package outbox

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestStalled_TellsALookOrALaneThatHangs(t *testing.T) {
	long := time.Now().Add(-time.Hour).UnixNano()
	newRelay := func() *Relay {
		return NewRelay(nil, Table{Schema: "crm"}, nil, RelayConfig{PollInterval: time.Second}, slog.New(slog.DiscardHandler))
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
		r.end(state, 0)
		if err := r.Stalled(); err != nil {
			t.Errorf("a lane that nobody works on: %v", err)
		}
	})
}
