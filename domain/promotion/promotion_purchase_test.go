package promotion_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/domaintest"
	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/domain/promotion"
)

var (
	purchase = promotion.PurchaseID{1}
	tenant   = ids.TenantID{2}
	flat     = promotion.Target{Type: "Flat", ID: uuid.UUID{3}}
	house    = promotion.Target{Type: "House", ID: uuid.UUID{1}}
	house2   = promotion.Target{Type: "House", ID: uuid.UUID{2}}

	noon           = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	dawn           = noon.Add(-6 * time.Hour)
	dusk           = noon.Add(6 * time.Hour)
	justBeforeNoon = noon.Add(-time.Microsecond)
)

// purchased is a purchase made at dawn that boosts until noon.
var purchased = promotion.Purchased{
	Purchase: purchase, Tenant: tenant, PackageKind: "Premium", PaymentStatus: "NotRequired",
	StartsAt: dawn, EndsAt: noon, Targets: []promotion.Target{flat, house, house2}, At: dawn,
}

var (
	activated = promotion.Activated{Purchase: purchase, At: dawn}
	expired   = promotion.PurchaseExpired{Purchase: purchase, At: noon}
	cancelled = promotion.PurchaseCancelled{Purchase: purchase, At: noon}
)

type decision = func(promotion.PromotionPurchase) ([]promotion.Event, error)

func given(t *testing.T, history ...promotion.Event) domaintest.Scenario[promotion.PromotionPurchase, promotion.Event] {
	t.Helper()
	return domaintest.Given[promotion.PromotionPurchase](t, history...)
}

// ordered is what somebody orders who gets purchased; its targets stand in another order.
func ordered(change func(*promotion.Order)) promotion.Order {
	o := promotion.Order{
		Purchase: purchase, Tenant: tenant, PackageKind: "Premium", PaymentStatus: "NotRequired",
		StartsAt: dawn, EndsAt: noon, Targets: []promotion.Target{house2, flat, house},
	}
	change(&o)
	return o
}

func asItIs(*promotion.Order) {}

func order(change func(*promotion.Order)) decision {
	return func(p promotion.PromotionPurchase) ([]promotion.Event, error) {
		return p.Purchase(ordered(change), dawn)
	}
}

func expire(at time.Time) decision {
	return func(p promotion.PromotionPurchase) ([]promotion.Event, error) { return p.Expire(at) }
}

func cancel(p promotion.PromotionPurchase) ([]promotion.Event, error) { return p.Cancel(noon) }

// active is the whole state that purchased and activated lead to.
var active = promotion.Snapshot{
	ID: purchase, TenantID: tenant, PackageKind: "Premium", Status: promotion.Active, PaymentStatus: "NotRequired",
	StartsAt: dawn, EndsAt: noon, Targets: []promotion.Target{flat, house, house2}, Version: 2, CreatedAt: dawn, UpdatedAt: dawn,
}

func expectState(t *testing.T, after promotion.PromotionPurchase, change func(*promotion.Snapshot)) {
	t.Helper()
	want := active
	change(&want)
	if !reflect.DeepEqual(after.Snapshot(), want) {
		t.Errorf("state %+v; want %+v", after.Snapshot(), want)
	}
}

func TestPurchase(t *testing.T) {
	t.Run("is active at once where payment is off, with its targets in order", func(t *testing.T) {
		expectState(t, given(t).When(order(asItIs)).Then(purchased, activated), func(*promotion.Snapshot) {})
	})
	t.Run("waits as pending where payment is on", func(t *testing.T) {
		onCredit := func(o *promotion.Order) { o.PaymentRequired = true }
		expectState(t, given(t).When(order(onCredit)).Then(purchased), func(s *promotion.Snapshot) {
			s.Status, s.Version = promotion.Pending, 1
		})
	})
	t.Run("leaves the order's targets as they were", func(t *testing.T) {
		o := ordered(asItIs)
		given(t).When(func(p promotion.PromotionPurchase) ([]promotion.Event, error) { return p.Purchase(o, dawn) }).
			Then(purchased, activated)
		if !slices.Equal(o.Targets, []promotion.Target{house2, flat, house}) {
			t.Errorf("targets %v", o.Targets)
		}
	})
	t.Run("again with the same data: it has happened", func(t *testing.T) {
		given(t, purchased, activated).When(order(asItIs)).ThenNothing()
	})
	t.Run("again after the payment went on: it has happened", func(t *testing.T) {
		given(t, purchased, activated).When(order(func(o *promotion.Order) { o.PaymentStatus = "Paid" })).ThenNothing()
	})
	t.Run("again with other data is refused", func(t *testing.T) {
		for name, change := range map[string]func(*promotion.Order){
			"id":        func(o *promotion.Order) { o.Purchase[0]++ },
			"tenant":    func(o *promotion.Order) { o.Tenant[0]++ },
			"package":   func(o *promotion.Order) { o.PackageKind = "Basic" },
			"starts at": func(o *promotion.Order) { o.StartsAt = justBeforeNoon },
			"ends at":   func(o *promotion.Order) { o.EndsAt = dusk },
			"targets":   func(o *promotion.Order) { o.Targets = o.Targets[1:] },
		} {
			t.Run(name, func(t *testing.T) {
				given(t, purchased, activated).When(order(change)).ThenRefused(promotion.AlreadyPurchasedError{})
			})
		}
	})
	t.Run("with something missing is refused", func(t *testing.T) {
		for name, change := range map[string]func(*promotion.Order){
			"id":            func(o *promotion.Order) { o.Purchase = promotion.PurchaseID{} },
			"tenant":        func(o *promotion.Order) { o.Tenant = ids.TenantID{} },
			"package":       func(o *promotion.Order) { o.PackageKind = "" },
			"starts at":     func(o *promotion.Order) { o.StartsAt = time.Time{} },
			"ends at":       func(o *promotion.Order) { o.EndsAt = time.Time{} },
			"targets":       func(o *promotion.Order) { o.Targets = nil },
			"a target's id": func(o *promotion.Order) { o.Targets[0].ID = uuid.Nil },
		} {
			t.Run(name, func(t *testing.T) { given(t).When(order(change)).ThenRefused(promotion.InvalidError{}) })
		}
	})
	t.Run("that ends before it starts is refused", func(t *testing.T) {
		given(t).When(order(func(o *promotion.Order) { o.StartsAt = noon })).ThenRefused(promotion.InvalidError{})
	})
	t.Run("that would begin ended is refused", func(t *testing.T) {
		given(t).When(func(p promotion.PromotionPurchase) ([]promotion.Event, error) {
			return p.Purchase(ordered(asItIs), noon)
		}).ThenRefused(promotion.InvalidError{})
	})
}

func TestPurchase_Expire(t *testing.T) {
	t.Run("stays active a microsecond before it ends", func(t *testing.T) {
		given(t, purchased, activated).When(expire(justBeforeNoon)).ThenRefused(promotion.NotDueError{})
	})
	t.Run("expires at the very moment it ends", func(t *testing.T) {
		expectState(t, given(t, purchased, activated).When(expire(noon)).Then(expired), func(s *promotion.Snapshot) {
			s.Status, s.Version, s.UpdatedAt = promotion.Expired, 3, noon
		})
	})
	t.Run("expires later, whatever its payment", func(t *testing.T) {
		unpaid := purchased
		unpaid.PaymentStatus = "Overdue"
		given(t, unpaid, activated).When(expire(dusk)).Then(promotion.PurchaseExpired{Purchase: purchase, At: dusk})
	})
}

func TestPurchase_Cancel(t *testing.T) {
	expectState(t, given(t, purchased, activated).When(cancel).Then(cancelled), func(s *promotion.Snapshot) {
		s.Status, s.Version, s.UpdatedAt = promotion.Cancelled, 3, noon
	})
}

func TestPurchase_EveryCommandInEveryState_INV_6(t *testing.T) {
	states := map[promotion.Status][]promotion.Event{
		promotion.Pending:   {purchased},
		promotion.Active:    {purchased, activated},
		promotion.Expired:   {purchased, activated, expired},
		promotion.Cancelled: {purchased, activated, cancelled},
	}
	domaintest.Table(
		t,
		func(status promotion.Status) promotion.PromotionPurchase {
			p := eventsourcing.Fold(promotion.PromotionPurchase{}, states[status]...)
			if p.Snapshot().Status != status {
				t.Fatalf("%q is no state that was prepared", status)
			}
			return p
		},
		domaintest.Commands[promotion.PromotionPurchase, promotion.Event]{
			"Purchase": order(asItIs), "Another": order(func(o *promotion.Order) { o.EndsAt = dusk }),
			"Expire": expire(dusk), "Early": expire(dawn), "Cancel": cancel,
		},
		domaintest.Outcomes[promotion.Status]{
			"": {
				"Purchase": "Purchased Activated", "Another": "Purchased Activated",
				"Expire": "", "Early": "", "Cancel": "NotPurchasedError",
			},
			promotion.Pending: {
				"Purchase": "", "Another": "AlreadyPurchasedError",
				"Expire": "", "Early": "", "Cancel": "PurchaseCancelled",
			},
			promotion.Active: {
				"Purchase": "", "Another": "AlreadyPurchasedError",
				"Expire": "PurchaseExpired", "Early": "NotDueError", "Cancel": "PurchaseCancelled",
			},
			promotion.Expired: {
				"Purchase": "", "Another": "AlreadyPurchasedError",
				"Expire": "", "Early": "", "Cancel": "TerminalError",
			},
			promotion.Cancelled: {
				"Purchase": "", "Another": "AlreadyPurchasedError",
				"Expire": "", "Early": "", "Cancel": "",
			},
		},
	)
}

func TestRestore_RefusesWhatNoPurchaseCanBe(t *testing.T) {
	restored, err := promotion.Restore(active)
	if err != nil || !reflect.DeepEqual(restored.Snapshot(), active) {
		t.Fatalf("a sound purchase: %v, %v", restored, err)
	}
	for name, test := range map[string]struct {
		field string
		spoil func(*promotion.Snapshot)
	}{
		"no id":             {"ID", func(s *promotion.Snapshot) { s.ID = promotion.PurchaseID{} }},
		"no tenant":         {"TenantID", func(s *promotion.Snapshot) { s.TenantID = ids.TenantID{} }},
		"no package":        {"PackageKind", func(s *promotion.Snapshot) { s.PackageKind = "" }},
		"a target twice":    {"Targets", func(s *promotion.Snapshot) { s.Targets = append(slices.Clone(s.Targets), s.Targets[0]) }},
		"no start":          {"StartsAt", func(s *promotion.Snapshot) { s.StartsAt = time.Time{} }},
		"no end":            {"EndsAt", func(s *promotion.Snapshot) { s.EndsAt = time.Time{} }},
		"no status":         {"Status", func(s *promotion.Snapshot) { s.Status = "" }},
		"an unknown status": {"Status", func(s *promotion.Snapshot) { s.Status = "Paused" }},
		"no version":        {"Version", func(s *promotion.Snapshot) { s.Version = 0 }},
		"a typeless target": {"Targets", func(s *promotion.Snapshot) { s.Targets = []promotion.Target{{ID: uuid.UUID{1}}} }},
		"a target without id behind some out of order": {"Targets", func(s *promotion.Snapshot) {
			s.Targets = []promotion.Target{house, flat, {Type: "Plot"}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			spoilt := active
			test.spoil(&spoilt)
			_, err := promotion.Restore(spoilt)
			if invalid, ok := err.(promotion.InvalidError); !ok || invalid.Field != test.field {
				t.Errorf("error %v; want an InvalidError about %s", err, test.field)
			}
		})
	}
}

func TestRestore_APurchaseThatTheCatalogueSoldForNoTimeAtAllCanExpire(t *testing.T) {
	odd := active
	odd.EndsAt = odd.StartsAt
	restored, err := promotion.Restore(odd)
	if err != nil {
		t.Fatal(err)
	}
	if events, err := restored.Expire(odd.EndsAt); err != nil || len(events) != 1 {
		t.Errorf("events %v, %v; want it expired", events, err)
	}
}

func TestRestore_PutsTargetsInOrderAndLeavesTheRowsAsTheyWere(t *testing.T) {
	rows := active
	rows.Targets = []promotion.Target{house2, house, flat}
	restored, err := promotion.Restore(rows)
	if err != nil || !reflect.DeepEqual(restored.Snapshot(), active) {
		t.Errorf("restored %+v, %v; want %+v", restored, err, active)
	}
	if !slices.Equal(rows.Targets, []promotion.Target{house2, house, flat}) {
		t.Errorf("rows %v", rows.Targets)
	}
}

func TestPurchase_Import_IsTheWholeStateAtItsVersion(t *testing.T) {
	whole := given(t, purchased, activated).When(cancel).Then(cancelled)
	given(t, whole.Import(dusk)).When(cancel).ThenNothing()
	if folded := (promotion.PromotionPurchase{}).Apply(whole.Import(dusk)); !reflect.DeepEqual(folded, whole) {
		t.Errorf("folded %+v; want %+v", folded, whole)
	}
}
