package simulation

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/promotion"
	"github.com/pin-platform/pinworker/ports"
)

// life is one aggregate: what the log knows of it, and its stream.
type life struct {
	kind      string
	id        uuid.UUID
	made      *Operation // what it begins with, or would have
	slot      *life      // an appointment's
	event     *life      // an appointment's, a reminder's
	booked    *life      // the appointment that an event is of; nil for others
	reminders []*life    // an event's
	offset    int        // a reminder's minutes
	due       time.Time  // a reminder's

	events []ports.Happened
	states []state // what it was at each version, from 0: nothing yet
}

// state is what an aggregate is at a version, as far as rules go by it.
type state struct {
	status string
	due    time.Time // the moment that rules go by; zero: none
	start  time.Time // an event's
}

// lives are all aggregates of a log.
type lives map[uuid.UUID]*life

// livesOf puts a log's aggregates in place, each with its stream.
func livesOf(log []Operation, streams map[uuid.UUID][]ports.Happened) lives {
	all := make(lives)
	begin := func(kind string, id uuid.UUID, op *Operation) *life {
		all[id] = &life{kind: kind, id: id, made: op, events: streams[id]}
		return all[id]
	}
	remind := func(of *life, start time.Time, plans []calendar.ReminderPlan, op *Operation) {
		for _, p := range plans {
			r := begin(reminder, uuid.UUID(p.Reminder), op)
			r.event, r.offset, r.due = of, p.OffsetMinutes, start.Add(-time.Duration(p.OffsetMinutes)*time.Minute)
			of.reminders = append(of.reminders, r)
		}
	}
	for i := range log {
		op := &log[i]
		switch asked := op.Asked.(type) {
		case crm.Registration, promotion.Order, calendar.Publication:
			begin(operationRules[op.Kind].of, op.ID, op)
		case Booking:
			of := all[uuid.UUID(asked.Slot)]
			a, e := begin(appointment, op.ID, op), begin(event, uuid.UUID(asked.CalendarEvent), op)
			a.slot, a.event, e.booked = of, e, a
			remind(e, of.publication().StartAt, asked.Reminders, op)
		case calendar.EventPlan:
			remind(begin(event, op.ID, op), asked.StartAt, asked.Reminders, op)
		case Move:
			remind(all[op.ID], asked.StartAt, asked.Reminders, op)
		}
	}
	return all
}

// publication is what a slot was published with.
func (l *life) publication() calendar.Publication {
	p, _ := l.made.Asked.(calendar.Publication)
	return p
}

// now is what the aggregate is at last.
func (l *life) now() state { return l.states[len(l.states)-1] }

// name tells which aggregate it is, for people.
func (l *life) name() string { return l.kind + " " + l.id.String() }

// fold replays the stream by the rules. It reports the first thing that is against them, and goes
// on: what follows from a stream, the messages, must follow all the same.
func (l *life) fold(byActor map[ports.Actor]*Operation, against func(format string, args ...any)) {
	l.states = make([]state, 1, len(l.events)+1)
	said := false
	for i, e := range l.events {
		op, before := byActor[e.Actor], l.now()
		next := l.next(before, e, op)
		l.states = append(l.states, next)
		if said {
			continue
		}
		if why := l.breaks(i, e, op, before, next); why != "" {
			said = true
			against("version %d, %s: %s", e.Version, e.Event, why)
		}
	}
}

// breaks says what is wrong with an event where it stands; "" is nothing.
func (l *life) breaks(i int, e ports.Happened, op *Operation, before, next state) string {
	r, known := rules[e.Event]
	switch {
	case e.Version != i+1:
		return fmt.Sprintf("stands where version %d belongs", i+1)
	case e.Aggregate != l.kind || !known || r.of != l.kind:
		return "nothing of a " + l.kind
	case e.Altered:
		return "is not what was recorded"
	case e.Actor == ports.System && r.who == people:
		return "is for people to do, and the worker did it"
	case e.Actor != ports.System && r.who == worker:
		return fmt.Sprintf("is for the worker to do, and %s did it", e.Actor)
	case e.Actor != ports.System && op == nil:
		return fmt.Sprintf("was done by %s, which is no operation of this simulation", e.Actor)
	case op != nil && !e.At.Equal(op.At):
		return fmt.Sprintf("happened at %s, and its operation, %s, is of %s", spell(e.At), op.Kind, spell(op.At))
	case !slices.Contains(r.from, before.status):
		return "happened to one that was " + orNothing(before.status) + " already"
	case !r.when.holds(before.due, e.At):
		return fmt.Sprintf("happened at %s, and its moment is %s", spell(e.At), spell(before.due))
	case e.Event == "LeadExtended" && !next.due.After(before.due):
		return fmt.Sprintf("moves its moment from %s to %s, which is not later", spell(before.due), spell(next.due))
	}
	return differs(e.Data, l.says(e, next))
}

func orNothing(status string) string {
	if status == "" {
		return "nothing"
	}
	return status
}

// holds reports whether something may happen at a moment, beside another one.
func (w when) holds(due, at time.Time) bool {
	switch w {
	case after:
		return !due.IsZero() && due.Before(at)
	case fromThen:
		return !due.IsZero() && !at.Before(due)
	case untilThen:
		return !at.After(due)
	default:
		return true
	}
}

// next is what an event makes of the aggregate, by the log.
func (l *life) next(s state, e ports.Happened, op *Operation) state {
	s.status = rules[e.Event].to
	switch asked := l.made.Asked.(type) {
	case crm.Registration:
		if e.Event == "LeadRegistered" {
			s.due = asked.ExpiresAt
		}
	case promotion.Order:
		s.due = asked.EndsAt
	case calendar.Publication:
		s.due = soldUntil(asked)
	}
	switch e.Event {
	case "LeadExtended":
		if op != nil && op.Kind == ExtendLead {
			s.due, _ = op.Asked.(time.Time)
		}
	case "AppointmentBooked":
		s.due, s.status = pendingUntil(l.slot.publication(), e.At), "Pending"
		if s.due.IsZero() {
			s.status = "Confirmed"
		}
	case "CalendarEventPlanned":
		if s.start = l.plannedFor(); l.booked != nil {
			s.start = l.booked.slot.publication().StartAt
		}
	case "CalendarEventMoved":
		if op != nil && op.Kind == RescheduleEvent {
			s.start = op.Asked.(Move).StartAt //nolint:forcetypeassert // of its kind
		}
	case "ReminderScheduled":
		s.due = l.due
	}
	return s
}

// plannedFor is when an event that nobody booked was planned to begin.
func (l *life) plannedFor() time.Time {
	p, _ := l.made.Asked.(calendar.EventPlan)
	return p.StartAt
}

// says is what an event must hold.
func (l *life) says(e ports.Happened, s state) map[string]any {
	switch e.Event {
	case "LeadRegistered", "LeadExtended":
		return map[string]any{"ExpiresAt": s.due}
	case "PromotionPurchased":
		return map[string]any{"EndsAt": s.due}
	case "AppointmentBooked":
		return map[string]any{"PendingExpiresAt": s.due}
	case "CalendarEventPlanned", "CalendarEventMoved":
		return map[string]any{"StartAt": s.start}
	case "ReminderScheduled":
		return map[string]any{"DueAt": s.due}
	}
	return nil
}

// differs compares JSON with what it must say, and tells the first field that says something else.
func differs(document []byte, want map[string]any) string {
	if len(want) == 0 {
		return ""
	}
	var got map[string]any
	if err := json.Unmarshal(document, &got); err != nil {
		return "cannot be read: " + err.Error()
	}
	for _, field := range slices.Sorted(maps.Keys(want)) {
		value := want[field]
		switch v := value.(type) {
		case time.Time:
			value = spell(v)
		case int:
			value = float64(v)
		case fmt.Stringer:
			value = v.String()
		}
		if !reflect.DeepEqual(got[field], value) {
			return fmt.Sprintf("%s is %v, and should be %v", field, orNull(got[field]), orNull(value))
		}
	}
	return ""
}

func orNull(value any) any {
	if value == nil {
		return "null"
	}
	return value
}

func spell(moment time.Time) string { return moment.UTC().Format(time.RFC3339Nano) }
