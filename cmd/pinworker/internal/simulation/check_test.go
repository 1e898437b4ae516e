package simulation

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/promotion"
	"github.com/pin-platform/pinworker/ports"
)

// simulated is what some traffic beside workers leaves behind, in memory and in no time.
func simulated(t *testing.T, lasts time.Duration, spoil func(*world)) (e Evidence) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.slow = true
		if spoil != nil {
			spoil(w)
		}
		plan := Plan{Rate: 50, For: lasts, Concurrency: 8, Seed: 7, Tenant: w.traffic.tenant}
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				w.tick(t, time.Now())
				select {
				case <-stop:
					return
				case <-time.After(time.Second):
				}
			}
		}()
		if err := Run(t.Context(), w.Platform, plan, &w.log); err != nil {
			t.Error(err)
		}
		time.Sleep(plan.Horizon() + 2*time.Second)
		close(stop)
		<-stopped
		e = w.evidence(time.Now().Add(-2 * time.Second))
	})
	return e
}

var (
	once  sync.Once
	sound Evidence
)

// soundEvidence is of one run that everybody may spoil: a copy each time.
func soundEvidence(t *testing.T) Evidence {
	t.Helper()
	once.Do(func() { sound = simulated(t, 15*time.Second, nil) })
	e := sound
	e.Log, e.Streams, e.Records = slices.Clone(sound.Log), make(map[uuid.UUID][]ports.Happened), nil
	for id, stream := range sound.Streams {
		e.Streams[id] = slices.Clone(stream)
	}
	for _, r := range sound.Records {
		r.Headers = maps.Clone(r.Headers)
		e.Records = append(e.Records, r)
	}
	return e
}

// wantSound reports what was found where nothing should be.
func wantSound(t *testing.T, report Report) {
	t.Helper()
	for i, f := range report.Findings {
		if t.Errorf("%v", f); i > 10 {
			t.Fatalf("and %d more", len(report.Findings)-i)
		}
	}
}

func TestCheck_AcceptsTrafficBesideWorkersInWhichEverythingHappens(t *testing.T) {
	report := Check(soundEvidence(t))
	wantSound(t, report)
	for _, outcome := range []string{
		"leads expired", "promotions expired", "appointments timed out", "slots released by timeouts", "slots expired by timeouts",
		"reminders sent", "reminders skipped by the worker", "races with the worker that people won", "races with the worker that people lost",
	} {
		if report.Outcomes[outcome] == 0 {
			t.Errorf("no %s: %v", outcome, report.Outcomes)
		}
	}
	refused := 0
	for kind := range operationRules {
		switch n := report.Operations[kind]; {
		case n.Accepted == 0:
			t.Errorf("%s: %+v; none was accepted", kind, n)
		case n.Conflicts+n.Unknown > 0:
			t.Errorf("%s: %+v", kind, n)
		case n.Refused > 0:
			refused++
		}
	}
	if refused < 4 {
		t.Errorf("operations of %d kinds were refused: %v", refused, report.Operations)
	}
	for _, topic := range published.Topics {
		if n := report.Messages[topic]; n.Expected == 0 || n.Read != n.Expected || n.Repetitions != 0 {
			t.Errorf("%s: %+v", topic, n)
		}
	}
}

// history is a few operations and cycles that follow each other.
type history struct {
	*testing.T
	*world
	now time.Time
}

func newHistory(t *testing.T) *history {
	t.Helper()
	return &history{t, newWorld(), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
}

// after lets time pass.
func (h *history) after(d time.Duration) *history { h.now = h.now.Add(d); return h }

// do asks for what a cast makes; its answer must be one, and its refusal, if any, must say why.
func (h *history) do(c cast, answer Outcome) Operation {
	h.Helper()
	h.after(10 * time.Millisecond)
	op := h.ask(h.T, c(h.now), h.now).op
	if op.Outcome != answer {
		h.Fatalf("%s: %v, %v; want %v", op.Kind, op.Outcome, op.Err, answer)
	}
	return op
}

// cycle runs each job once.
func (h *history) cycle() { h.tick(h.T, h.now) }

func (h *history) lead() crm.LeadID { return crm.LeadID(h.do(h.traffic.lead, Accepted).ID) }

// book publishes a slot by a cast and books it.
func (h *history) book(publish cast, made time.Duration) Booking {
	h.Helper()
	slot := h.do(publish, Accepted).Asked.(calendar.Publication)
	op := h.do(func(now time.Time) act { return h.traffic.book(now.Add(made), slot, soldUntil(slot), now) }, Accepted)
	return op.Asked.(Booking)
}

const dayAgo = -day + 5*time.Second // what was booked then times out in 5 seconds

var histories = map[string]struct {
	tell func(h *history)
	want map[string]int
}{
	"a lead that nobody looks after expires": {
		func(h *history) { h.lead(); h.after(time.Minute).cycle() }, map[string]int{"leads expired": 1},
	},
	"a lead that is extended in time does not, and does later": {
		func(h *history) {
			id := h.lead()
			h.do(h.traffic.extend(id, h.now.Add(time.Hour)), Accepted)
			h.after(time.Minute).cycle()
			h.after(time.Hour).cycle()
			h.do(h.traffic.extend(id, h.now.Add(time.Hour)), Accepted)
			h.do(h.traffic.extend(id, h.now), Refused) // not later
			h.do(h.traffic.archive(id), Accepted)
			h.do(h.traffic.archive(id), Accepted) // already
			h.do(h.traffic.extend(id, h.now.Add(2*time.Hour)), Refused)
		}, map[string]int{"leads expired": 1},
	},
	"a purchase ends, and stays so": {
		func(h *history) {
			op := h.do(h.traffic.promotion(false), Accepted)
			h.after(time.Minute).cycle()
			h.do(h.traffic.cancelPurchase(promotion.PurchaseID(op.ID)), Refused)
		}, map[string]int{"promotions expired": 1, "races with the worker that people lost": 1},
	},
	"a purchase that a manager takes back does not end": {
		func(h *history) {
			op := h.do(h.traffic.promotion(false), Accepted)
			h.after(time.Minute).do(h.traffic.cancelPurchase(promotion.PurchaseID(op.ID)), Accepted)
			h.cycle()
		}, map[string]int{"races with the worker that people won": 1},
	},
	"a purchase that waits for its payment does not end": {
		func(h *history) { h.do(h.traffic.promotion(true), Accepted); h.after(time.Minute).cycle() }, nil,
	},
	"a forgotten appointment times out in time, and its slot is sold again": {
		func(h *history) {
			b := h.book(h.traffic.slotOfYesterday, dayAgo)
			h.after(10 * time.Second).cycle()
			h.do(h.traffic.confirm(b), Refused)
			again := h.do(func(now time.Time) act { return h.traffic.book(now, publicationOf(h, b), now, now) }, Accepted)
			h.do(func(now time.Time) act { return h.traffic.book(now, publicationOf(h, b), now, now) }, Refused) // INV-SLT-3
			h.do(h.traffic.confirm(again.Asked.(Booking)), Accepted)
			h.after(30 * time.Hour).cycle()
		}, map[string]int{"appointments timed out": 1, "slots released by timeouts": 1, "races with the worker that people lost": 1},
	},
	"a forgotten appointment times out when the lead time begins, and its slot expires": {
		func(h *history) { h.book(h.traffic.slotInTime, 0); h.after(time.Minute).cycle() },
		map[string]int{"appointments timed out": 1, "slots expired by timeouts": 1},
	},
	"a confirmed appointment stays so, and takes place": {
		func(h *history) {
			b := h.book(h.traffic.slotInTime, 0)
			h.after(time.Minute).do(h.traffic.confirm(b), Accepted) // after its moment
			h.cycle()
			h.do(h.traffic.appointment(CompleteAppointment, b), Refused) // its event has not begun
			h.do(h.traffic.ofEvent(CancelEvent, b.CalendarEvent), Refused)
			h.do(h.traffic.ofEvent(StartEvent, b.CalendarEvent), Accepted)
			h.do(h.traffic.ofEvent(CompleteEvent, b.CalendarEvent), Refused)
			h.do(h.traffic.appointment(CompleteAppointment, b), Accepted)
			h.do(h.traffic.appointment(CancelAppointment, b), Refused)
			h.after(2 * time.Hour).cycle()
		}, map[string]int{"races with the worker that people won": 1, "reminders sent": 1},
	},
	"an appointment that confirms by itself, and is called off too late to sell its slot again": {
		func(h *history) {
			b := h.book(h.traffic.slotThatConfirms, 0)
			h.after(time.Minute).cycle()
			h.do(h.traffic.appointment(CancelAppointment, b), Accepted)
			h.do(func(now time.Time) act { return h.traffic.book(now, publicationOf(h, b), now, now) }, Refused)
			h.after(2 * time.Hour).cycle()
		}, map[string]int{"reminders sent": 1},
	},
	"a declined appointment gives its slot back": {
		func(h *history) {
			b := h.book(h.traffic.slotInTime, 0)
			h.do(h.traffic.appointment(Decline, b), Accepted)
			h.do(h.traffic.appointment(Decline, b), Accepted) // already
			h.after(time.Minute).cycle()
			h.do(func(now time.Time) act { return h.traffic.book(now, publicationOf(h, b), now, now) }, Refused) // too late
		}, nil,
	},
	"an event is moved, begins and ends, its reminders with it": {
		func(h *history) {
			op := h.do(h.traffic.event, Accepted)
			id := calendar.EventID(op.ID)
			h.do(h.traffic.reschedule(id), Accepted)
			h.after(time.Minute).cycle()
			h.do(h.traffic.ofEvent(StartEvent, id), Accepted)
			h.do(h.traffic.reschedule(id), Refused)
			h.do(h.traffic.ofEvent(CompleteEvent, id), Accepted)
			h.do(h.traffic.ofEvent(CancelEvent, id), Refused)
			h.after(3 * time.Hour).cycle()
		}, map[string]int{"reminders sent": 1},
	},
	"an event is called off after its first reminder": {
		func(h *history) {
			op := h.do(h.traffic.event, Accepted)
			h.after(time.Minute).cycle()
			h.do(h.traffic.ofEvent(CancelEvent, calendar.EventID(op.ID)), Accepted)
			h.do(h.traffic.ofEvent(CancelEvent, calendar.EventID(op.ID)), Accepted) // already
			h.after(2 * time.Hour).cycle()
		}, map[string]int{"reminders sent": 1},
	},
}

// publicationOf finds the slot of a booking in the log.
func publicationOf(h *history, b Booking) calendar.Publication {
	for _, op := range h.log.Operations() {
		if op.ID == uuid.UUID(b.Slot) {
			return op.Asked.(calendar.Publication)
		}
	}
	return calendar.Publication{}
}

func TestCheck_AcceptsEachSoundHistory(t *testing.T) {
	for name, test := range histories {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t)
			test.tell(h)
			report := Check(h.evidence(h.now))
			wantSound(t, report)
			for _, silent := range []string{"reminders sent", "reminders skipped by the worker"} {
				if test.want[silent] == 0 { // they come with everything in the calendar
					delete(report.Outcomes, silent)
				}
			}
			if len(report.Outcomes) != len(test.want) || !maps.Equal(report.Outcomes, test.want) && len(test.want) > 0 {
				t.Errorf("outcomes %v; want %v", report.Outcomes, test.want)
			}
		})
	}
}

// found checks that a seeded bug is among the findings, and that it is not drowned in others.
func found(t *testing.T, report Report, about uuid.UUID, what string) {
	t.Helper()
	if !slices.ContainsFunc(report.Findings, func(f Finding) bool {
		return (about == uuid.Nil || f.ID == about) && strings.Contains(f.What, what)
	}) {
		t.Errorf("not found: %s %q, among %d findings %.3000v", about, what, len(report.Findings), report.Findings)
	}
}

// last finds an aggregate whose stream ends with an event that was done by the worker, or by
// people, and of which more holds.
func (e *Evidence) last(t *testing.T, name string, worker bool, holds func(c *checker, l *life) bool) *life {
	t.Helper()
	c := newChecker(*e)
	for _, l := range c.inOrder() {
		l.fold(c.byActor, t.Errorf)
	}
	for _, l := range c.inOrder() {
		n := len(l.events)
		if n > 0 && l.events[n-1].Event == name && (l.events[n-1].Actor == ports.System) == worker && (holds == nil || holds(c, l)) {
			return l
		}
	}
	t.Fatalf("nothing in the evidence ends with %s", name)
	return nil
}

// alone reports whether nobody asked for more than what happened to a life.
func alone(c *checker, l *life) bool {
	asked := 0
	for _, op := range c.Log {
		if op.ID == l.id {
			asked++
		}
	}
	for _, e := range l.events {
		if c.byActor[e.Actor] != nil {
			asked--
		}
	}
	return asked == 0
}

// cut takes the last event out of a life's stream.
func (e *Evidence) cut(l *life) { e.Streams[l.id] = e.Streams[l.id][:len(e.Streams[l.id])-1] }

// append puts one more event of the worker's at the end of a life's stream.
func (e *Evidence) append(l *life, name string, at time.Time) {
	e.Streams[l.id] = append(e.Streams[l.id], ports.Happened{
		Aggregate: l.kind, Version: len(l.events) + 1, Event: name, At: at, Actor: ports.System, Run: ports.NewRunID(), Data: []byte("{}"),
	})
}

// record finds the last message about a subject.
func (e *Evidence) record(t *testing.T, subject uuid.UUID) *Record {
	t.Helper()
	for i := len(e.Records) - 1; i >= 0; i-- {
		if e.Records[i].Headers["ce_subject"] == subject.String() {
			return &e.Records[i]
		}
	}
	t.Fatalf("no message about %s", subject)
	return nil
}

func (e *Evidence) lose(t *testing.T, subject uuid.UUID) {
	t.Helper()
	lost := *e.record(t, subject)
	e.Records = slices.DeleteFunc(e.Records, func(r Record) bool {
		return r.Topic == lost.Topic && r.Partition == lost.Partition && r.Offset == lost.Offset
	})
}

// operation finds who did the last thing in a life.
func (e *Evidence) operation(l *life) *Operation {
	i := slices.IndexFunc(e.Log, func(o Operation) bool { return o.Actor == l.events[len(l.events)-1].Actor })
	return &e.Log[i]
}

// seeded are faults of the product, each by what it leaves behind. seed returns what it is about.
var seeded = map[string]struct {
	seed func(t *testing.T, e *Evidence) *life
	what string
	most int // findings that it may lead to
}{
	"a lost message of a job": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "LeadExpired", true, nil)
		e.lose(t, l.id)
		return l
	}, "LeadExpired: its message is not in Kafka", 1},
	"a lost message of an operation": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "CalendarEventCalledOff", false, nil)
		e.lose(t, l.id)
		return l
	}, "CalendarEventCalledOff: its message is not in Kafka", 1},
	"a doubled transition": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "LeadExpired", true, nil)
		e.append(l, "LeadExpired", l.events[len(l.events)-1].At.Add(time.Second))
		return l
	}, "LeadExpired: happened to one that was Expired already", 2},
	"a doubled event of one operation": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "LeadArchived", false, alone)
		again := l.events[len(l.events)-1]
		again.Version++
		e.Streams[l.id] = append(e.Streams[l.id], again)
		return l
	}, "archive lead was asked for once, and LeadArchived stands 2 times", 2},
	"a duplicate with another ce_id": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "LeadExpired", true, nil)
		again := *e.record(t, l.id)
		again.Offset, again.Headers = again.Offset+1_000_000, maps.Clone(again.Headers)
		again.Headers["ce_id"] = uuid.NewString()
		e.Records = append(e.Records, again)
		return l
	}, "its ce_id is", 1},
	"a slot that expired and could be sold again": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "SlotReleased", true, nil)
		e.Streams[l.id][len(l.events)-1].Event = "SlotExpired"
		return l
	}, "SlotExpired: happened at", 1},
	"a slot that was released too late to be sold": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "SlotExpired", true, nil)
		e.Streams[l.id][len(l.events)-1].Event = "SlotReleased"
		return l
	}, "SlotReleased: happened at", 1},
	"a reminder sent for a cancelled event": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "ReminderSkipped", false, func(_ *checker, l *life) bool {
			return l.offset > 0 && l.event.booked == nil && l.event.now().status == "Cancelled"
		})
		end := e.operation(l).Ended
		e.cut(l)
		l.events = e.Streams[l.id]
		e.append(l, "ReminderSent", end.Add(time.Minute))
		return l
	}, "CalendarEventCalledOff happened to its event at", 2},
	"a confirmed appointment that expired": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "AppointmentConfirmed", false, nil)
		e.append(l, "AppointmentExpired", e.Until)
		return l
	}, "AppointmentExpired: happened to one that was Confirmed already", 4},
	"an accepted operation that is not in its stream": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "LeadArchived", false, func(c *checker, l *life) bool { return alone(c, l) && len(l.events) > 2 })
		e.cut(l)
		return l
	}, "archive lead was accepted at", 1},
	"an event that is not in its place": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "LeadArchived", false, alone)
		stream := e.Streams[l.id]
		stream[len(stream)-1].Version++
		return l
	}, "stands where version", 1},
	"events in another order than their operations": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "CalendarEventEnded", false, func(_ *checker, l *life) bool { return l.booked == nil })
		stream := e.Streams[l.id]
		n := len(stream)
		stream[n-2], stream[n-1] = stream[n-1], stream[n-2]
		stream[n-2].Version, stream[n-1].Version = n-1, n
		return l
	}, "was asked for after start event was accepted, and stands before it", 12},
	"messages in another order than their versions": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "PromotionPurchaseExpired", true, nil)
		e.record(t, l.id).Offset = -1
		return l
	}, "version 2 comes after version 3", 1},
	"a key in two partitions": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "PromotionPurchaseExpired", true, nil)
		e.record(t, l.id).Partition = 99
		return l
	}, "no order is kept", 1},
	"a message with another reason": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "AppointmentExpired", true, nil)
		r := e.record(t, l.id)
		r.Value = []byte(strings.Replace(string(r.Value), `"Reason":"Expired"`, `"Reason":"Declined"`, 1))
		return l
	}, "Reason is Declined, and should be Expired", 1},
	"a message that breaks its contract": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "LeadExpired", true, nil)
		delete(e.record(t, l.id).Headers, "content-type")
		return l
	}, "breaks its contract", 1},
	"a message that nothing leads to": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "LeadExpired", true, nil)
		again := *e.record(t, l.id)
		again.Offset, again.Headers = again.Offset+1_000_000, maps.Clone(again.Headers)
		again.Headers["ce_aggregateversion"] = "9"
		e.Records = append(e.Records, again)
		return l
	}, "nothing that happened leads to this message", 1},
	"a refused operation that happened": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "LeadArchived", false, alone)
		e.operation(l).Answer = Answer{Refused, crm.ArchivedError{Lead: crm.LeadID(l.id)}}
		return l
	}, "LeadArchived stands in its stream all the same", 2},
	"an operation refused for nothing": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "AppointmentConfirmed", false, nil)
		op := newOperation(Decline, l.id, e.Until, nil)
		op.Began, op.Ended = e.Until, e.Until.Add(time.Second)
		op.Answer = Answer{Refused, calendar.StateError{Kind: calendar.KindAppointment, ID: l.id, Status: "Expired", Act: "be declined"}}
		e.Log = append(e.Log, op)
		return l
	}, "its streams give no reason for it", 1},
	"an operation refused where it may happen": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "AppointmentConfirmed", false, nil)
		op := newOperation(CancelAppointment, l.id, e.Until, nil)
		op.Began, op.Ended = e.Until, e.Until.Add(time.Second)
		op.Answer = Answer{Refused, calendar.StateError{Kind: calendar.KindAppointment, ID: l.id, Status: "Confirmed", Act: "be cancelled"}}
		e.Log = append(e.Log, op)
		return l
	}, "its streams give no reason for it", 1},
	"half a cascade of the worker's": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "SlotExpired", true, nil)
		e.cut(l)
		return l
	}, "nothing of [SlotReleased SlotExpired] happened to it when AppointmentExpired", 1},
	"half a cascade of an operation whose answer was lost": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "SlotReleased", false, nil)
		e.operation(l).Answer = Answer{Outcome: Unknown}
		e.cut(l)
		return l
	}, "nothing of [SlotReleased SlotExpired] happened to it when Appointment", 1},
	"a lead that was not taken": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "LeadExpired", true, nil)
		e.lose(t, l.id)
		e.cut(l)
		return l
	}, "and lead-expiration has not taken it by", 1},
	"a lead that was taken before its moment": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "LeadExpired", true, nil)
		e.Streams[l.id][len(l.events)-1].At = l.made.Asked.(crm.Registration).ExpiresAt
		return l
	}, "LeadExpired: happened at", 2},
	"a reminder that is left behind": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "ReminderSkipped", false, func(_ *checker, l *life) bool { return l.offset == 0 })
		e.cut(l)
		return l
	}, "it is pending, and its event is", 1},
	"a reminder that was not replaced": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "ReminderDropped", false, func(_ *checker, l *life) bool { return l.offset == 0 && !l.event.over() })
		e.cut(l)
		return l
	}, "its event was moved away from it", 1},
	"a reminder that was skipped for nothing": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "ReminderSent", true, func(_ *checker, l *life) bool { return !l.event.over() })
		e.lose(t, l.id)
		e.Streams[l.id][len(l.events)-1].Event = "ReminderSkipped"
		return l
	}, "the worker skipped it, and its event", 1},
	"an event that was altered": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "LeadExpired", true, nil)
		e.Streams[l.id][0].Altered = true
		return l
	}, "is not what was recorded", 1},
	"an event with another moment": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "LeadExpired", true, nil)
		e.Streams[l.id][0].Data = []byte(`{"ExpiresAt":"2001-01-01T00:00:00Z"}`)
		return l
	}, "ExpiresAt is 2001-01-01T00:00:00Z, and should be", 1},
	"an event of somebody else's": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "LeadArchived", false, alone)
		e.Streams[l.id][len(l.events)-1].Actor = "a stranger"
		return l
	}, "was done by a stranger, which is no operation of this simulation", 2},
	"the worker doing what is for people to do": {func(t *testing.T, e *Evidence) *life {
		l := e.last(t, "LeadExpired", true, nil)
		e.append(l, "LeadArchived", e.Until)
		return l
	}, "is for people to do, and the worker did it", 1},
}

func TestCheck_CatchesEachSeededBug(t *testing.T) {
	for name, test := range seeded {
		t.Run(name, func(t *testing.T) {
			e := soundEvidence(t)
			about := test.seed(t, &e)
			report := Check(e)
			found(t, report, about.id, test.what)
			if len(report.Findings) > test.most {
				t.Errorf("%d findings: %v", len(report.Findings), report.Findings)
			}
			t.Log(report.Findings)
		})
	}
}

func TestCheck_AcceptsWhatIsNoFault(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, e *Evidence){
		"a message that comes twice": func(t *testing.T, e *Evidence) {
			again := *e.record(t, e.last(t, "LeadExpired", true, nil).id)
			again.Offset += 1_000_000
			e.Records = append(e.Records, again)
		},
		"a lost answer of what happened": func(t *testing.T, e *Evidence) {
			e.operation(e.last(t, "LeadArchived", false, alone)).Answer = Answer{Outcome: Unknown}
		},
		"a lost answer of what did not": func(t *testing.T, e *Evidence) {
			l := e.last(t, "LeadArchived", false, func(c *checker, l *life) bool { return alone(c, l) && len(l.events) > 2 })
			e.operation(l).Answer = Answer{Outcome: Unknown}
			e.cut(l)
		},
		"a message of somebody else's": func(t *testing.T, e *Evidence) {
			other := *e.record(t, e.last(t, "LeadExpired", true, nil).id)
			other.Key, other.Headers = uuid.NewString(), map[string]string{"ce_subject": uuid.NewString(), "ce_tenantid": uuid.NewString()}
			e.Records = append(e.Records, other)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := soundEvidence(t)
			spoil(t, &e)
			wantSound(t, Check(e))
		})
	}
}

// Bugs in the rules themselves, while traffic goes on.
func TestCheck_CatchesWorkersThatBreakTheirRules(t *testing.T) {
	without := func(decide func(calendar.Booking, time.Time) ([]calendar.Event, error), name string) func(calendar.Booking, time.Time) ([]calendar.Event, error) {
		return func(b calendar.Booking, at time.Time) ([]calendar.Event, error) {
			events, err := decide(b, at)
			return slices.DeleteFunc(events, func(e calendar.Event) bool { _, is := stored(e); return is == name }), err
		}
	}
	for name, test := range map[string]struct {
		spoil func(*world)
		what  string
	}{
		"a timeout that always releases the slot": {func(w *world) {
			decide := w.timeOut.Decide
			w.timeOut.Decide = func(b calendar.Booking, at time.Time) ([]calendar.Event, error) {
				events, err := decide(b, at)
				for i, e := range events {
					if ranOut, is := e.(calendar.SlotExpired); is {
						events[i] = calendar.SlotReleased(ranOut)
					}
				}
				return events, err
			}
		}, "SlotReleased: happened at"},
		"a timeout that forgets the reminders": {func(w *world) {
			w.timeOut.Decide = without(w.timeOut.Decide, "ReminderSkipped")
		}, "it is pending, and its event is Cancelled"},
		"a timeout that forgets the event": {func(w *world) {
			w.timeOut.Decide = without(w.timeOut.Decide, "CalendarEventCalledOff")
		}, "nothing of [CalendarEventCalledOff] happened to it"},
		"leads that expire twice": {func(w *world) {
			decide := w.expire.Decide
			w.expire.Decide = func(l crm.Lead, at time.Time) ([]crm.Event, error) {
				events, err := decide(l, at)
				return append(events, events...), err
			}
		}, "happened to one that was Expired already"},
		"a job that tells nobody": {func(w *world) { w.end.Announce = nil }, "PromotionPurchaseExpired: its message is not in Kafka"},
		"a job that sends no reminders": {func(w *world) {
			w.dispatch.Decide = func(calendar.DueReminder, time.Time) ([]calendar.Event, error) { return nil, nil }
		}, "does anybody serve it?"},
	} {
		t.Run(name, func(t *testing.T) { found(t, Check(simulated(t, 5*time.Second, test.spoil)), uuid.Nil, test.what) })
	}
}

func TestCheck_SaysThatNobodyServes(t *testing.T) {
	h := newHistory(t)
	for range 5 {
		h.lead()
		h.do(h.traffic.promotion(false), Accepted)
		h.do(h.traffic.event, Accepted)
		h.book(h.traffic.slotInTime, 0)
	}
	e := h.evidence(h.now.Add(time.Minute))
	e.Records = nil
	report := Check(e)
	if len(report.Findings) != 6 { // four jobs, and two topics that something was committed to
		t.Errorf("%d findings: %v", len(report.Findings), report.Findings)
	}
	for _, what := range []string{"does anybody serve it?", "does a relay run?"} {
		found(t, report, uuid.Nil, what)
	}
	overdue := Overdue(e.Log, e.Streams, e.Until)
	if len(overdue) != 4 || len(overdue[ports.LeadExpiration]) != 5 {
		t.Errorf("overdue %v", overdue)
	}
}
