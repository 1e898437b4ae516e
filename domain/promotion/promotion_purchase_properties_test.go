package promotion_test

import (
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/domain/promotion"
)

// world is a purchase that random commands are given, at moments that never go back.
type world struct {
	purchase promotion.PromotionPurchase
	at       time.Time
	stream   []promotion.Event
}

func (w *world) decide(t *rapid.T, command string, decide decision) {
	was := w.purchase.Snapshot()
	events, err := decide(w.purchase)
	if again, againErr := decide(w.purchase); !reflect.DeepEqual(events, again) || !reflect.DeepEqual(err, againErr) {
		t.Fatalf("%s is not pure: %v, %v; then %v, %v", command, events, err, again, againErr)
	}
	if err != nil && len(events) > 0 {
		t.Fatalf("%s was refused (%v) and yielded %v", command, err, events)
	}
	for _, numbered := range eventsourcing.Number(w.purchase, events...) {
		w.stream = append(w.stream, numbered.Event)
		if numbered.Version != len(w.stream) {
			t.Fatalf("%s gave %+v for event %d of its stream", command, numbered, len(w.stream))
		}
	}
	w.purchase = eventsourcing.Fold(w.purchase, events...)
	is := w.purchase.Snapshot()
	if (was.Status == promotion.Expired || was.Status == promotion.Cancelled) && !reflect.DeepEqual(was, is) {
		t.Fatalf("INV-6: %s took %+v to %+v", command, was, is)
	}
	due := command == "Expire" && was.Status == promotion.Active && !was.EndsAt.After(w.at)
	if became := was.Status != promotion.Expired && is.Status == promotion.Expired; became != due {
		t.Fatalf("%s at %s took %+v to %+v", command, w.at, was, is)
	}
	if repeated, repeatedErr := decide(w.purchase); err == nil && (len(repeated) > 0 || repeatedErr != nil) {
		t.Fatalf("%s repeated at once: %v, %v; want a no-op", command, repeated, repeatedErr)
	}
}

// Later lets time pass, or not.
func (w *world) Later(t *rapid.T) {
	w.at = w.at.Add(rapid.SampledFrom([]time.Duration{time.Microsecond, time.Minute, time.Hour}).Draw(t, "later"))
}

// Purchase orders, also what cannot be.
func (w *world) Purchase(t *rapid.T) {
	o := ordered(func(o *promotion.Order) {
		o.EndsAt = dawn.Add(time.Duration(rapid.IntRange(-1, 6).Draw(t, "hours")) * time.Hour)
		o.PaymentRequired = rapid.Bool().Draw(t, "payment required")
		o.Targets = rapid.SliceOfN(rapid.SampledFrom(o.Targets), 0, 4).Draw(t, "targets")
	})
	w.decide(t, "Purchase", func(p promotion.PromotionPurchase) ([]promotion.Event, error) { return p.Purchase(o, w.at) })
}

// Expire is what the job does.
func (w *world) Expire(t *rapid.T) { w.decide(t, "Expire", expire(w.at)) }

// ExpireInTime is what the job does at the very moment, where that has not passed.
func (w *world) ExpireInTime(t *rapid.T) {
	if ends := w.purchase.Snapshot().EndsAt; ends.After(w.at) {
		w.at = ends
	}
	w.decide(t, "Expire", expire(w.at))
}

// Cancel is what a manager does.
func (w *world) Cancel(t *rapid.T) {
	w.decide(t, "Cancel", func(p promotion.PromotionPurchase) ([]promotion.Event, error) { return p.Cancel(w.at) })
}

// Check holds after every command.
func (w *world) Check(t *rapid.T) {
	is := w.purchase.Snapshot()
	if folded := eventsourcing.Fold(promotion.PromotionPurchase{}, w.stream...); !reflect.DeepEqual(folded, w.purchase) {
		t.Fatalf("folded %+v; want %+v", folded, w.purchase)
	}
	if is.Version != len(w.stream) {
		t.Fatalf("version %d after %d events", is.Version, len(w.stream))
	}
	if is.Version == 0 {
		return
	}
	if restored, err := promotion.Restore(is); err != nil || !reflect.DeepEqual(restored, w.purchase) {
		t.Fatalf("restored %+v, %v; want %+v", restored, err, w.purchase)
	}
	if imported := (promotion.PromotionPurchase{}).Apply(w.purchase.Import(w.at)); !reflect.DeepEqual(imported, w.purchase) {
		t.Fatalf("imported %+v; want %+v", imported, w.purchase)
	}
}

func TestPurchase_WhateverHappensToIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { t.Repeat(rapid.StateMachineActions(&world{at: dawn})) })
}
