// Package portstest states what the ports promise, once, for every adapter and every job: postgres
// and memory both run it.
package portstest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/ports"
)

// Noon is the moment about which the suites' items come due.
var Noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// NewID returns a fresh id of any kind.
func NewID[Of any]() ids.ID[Of] { return ids.ID[Of](uuid.Must(uuid.NewV7())) }

// Hooks get in an adapter's way. An item is what the job polls: a lead, a purchase, a reminder, an
// appointment.
type Hooks struct {
	Quarantine ports.Quarantine
	Messages   func() []uuid.UUID          // ids of the messages committed, in order
	Forget     func()                      // loses every stream: rows as a service without a journal writes them
	Lock       func(item uuid.UUID) func() // locks an item as an operation in flight does, until released
	Refuse     func(item uuid.UUID)        // has every write to an item refused
	Accept     func(item uuid.UUID)        // takes Refuse back
	Cut        func()                      // cuts the connection of the unit that is under way
}

// Job is what the suite needs of a job, over an adapter that is empty.
type Job[A, E any] struct {
	Hooks
	Name      ports.Job
	Due       ports.Due[A, E]
	Rule      ports.Rule[A, E]
	Inclusive bool                                  // due at the very moment
	Item      func(A) uuid.UUID                     // what the job polls of a state
	Make      func(*testing.T, time.Time) uuid.UUID // makes an item that comes due at a moment
	Settle    func(*testing.T, uuid.UUID)           // an operation takes the item out of the job's way
	Done      func(*testing.T, uuid.UUID) bool      // whether the job's transition has happened, as the row says
	Verify    func(*testing.T) int                  // row = fold, for all aggregates; how many rows lack a stream
}

// Promises runs the suite of one job.
func Promises[A, E any](t *testing.T, open func(t *testing.T) Job[A, E]) {
	for name, test := range map[string]func(*suite[A, E]){
		"an item is due at its moment or strictly after it, as specified":  (*suite[A, E]).moment,
		"settled items are never claimed":                                  (*suite[A, E]).onlyPolled,
		"a page takes the oldest first and the cursor goes on behind it":   (*suite[A, E]).pages,
		"a page ends at Until":                                             (*suite[A, E]).until,
		"row, event and message commit together":                           (*suite[A, E]).together,
		"a locked item is passed over, counted, and left for later":        (*suite[A, E]).locked,
		"what the rule refuses is left out and the rest commits":           (*suite[A, E]).refusedByRule,
		"what the rule finds done already is left alone":                   (*suite[A, E]).nothingHappens,
		"a refused page commits nothing and blames nobody":                 (*suite[A, E]).refusedPage,
		"a refused item alone is the one that failed":                      (*suite[A, E]).refusedAlone,
		"a row ahead of its stream gets a baseline":                        (*suite[A, E]).baseline,
		"the backlog counts locked items and the hour that follows":        (*suite[A, E]).backlog,
		"a held item is left out until its moment and is no locked one":    (*suite[A, E]).quarantined,
		"a success takes an item off the record":                           (*suite[A, E]).recovered,
		"an item that others settled is taken off the record":              (*suite[A, E]).settled,
		"a retry lets the next tick take a held item":                      (*suite[A, E]).retried,
		"a unit whose connection is cut commits nothing and blames nobody": (*suite[A, E]).cut,
		"a preview foresees what a transition then does":                   (*suite[A, E]).foreseesATransition,
		"a preview shows what is locked and leaves no lock":                (*suite[A, E]).foreseesLocks,
		"a preview shows what would fail and what would not change":        (*suite[A, E]).foreseesFailures,
		"a preview shows what is held back and when it is tried again":     (*suite[A, E]).foreseesTheQuarantine,
		"a cancelled context commits nothing":                              (*suite[A, E]).cancelled,
	} {
		t.Run(name, func(t *testing.T) {
			s := &suite[A, E]{T: t, Job: open(t)}
			var previews bool
			if s.preview, previews = s.Due.(ports.Preview[A, E]); !previews {
				t.Fatal("the store shows no preview of what it would do")
			}
			test(s)
			s.sound()
		})
	}
}

type suite[A, E any] struct {
	*testing.T
	Job[A, E]
	preview ports.Preview[A, E]
}

// register makes an item that comes due some time after (or before) Noon.
func (s *suite[A, E]) register(after time.Duration) uuid.UUID {
	s.Helper()
	return s.Make(s.T, Noon.Add(after))
}

func (s *suite[A, E]) claim(limit int) ports.Claim {
	return ports.Claim{AsOf: Noon, Limit: limit, Run: ports.NewRunID()}
}

func (s *suite[A, E]) transition(claim ports.Claim) ports.Outcome[A, E] {
	s.Helper()
	outcome, err := s.Due.Transition(s.Context(), claim, s.Rule)
	if err != nil {
		s.Fatal(err)
	}
	return outcome
}

// settles claims again for as long as something is locked: a server takes a moment to let go of what
// a connection held that is gone. A lock that stays is seen in the outcome.
func (s *suite[A, E]) settles(claim ports.Claim) ports.Outcome[A, E] {
	s.Helper()
	outcome := s.transition(claim)
	for end := time.Now().Add(10 * time.Second); outcome.SkippedLocked > 0 && len(outcome.Applied) == 0 && time.Now().Before(end); {
		outcome = s.transition(claim)
	}
	return outcome
}

func (s *suite[A, E]) wantApplied(outcome ports.Outcome[A, E], want ...uuid.UUID) {
	s.Helper()
	var got []uuid.UUID
	for _, a := range outcome.Applied {
		got = append(got, s.Item(a.After))
	}
	if !slices.Equal(got, want) {
		s.Errorf("applied to %v; want %v", got, want)
	}
	for _, id := range want {
		if !s.Done(s.T, id) {
			s.Errorf("item %s is said to be done, and its row is not", id)
		}
	}
}

// sound checks that every row is the fold of its stream.
func (s *suite[A, E]) sound() {
	s.Helper()
	s.Verify(s.T)
}

// decideOn replaces the rule's decision on one item.
func (s *suite[A, E]) decideOn(id uuid.UUID, decide func(A, time.Time) ([]E, error)) ports.Rule[A, E] {
	rule := s.Rule
	rule.Decide = func(item A, at time.Time) ([]E, error) {
		if s.Item(item) == id {
			return decide(item, at)
		}
		return s.Rule.Decide(item, at)
	}
	return rule
}

func (s *suite[A, E]) moment() {
	exactly := s.register(0)
	s.register(time.Microsecond)
	due := s.register(-time.Microsecond)
	want := []uuid.UUID{due}
	if s.Inclusive {
		want = append(want, exactly)
	}
	s.wantApplied(s.transition(s.claim(10)), want...)
}

func (s *suite[A, E]) onlyPolled() {
	settled := s.register(-time.Hour)
	s.Settle(s.T, settled)
	due := s.register(-time.Hour)
	s.wantApplied(s.transition(s.claim(10)), due)
	if again := s.transition(s.claim(10)); again.Claimed != 0 {
		s.Errorf("claimed %d items that are settled", again.Claimed)
	}
}

func (s *suite[A, E]) pages() {
	third, first, second := s.register(-time.Minute), s.register(-3*time.Minute), s.register(-2*time.Minute)
	claim := s.claim(2)
	page := s.transition(claim)
	s.wantApplied(page, first, second)
	if page.Claimed != 2 {
		s.Errorf("claimed %d; want 2", page.Claimed)
	}
	late := s.register(-time.Hour) // behind the cursor: it waits for the next tick
	if backlog, err := s.Due.Backlog(s.Context(), Noon, page.Next); err != nil || backlog.Due != 1 {
		s.Errorf("backlog behind the page %+v, %v; want 1 due", backlog, err)
	}
	claim.After = page.Next
	page = s.transition(claim)
	s.wantApplied(page, third)
	claim.After = page.Next
	if page = s.transition(claim); page.Claimed != 0 {
		s.Errorf("claimed %d items behind the last one; want none", page.Claimed)
	}
	s.wantApplied(s.transition(s.claim(2)), late)
}

func (s *suite[A, E]) until() {
	first, second := s.register(-3*time.Minute), s.register(-2*time.Minute)
	s.register(-time.Minute)
	claim := s.claim(10)
	claim.Until = ports.Cursor{Due: Noon.Add(-2 * time.Minute), ID: second}
	s.wantApplied(s.transition(claim), first, second)
}

func (s *suite[A, E]) together() {
	id := s.register(-time.Minute)
	before := s.Messages()
	outcome := s.transition(s.claim(10))
	s.wantApplied(outcome, id)
	announced, err := s.Rule.Announce(outcome.Applied[0].After, outcome.Applied[0].Events)
	if err != nil {
		s.Fatal(err)
	}
	var want []uuid.UUID
	for _, m := range announced {
		want = append(want, m.ID)
	}
	if got := s.Messages()[len(before):]; len(want) == 0 || !slices.Equal(got, want) {
		s.Errorf("messages %v; want exactly %v", got, want)
	}
}

func (s *suite[A, E]) locked() {
	locked, free := s.register(-2*time.Minute), s.register(-time.Minute)
	release := s.Lock(locked)
	claim := s.claim(2)
	outcome := s.transition(claim)
	s.wantApplied(outcome, free)
	claim.After = outcome.Next
	if empty := s.transition(claim); outcome.SkippedLocked != 1 || empty.SkippedLocked != 0 {
		s.Errorf("skipped %d locked items, then %d; want one, once", outcome.SkippedLocked, empty.SkippedLocked)
	}
	second := s.register(-3 * time.Minute)
	if outcome := s.transition(s.claim(1)); outcome.SkippedLocked != 0 || len(outcome.Applied) != 1 {
		s.Errorf("outcome %+v; want %s alone: the locked one lies behind it", outcome, second)
	}
	release()
	s.wantApplied(s.transition(s.claim(10)), locked)
}

func (s *suite[A, E]) refusedByRule() {
	poison, sound := s.register(-2*time.Minute), s.register(-time.Minute)
	refusal := errors.New("poison")
	rule := s.decideOn(poison, func(A, time.Time) ([]E, error) { return nil, refusal })
	outcome, err := s.Due.Transition(s.Context(), s.claim(10), rule)
	if err != nil {
		s.Fatal(err)
	}
	s.wantApplied(outcome, sound)
	s.wantFailed(outcome, poison, refusal)
	if outcome.Claimed != 2 {
		s.Errorf("claimed %d; want 2", outcome.Claimed)
	}
}

func (s *suite[A, E]) wantFailed(outcome ports.Outcome[A, E], id uuid.UUID, why error) {
	s.Helper()
	if len(outcome.Failed) != 1 || outcome.Failed[0].Item != id || outcome.Failed[0].Tenant.IsZero() {
		s.Fatalf("failed %+v; want item %s alone, with its tenant", outcome.Failed, id)
	}
	if why != nil && !errors.Is(outcome.Failed[0].Err, why) {
		s.Errorf("failed with %v; want %v", outcome.Failed[0].Err, why)
	}
}

func (s *suite[A, E]) nothingHappens() {
	id := s.register(-time.Minute)
	before := s.Messages()
	rule := s.decideOn(id, func(A, time.Time) ([]E, error) { return nil, nil })
	outcome, err := s.Due.Transition(s.Context(), s.claim(10), rule)
	if err != nil || outcome.Claimed != 1 || len(outcome.Applied)+len(outcome.Failed) > 0 {
		s.Errorf("outcome %+v, %v; want 1 claimed and nothing else", outcome, err)
	}
	if got := s.Messages(); len(got) != len(before) {
		s.Errorf("messages %v about nothing", got)
	}
}

func (s *suite[A, E]) refusedPage() {
	s.register(-3 * time.Minute)
	poison := s.register(-2 * time.Minute)
	last := s.register(-time.Minute)
	s.Refuse(poison)
	before := s.Messages()
	outcome, err := s.Due.Transition(s.Context(), s.claim(3), s.Rule)
	refused := (*ports.RefusedError)(nil)
	if !errors.As(err, &refused) || refused.Items != 3 {
		s.Fatalf("error %v; want a RefusedError of 3 items", err)
	}
	want := ports.Cursor{Due: Noon.Add(-time.Minute), ID: last}
	if outcome.Claimed != 3 || outcome.Next.ID != want.ID || !outcome.Next.Due.Equal(want.Due) {
		s.Errorf("claimed %d, next %v; want 3, %v", outcome.Claimed, outcome.Next, want)
	}
	if len(outcome.Applied)+len(outcome.Failed) > 0 || len(s.Messages()) != len(before) {
		s.Errorf("something was committed or blamed: %+v, messages %v", outcome, s.Messages())
	}
}

func (s *suite[A, E]) refusedAlone() {
	poison := s.register(-2 * time.Minute)
	s.register(-time.Minute)
	s.Refuse(poison)
	before := s.Messages()
	outcome := s.transition(s.claim(1))
	s.wantApplied(outcome)
	s.wantFailed(outcome, poison, nil)
	if s.Done(s.T, poison) || len(s.Messages()) != len(before) {
		s.Error("a refused item was written all the same")
	}
}

func (s *suite[A, E]) baseline() {
	id := s.register(-time.Minute)
	s.Forget()
	before := s.Verify(s.T)
	if before == 0 {
		s.Fatal("no row lacks its stream")
	}
	s.wantApplied(s.transition(s.claim(10)), id)
	if after := s.Verify(s.T); after >= before {
		s.Errorf("%d rows lacked a stream, and %d do: the item's got no baseline", before, after)
	}
}

func (s *suite[A, E]) backlog() {
	if backlog, err := s.Due.Backlog(s.Context(), Noon, ports.Cursor{}); err != nil || backlog != (ports.Backlog{}) {
		s.Errorf("backlog of nothing: %+v, %v", backlog, err)
	}
	locked := s.register(-2 * time.Minute)
	s.register(-time.Minute)
	s.register(0)
	s.register(time.Hour - time.Microsecond)
	s.register(time.Hour)
	defer s.Lock(locked)()
	backlog, err := s.Due.Backlog(s.Context(), Noon, ports.Cursor{})
	if err != nil {
		s.Fatal(err)
	}
	due := 2 // and in the next hour, the end of which is due as its beginning is
	if s.Inclusive {
		due = 3
	}
	if backlog.Due != due || backlog.NextHour != 2 || !backlog.Oldest.Equal(Noon.Add(-2*time.Minute)) {
		s.Errorf("backlog %+v; want %d due, the oldest since 11:58, 2 in the next hour", backlog, due)
	}
}

func (s *suite[A, E]) cancelled() {
	id := s.register(-time.Minute)
	before := len(s.Messages())
	ctx, cancel := context.WithCancel(s.Context())
	rule := s.decideOn(id, func(item A, at time.Time) ([]E, error) {
		cancel() // in the middle of the unit
		return s.Rule.Decide(item, at)
	})
	outcome, err := s.Due.Transition(ctx, s.claim(10), rule)
	if s.Done(s.T, id) {
		// A store without I/O may finish the unit in hand: then as a whole.
		if err != nil || len(outcome.Applied) != 1 || len(s.Messages()) == before {
			s.Errorf("half done: %+v, %v, messages %v", outcome, err, s.Messages())
		}
		return
	}
	if !errors.Is(err, context.Canceled) || len(outcome.Applied) > 0 || len(s.Messages()) != before {
		s.Errorf("outcome %+v, error %v, messages %v; want the unit rolled back", outcome, err, s.Messages())
	}
	s.wantApplied(s.settles(s.claim(10)), id)
}

// fail makes a item fail once more, and holds it until a moment after (or before) Noon.
func (s *suite[A, E]) fail(id uuid.UUID, until time.Duration) ports.Failure {
	s.Helper()
	s.Refuse(id)
	defer s.Accept(id)
	outcome := s.transition(s.claim(1))
	s.wantFailed(outcome, id, nil)
	held := ports.Held{Failure: outcome.Failed[0], NextAttempt: Noon.Add(until)}
	if err := s.Due.Hold(s.Context(), Noon, []ports.Held{held}); err != nil {
		s.Fatal(err)
	}
	return outcome.Failed[0]
}

func (s *suite[A, E]) record() []ports.Quarantined {
	s.Helper()
	list, err := s.Quarantine.List(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	return list
}

func (s *suite[A, E]) quarantined() {
	poison := s.register(-2 * time.Minute)
	for streak := range 3 {
		if f := s.fail(poison, 0); f.Streak != streak+1 {
			s.Errorf("failure %d in a row is told as %d", streak+1, f.Streak)
		}
	}
	s.fail(poison, time.Microsecond)
	sound := s.register(-time.Minute)
	outcome := s.transition(s.claim(1))
	s.wantApplied(outcome, sound)
	if outcome.SkippedLocked != 0 {
		s.Errorf("skipped %d locked items; want none: the poison is held, not locked", outcome.SkippedLocked)
	}
	backlog, err := s.Due.Backlog(s.Context(), Noon, ports.Cursor{})
	if err != nil || backlog.Due != 1 || backlog.Held != 1 {
		s.Errorf("backlog %+v, %v; want the poison due and held", backlog, err)
	}
	list := s.record()
	if len(list) != 1 || list[0].Item != poison || list[0].Job != s.Name || list[0].Streak != 4 ||
		list[0].Tenant.IsZero() || list[0].FirstError == "" || list[0].LastError == "" ||
		!list[0].FirstFailedAt.Equal(Noon) || !list[0].LastFailedAt.Equal(Noon) || !list[0].NextAttempt.Equal(Noon.Add(time.Microsecond)) {
		s.Errorf("record %+v; want the poison with its 4 failures", list)
	}
	later := s.claim(1)
	later.AsOf = Noon.Add(time.Microsecond)
	s.wantApplied(s.transition(later), poison)
}

func (s *suite[A, E]) recovered() {
	id := s.register(-time.Minute)
	s.fail(id, 0)
	s.wantApplied(s.transition(s.claim(1)), id)
	if list := s.record(); len(list) > 0 {
		s.Errorf("record %+v after a success", list)
	}
}

func (s *suite[A, E]) settled() {
	archived, still := s.register(-2*time.Minute), s.register(-time.Minute)
	s.fail(archived, time.Hour)
	s.fail(still, time.Hour)
	s.Settle(s.T, archived)
	if outcome := s.transition(s.claim(1)); outcome.Claimed != 0 {
		s.Fatalf("claimed %d; want the drain's last, empty claim", outcome.Claimed)
	}
	if list := s.record(); len(list) != 1 || list[0].Item != still {
		s.Errorf("record %+v; want the item that is still due", list)
	}
}

func (s *suite[A, E]) retried() {
	id := s.register(-time.Minute)
	s.fail(id, time.Hour)
	if err := s.Quarantine.Retry(s.Context(), id, Noon); err != nil {
		s.Fatal(err)
	}
	s.wantApplied(s.transition(s.claim(1)), id)
	if err := s.Quarantine.Retry(s.Context(), id, Noon); !errors.Is(err, ports.ErrNotQuarantined) {
		s.Errorf("error %v; want ErrNotQuarantined", err)
	}
}

func (s *suite[A, E]) cut() {
	first, second := s.register(-2*time.Minute), s.register(-time.Minute)
	before := len(s.Messages())
	rule := s.decideOn(second, func(item A, at time.Time) ([]E, error) {
		s.Cut()
		return s.Rule.Decide(item, at)
	})
	outcome, err := s.Due.Transition(s.Context(), s.claim(2), rule)
	if refused := (*ports.RefusedError)(nil); err == nil || errors.As(err, &refused) {
		s.Fatalf("outcome %+v, error %v; want an infrastructure fault", outcome, err)
	}
	if outcome.Claimed != 2 || outcome.Next.ID != second || len(outcome.Applied)+len(outcome.Failed) > 0 || len(s.Messages()) != before {
		s.Errorf("outcome %+v, messages %v; want where the page ended, and nothing else", outcome, s.Messages())
	}
	s.wantApplied(s.settles(s.claim(2)), first, second)
}
