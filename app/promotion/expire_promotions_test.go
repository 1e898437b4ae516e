package promotion_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/adapters/memory"
	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/app/cycle"
	apppromotion "github.com/pin-platform/pinworker/app/promotion"
	"github.com/pin-platform/pinworker/app/verify"
	"github.com/pin-platform/pinworker/domain/promotion"
	"github.com/pin-platform/pinworker/ports"
)

const interval = time.Minute

var noon = portstest.Noon

// world is a store with purchases, and a clock that stands still until it is moved.
type world struct {
	*testing.T
	memory.Promotion
	now   time.Time
	heard int // messages that were looked at
}

// newWorld returns an empty one. When the test is over, every row must be the fold of its stream.
func newWorld(t *testing.T) *world {
	w := &world{T: t, Promotion: memory.NewPromotion(), now: noon.AddDate(0, -1, 0)}
	t.Cleanup(func() {
		_, err := verify.Run(context.Background(), w.Ledger, time.Time{}, func(f verify.Finding) { t.Errorf("%s: %s", f.ID, f.What) })
		if err != nil {
			t.Error(err)
		}
	})
	return w
}

// must makes what a test begins with.
func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) operations() apppromotion.Operations {
	return apppromotion.Operations{Purchases: w.Purchases, Clock: func() time.Time { return w.now }}
}

// purchase makes a purchase that ends at a moment.
func (w *world) purchase(endsAt time.Time, alter ...func(*promotion.Order)) promotion.PurchaseID {
	w.Helper()
	order := portstest.Order(endsAt)
	for _, alter := range alter {
		alter(&order)
	}
	w.must(w.operations().Purchase(w.Context(), "manager", order))
	return order.Purchase
}

func (w *world) is(id promotion.PurchaseID) promotion.Snapshot {
	w.Helper()
	for entry, err := range w.Ledger.Entries(w.Context(), time.Time{}) {
		w.must(err)
		if entry.ID == uuid.UUID(id) {
			return entry.Row.Snapshot()
		}
	}
	w.Fatalf("there is no %s", id)
	panic("unreachable")
}

// wantNews checks which messages have been published since it was asked last: their keys, and what
// they say has become of it.
func (w *world) wantNews(want ...string) {
	w.Helper()
	var news []string
	for _, m := range w.Messages()[w.heard:] {
		w.heard++
		var payload struct{ Status string }
		w.must(json.Unmarshal(m.Payload, &payload))
		if m.Topic != "pin.promotion.purchase-changed.v1" {
			w.Errorf("topic %s", m.Topic)
		}
		news = append(news, m.Key+" "+payload.Status)
	}
	if !slices.Equal(news, want) {
		w.Errorf("messages %q; want %q", news, want)
	}
}

func (w *world) job(batch int) apppromotion.ExpirePromotions {
	return apppromotion.ExpirePromotions{
		Purchases: w.Due, Limits: cycle.Limits{BatchSize: batch, MaxBatches: 1, Interval: interval},
		Clock: func() time.Time { w.now = w.now.Add(time.Second); return w.now },
	}
}

// want runs a cycle of up to ten purchases.
func (w *world) want(at time.Time, want apppromotion.PromotionsExpired) {
	w.Helper()
	got, err := w.job(10).Run(w.Context(), cycle.Begin(at))
	w.must(err)
	got.Followed, want.Duration = cycle.Followed{}, time.Second
	if got != want {
		w.Errorf("result %+v; want %+v", got, want)
	}
}

func active(id promotion.PurchaseID) string  { return id.String() + " Active" }
func expired(id promotion.PurchaseID) string { return id.String() + " Expired" }

func TestExpirePromotions_AnEmptyBatchIsASuccessWithoutAChangeOrAMessage(t *testing.T) {
	w := newWorld(t)
	id := w.purchase(noon.Add(time.Microsecond))
	w.wantNews(active(id))
	w.want(noon, apppromotion.PromotionsExpired{})
	w.wantNews()
	if got := w.is(id); got.Status != promotion.Active {
		t.Errorf("purchase %+v; want it left", got)
	}
}

func TestExpirePromotions_WhatEndsAtTheMomentOrBeforeItExpiresOnce(t *testing.T) {
	w := newWorld(t)
	before, atIt := w.purchase(noon.Add(-time.Hour)), w.purchase(noon)
	w.wantNews(active(before), active(atIt))
	w.want(noon, apppromotion.PromotionsExpired{ExpiredCount: 2})
	w.wantNews(expired(before), expired(atIt))
	w.want(noon, apppromotion.PromotionsExpired{}) // INV-6
	w.wantNews()
	for _, id := range []promotion.PurchaseID{before, atIt} {
		if got := w.is(id); got.Status != promotion.Expired || got.UpdatedAt != noon || got.Version != 3 || len(got.Targets) != 2 {
			t.Errorf("purchase %+v; want it expired at noon, its version raised by one, with its targets", got)
		}
	}
}

func TestExpirePromotions_ThePaymentIsNoneOfItsBusiness(t *testing.T) {
	w := newWorld(t)
	for _, payment := range []promotion.PaymentStatus{"NotRequired", "Paid", "Refunded", "Overdue", ""} {
		w.purchase(noon.Add(-time.Hour), func(o *promotion.Order) { o.PaymentStatus = payment })
	}
	w.want(noon, apppromotion.PromotionsExpired{ExpiredCount: 5})
}

func TestExpirePromotions_OnlyActiveOnesAreSelected(t *testing.T) {
	w := newWorld(t)
	pending := w.purchase(noon.Add(-time.Hour), func(o *promotion.Order) { o.PaymentRequired = true })
	cancelled := w.purchase(noon.Add(-time.Hour))
	w.must(w.operations().Cancel(t.Context(), "manager", cancelled))
	w.want(noon, apppromotion.PromotionsExpired{})
	if w.is(pending).Status != promotion.Pending || w.is(cancelled).Status != promotion.Cancelled {
		t.Errorf("they are %s and %s; want them left", w.is(pending).Status, w.is(cancelled).Status)
	}
}

func TestExpirePromotions_PartialFailure_ThePoisonIsLeftAndTriedInTheNextCycle(t *testing.T) {
	w := newWorld(t)
	first, poison, last := w.purchase(noon.Add(-3*time.Minute)), w.purchase(noon.Add(-2*time.Minute)), w.purchase(noon.Add(-time.Minute))
	w.wantNews(active(first), active(poison), active(last))
	w.Refuse(uuid.UUID(poison))
	w.want(noon, apppromotion.PromotionsExpired{ExpiredCount: 2, FailedCount: 1})
	w.wantNews(expired(first), expired(last))
	w.Accept(uuid.UUID(poison))
	w.want(noon.Add(interval), apppromotion.PromotionsExpired{ExpiredCount: 1})
	w.wantNews(expired(poison))
}

func TestExpirePromotions_ParallelInstancesExpireEachPurchaseOnce(t *testing.T) {
	w := newWorld(t)
	const n = 50
	for range n {
		w.purchase(noon)
	}
	tick, other := cycle.Begin(noon), make(chan int)
	run := func() int {
		job := w.job(n)
		job.Clock = time.Now // one each
		result, err := job.Run(t.Context(), tick)
		if err != nil {
			t.Error(err)
		}
		return result.ExpiredCount
	}
	go func() { other <- run() }()
	if one, two := run(), <-other; one+two != n || len(w.Messages()) != 2*n {
		t.Errorf("%d and %d expired, %d messages; want %d in all, once bought and once expired", one, two, len(w.Messages()), n)
	}
}

func TestExpirePromotions_RaceWithTheManagersCancel(t *testing.T) {
	w := newWorld(t)
	id := w.purchase(noon)
	release := w.Lock(uuid.UUID(id)) // the cancellation is in flight
	w.want(noon, apppromotion.PromotionsExpired{SkippedLockedCount: 1})
	release()
	w.must(w.operations().Cancel(t.Context(), "manager", id))
	w.want(noon.Add(interval), apppromotion.PromotionsExpired{})
	w.wantNews(active(id), id.String()+" Cancelled")
}

func TestExpirePromotions_ACancelAfterTheWorkerIsRefused(t *testing.T) {
	w := newWorld(t)
	id := w.purchase(noon)
	w.want(noon, apppromotion.PromotionsExpired{ExpiredCount: 1})
	err := w.operations().Cancel(t.Context(), "manager", id)
	if refusal := (promotion.TerminalError{}); !errors.As(err, &refusal) {
		t.Errorf("error %v; want a TerminalError (INV-6)", err)
	}
	w.wantNews(active(id), expired(id))
}

// interrupted is a store that something happens to while a unit is decided on: its caller is told to
// stop, or its connection is cut.
type interrupted struct {
	ports.DuePurchases
	stop func()
}

func (i interrupted) Transition(
	ctx context.Context, claim ports.Claim, rule ports.Rule[promotion.PromotionPurchase, promotion.Event],
) (ports.Outcome[promotion.PromotionPurchase, promotion.Event], error) {
	decide := rule.Decide
	rule.Decide = func(p promotion.PromotionPurchase, at time.Time) ([]promotion.Event, error) {
		i.stop()
		return decide(p, at)
	}
	return i.DuePurchases.Transition(ctx, claim, rule)
}

func TestExpirePromotions_AStopLeavesTheBatchWhole(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		w.purchase(noon)
	}
	ctx, stop := context.WithCancel(t.Context())
	job := w.job(10)
	job.Purchases = interrupted{w.Due, stop}
	result, _ := job.Run(ctx, cycle.Begin(noon))
	if published := len(w.Messages()) - 3; published != result.ExpiredCount || published != 0 && published != 3 {
		t.Errorf("%d of 3 were published, %d are told; want all or none", published, result.ExpiredCount)
	}
	if _, err := job.Run(ctx, cycle.Begin(noon)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v; want context.Canceled: nothing is begun after a stop", err)
	}
	w.want(noon, apppromotion.PromotionsExpired{ExpiredCount: 3 - result.ExpiredCount})
}

func TestExpirePromotions_ABatchThatTheInfrastructureRolledBackIsTakenByTheNextCycle(t *testing.T) {
	w := newWorld(t)
	first, second := w.purchase(noon.Add(-time.Minute)), w.purchase(noon)
	w.wantNews(active(first), active(second))
	job := w.job(10)
	job.Purchases = interrupted{w.Due, sync.OnceFunc(w.Cut)}
	if result, err := job.Run(t.Context(), cycle.Begin(noon)); !errors.Is(err, memory.ErrCut) || result.FaultCount != 1 || result.FailedCount+result.ExpiredCount > 0 {
		t.Errorf("result %+v, %v; want the cycle's only batch rolled back, and nobody blamed", result, err)
	}
	w.wantNews()
	w.want(noon.Add(interval), apppromotion.PromotionsExpired{ExpiredCount: 2})
	w.wantNews(expired(first), expired(second))
}

func TestExpirePromotions_WhatEndsAtAMomentExpiresByTheNextTick(t *testing.T) {
	for _, after := range []time.Duration{time.Microsecond, 30 * time.Second, interval} { // the last tick
		w := newWorld(t)
		id := w.purchase(noon.Add(after))
		w.want(noon, apppromotion.PromotionsExpired{})
		w.want(noon.Add(interval), apppromotion.PromotionsExpired{ExpiredCount: 1})
		w.wantNews(active(id), expired(id))
	}
}

// Poison is tried three times in a row, and then after 2, 4, 8 and at most 10 intervals.
func TestExpirePromotions_PoisonIsHeldBackAndNobodyElseIs(t *testing.T) {
	w := newWorld(t)
	w.Refuse(uuid.UUID(w.purchase(noon.Add(-time.Hour))))
	var tried []int
	for tick := range 40 {
		at := noon.Add(time.Duration(tick) * interval)
		w.purchase(at)
		result, err := w.job(2).Run(t.Context(), cycle.Begin(at))
		if err != nil || result.ExpiredCount != 1 {
			t.Errorf("%d expired at %v, %v; want the sound one", result.ExpiredCount, at, err)
		}
		if result.FailedCount > 0 {
			tried = append(tried, tick)
		}
	}
	if want := []int{0, 1, 2, 4, 8, 16, 26, 36}; !slices.Equal(tried, want) {
		t.Errorf("the poison is tried at the ticks %v; want %v", tried, want)
	}
}

func TestExpirePromotions_ACycleThatFilledItsBatchIsFollowedAtOnce(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		w.purchase(noon.Add(time.Duration(i-10) * time.Minute))
	}
	var results []int
	cycle.CatchUp(t.Context(), func() time.Time { return noon }, 30*time.Second, func(ctx context.Context, tick cycle.Tick) cycle.Followed {
		result, err := w.job(2).Run(ctx, tick)
		results = append(results, result.ExpiredCount)
		w.must(err)
		return result.Followed
	})
	if want := []int{2, 2, 1}; !slices.Equal(results, want) {
		t.Errorf("expired %v; want %v in one tick", results, want)
	}
}

func TestExpirePromotions_ALimitOutOfRangeIsAValidationError(t *testing.T) {
	_, err := newWorld(t).job(0).Run(t.Context(), cycle.Begin(noon))
	if limit := (cycle.LimitError{}); !errors.As(err, &limit) || limit.Limit != "BatchSize" {
		t.Errorf("error %v; want a LimitError about BatchSize", err)
	}
}

func TestOperations_TellWhatBecomesOfAPurchase(t *testing.T) {
	w := newWorld(t)
	paid, unpaid := portstest.Order(noon.Add(123*time.Nanosecond)), portstest.Order(noon)
	unpaid.PaymentRequired = true
	for range 2 { // the second time it has happened
		w.must(w.operations().Purchase(t.Context(), "manager", paid))
		w.must(w.operations().Purchase(t.Context(), "manager", unpaid))
	}
	w.wantNews(active(paid.Purchase), unpaid.Purchase.String()+" Pending")
	if got := w.is(paid.Purchase).EndsAt; got != noon {
		t.Errorf("it ends at %v; want a moment as PostgreSQL holds it", got)
	}
	for range 2 {
		w.must(w.operations().Cancel(t.Context(), "manager", paid.Purchase))
		w.must(w.operations().Cancel(t.Context(), "manager", unpaid.Purchase))
	}
	w.wantNews(paid.Purchase.String()+" Cancelled", unpaid.Purchase.String()+" Cancelled")
}

func TestOperations_TellWhatWasActedOn(t *testing.T) {
	w := newWorld(t)
	stranger, order := portstest.NewID[promotion.PromotionPurchase](), portstest.Order(noon)
	order.Targets = nil
	for want, err := range map[string]error{
		"cancel promotion purchase " + stranger.String() + ": the promotion purchase does not exist": w.operations().Cancel(t.Context(), "manager", stranger),

		"make promotion purchase " + order.Purchase.String() + ": promotion purchase " + order.Purchase.String() + ": Targets are missing": w.operations().Purchase(t.Context(), "manager", order),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("error %v; want %s", err, want)
		}
	}
	w.wantNews()
}
