package outbox

import (
	"context"
	"slices"
	"sync"
)

// slots are how many rounds a relay runs at once: each takes a connection. Who came first is served first,
// but no topic takes the last ones while it has one already: where a topic hangs, the others go on.
type slots struct {
	mu      sync.Mutex
	free    int
	taken   map[string]int // by topic
	waiting []*slotWaiter
}

type slotWaiter struct {
	topic string
	ready chan struct{}
}

const (
	// reserved are the last slots: a context has three topics at most.
	reserved = 2
	// rounds is how many lanes a relay works on at once: all of a topic's, and what is kept for others. As
	// many connections does it need, and one more to look.
	rounds = Shards + reserved
)

func newSlots() *slots { return &slots{free: rounds, taken: make(map[string]int)} }

// acquire waits for a slot; false where ctx has ended before.
func (s *slots) acquire(ctx context.Context, topic string) bool {
	w := &slotWaiter{topic, make(chan struct{})}
	s.mu.Lock()
	s.waiting = append(s.waiting, w)
	s.serve()
	s.mu.Unlock()
	select {
	case <-w.ready:
		return true
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.waiting, w); at >= 0 {
		s.waiting = slices.Delete(s.waiting, at, at+1)
	} else { // it was served at the last moment
		s.put(topic)
	}
	return false
}

func (s *slots) release(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(topic)
}

func (s *slots) put(topic string) {
	s.free++
	s.taken[topic]--
	s.serve()
}

func (s *slots) serve() {
	s.waiting = slices.DeleteFunc(s.waiting, func(w *slotWaiter) bool {
		if s.free == 0 || s.free <= reserved && s.taken[w.topic] > 0 {
			return false
		}
		s.free--
		s.taken[w.topic]++
		close(w.ready)
		return true
	})
}
