package outbox

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// laneState is what a relay remembers of a lane.
type laneState struct {
	running   bool
	again     bool // someone looked while it was running
	notBefore time.Time
	progress  atomic.Int64 // UnixNano of the last sign of life of its worker

	// Its worker's:
	held    []string  // keys whose messages Kafka does not take for now
	retryAt time.Time // when one of them is tried again
	backoff *backoff.ExponentialBackOff
	alone   time.Time // when nothing was found behind a key that has more than its share
}

func (s *laneState) progressed() { s.progress.Store(time.Now().UnixNano()) }

// waits says that its worker waits for those of other lanes: a sign of life is theirs to give.
func (s *laneState) waits() { s.progress.Store(math.MaxInt64) }

// try lets one of the keys that are held go, where it is time to see whether Kafka takes it.
func (s *laneState) try() (key string, ok bool) {
	if len(s.held) == 0 || time.Now().Before(s.retryAt) {
		return "", false
	}
	key, s.held = s.held[0], s.held[1:]
	return key, true
}

// hold keeps keys out of the next rounds.
func (s *laneState) hold(keys []string) {
	s.held = append(s.held, keys[:min(len(keys), mostHeld-len(s.held))]...)
	if now := time.Now(); !now.Before(s.retryAt) {
		s.retryAt = now.Add(s.backoff.NextBackOff())
	}
}

// release lets all keys go.
func (s *laneState) release() {
	s.held, s.retryAt = nil, time.Time{}
	s.backoff.Reset()
}

const (
	// mostHeld is how many keys a lane holds at most: some 100 bytes each.
	mostHeld = 4000
	// wholeLane is how many keys have to fail, and none to get through, for an outage to be the whole
	// lane's: a partition's, and others would have got through among so many.
	wholeLane = 16
)

func newBackoff(first, most time.Duration) *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = first, most
	return b
}
