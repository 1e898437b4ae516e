// Package simulation drives a platform's operations against workers that run beside it, keeps its
// own log of what was asked and answered, and then checks that everything that happened follows
// from that log.
//
//   - traffic.go casts the operations, run.go runs them at a rate, log.go remembers them.
//   - check.go is pure: the log, the streams and Kafka's records go in, findings come out. It knows
//     the rules by its own tables (rules.go), and calls none of the domain's decisions.
package simulation

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/promotion"
	"github.com/pin-platform/pinworker/ports"
)

// Kind is what an operation does, as reports name it.
type Kind string

// The operations (spec: domain, operations in flight), and what Operation.Asked holds of them.
const (
	RegisterLead Kind = "register lead" // crm.Registration
	ExtendLead   Kind = "extend lead"   // time.Time: until when
	ArchiveLead  Kind = "archive lead"

	Purchase       Kind = "purchase" // promotion.Order
	CancelPurchase Kind = "cancel purchase"

	PublishSlot         Kind = "publish slot" // calendar.Publication
	BookSlot            Kind = "book slot"    // Booking
	Confirm             Kind = "confirm appointment"
	Decline             Kind = "decline appointment"
	CancelAppointment   Kind = "cancel appointment"
	CompleteAppointment Kind = "complete appointment"

	ScheduleEvent   Kind = "schedule event"   // calendar.EventPlan
	RescheduleEvent Kind = "reschedule event" // Move
	StartEvent      Kind = "start event"
	CompleteEvent   Kind = "complete event"
	CancelEvent     Kind = "cancel event"
)

// Booking is what BookSlot asks for.
type Booking struct {
	Slot calendar.SlotID
	calendar.Request
}

// Move is what RescheduleEvent asks for.
type Move struct {
	StartAt   time.Time
	EndAt     time.Time
	Reminders []calendar.ReminderPlan
}

// Operation is one thing that somebody asked of the platform, and the answer.
type Operation struct {
	Kind  Kind
	ID    uuid.UUID   // the lead, purchase, slot, appointment or event that it is about
	Asked any         // see the kinds
	At    time.Time   // the moment that it was decided as of
	Actor ports.Actor // of this operation alone, so that its events are known by it
	// When it was asked and answered, by the simulation's own clock.
	Began time.Time
	Ended time.Time
	Answer
}

// Outcome is what an operation was told.
type Outcome int

// The outcomes.
const (
	Accepted Outcome = iota // it happened, or it had happened already
	Refused                 // a rule forbids it
	Conflict                // a race was lost: nothing happened
	Unknown                 // the answer was lost: it may have happened, as a whole
)

// Answer is what an operation was told, and why.
type Answer struct {
	Outcome Outcome
	Err     error // nil where it was accepted; the domain's own where it was refused
}

// AnswerOf tells apart what an operation may return.
func AnswerOf(err error) Answer {
	if err == nil {
		return Answer{}
	}
	if errors.Is(err, ports.ErrConflict) {
		return Answer{Conflict, err}
	}
	for _, as := range refusals {
		if refusal := as(err); refusal != nil {
			return Answer{Refused, refusal}
		}
	}
	return Answer{Unknown, err}
}

// refusals take the domain's typed error out of what an operation returned.
var refusals = []func(error) error{
	typed[crm.InvalidError], typed[crm.NotRegisteredError], typed[crm.AlreadyRegisteredError], typed[crm.ArchivedError], typed[crm.NotLaterError],
	typed[promotion.InvalidError], typed[promotion.NotPurchasedError], typed[promotion.AlreadyPurchasedError], typed[promotion.TerminalError],
	typed[calendar.InvalidError], typed[calendar.MissingError], typed[calendar.ExistsError], typed[calendar.StateError],
	typed[calendar.TooLateError], typed[calendar.MismatchError], typed[calendar.MissingPartnerError],
}

func typed[E error](err error) error {
	var as E
	if errors.As(err, &as) {
		return as
	}
	return nil
}

// Log remembers operations. It is safe for concurrent use.
type Log struct {
	mu         sync.Mutex
	operations []Operation
}

func (l *Log) add(o Operation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.operations = append(l.operations, o)
}

// Operations returns what was answered so far, in the order of the answers.
func (l *Log) Operations() []Operation {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.operations)
}
