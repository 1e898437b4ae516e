// Package promotion decides what may happen to a promotion purchase: a boost of some targets
// that somebody has bought for a while.
//
//	                 ┌── payment is off ──▶ Active ── expire ──▶ Expired
//	purchase ▶ Pending                        │
//	                 └─────── cancel ─────────┴──── cancel ────▶ Cancelled
//
// Expired and Cancelled are terminal (INV-6). The payment's status, the package and what a
// target is are other contexts' words: they are carried and never interpreted.
package promotion

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/domain/ids"
)

// PurchaseID identifies a purchase.
type PurchaseID = ids.ID[PromotionPurchase]

// Status says where a purchase is in its life (spec: domain, promotion).
type Status string

// The states of a purchase. One that was not made yet has none.
const (
	Pending   Status = "Pending"
	Active    Status = "Active"
	Expired   Status = "Expired"
	Cancelled Status = "Cancelled"
)

// PackageKind says what was bought: an open vocabulary.
type PackageKind string

// PaymentStatus says how far the payment is: an open vocabulary.
type PaymentStatus string

// TargetType says what a target is: an open vocabulary.
type TargetType string

// Target is what a purchase promotes.
type Target struct {
	Type TargetType
	ID   uuid.UUID
}

// PromotionPurchase is the aggregate, with its targets. Its zero value has not happened yet.
type PromotionPurchase struct{ is Snapshot } //nolint:revive // the customer's name

// Snapshot is a purchase's whole state at a version: what its rows hold, and what a baseline
// event records. Moments are UTC, in whole microseconds.
type Snapshot struct {
	ID            PurchaseID
	TenantID      ids.TenantID
	PackageKind   PackageKind
	Status        Status
	PaymentStatus PaymentStatus
	StartsAt      time.Time
	EndsAt        time.Time
	Targets       []Target // by type, then id; never changed in place
	Version       int      // from 1, one more with every transition
	CreatedAt     time.Time
	UpdatedAt     time.Time
}

// InvalidError says that a purchase cannot be in the state that was given.
type InvalidError struct {
	Purchase PurchaseID
	Field    string
	Why      string
}

func (e InvalidError) Error() string {
	return fmt.Sprintf("promotion purchase %s: %s %s", e.Purchase, e.Field, e.Why)
}

// NotPurchasedError says that nothing can happen to a purchase that does not exist.
type NotPurchasedError struct{}

func (NotPurchasedError) Error() string { return "the promotion purchase does not exist" }

// AlreadyPurchasedError says that the id is taken by a purchase with other data.
type AlreadyPurchasedError struct{ Purchase PurchaseID }

func (e AlreadyPurchasedError) Error() string {
	return fmt.Sprintf("promotion purchase %s exists already, with other data", e.Purchase)
}

// TerminalError says that an expired purchase stays as it is (INV-6).
type TerminalError struct {
	Purchase PurchaseID
	Status   Status
}

func (e TerminalError) Error() string {
	return fmt.Sprintf("INV-6: promotion purchase %s is %s, and stays so", e.Purchase, e.Status)
}

// NotDueError says that the purchase's time is not up.
type NotDueError struct {
	Purchase PurchaseID
	EndsAt   time.Time
	At       time.Time
}

func (e NotDueError) Error() string {
	return fmt.Sprintf("promotion purchase %s ends at %s, which is after %s",
		e.Purchase, e.EndsAt.Format(time.RFC3339Nano), e.At.Format(time.RFC3339Nano))
}

// Restore takes a purchase out of its stored state, or returns an InvalidError where a purchase
// cannot be in it: never guess.
func Restore(s Snapshot) (PromotionPurchase, error) {
	invalid := func(field, why string) (PromotionPurchase, error) {
		return PromotionPurchase{}, InvalidError{s.ID, field, why}
	}
	switch {
	case s.ID.IsZero():
		return invalid("ID", "is missing")
	case s.TenantID.IsZero():
		return invalid("TenantID", "is missing")
	case s.PackageKind == "":
		return invalid("PackageKind", "is missing")
	case s.StartsAt.IsZero():
		return invalid("StartsAt", "is missing")
	case s.EndsAt.IsZero():
		return invalid("EndsAt", "is missing")
	case !slices.Contains([]Status{Pending, Active, Expired, Cancelled}, s.Status):
		return invalid("Status", "is neither Pending, Active, Expired nor Cancelled")
	case s.Version < 1:
		return invalid("Version", fmt.Sprintf("is %d: versions start at 1", s.Version))
	}
	for _, target := range s.Targets {
		if target.Type == "" || target.ID == uuid.Nil {
			return invalid("Targets", "have one without a type or an id")
		}
	}
	if !slices.IsSortedFunc(s.Targets, compareTargets) {
		s.Targets = inOrder(s.Targets)
	}
	for i := 1; i < len(s.Targets); i++ {
		if s.Targets[i] == s.Targets[i-1] {
			return invalid("Targets", "have one twice")
		}
	}
	return PromotionPurchase{is: s}, nil
}

func inOrder(targets []Target) []Target {
	return slices.SortedFunc(slices.Values(targets), compareTargets)
}

func compareTargets(a, b Target) int {
	if byType := strings.Compare(string(a.Type), string(b.Type)); byType != 0 {
		return byType
	}
	return bytes.Compare(a.ID[:], b.ID[:])
}

// Stream returns the purchase's id.
func (p PromotionPurchase) Stream() uuid.UUID { return uuid.UUID(p.is.ID) }

// Version returns the number of the purchase's last transition, 0 before the first.
func (p PromotionPurchase) Version() int { return p.is.Version }

// Snapshot returns the purchase's whole state.
func (p PromotionPurchase) Snapshot() Snapshot { return p.is }

// Parts returns the purchase: it is a unit by itself.
func (p PromotionPurchase) Parts() []eventsourcing.Part[Event] {
	return []eventsourcing.Part[Event]{p}
}

// Order is what somebody buys.
type Order struct {
	Purchase        PurchaseID
	Tenant          ids.TenantID
	PackageKind     PackageKind
	PaymentStatus   PaymentStatus
	PaymentRequired bool // payment is on: the purchase waits for it as Pending
	StartsAt        time.Time
	EndsAt          time.Time
	Targets         []Target
}

// Purchase decides that a purchase is made, and where payment is off, active at once. Ordering the
// same again yields no event; it returns an AlreadyPurchasedError where the id is taken by another
// purchase, an InvalidError where something is missing or the purchase would begin ended.
func (p PromotionPurchase) Purchase(o Order, at time.Time) ([]Event, error) {
	purchased := Purchased{
		Purchase: o.Purchase, Tenant: o.Tenant, PackageKind: o.PackageKind, PaymentStatus: o.PaymentStatus,
		StartsAt: o.StartsAt, EndsAt: o.EndsAt, Targets: inOrder(o.Targets), At: at,
	}
	if p.is.Version > 0 {
		if p.is.ID == o.Purchase && p.is.TenantID == o.Tenant && p.is.PackageKind == o.PackageKind &&
			p.is.StartsAt.Equal(o.StartsAt) && p.is.EndsAt.Equal(o.EndsAt) && slices.Equal(p.is.Targets, purchased.Targets) {
			return nil, nil
		}
		return nil, AlreadyPurchasedError{Purchase: p.is.ID}
	}
	if _, err := Restore(p.Apply(purchased).is); err != nil {
		return nil, err
	}
	switch {
	case len(o.Targets) == 0:
		return nil, InvalidError{o.Purchase, "Targets", "are missing"}
	case !o.EndsAt.After(o.StartsAt):
		return nil, InvalidError{o.Purchase, "EndsAt", "is not after StartsAt"}
	case !o.EndsAt.After(at):
		return nil, InvalidError{o.Purchase, "EndsAt", "is not after the purchase"}
	case o.PaymentRequired:
		return []Event{purchased}, nil
	}
	return []Event{purchased, Activated{Purchase: o.Purchase, At: at}}, nil
}

// Expire decides that the purchase's time is up: only an active one whose EndsAt is at or before
// at, whatever its payment (spec: expire-promotions), else a NotDueError; on a purchase that is not
// active (a race that was lost) it yields no event.
func (p PromotionPurchase) Expire(at time.Time) ([]Event, error) {
	switch {
	case p.is.Status != Active:
		return nil, nil
	case p.is.EndsAt.After(at):
		return nil, NotDueError{Purchase: p.is.ID, EndsAt: p.is.EndsAt, At: at}
	}
	return []Event{PurchaseExpired{Purchase: p.is.ID, At: at}}, nil
}

// Cancel decides that a manager takes the purchase back; on a cancelled one it yields no event. It
// returns a TerminalError (INV-6) or a NotPurchasedError.
func (p PromotionPurchase) Cancel(at time.Time) ([]Event, error) {
	switch p.is.Status {
	case "":
		return nil, NotPurchasedError{}
	case Cancelled:
		return nil, nil
	case Expired:
		return nil, TerminalError{Purchase: p.is.ID, Status: p.is.Status}
	}
	return []Event{PurchaseCancelled{Purchase: p.is.ID, At: at}}, nil
}

// Import is the baseline of a purchase whose row was written outside of the journal.
func (p PromotionPurchase) Import(at time.Time) Event { return Imported{Purchase: p.is, At: at} }

// Apply records what happened and refuses nothing.
func (p PromotionPurchase) Apply(event Event) PromotionPurchase {
	next := p.is
	next.Version++
	next.UpdatedAt = event.OccurredAt()
	switch e := event.(type) {
	case Purchased:
		next.ID, next.TenantID = e.Purchase, e.Tenant
		next.PackageKind, next.PaymentStatus = e.PackageKind, e.PaymentStatus
		next.StartsAt, next.EndsAt, next.Targets = e.StartsAt, e.EndsAt, e.Targets
		next.Status, next.CreatedAt = Pending, e.At
	case Activated:
		next.Status = Active
	case PurchaseExpired:
		next.Status = Expired
	case PurchaseCancelled:
		next.Status = Cancelled
	case Imported:
		next = e.Purchase
	}
	return PromotionPurchase{is: next}
}
