package simulation

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/domain/promotion"
	"github.com/pin-platform/pinworker/ports"
)

// traffic casts what people do: something new begins, or something that has begun goes on. Moments
// are chosen so that much comes due within seconds, and so that people and the worker are after the
// same items at the same time. The seed chooses; ids and moments are new each time.
type traffic struct {
	random  *rand.Rand
	tenant  ids.TenantID
	horizon time.Duration
	late    time.Duration
	planned plannedActs
}

// act is an operation that is not asked for yet.
type act struct {
	op Operation
	do func(context.Context, Platform) error
	// then plans what follows once it was accepted.
	then func(answered time.Time)
}

// cast makes an act as of a moment.
type cast func(now time.Time) act

func newTraffic(plan Plan) *traffic {
	return &traffic{
		random: rand.New(rand.NewPCG(plan.Seed, 0)), //nolint:gosec // no secret
		tenant: plan.Tenant, horizon: plan.Horizon(), late: min(max(plan.Late, time.Second), plan.Horizon()),
	}
}

// next is what was planned for now, or something new.
func (t *traffic) next(now time.Time) act {
	if len(t.planned) > 0 && !t.planned[0].at.After(now) {
		return heap.Pop(&t.planned).(plannedAct).cast(now) //nolint:forcetypeassert // it holds no others
	}
	switch luck := t.luck(); {
	case luck < 30:
		return t.lead(now)
	case luck < 50:
		return t.promotion(t.luck() < 15)(now)
	case luck < 63:
		return t.slotOfYesterday(now)
	case luck < 73:
		return t.slotInTime(now)
	case luck < 80:
		return t.slotThatConfirms(now)
	}
	return t.event(now)
}

func (t *traffic) luck() int { return t.random.IntN(100) }

// soon is a moment that comes within the run.
func (t *traffic) soon(now time.Time) time.Time {
	return now.Add(t.horizon/5 + t.some(t.horizon*4/5))
}

// about is a moment shortly before another one, or for a while after it: a race with the worker.
func (t *traffic) about(due time.Time) time.Time {
	return due.Add(t.some(t.horizon/4+t.late) - t.horizon/4)
}

func (t *traffic) some(of time.Duration) time.Duration {
	return time.Duration(t.random.Int64N(int64(of)))
}

// plan has things done at a moment.
func (t *traffic) plan(at time.Time, casts ...cast) {
	for _, c := range casts {
		heap.Push(&t.planned, plannedAct{at, c})
	}
}

func newID[ID ~[16]byte]() ID { return ID(uuid.New()) }

func newOperation(kind Kind, id [16]byte, at time.Time, asked any) Operation {
	return Operation{Kind: kind, ID: id, At: ports.Stored(at), Asked: asked, Actor: ports.Actor(uuid.NewString())}
}

func (t *traffic) lead(now time.Time) act {
	due := ports.Stored(t.soon(now))
	r := crm.Registration{
		Lead: newID[crm.LeadID](), Tenant: t.tenant, Executor: newID[ids.UserID](), Investor: newID[ids.UserID](), ExpiresAt: due,
	}
	op := newOperation(RegisterLead, r.Lead, now, r)
	return act{op, func(ctx context.Context, p Platform) error { return p.CRM.Register(ctx, op.Actor, r) }, func(time.Time) {
		switch luck := t.luck(); {
		case luck < 20:
			t.plan(t.about(due), t.extend(r.Lead, due.AddDate(0, 1, 0)))
		case luck < 30: // and it comes due again
			t.plan(t.about(due), t.extend(r.Lead, due.Add(t.horizon)))
		case luck < 35: // a second click
			t.plan(t.about(due), t.extend(r.Lead, due.AddDate(0, 1, 0)), t.extend(r.Lead, due.AddDate(0, 1, 0)))
		case luck < 40: // not later
			t.plan(t.about(due), t.extend(r.Lead, due.Add(-time.Hour)))
		case luck < 50: // two at a time
			t.plan(t.about(due), t.extend(r.Lead, due.AddDate(0, 1, 0)), t.archive(r.Lead))
		case luck < 60:
			t.plan(t.about(due), t.archive(r.Lead))
		}
	}}
}

func (t *traffic) extend(lead crm.LeadID, to time.Time) cast {
	return func(now time.Time) act {
		op := newOperation(ExtendLead, lead, now, to)
		return act{op: op, do: func(ctx context.Context, p Platform) error { return p.CRM.Extend(ctx, op.Actor, lead, to) }}
	}
}

func (t *traffic) archive(lead crm.LeadID) cast {
	return func(now time.Time) act {
		op := newOperation(ArchiveLead, lead, now, nil)
		return act{op: op, do: func(ctx context.Context, p Platform) error { return p.CRM.Archive(ctx, op.Actor, lead) }}
	}
}

// promotion is bought. One that waits for its payment does not end by itself.
func (t *traffic) promotion(waits bool) cast {
	return func(now time.Time) act {
		due := ports.Stored(t.soon(now))
		order := promotion.Order{
			Purchase: newID[promotion.PurchaseID](), Tenant: t.tenant, PackageKind: "Premium", PaymentStatus: "NotRequired",
			StartsAt: ports.Stored(now), EndsAt: due, Targets: []promotion.Target{{Type: "Property", ID: uuid.New()}},
		}
		if waits {
			order.PaymentRequired, order.PaymentStatus = true, "Pending"
		}
		op := newOperation(Purchase, order.Purchase, now, order)
		return act{op, func(ctx context.Context, p Platform) error { return p.Promotion.Purchase(ctx, op.Actor, order) }, func(time.Time) {
			switch luck := t.luck(); {
			case luck < 35:
				t.plan(t.about(due), t.cancelPurchase(order.Purchase))
			case luck < 45:
				t.plan(t.about(due), t.cancelPurchase(order.Purchase), t.cancelPurchase(order.Purchase))
			}
		}}
	}
}

func (t *traffic) cancelPurchase(id promotion.PurchaseID) cast {
	return func(now time.Time) act {
		op := newOperation(CancelPurchase, id, now, nil)
		return act{op: op, do: func(ctx context.Context, p Platform) error { return p.Promotion.Cancel(ctx, op.Actor, id) }}
	}
}

// slot is one that an agent offers; its lead time of an hour begins at a moment.
func (t *traffic) slot(leadTime time.Time) calendar.Publication {
	start := ports.Stored(leadTime.Add(time.Hour))
	return calendar.Publication{
		Slot: newID[calendar.SlotID](), Tenant: t.tenant, Agent: newID[ids.UserID](), StartAt: start, EndAt: start.Add(time.Hour),
		MinLeadTimeMinutes: 60,
	}
}

func (t *traffic) publish(at time.Time, slot calendar.Publication, then func(time.Time)) act {
	op := newOperation(PublishSlot, slot.Slot, at, slot)
	return act{op, func(ctx context.Context, p Platform) error { return p.Calendar.Publish(ctx, op.Actor, slot) }, then}
}

const day = 24 * time.Hour

// slotOfYesterday was booked a day before its appointment times out, and comes back in time to be
// sold again.
func (t *traffic) slotOfYesterday(now time.Time) act {
	reminder := t.soon(now)
	slot := t.slot(reminder.Add(2 * day))
	return t.publish(now.Add(-day-time.Hour), slot, func(answered time.Time) {
		due := ports.Stored(t.soon(answered))
		book := func(time.Time) act { return t.book(due.Add(-day), slot, reminder, due) }
		t.plan(answered, book)
		if t.luck() < 20 {
			t.plan(answered, book) // INV-SLT-3: one of the two
		}
		if t.luck() < 40 { // somebody waits for it to be free again
			t.plan(t.about(due), func(now time.Time) act { return t.book(now, slot, slot.StartAt, t.soon(now)) })
		}
	})
}

// slotInTime is one whose lead time begins soon, and ends the time that its agent has.
func (t *traffic) slotInTime(now time.Time) act {
	due := ports.Stored(t.soon(now))
	slot := t.slot(due)
	return t.publish(now, slot, func(answered time.Time) {
		if t.luck() < 15 { // too late, perhaps
			t.plan(t.about(due), func(now time.Time) act { return t.book(now, slot, due, due) })
			return
		}
		t.plan(answered, func(now time.Time) act { return t.book(now, slot, due, due) })
	})
}

// slotThatConfirms makes appointments that no worker ever times out.
func (t *traffic) slotThatConfirms(now time.Time) act {
	slot := t.slot(t.soon(now))
	slot.AutoConfirm = true
	return t.publish(now, slot, func(answered time.Time) {
		t.plan(answered, func(now time.Time) act { return t.book(now, slot, slot.StartAt.Add(-time.Hour), time.Time{}) })
	})
}

// book takes a slot as of a moment, with a reminder that comes due at another one, or a little
// before it, and one that does not. What becomes of the appointment is decided about due.
func (t *traffic) book(at time.Time, slot calendar.Publication, reminder, due time.Time) act {
	b := Booking{slot.Slot, calendar.Request{
		Appointment: newID[calendar.AppointmentID](), CalendarEvent: newID[calendar.EventID](), Investor: newID[ids.UserID](),
		Kind: "Viewing", TimeZone: "Europe/Moscow", Reminders: reminders(slot.StartAt, reminder),
	}}
	op := newOperation(BookSlot, b.Appointment, at, b)
	book := func(ctx context.Context, p Platform) error { return p.Calendar.Book(ctx, op.Actor, b.Slot, b.Request) }
	return act{op, book, func(answered time.Time) {
		if due.IsZero() {
			t.confirmed(answered, b)
			return
		}
		confirm := t.confirm(b)
		decline, cancel := t.appointment(Decline, b), t.appointment(CancelAppointment, b)
		switch luck := t.luck(); {
		case luck < 20:
			t.plan(t.about(due), confirm)
		case luck < 28:
			t.plan(t.about(due), decline)
		case luck < 36:
			t.plan(t.about(due), cancel)
		case luck < 48: // two people at a time
			t.plan(t.about(due), confirm, cancel)
		case luck < 53:
			t.plan(t.about(due), decline, confirm)
		case luck < 57: // INV-CAL-3
			t.plan(t.about(due), t.ofEvent(CancelEvent, b.CalendarEvent))
		case luck < 61: // it begins with nobody having decided
			t.plan(t.about(due), t.ofEvent(StartEvent, b.CalendarEvent))
		}
	}}
}

// reminders are one that comes due at a moment, or up to a minute before it, and one when the event begins.
func reminders(start, due time.Time) []calendar.ReminderPlan {
	return []calendar.ReminderPlan{
		{Reminder: newID[calendar.ReminderID](), OffsetMinutes: int((start.Sub(due) + time.Minute - 1) / time.Minute)},
		{Reminder: newID[calendar.ReminderID]()},
	}
}

func (t *traffic) confirm(b Booking) cast {
	return func(now time.Time) act {
		a := t.appointment(Confirm, b)(now)
		a.then = func(answered time.Time) { t.confirmed(answered, b) }
		return a
	}
}

// confirmed is what becomes of a confirmed appointment.
func (t *traffic) confirmed(now time.Time, b Booking) {
	complete, cancel := t.appointment(CompleteAppointment, b), t.appointment(CancelAppointment, b)
	switch luck := t.luck(); {
	case luck < 50:
		t.plan(t.soon(now), func(now time.Time) act {
			a := t.ofEvent(StartEvent, b.CalendarEvent)(now)
			a.then = func(answered time.Time) {
				if t.luck() < 30 {
					t.plan(answered, cancel)
				}
				t.plan(answered, complete, t.ofEvent(CompleteEvent, b.CalendarEvent))
			}
			return a
		})
	case luck < 65:
		t.plan(t.soon(now), cancel)
	case luck < 75: // its event has not begun
		t.plan(t.soon(now), complete)
	case luck < 85: // a second click
		t.plan(now, t.appointment(Confirm, b))
	}
}

// appointment does to an appointment what needs nothing but its id.
func (t *traffic) appointment(kind Kind, b Booking) cast {
	return func(now time.Time) act {
		op := newOperation(kind, b.Appointment, now, nil)
		return act{op: op, do: func(ctx context.Context, p Platform) error {
			switch id := b.Appointment; kind {
			case Confirm:
				return p.Calendar.Confirm(ctx, op.Actor, id)
			case Decline:
				return p.Calendar.Decline(ctx, op.Actor, id)
			case CancelAppointment:
				return p.Calendar.CancelAppointment(ctx, op.Actor, id, userOf(op.Actor))
			default:
				return p.Calendar.CompleteAppointment(ctx, op.Actor, id)
			}
		}}
	}
}

// userOf is the user that an operation's actor is.
func userOf(actor ports.Actor) ids.UserID { return ids.UserID(uuid.MustParse(string(actor))) }

func (t *traffic) event(now time.Time) act {
	due := ports.Stored(t.soon(now))
	start := due.Add(time.Hour)
	plan := calendar.EventPlan{
		CalendarEvent: newID[calendar.EventID](), Tenant: t.tenant, Owner: newID[ids.UserID](), Client: newID[ids.UserID](), Kind: "Call",
		Origin: "Manual", StartAt: start, EndAt: start.Add(time.Hour), TimeZone: "Asia/Almaty", Reminders: reminders(start, due),
	}
	op := newOperation(ScheduleEvent, plan.CalendarEvent, now, plan)
	return act{op, func(ctx context.Context, p Platform) error { return p.Calendar.Schedule(ctx, op.Actor, plan) }, func(answered time.Time) {
		cancel, move := t.ofEvent(CancelEvent, plan.CalendarEvent), t.reschedule(plan.CalendarEvent)
		switch luck := t.luck(); {
		case luck < 25:
			t.plan(t.about(due), cancel)
		case luck < 45:
			t.plan(t.about(due), move)
		case luck < 55: // two at a time
			t.plan(t.about(due), cancel, move)
		case luck < 75:
			t.plan(t.about(due), func(now time.Time) act {
				a := t.ofEvent(StartEvent, plan.CalendarEvent)(now)
				a.then = func(answered time.Time) {
					t.plan(t.about(answered.Add(t.horizon/4)), t.ofEvent(CompleteEvent, plan.CalendarEvent))
					if t.luck() < 30 {
						t.plan(t.soon(answered), cancel)
					}
				}
				return a
			})
		case luck < 80: // it has not begun
			t.plan(answered, t.ofEvent(CompleteEvent, plan.CalendarEvent))
		}
	}}
}

func (t *traffic) reschedule(event calendar.EventID) cast {
	return func(now time.Time) act {
		due := ports.Stored(t.soon(now))
		start := due.Add(2 * time.Hour)
		m := Move{start, start.Add(time.Hour), reminders(start, due)}
		op := newOperation(RescheduleEvent, event, now, m)
		return act{op: op, do: func(ctx context.Context, p Platform) error {
			return p.Calendar.Reschedule(ctx, op.Actor, event, m.StartAt, m.EndAt, m.Reminders)
		}}
	}
}

// ofEvent does to an event what needs nothing but its id.
func (t *traffic) ofEvent(kind Kind, event calendar.EventID) cast {
	return func(now time.Time) act {
		op := newOperation(kind, event, now, nil)
		return act{op: op, do: func(ctx context.Context, p Platform) error {
			switch kind {
			case StartEvent:
				return p.Calendar.Start(ctx, op.Actor, event)
			case CompleteEvent:
				return p.Calendar.Complete(ctx, op.Actor, event)
			default:
				return p.Calendar.CancelEvent(ctx, op.Actor, event)
			}
		}}
	}
}

// plannedAct waits for its moment.
type plannedAct struct {
	at   time.Time
	cast cast
}

// plannedActs are a heap, the earliest first.
type plannedActs []plannedAct

func (p *plannedActs) Len() int           { return len(*p) }
func (p *plannedActs) Less(i, j int) bool { return (*p)[i].at.Before((*p)[j].at) }
func (p *plannedActs) Swap(i, j int)      { (*p)[i], (*p)[j] = (*p)[j], (*p)[i] }

// Push implements heap.Interface.
func (p *plannedActs) Push(x any) { *p = append(*p, x.(plannedAct)) } //nolint:forcetypeassert // it holds no others

// Pop implements heap.Interface.
func (p *plannedActs) Pop() any {
	last := (*p)[len(*p)-1]
	*p = (*p)[:len(*p)-1]
	return last
}
