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
	settled settled
}

// settled is up to where a lane is gone for good, so that a round may begin behind it. Behind a floor it may
// not: a message whose transaction took longer may still come below, and then, by the next round, a later one
// of its key above. A writer has a transaction id before it draws a message's id. So once all transactions
// have ended that are older than a round's own, nothing comes below what that round has read, but what a
// round after that finds from the old place on.
type settled struct {
	id    int64
	next  int64 // the id that is to be it
	xid   int64 // of the round that read as far as next; 0 where none is waited for
	ended bool  // all that are older have
}

// from returns where a round begins that sees no transaction run that is older than xmin.
func (s *settled) from(xmin, floor int64) int64 {
	s.ended = s.xid > 0 && xmin >= s.xid
	return min(s.id, floor)
}

// gone notes that a round has found the lane gone up to an id, and under which transaction id it deleted, if it did.
func (s *settled) gone(through, xid int64) {
	if through == 0 {
		return
	}
	if s.ended {
		s.id, s.xid, s.ended = min(s.next, through), 0, false
	}
	if s.xid == 0 {
		s.next, s.xid = through, xid
	}
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
