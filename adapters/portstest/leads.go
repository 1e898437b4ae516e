// Package portstest states what the ports promise, once, for every adapter: postgres and
// memory both run it.
package portstest

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	appcrm "github.com/pin-platform/pinworker/app/crm"
	"github.com/pin-platform/pinworker/app/verify"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/ports"
)

// LeadStore is an adapter under test, empty, with hooks to get in its way.
type LeadStore struct {
	Due        ports.DueLeads
	Leads      ports.Leads
	Ledger     ports.LeadLedger
	Quarantine ports.Quarantine
	Messages   func() []uuid.UUID      // ids of the messages committed, in order
	Import     func(crm.Lead)          // writes a row without a stream
	Lock       func(crm.LeadID) func() // locks a lead as an operation in flight does, until released
	Refuse     func(crm.LeadID)        // has every write to a lead refused
	Accept     func(crm.LeadID)        // takes Refuse back
	Cut        func()                  // cuts the connection of the unit that is under way
}

// Noon is the moment about which the suite's leads expire.
var Noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// NewID returns a fresh id of any kind.
func NewID[Of any]() ids.ID[Of] { return ids.ID[Of](uuid.Must(uuid.NewV7())) }

// Registration returns a lead to register that expires at a moment.
func Registration(expiresAt time.Time) crm.Registration {
	return crm.Registration{
		Lead:      NewID[crm.Lead](),
		Tenant:    ids.TenantID(uuid.New()),
		Executor:  ids.UserID(uuid.New()),
		Investor:  ids.UserID(uuid.New()),
		ExpiresAt: expiresAt,
	}
}

// Leads runs the suite; open returns a store of the test's own.
func Leads(t *testing.T, open func(t *testing.T) LeadStore) {
	for name, test := range map[string]func(*leadSuite){
		"a lead is due only strictly after its moment":                     (*leadSuite).strictlyAfter,
		"leads that are not active are never claimed":                      (*leadSuite).onlyActive,
		"a page takes the oldest first and the cursor goes on behind it":   (*leadSuite).pages,
		"a page ends at Until":                                             (*leadSuite).until,
		"row, event and message commit together":                           (*leadSuite).together,
		"a locked lead is passed over, counted, and left for later":        (*leadSuite).locked,
		"what the rule refuses is left out and the rest commits":           (*leadSuite).refusedByRule,
		"what the rule finds done already is left alone":                   (*leadSuite).nothingHappens,
		"a refused page commits nothing and blames nobody":                 (*leadSuite).refusedPage,
		"a refused lead alone is the one that failed":                      (*leadSuite).refusedAlone,
		"a row ahead of its stream gets a baseline":                        (*leadSuite).baseline,
		"the backlog counts locked leads and the hour that follows":        (*leadSuite).backlog,
		"a held lead is left out until its moment and is no locked one":    (*leadSuite).quarantined,
		"a success takes a lead off the record":                            (*leadSuite).recovered,
		"a lead that others settled is taken off the record":               (*leadSuite).settled,
		"a retry lets the next tick take a held lead":                      (*leadSuite).retried,
		"an operation waits for a locked lead":                             (*leadSuite).operationWaits,
		"a moment finer than a microsecond is stored as one":               (*leadSuite).microseconds,
		"an operation that is refused changes nothing":                     (*leadSuite).operationRefused,
		"a unit whose connection is cut commits nothing and blames nobody": (*leadSuite).cut,
		"a cancelled context commits nothing":                              (*leadSuite).cancelled,
	} {
		t.Run(name, func(t *testing.T) {
			test(&leadSuite{T: t, LeadStore: open(t)})
		})
	}
}

type leadSuite struct {
	*testing.T
	LeadStore
}

// register makes a lead that expires some time after (or before) Noon.
func (s *leadSuite) register(after time.Duration) crm.LeadID {
	s.Helper()
	r := Registration(Noon.Add(after))
	operations := appcrm.Operations{Leads: s.Leads, Clock: func() time.Time { return Noon.AddDate(0, -1, 0) }}
	if err := operations.Register(s.Context(), ports.System, r); err != nil {
		s.Fatal(err)
	}
	return r.Lead
}

func (s *leadSuite) operate() appcrm.Operations {
	return appcrm.Operations{Leads: s.Leads, Clock: func() time.Time { return Noon }}
}

func (s *leadSuite) claim(limit int) ports.Claim {
	return ports.Claim{AsOf: Noon, Limit: limit, Run: ports.NewRunID()}
}

func (s *leadSuite) transition(claim ports.Claim) ports.Outcome[crm.Lead, crm.Event] {
	s.Helper()
	outcome, err := s.Due.Transition(s.Context(), claim, appcrm.Expire)
	if err != nil {
		s.Fatal(err)
	}
	return outcome
}

func applied(outcome ports.Outcome[crm.Lead, crm.Event]) []crm.LeadID {
	var leads []crm.LeadID
	for _, a := range outcome.Applied {
		leads = append(leads, a.After.ID())
	}
	return leads
}

func (s *leadSuite) wantApplied(outcome ports.Outcome[crm.Lead, crm.Event], want ...crm.LeadID) {
	s.Helper()
	if got := applied(outcome); !slices.Equal(got, want) {
		s.Errorf("applied to %v; want %v", got, want)
	}
}

// entry returns a lead as the ledger has it.
func (s *leadSuite) entry(id crm.LeadID) ports.Entry[crm.Lead, crm.Event] {
	s.Helper()
	for entry, err := range s.Ledger.Entries(s.Context(), time.Time{}) {
		if err != nil {
			s.Fatal(err)
		}
		if entry.ID == uuid.UUID(id) {
			return entry
		}
	}
	s.Fatalf("the ledger has no lead %s", id)
	panic("unreachable")
}

// sound checks that every row is the fold of its stream.
func (s *leadSuite) sound() {
	s.Helper()
	_, err := verify.Run(s.Context(), s.Ledger, time.Time{}, func(f verify.Finding) {
		s.Errorf("lead %s: %s", f.ID, f.What)
	})
	if err != nil {
		s.Error(err)
	}
}

func (s *leadSuite) strictlyAfter() {
	s.register(0) // at the very moment
	s.register(time.Microsecond)
	due := s.register(-time.Microsecond)
	s.wantApplied(s.transition(s.claim(10)), due)
	s.sound()
}

func (s *leadSuite) onlyActive() {
	archived := s.register(-time.Hour)
	if err := s.operate().Archive(s.Context(), "agent", archived); err != nil {
		s.Fatal(err)
	}
	expired := s.register(-time.Hour)
	s.wantApplied(s.transition(s.claim(10)), expired)
	if again := s.transition(s.claim(10)); again.Claimed != 0 {
		s.Errorf("claimed %d leads that are not active", again.Claimed)
	}
}

func (s *leadSuite) pages() {
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
		s.Errorf("claimed %d leads behind the last one; want none", page.Claimed)
	}
	s.wantApplied(s.transition(s.claim(2)), late)
}

func (s *leadSuite) until() {
	first, second := s.register(-3*time.Minute), s.register(-2*time.Minute)
	s.register(-time.Minute)
	claim := s.claim(10)
	claim.Until = ports.Cursor{Due: Noon.Add(-2 * time.Minute), ID: uuid.UUID(second)}
	s.wantApplied(s.transition(claim), first, second)
}

func (s *leadSuite) together() {
	id := s.register(-time.Minute)
	outcome := s.transition(s.claim(10))
	s.wantApplied(outcome, id)
	entry := s.entry(id)
	row := entry.Row.Snapshot()
	if row.Status != crm.Expired || !row.ExpiredAt.Equal(Noon) || !row.UpdatedAt.Equal(Noon) || row.Version != 2 {
		s.Errorf("row %+v; want Expired at noon, version 2", row)
	}
	if last := entry.Stream[len(entry.Stream)-1]; last.Version != 2 || last.Event != (crm.LeadExpired{Lead: id, At: Noon}) {
		s.Errorf("the stream ends with %+v", last)
	}
	announced, err := appcrm.Expire.Announce(entry.Row, nil)
	if err != nil {
		s.Fatal(err)
	}
	if got := s.Messages(); !slices.Equal(got, []uuid.UUID{announced[0].ID}) {
		s.Errorf("messages %v; want exactly %v", got, announced[0].ID)
	}
	s.sound()
}

func (s *leadSuite) locked() {
	locked, free := s.register(-2*time.Minute), s.register(-time.Minute)
	release := s.Lock(locked)
	claim := s.claim(2)
	outcome := s.transition(claim)
	s.wantApplied(outcome, free)
	claim.After = outcome.Next
	if empty := s.transition(claim); outcome.SkippedLocked != 1 || empty.SkippedLocked != 0 {
		s.Errorf("skipped %d locked leads, then %d; want one, once", outcome.SkippedLocked, empty.SkippedLocked)
	}
	second := s.register(-3 * time.Minute)
	if outcome := s.transition(s.claim(1)); outcome.SkippedLocked != 0 || len(outcome.Applied) != 1 {
		s.Errorf("outcome %+v; want %s alone: the locked one lies behind it", outcome, second)
	}
	release()
	s.wantApplied(s.transition(s.claim(10)), locked)
}

func (s *leadSuite) refusedByRule() {
	poison, sound := s.register(-2*time.Minute), s.register(-time.Minute)
	rule := appcrm.Expire
	refusal := errors.New("poison")
	rule.Decide = func(l crm.Lead, at time.Time) ([]crm.Event, error) {
		if l.ID() == poison {
			return nil, refusal
		}
		return l.Expire(at)
	}
	outcome, err := s.Due.Transition(s.Context(), s.claim(10), rule)
	if err != nil {
		s.Fatal(err)
	}
	s.wantApplied(outcome, sound)
	s.wantFailed(outcome, poison, refusal)
	if outcome.Claimed != 2 {
		s.Errorf("claimed %d; want 2", outcome.Claimed)
	}
	s.sound()
}

func (s *leadSuite) wantFailed(outcome ports.Outcome[crm.Lead, crm.Event], id crm.LeadID, why error) {
	s.Helper()
	if len(outcome.Failed) != 1 || outcome.Failed[0].Item != uuid.UUID(id) ||
		outcome.Failed[0].Tenant != s.entry(id).Row.Snapshot().TenantID {
		s.Fatalf("failed %+v; want lead %s alone, with its tenant", outcome.Failed, id)
	}
	if why != nil && !errors.Is(outcome.Failed[0].Err, why) {
		s.Errorf("failed with %v; want %v", outcome.Failed[0].Err, why)
	}
}

func (s *leadSuite) nothingHappens() {
	s.register(-time.Minute)
	rule := appcrm.Expire
	rule.Decide = func(crm.Lead, time.Time) ([]crm.Event, error) { return nil, nil }
	outcome, err := s.Due.Transition(s.Context(), s.claim(10), rule)
	if err != nil || outcome.Claimed != 1 || len(outcome.Applied)+len(outcome.Failed) > 0 {
		s.Errorf("outcome %+v, %v; want 1 claimed and nothing else", outcome, err)
	}
	if got := s.Messages(); len(got) > 0 {
		s.Errorf("messages %v about nothing", got)
	}
}

func (s *leadSuite) refusedPage() {
	s.register(-3 * time.Minute)
	poison := s.register(-2 * time.Minute)
	last := s.register(-time.Minute)
	s.Refuse(poison)
	outcome, err := s.Due.Transition(s.Context(), s.claim(3), appcrm.Expire)
	refused := (*ports.RefusedError)(nil)
	if !errors.As(err, &refused) || refused.Items != 3 {
		s.Fatalf("error %v; want a RefusedError of 3 items", err)
	}
	want := ports.Cursor{Due: Noon.Add(-time.Minute), ID: uuid.UUID(last)}
	if outcome.Claimed != 3 || outcome.Next.ID != want.ID || !outcome.Next.Due.Equal(want.Due) {
		s.Errorf("claimed %d, next %v; want 3, %v", outcome.Claimed, outcome.Next, want)
	}
	if len(outcome.Applied)+len(outcome.Failed)+len(s.Messages()) > 0 {
		s.Errorf("something was committed or blamed: %+v, messages %v", outcome, s.Messages())
	}
	s.sound()
}

func (s *leadSuite) refusedAlone() {
	poison := s.register(-2 * time.Minute)
	s.register(-time.Minute)
	s.Refuse(poison)
	outcome := s.transition(s.claim(1))
	s.wantApplied(outcome)
	s.wantFailed(outcome, poison, nil)
	if s.entry(poison).Row.Snapshot().Status != crm.Active || len(s.Messages()) > 0 {
		s.Error("a refused lead was written all the same")
	}
}

func (s *leadSuite) baseline() {
	r := Registration(Noon.Add(-time.Minute))
	imported, err := crm.Restore(crm.Snapshot{
		ID: r.Lead, TenantID: r.Tenant, ExecutorAgentUserID: r.Executor, PrimaryInvestorUserID: r.Investor,
		Status: crm.Active, ExpiresAt: r.ExpiresAt, Version: 7,
		CreatedAt: Noon.AddDate(0, -1, 0), UpdatedAt: Noon.AddDate(0, 0, -1),
	})
	if err != nil {
		s.Fatal(err)
	}
	s.Import(imported)
	s.wantApplied(s.transition(s.claim(10)), r.Lead)
	stream := s.entry(r.Lead).Stream
	if len(stream) != 2 || stream[0].Version != 7 || stream[0].Event != imported.Import(Noon) || stream[1].Version != 8 {
		s.Errorf("stream %+v; want the lead as it was imported at 7, then its expiration at 8", stream)
	}
	s.sound()
}

func (s *leadSuite) backlog() {
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
	if backlog.Due != 2 || backlog.NextHour != 2 || !backlog.Oldest.Equal(Noon.Add(-2*time.Minute)) {
		s.Errorf("backlog %+v; want 2 due, the oldest since 11:58, 2 in the next hour", backlog)
	}
}

func (s *leadSuite) operationWaits() {
	id := s.register(-time.Minute)
	release := s.Lock(id)
	ctx, cancel := context.WithCancel(s.Context())
	extended := make(chan error, 1)
	go func() { extended <- s.operate().Extend(ctx, "agent", id, Noon.AddDate(0, 1, 0)) }()
	for range 50 {
		s.wantApplied(s.transition(s.claim(10))) // the job passes over what the operation waits for
		if status := s.entry(id).Row; status.Version() != 1 {
			s.Fatal("the operation did not wait")
		}
		runtime.Gosched()
	}
	select {
	case err := <-extended:
		s.Fatalf("the operation did not wait: %v", err)
	default:
	}
	release()
	if err := <-extended; err != nil {
		s.Error(err)
	}
	cancel()
	s.wantApplied(s.transition(s.claim(10)))
	if got := s.entry(id).Row.Snapshot(); got.Status != crm.Active || !got.ExpiresAt.Equal(Noon.AddDate(0, 1, 0)) {
		s.Errorf("row %+v; want it extended", got)
	}
	s.sound()
}

func (s *leadSuite) microseconds() {
	r := Registration(Noon.Add(time.Hour + 123*time.Nanosecond))
	for range 2 { // the second time it has happened
		if err := s.operate().Register(s.Context(), "agent", r); err != nil {
			s.Error(err)
		}
		if err := s.operate().Extend(s.Context(), "agent", r.Lead, Noon.Add(2*time.Hour+123*time.Nanosecond)); err != nil {
			s.Error(err)
		}
		r.ExpiresAt = Noon.Add(2*time.Hour + 123*time.Nanosecond)
	}
	if stream := s.entry(r.Lead).Stream; len(stream) != 2 {
		s.Errorf("stream %+v; want one registration and one extension", stream)
	}
	s.sound()
}

func (s *leadSuite) operationRefused() {
	id := s.register(time.Hour)
	before := s.entry(id)
	err := s.operate().Extend(s.Context(), "agent", id, Noon)
	if refusal := (crm.NotLaterError{}); !errors.As(err, &refusal) {
		s.Errorf("error %v; want a NotLaterError", err)
	}
	if after := s.entry(id); after.Row != before.Row || len(after.Stream) != len(before.Stream) {
		s.Errorf("a refused extension changed %+v to %+v", before, after)
	}
	err = s.operate().Archive(s.Context(), "agent", NewID[crm.Lead]())
	if refusal := (crm.NotRegisteredError{}); !errors.As(err, &refusal) {
		s.Errorf("error %v; want a NotRegisteredError", err)
	}
}

func (s *leadSuite) cancelled() {
	id := s.register(-time.Minute)
	ctx, cancel := context.WithCancel(s.Context())
	rule := appcrm.Expire
	rule.Decide = func(l crm.Lead, at time.Time) ([]crm.Event, error) {
		cancel() // in the middle of the unit
		return l.Expire(at)
	}
	outcome, err := s.Due.Transition(ctx, s.claim(10), rule)
	if s.entry(id).Row.Snapshot().Status == crm.Expired {
		// A store without I/O may finish the unit in hand: then as a whole.
		if err != nil || len(outcome.Applied) != 1 || len(s.Messages()) != 1 {
			s.Errorf("half done: %+v, %v, messages %v", outcome, err, s.Messages())
		}
		return
	}
	if !errors.Is(err, context.Canceled) || len(outcome.Applied) > 0 || len(s.Messages()) > 0 {
		s.Errorf("outcome %+v, error %v, messages %v; want the unit rolled back", outcome, err, s.Messages())
	}
	s.wantApplied(s.transition(s.claim(10)), id)
}

// fail makes a lead fail once more, and holds it until a moment after (or before) Noon.
func (s *leadSuite) fail(id crm.LeadID, until time.Duration) ports.Failure {
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

func (s *leadSuite) record() []ports.Quarantined {
	s.Helper()
	list, err := s.Quarantine.List(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	return list
}

func (s *leadSuite) quarantined() {
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
		s.Errorf("skipped %d locked leads; want none: the poison is held, not locked", outcome.SkippedLocked)
	}
	backlog, err := s.Due.Backlog(s.Context(), Noon, ports.Cursor{})
	if err != nil || backlog.Due != 1 || backlog.Held != 1 {
		s.Errorf("backlog %+v, %v; want the poison due and held", backlog, err)
	}
	list := s.record()
	if len(list) != 1 || list[0].Item != uuid.UUID(poison) || list[0].Job != ports.LeadExpiration || list[0].Streak != 4 ||
		list[0].Tenant != s.entry(poison).Row.Snapshot().TenantID || list[0].FirstError == "" || list[0].LastError == "" ||
		!list[0].FirstFailedAt.Equal(Noon) || !list[0].LastFailedAt.Equal(Noon) || !list[0].NextAttempt.Equal(Noon.Add(time.Microsecond)) {
		s.Errorf("record %+v; want the poison with its 4 failures", list)
	}
	later := s.claim(1)
	later.AsOf = Noon.Add(time.Microsecond)
	s.wantApplied(s.transition(later), poison)
}

func (s *leadSuite) recovered() {
	id := s.register(-time.Minute)
	s.fail(id, 0)
	s.wantApplied(s.transition(s.claim(1)), id)
	if list := s.record(); len(list) > 0 {
		s.Errorf("record %+v after a success", list)
	}
}

func (s *leadSuite) settled() {
	archived, still := s.register(-2*time.Minute), s.register(-time.Minute)
	s.fail(archived, time.Hour)
	s.fail(still, time.Hour)
	if err := s.operate().Archive(s.Context(), "agent", archived); err != nil {
		s.Fatal(err)
	}
	if outcome := s.transition(s.claim(1)); outcome.Claimed != 0 {
		s.Fatalf("claimed %d; want the drain's last, empty claim", outcome.Claimed)
	}
	if list := s.record(); len(list) != 1 || list[0].Item != uuid.UUID(still) {
		s.Errorf("record %+v; want the lead that is still due", list)
	}
}

func (s *leadSuite) retried() {
	id := s.register(-time.Minute)
	s.fail(id, time.Hour)
	if err := s.Quarantine.Retry(s.Context(), uuid.UUID(id), Noon); err != nil {
		s.Fatal(err)
	}
	s.wantApplied(s.transition(s.claim(1)), id)
	if err := s.Quarantine.Retry(s.Context(), uuid.UUID(id), Noon); !errors.Is(err, ports.ErrNotQuarantined) {
		s.Errorf("error %v; want ErrNotQuarantined", err)
	}
}

func (s *leadSuite) cut() {
	first, second := s.register(-2*time.Minute), s.register(-time.Minute)
	rule := appcrm.Expire
	rule.Decide = func(l crm.Lead, at time.Time) ([]crm.Event, error) {
		if l.ID() == second {
			s.Cut()
		}
		return l.Expire(at)
	}
	outcome, err := s.Due.Transition(s.Context(), s.claim(2), rule)
	if refused := (*ports.RefusedError)(nil); err == nil || errors.As(err, &refused) {
		s.Fatalf("outcome %+v, error %v; want an infrastructure fault", outcome, err)
	}
	if outcome.Claimed != 2 || outcome.Next.ID != uuid.UUID(second) || len(outcome.Applied)+len(outcome.Failed)+len(s.Messages()) > 0 {
		s.Errorf("outcome %+v, messages %v; want where the page ended, and nothing else", outcome, s.Messages())
	}
	s.wantApplied(s.transition(s.claim(2)), first, second)
	s.sound()
}
