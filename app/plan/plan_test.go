package plan_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/adapters/memory"
	"github.com/pin-platform/pinworker/adapters/portstest"
	appcrm "github.com/pin-platform/pinworker/app/crm"
	"github.com/pin-platform/pinworker/app/plan"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/ports"
)

// leads makes n leads that came due before noon, the oldest first.
func leads(t *testing.T, store memory.CRM, n int) []uuid.UUID {
	t.Helper()
	ids := make([]uuid.UUID, n)
	o := appcrm.Operations{Leads: store.Leads, Clock: func() time.Time { return portstest.Noon.AddDate(0, -1, 0) }}
	for i := range ids {
		r := portstest.Registration(portstest.Noon.Add(time.Duration(i-n) * time.Second))
		if err := o.Register(t.Context(), "agent", r); err != nil {
			t.Fatal(err)
		}
		ids[i] = uuid.UUID(r.Lead)
	}
	return ids
}

func foresee(t *testing.T, store memory.CRM, most int) (p plan.Plan, ids []uuid.UUID) {
	t.Helper()
	p, err := appcrm.Foresee(store.Preview).Foresee(t.Context(), portstest.Noon, most)
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range p.Items {
		ids = append(ids, item.Item)
	}
	return p, ids
}

// hold puts an item on record for failing, until an hour after noon.
func hold(t *testing.T, store memory.CRM, id uuid.UUID) {
	t.Helper()
	held := ports.Held{Failure: ports.Failure{Item: id, Err: errors.New("poison"), Streak: 3}, NextAttempt: portstest.Noon.Add(time.Hour)}
	if err := store.Due.Hold(t.Context(), portstest.Noon, []ports.Held{held}); err != nil {
		t.Fatal(err)
	}
}

func TestForesee_EndsWithTheLastItemThatACycleWouldTake(t *testing.T) {
	store := memory.NewCRM()
	all := leads(t, store, 9)
	defer store.Lock(all[1])()
	defer store.Lock(all[5])()
	hold(t, store, all[2])
	hold(t, store, all[6])
	for most, want := range map[int][]uuid.UUID{1: all[:1], 2: all[:4], 3: all[:5], 4: all[:8], 5: all, 100: all} {
		p, got := foresee(t, store, most)
		if !slices.Equal(got, want) {
			t.Errorf("%d at most: %v; want %v", most, got, want)
		}
		if taken := p.Count(plan.Taken); taken != min(most, 5) || p.More != (most <= 5) {
			t.Errorf("%d at most: %d taken, more %v", most, taken, p.More)
		}
	}
}

func TestForesee_SaysThatMoreIsHeldBackThanItLists(t *testing.T) {
	store := memory.NewCRM()
	for _, id := range leads(t, store, 5) {
		hold(t, store, id)
	}
	for most, more := range map[int]bool{4: true, 5: false} {
		if p, ids := foresee(t, store, most); len(ids) != most || p.Count(plan.Quarantined) != most || p.More != more {
			t.Errorf("%d at most: %d held back, more %v; want %d, %v", most, len(ids), p.More, most, more)
		}
	}
}

func TestForesee_DoesNotGoThroughATableThatIsLockedWhole(t *testing.T) {
	store := memory.NewCRM()
	for _, id := range leads(t, store, 50) {
		defer store.Lock(id)()
	}
	if p, ids := foresee(t, store, 5); len(ids) > 10 || p.Count(plan.Locked) != len(ids) || !p.More {
		t.Errorf("%d items, more %v; want some of them, and more", len(ids), p.More)
	}
}

func TestForesee_TellsEachItemsFate(t *testing.T) {
	store := memory.NewCRM()
	all := leads(t, store, 3)
	defer store.Lock(all[0])()
	hold(t, store, all[1])
	p, _ := foresee(t, store, 10)
	for i, want := range []plan.Verdict{plan.Locked, plan.Quarantined, plan.Taken} {
		if got := p.Items[i]; got.Verdict != want || !got.Due.Equal(portstest.Noon.Add(time.Duration(i-3)*time.Second)) {
			t.Errorf("item %d: %+v; want it %s", i, got, want)
		}
	}
	if taken := p.Items[2]; taken.Becomes != string(crm.Expired) || taken.Why == "" || len(taken.Messages) != 1 {
		t.Errorf("taken %+v; want what it becomes, why, and its message", taken)
	}
	if record := p.Items[1].Record; record == nil || record.Streak != 3 || record.LastError != "poison" {
		t.Errorf("held back %+v; want its record", record)
	}
}

func TestOne_SeesTheItemAtAPlaceAndNoOther(t *testing.T) {
	store := memory.NewCRM()
	all := leads(t, store, 3)
	hold(t, store, all[2])
	f := appcrm.Foresee(store.Preview)
	for i, want := range []plan.Verdict{plan.Taken, plan.Taken, plan.Quarantined} {
		item, err := f.One(t.Context(), portstest.Noon, ports.Cursor{Due: portstest.Noon.Add(time.Duration(i-3) * time.Second), ID: all[i]})
		if err != nil || item == nil || item.Item != all[i] || item.Verdict != want {
			t.Errorf("item %d: %+v, %v; want it %s", i, item, err, want)
		}
	}
	if item, err := f.One(t.Context(), portstest.Noon, ports.Cursor{Due: portstest.Noon.Add(time.Second), ID: uuid.Max}); err != nil || item != nil {
		t.Errorf("%+v, %v; want nothing where nothing is", item, err)
	}
}

// blind is a store whose preview cannot be had.
type blind struct{ ports.LeadPreview }

func (blind) Peek(context.Context, ports.Claim, ports.Rule[crm.Lead, crm.Event]) (p ports.Peeked[crm.Lead, crm.Event], err error) {
	return p, context.DeadlineExceeded
}

func TestForesee_AnOutageIsNoPlan(t *testing.T) {
	if _, err := appcrm.Foresee(blind{}).Foresee(t.Context(), portstest.Noon, 10); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v; want the outage", err)
	}
}
