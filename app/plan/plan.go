// Package plan foresees a job's cycle: what it would do to which items and why, what it would pass
// over, and what it would publish. It only reads.
package plan

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pin-platform/pinworker/ports"
)

// Verdict is what would become of an item.
type Verdict string

// The verdicts.
const (
	Taken       Verdict = "taken"       // it would become Item.Becomes
	Unchanged   Verdict = "unchanged"   // it has happened already: nothing would be written
	Failed      Verdict = "failed"      // its own data keep it from being processed: Item.Err
	Locked      Verdict = "locked"      // somebody holds it: passed over
	Quarantined Verdict = "quarantined" // it failed again and again: left out until Record.NextAttempt
)

// Item is one item that is due, and what a cycle would make of it.
type Item struct {
	ports.Failure // ids; Err beside Failed
	Verdict       Verdict
	Due           time.Time // when it came due; zero: before all time
	Becomes       string    // its status then, in the domain's words
	Why           string    // why it would become that
	Messages      []ports.Message
	Lockers       []ports.Locker     // beside Locked, as far as found out
	InVain        bool               // they were asked for, and not found out
	Record        *ports.Quarantined // beside Quarantined

	place ports.Cursor
}

// Plan is what a cycle would do.
type Plan struct {
	Items []Item // in the job's order
	// More says that the limit ended the list: more may be due behind it.
	More bool
}

// Count returns how many items would have a fate.
func (p Plan) Count(v Verdict) (n int) {
	for _, item := range p.Items {
		if item.Verdict == v {
			n++
		}
	}
	return n
}

// Foreseer foresees one job's cycles.
type Foreseer interface {
	// Foresee returns what a cycle at a moment would do, up to the most-th item that it would take, or
	// to about as many that are locked: a table may be locked whole.
	Foresee(ctx context.Context, asOf time.Time, most int) (Plan, error)
	// One returns what it would do to the item at a place, nil where a claim would not find it there.
	One(ctx context.Context, asOf time.Time, at ports.Cursor) (*Item, error)
}

// Of returns the foreseer of a job: its preview, its rule, and what the rule makes of an item, in
// words.
func Of[A, E any](preview ports.Preview[A, E], rule ports.Rule[A, E], tell func(A) (becomes, why string)) Foreseer {
	return foreseer[A, E]{preview, rule, tell}
}

type foreseer[A, E any] struct {
	preview ports.Preview[A, E]
	rule    ports.Rule[A, E]
	tell    func(A) (becomes, why string)
}

// page is how many items are looked at at once.
const page = 500

func (f foreseer[A, E]) Foresee(ctx context.Context, asOf time.Time, most int) (Plan, error) {
	var plan Plan
	claim := ports.Claim{AsOf: asOf}
	for taken, more := 0, true; more && taken < most && plan.Count(Locked) < most; {
		claim.Limit = min(most-taken, page)
		peeked, err := f.preview.Peek(ctx, claim, f.rule)
		if err != nil {
			return plan, fmt.Errorf("plan: %w", err)
		}
		claim.After, more = peeked.Next, peeked.Full
		for _, found := range peeked.Items {
			if taken == most { // what lacks a partner comes on top of a page
				claim.After, more = plan.Items[len(plan.Items)-1].place, true
				break
			}
			item := f.item(found)
			if plan.Items = append(plan.Items, item); item.Verdict != Locked {
				taken++
			}
		}
		plan.More = more
	}
	return f.withHeld(ctx, plan, ports.Claim{AsOf: asOf, Until: claim.After, Limit: max(most, 1)})
}

// withHeld adds what a range leaves out because it is held back.
func (f foreseer[A, E]) withHeld(ctx context.Context, plan Plan, claim ports.Claim) (Plan, error) {
	most := claim.Limit
	claim.Limit++ // whether there are more
	held, err := f.preview.Held(ctx, claim)
	if err != nil {
		return plan, fmt.Errorf("plan: %w", err)
	}
	if len(held) > most {
		held, plan.More = held[:most], true
	}
	for _, h := range held {
		plan.Items = append(plan.Items, Item{
			Failure: ports.Failure{Item: h.Item, Tenant: h.Tenant, Streak: h.Streak}, Verdict: Quarantined,
			Due: Moment(h.Place), place: h.Place, Record: &h.Quarantined,
		})
	}
	slices.SortStableFunc(plan.Items, func(a, b Item) int { return a.place.Compare(b.place) })
	return plan, nil
}

func (f foreseer[A, E]) One(ctx context.Context, asOf time.Time, at ports.Cursor) (*Item, error) {
	claim := ports.Claim{AsOf: asOf, After: at.Before(), Until: at, Limit: 1}
	peeked, err := f.preview.Peek(ctx, claim, f.rule)
	if err != nil {
		return nil, fmt.Errorf("foresee one item: %w", err)
	}
	plan := Plan{}
	for _, found := range peeked.Items {
		plan.Items = append(plan.Items, f.item(found))
	}
	if plan, err = f.withHeld(ctx, plan, claim); err != nil || len(plan.Items) == 0 {
		return nil, err
	}
	return &plan.Items[0], nil
}

// item decides what would become of an item.
func (f foreseer[A, E]) item(found ports.Foreseen[A, E]) Item {
	item := Item{Failure: found.Failure, Verdict: Taken, Due: Moment(found.Place), place: found.Place, Lockers: found.Lockers, InVain: found.InVain}
	switch {
	case found.Locked:
		item.Verdict = Locked
	case found.Err != nil:
		item.Verdict = Failed
	case len(found.Events) == 0:
		item.Verdict = Unchanged
	default:
		item.Becomes, item.Why = f.tell(found.After)
		item.Messages = found.Messages
	}
	return item
}

// Moment is when an item at a place comes due; zero: before all time, or never.
func Moment(c ports.Cursor) time.Time {
	if c.Due.Year() < 1 { // it stands for -infinity
		return time.Time{}
	}
	return c.Due
}
