package outbox

import (
	"maps"
	"testing"
	"time"
)

var (
	noon  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	first = lane{"a", 0}
	other = lane{"a", 1}
)

// after is a moment in seconds.
func after(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

func TestFloors_ALookIsAtAllThereIsAsLongAsThatIsCheap(t *testing.T) {
	f := newFloors()
	for s := range 100 {
		l, beside := f.next(after(float64(s)))
		if l.depth != 0 || l.behind != nil || beside != nil {
			t.Fatalf("after %d s: %+v, %v beside it", s, l, beside)
		}
		f.found(l, []head{{first, int64(10 + s)}})
		f.took(l, cheapLook-1)
	}
}

func TestFloors_ALookAtAllThatIsDearIsMadeSeldomAndBesideOthers(t *testing.T) {
	f := newFloors()
	l, _ := f.next(noon)
	f.found(l, []head{{first, 10}})
	f.took(l, time.Second)
	for _, step := range []struct {
		after  float64
		depth  int
		beside bool
		cost   time.Duration
		why    string
	}{
		{1, 2, false, 0, "a look has to be, and nothing has settled"},
		{11, 1, false, time.Second, "the floors of 5 s ago have settled"},
		{12, 2, false, 0, "that was dear as well"},
		{20.9, 2, false, 0, "the look at all took a second: 20 s are not over"},
		{21, 2, true, 0, "now they are"},
		{21.1, 2, false, 0, "it is on its way: no second one"},
		{32.1, 1, false, 0, "the settled floors are looked behind again, and cheap"},
		{32.2, 1, false, 0, "so they are each time"},
	} {
		l, beside := f.next(after(step.after))
		if l.depth != step.depth || (beside != nil) != step.beside {
			t.Errorf("after %.1f s: depth %d, beside it %v; want %d, %v: %s", step.after, l.depth, beside, step.depth, step.beside, step.why)
		}
		f.took(l, step.cost)
	}
	f.took(look{began: after(21)}, time.Millisecond)
	if l, beside := f.next(after(32.3)); l.depth != 0 || beside != nil {
		t.Errorf("once it is cheap again: %+v, %v beside it", l, beside)
	}
}

func TestFloors_NothingWaitsAtOrBelowThem(t *testing.T) {
	f := newFloors()
	want := func(when string, floors map[lane]int64) {
		t.Helper()
		got := make(map[lane]int64)
		for l := range floors {
			got[l] = f.of(l)
		}
		if !maps.Equal(got, floors) {
			t.Errorf("%s: floors %v; want %v", when, got, floors)
		}
	}
	l, _ := f.next(noon)
	want("at first", map[lane]int64{first: 0, other: 0})
	f.found(l, []head{{first, 10}})
	want("an empty lane's is the highest that is known", map[lane]int64{first: 9, other: 10})
	f.raise(first, 9, 12)
	want("a round has sent what there was", map[lane]int64{first: 12, other: 10})
	f.raise(first, 9, 20)
	want("a round that began at another floor tells nothing", map[lane]int64{first: 12, other: 10})

	l, _ = f.next(after(1))
	f.raise(other, 10, 30)
	f.found(l, []head{{first, 11}})
	want("a message came late below", map[lane]int64{first: 10, other: 30})
	l, _ = f.next(after(2))
	f.raise(other, 30, 50)
	f.found(l, nil)
	want("what came after a look had begun is not passed over by it", map[lane]int64{first: 30, other: 50})
}

func TestFloors_ALookInFlightDoesNotUndoWhatADeeperOneHasFound(t *testing.T) {
	f := newFloors()
	l, _ := f.next(noon)
	f.found(l, []head{{first, 200}})
	f.took(l, time.Second) // dear
	f.raise(first, 199, 240)
	shallow, _ := f.next(after(1))
	f.found(look{began: after(1), top: 240}, []head{{first, 90}}) // which came late
	f.found(shallow, []head{{first, 250}})
	if floor := f.of(first); floor != 89 {
		t.Errorf("floor %d; want 89, before what waits", floor)
	}
}
