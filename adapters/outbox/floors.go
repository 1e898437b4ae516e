package outbox

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// floors remember up to which id all of a lane is gone, so that reading begins behind the dead rows. While
// somebody holds an old snapshot vacuum may not clean those up, and to pass over them costs more with
// each round.
//
// A message may come later than one with a higher id: its transaction took longer. So a look is at all of
// the outbox as long as that is cheap; else that is done now and then, beside other looks, which begin
// where the floors were some seconds ago, or, where even that is not cheap, at the floors themselves.
type floors struct {
	mu      sync.Mutex
	gone    map[lane]int64
	earlier [2]map[lane]int64 // as gone was before the last turn, and at the last one
	turned  time.Time
	top     int64        // the highest id that was ever seen
	due     [2]time.Time // of a look at all, and of one from the earlier floors on
	dear    bool         // the last look at all was not cheap
}

const (
	// settling is for how long, at least, floors are looked behind.
	settling = 5 * time.Second
	// cheapLook is what a look may cost to be made each time; one that costs more may take a twentieth of
	// the time, and is made once a minute at least.
	cheapLook, lookShare, lookAtLeast = 20 * time.Millisecond, 20, time.Minute
)

// head is the first message of a lane.
type head struct {
	lane
	id int64
}

// look is how far back messages are looked for.
type look struct {
	began  time.Time
	depth  int            // 0: at all there is, 1: from the earlier floors on, 2: from the floors on
	behind map[lane]int64 // of depth 1 and 2
	top    int64          // before it began
}

func newFloors() *floors { return &floors{gone: make(map[lane]int64)} }

// next says how the next look is to be, and whether one at all there is has to be made beside it.
func (f *floors) next(now time.Time) (l look, beside *look) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.turned) >= settling {
		f.earlier, f.turned = [2]map[lane]int64{f.earlier[1], maps.Clone(f.gone)}, now
	}
	l = look{began: now, top: f.top}
	if whole := !now.Before(f.due[0]) || len(f.gone) == 0; whole && (!f.dear || len(f.gone) == 0) {
		return l, nil
	} else if whole {
		f.due[0] = now.Add(lookAtLeast) // not another one meanwhile
		beside = &look{began: now, top: f.top}
	}
	l.behind = make(map[lane]int64, len(f.gone))
	if f.earlier[0] != nil && !now.Before(f.due[1]) {
		l.depth = 1
		for lane := range f.gone {
			l.behind[lane] = f.earlier[0][lane]
		}
		return l, beside
	}
	l.depth = 2
	maps.Copy(l.behind, f.gone)
	return l, beside
}

// took notes what a look has cost, and so when it may be made again.
func (f *floors) took(l look, cost time.Duration) {
	if l.depth == len(f.due) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.depth == 0 {
		f.dear = cost >= cheapLook
	}
	f.due[l.depth] = time.Time{}
	if cost >= cheapLook {
		f.due[l.depth] = l.began.Add(cost + min(lookShare*cost, lookAtLeast))
	}
}

// found sets the floors by what a look has found: before the head of a lane, nothing waits.
func (f *floors) found(l look, heads []head) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first, top := make(map[lane]int64, len(heads)), l.top
	for _, h := range heads {
		first[h.lane], top = h.id, max(top, h.id)
		for shard := range int16(Shards) { // the topic's others are known as well, from now on
			l := lane{h.topic, shard}
			f.gone[l] = max(f.gone[l], 0)
		}
	}
	for of, gone := range f.gone {
		behind, asked := l.behind[of]
		if l.depth > 0 && (!asked || gone < behind) { // it did not look there, or a deeper look has found more since
			continue
		}
		if id, waits := first[of]; waits {
			f.gone[of] = id - 1
		} else {
			f.gone[of] = max(gone, top)
		}
	}
	f.top = max(f.top, top)
}

// lanes returns those that were ever seen.
func (f *floors) lanes() []lane {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.gone))
}

// of returns a lane's floor.
func (f *floors) of(l lane) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gone[l]
}

// raise sets a lane's floor after a round that took the old one for it, unless a look has set it since: it
// may have found a message below. So may the round: it begins further back.
func (f *floors) raise(l lane, old, floor int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gone[l] == old && floor > 0 {
		f.gone[l] = floor
	}
	f.top = max(f.top, floor)
}
