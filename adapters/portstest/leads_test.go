package portstest_test

import (
	"context"
	"errors"
	"iter"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/adapters/memory"
	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/ports"
)

type (
	rule    = ports.Rule[crm.Lead, crm.Event]
	outcome = ports.Outcome[crm.Lead, crm.Event]
	entry   = ports.Entry[crm.Lead, crm.Event]
)

// broken is a sound store of which one method is replaced.
type broken struct {
	memory.CRM
	transition func(ctx context.Context, sound memory.CRM, claim ports.Claim, r rule) (outcome, error)
	hold       func(ctx context.Context, sound memory.CRM, at time.Time, held []ports.Held) error
	backlog    func(ports.Backlog) ports.Backlog
	change     func(ctx context.Context, sound memory.CRM, c ports.Command[crm.LeadID], r rule) (ports.Transitioned[crm.Lead, crm.Event], error)
	stream     func([]eventsourcing.Recorded[crm.Event]) []eventsourcing.Recorded[crm.Event]
	lock       func(uuid.UUID) func()
	peek       func(sound memory.CRM, p *ports.Peeked[crm.Lead, crm.Event])
	held       func([]ports.HeldBack) []ports.HeldBack
}

func (b broken) Transition(ctx context.Context, claim ports.Claim, r rule) (outcome, error) {
	if b.transition != nil {
		return b.transition(ctx, b.CRM, claim, r)
	}
	return b.Due.Transition(ctx, claim, r)
}

func (b broken) Hold(ctx context.Context, at time.Time, held []ports.Held) error {
	if b.hold != nil {
		return b.hold(ctx, b.CRM, at, held)
	}
	return b.Due.Hold(ctx, at, held)
}

func (b broken) Backlog(ctx context.Context, asOf time.Time, after ports.Cursor) (ports.Backlog, error) {
	backlog, err := b.Due.Backlog(ctx, asOf, after)
	if b.backlog != nil {
		backlog = b.backlog(backlog)
	}
	return backlog, err
}

func (b broken) Peek(ctx context.Context, claim ports.Claim, r rule) (ports.Peeked[crm.Lead, crm.Event], error) {
	p, err := b.Preview.Peek(ctx, claim, r)
	if b.peek != nil {
		b.peek(b.CRM, &p)
	}
	return p, err
}

func (b broken) Held(ctx context.Context, claim ports.Claim) ([]ports.HeldBack, error) {
	held, err := b.Preview.Held(ctx, claim)
	if b.held != nil {
		held = b.held(held)
	}
	return held, err
}

func (b broken) Change(ctx context.Context, c ports.Command[crm.LeadID], r rule) (ports.Transitioned[crm.Lead, crm.Event], error) {
	if b.change != nil {
		return b.change(ctx, b.CRM, c, r)
	}
	return b.Leads.Change(ctx, c, r)
}

func (b broken) Entries(ctx context.Context, since time.Time) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		for e, err := range b.Ledger.Entries(ctx, since) {
			if b.stream != nil {
				e.Stream = b.stream(e.Stream)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// after runs the sound Transition and then spoils its outcome.
func after(spoil func(*outcome)) broken {
	return broken{transition: func(ctx context.Context, sound memory.CRM, claim ports.Claim, r rule) (outcome, error) {
		o, err := sound.Due.Transition(ctx, claim, r)
		spoil(&o)
		return o, err
	}}
}

// with spoils what the sound Transition is asked for.
func with(spoil func(*ports.Claim, *rule)) broken {
	return broken{transition: func(ctx context.Context, sound memory.CRM, claim ports.Claim, r rule) (outcome, error) {
		spoil(&claim, &r)
		return sound.Due.Transition(ctx, claim, r)
	}}
}

// without drops the events of a stream that match.
func without(drop func(crm.Event) bool) broken {
	return broken{stream: func(stream []eventsourcing.Recorded[crm.Event]) []eventsourcing.Recorded[crm.Event] {
		var kept []eventsourcing.Recorded[crm.Event]
		for _, r := range stream {
			if !drop(r.Event) {
				kept = append(kept, r)
			}
		}
		return kept
	}}
}

// foreseeing spoils each item that a sound preview has foreseen.
func foreseeing(spoil func(*ports.Foreseen[crm.Lead, crm.Event])) broken {
	return broken{peek: func(_ memory.CRM, p *ports.Peeked[crm.Lead, crm.Event]) {
		for i := range p.Items {
			spoil(&p.Items[i])
		}
	}}
}

// mutants each break one promise.
var mutants = map[string]broken{
	"none":          {},
	"ignores locks": {lock: func(uuid.UUID) func() { return func() {} }},
	"drops a message": with(func(_ *ports.Claim, r *rule) {
		r.Announce = nil
	}),
	"sends a message twice": with(func(_ *ports.Claim, r *rule) {
		announce := r.Announce
		r.Announce = func(after crm.Lead, events []crm.Event) ([]ports.Message, error) {
			m, err := announce(after, events)
			return append(m, m...), err
		}
	}),
	"writes no event":                 without(func(e crm.Event) bool { _, is := e.(crm.LeadExpired); return is }),
	"writes no baseline":              without(func(e crm.Event) bool { _, is := e.(crm.LeadImported); return is }),
	"forgets the cursor":              with(func(c *ports.Claim, _ *rule) { c.After = ports.Cursor{} }),
	"forgets Until":                   with(func(c *ports.Claim, _ *rule) { c.Until = ports.Cursor{} }),
	"forgets the limit":               with(func(c *ports.Claim, _ *rule) { c.Limit = 1000 }),
	"takes a lead at its very moment": with(func(c *ports.Claim, _ *rule) { c.AsOf = c.AsOf.Add(time.Microsecond) }),
	"does not move the cursor":        after(func(o *outcome) { o.Next = ports.Cursor{} }),
	"counts locked leads wrongly":     after(func(o *outcome) { o.SkippedLocked++ }),
	"counts what it claimed wrongly":  after(func(o *outcome) { o.Claimed = len(o.Applied) }),
	"tells of no failure":             after(func(o *outcome) { o.Failed = nil }),
	"tells a failure without its tenant": after(func(o *outcome) {
		for i := range o.Failed {
			o.Failed[i].Tenant = [16]byte{}
		}
	}),
	"counts a streak wrongly": after(func(o *outcome) {
		for i := range o.Failed {
			o.Failed[i].Streak = 1
		}
	}),
	"commits part of a refused page": {transition: func(ctx context.Context, sound memory.CRM, claim ports.Claim, r rule) (outcome, error) {
		o, err := sound.Due.Transition(ctx, claim, r)
		if refused := (*ports.RefusedError)(nil); errors.As(err, &refused) {
			claim.Limit = 1
			sound.Due.Transition(ctx, claim, r) //nolint:errcheck // a mutant
		}
		return o, err
	}},
	"blames the first of a refused page": {transition: func(ctx context.Context, sound memory.CRM, claim ports.Claim, r rule) (outcome, error) {
		o, err := sound.Due.Transition(ctx, claim, r)
		if refused := (*ports.RefusedError)(nil); errors.As(err, &refused) {
			o.Failed = []ports.Failure{{Err: err}}
			return o, nil
		}
		return o, err
	}},
	"takes a cut for a success": {transition: func(ctx context.Context, sound memory.CRM, claim ports.Claim, r rule) (outcome, error) {
		o, err := sound.Due.Transition(ctx, claim, r)
		if errors.Is(err, memory.ErrCut) {
			return o, nil
		}
		return o, err
	}},
	"loses its place at a cut": {transition: func(ctx context.Context, sound memory.CRM, claim ports.Claim, r rule) (outcome, error) {
		o, err := sound.Due.Transition(ctx, claim, r)
		if err != nil {
			return outcome{}, err
		}
		return o, nil
	}},
	"holds nothing back": {hold: func(context.Context, memory.CRM, time.Time, []ports.Held) error { return nil }},
	"never forgets a failure": {transition: func(ctx context.Context, sound memory.CRM, claim ports.Claim, r rule) (outcome, error) {
		list, err := sound.List(ctx)
		if err != nil {
			return outcome{}, err
		}
		o, err := sound.Due.Transition(ctx, claim, r)
		for _, q := range list {
			again := ports.Held{Failure: ports.Failure{Item: q.Item, Tenant: q.Tenant, Err: errors.New(q.LastError), Streak: q.Streak}, NextAttempt: q.NextAttempt}
			if err := sound.Due.Hold(ctx, q.LastFailedAt, []ports.Held{again}); err != nil {
				return o, err
			}
		}
		return o, err
	}},
	"leaves locked leads out of the backlog": {backlog: func(b ports.Backlog) ports.Backlog { b.Due = max(0, b.Due-1); return b }},
	"tells nothing of what is held":          {backlog: func(b ports.Backlog) ports.Backlog { b.Held = 0; return b }},
	"foresees no locks":                      foreseeing(func(f *ports.Foreseen[crm.Lead, crm.Event]) { f.Locked = false }),
	"foresees no messages":                   foreseeing(func(f *ports.Foreseen[crm.Lead, crm.Event]) { f.Messages = nil }),
	"foresees no failures":                   foreseeing(func(f *ports.Foreseen[crm.Lead, crm.Event]) { f.Err = nil }),
	"foresees a streak wrongly":              foreseeing(func(f *ports.Foreseen[crm.Lead, crm.Event]) { f.Streak = 1 }),
	"foresees no more than a page": {peek: func(_ memory.CRM, p *ports.Peeked[crm.Lead, crm.Event]) {
		p.Full = false
	}},
	"does what it only foresees": {peek: func(sound memory.CRM, p *ports.Peeked[crm.Lead, crm.Event]) {
		for _, item := range p.Items {
			command := ports.Command[crm.LeadID]{ID: crm.LeadID(item.Item), At: portstest.Noon, Run: ports.NewRunID()}
			soon, cancel := context.WithTimeout(context.Background(), time.Second)
			sound.Leads.Change(soon, command, rule{Decide: crm.Lead.Expire}) //nolint:errcheck // a mutant
			cancel()
		}
	}},
	"foresees what is held back as free": {held: func([]ports.HeldBack) []ports.HeldBack { return nil }},
	"lets an operation past a lock": {change: func(_ context.Context, sound memory.CRM, c ports.Command[crm.LeadID], r rule) (ports.Transitioned[crm.Lead, crm.Event], error) {
		soon, cancel := context.WithTimeout(context.Background(), time.Microsecond)
		defer cancel()
		changed, err := sound.Leads.Change(soon, c, r)
		if errors.Is(err, context.DeadlineExceeded) { // it does not wait
			return ports.Transitioned[crm.Lead, crm.Event]{}, nil
		}
		return changed, err
	}},
}

const mutantEnv = "PORTSTEST_MUTANT"

// TestMutant runs the suite against the mutant that the environment names.
func TestMutant(t *testing.T) {
	name, ok := os.LookupEnv(mutantEnv)
	if !ok {
		t.Skip("run by TestLeads_CatchesEveryBrokenPromise")
	}
	portstest.Leads(t, func(*testing.T) portstest.LeadStore {
		mutant := mutants[name]
		mutant.CRM = memory.NewCRM()
		lock := mutant.Lock
		if mutant.lock != nil {
			lock = mutant.lock
		}
		return portstest.LeadStore{
			Hooks: portstest.Hooks{
				Quarantine: mutant.World, Messages: mutant.MessageIDs, Forget: mutant.Forget,
				Lock: lock, Refuse: mutant.Refuse, Accept: mutant.Accept, Cut: mutant.Cut,
			},
			Due: mutant, Leads: mutant, Ledger: mutant,
		}
	})
}

// A suite that an adapter cannot fail proves nothing: each mutant must be caught, and the sound
// store must not.
func TestLeads_CatchesEveryBrokenPromise(t *testing.T) {
	for name := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suite := exec.Command(os.Args[0], "-test.run=^TestMutant$", "-test.timeout=30s")
			suite.Env = append(os.Environ(), mutantEnv+"="+name)
			out, err := suite.CombinedOutput()
			caught := err != nil && strings.Contains(string(out), "--- FAIL: TestMutant/")
			if caught != (name != "none") {
				t.Errorf("caught: %v; %v\n%s", caught, err, out)
			}
		})
	}
}
