package main

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/domain/promotion"
	"github.com/pin-platform/pinworker/ports"
)

// The story's clock runs through one working day in the past, a quarter of an hour a tick: the
// worker never takes what is not due.
const (
	storyTick  = 15 * time.Minute
	storyTicks = 32
)

// storySizes say how much happens.
type storySizes struct{ leads, bookings, events, promotions int }

// story is what the platform's people do before and in one day, from a seed alone.
type story struct {
	random  *rand.Rand
	day     time.Time // when it begins
	agents  []agent
	acts    []act // in the order of their moments
	leads   int   // that come due within the day with nobody to extend or archive them in time
	follow  []storyItem
	subject int
}

type agent struct {
	user   ids.UserID
	tenant ids.TenantID
}

// act is one thing that somebody does at a moment. The acts of one subject follow each other,
// others go on beside them.
type act struct {
	at      time.Time
	subject int
	name    string
	// topics are those that it publishes a message to.
	topics []string
	do     func(context.Context, operations) error
}

// storyItem is one of the examples that are followed from their birth to Kafka.
type storyItem struct {
	what string
	id   uuid.UUID
}

// newStory casts a day. The same seed casts the same one.
func newStory(seed uint64, day time.Time, sizes storySizes) *story {
	s := &story{random: rand.New(rand.NewPCG(seed, 0)), day: day} //nolint:gosec // a story, no secret
	tenants := []ids.TenantID{newStoryID[ids.TenantID](s), newStoryID[ids.TenantID](s), newStoryID[ids.TenantID](s)}
	for i := range 40 {
		s.agents = append(s.agents, agent{newStoryID[ids.UserID](s), tenants[i%len(tenants)]})
	}
	for range sizes.leads {
		s.lead()
	}
	for range sizes.bookings {
		s.booking()
	}
	for range sizes.events {
		s.event()
	}
	for range sizes.promotions {
		s.promotion()
	}
	slices.SortStableFunc(s.acts, func(a, b act) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.subject, b.subject)) })
	return s
}

func newStoryID[ID ~[16]byte](s *story) (id ID) {
	for i := range id {
		id[i] = byte(s.random.UintN(256))
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // version 4
	return id
}

func actorOf(user ids.UserID) ports.Actor { return ports.Actor(user.String()) }

// within returns a moment between two ticks of the day, at neither of them.
func (s *story) within(from, to int) time.Time {
	return s.day.Add(time.Duration(from)*storyTick + time.Duration(1+s.random.IntN((to-from)*int(storyTick/time.Second)-1))*time.Second)
}

func (s *story) someone() agent { return s.agents[s.random.IntN(len(s.agents))] }

// perhaps is true for so many of a hundred.
func (s *story) perhaps(percent int) bool { return s.random.IntN(100) < percent }

func (s *story) begin() { s.subject++ }

func (s *story) act(at time.Time, name string, do func(context.Context, operations) error, topics ...string) {
	s.acts = append(s.acts, act{at: ports.Stored(at), subject: s.subject, name: name, topics: topics, do: do})
}

// example follows an item, if it is the first of its kind.
func (s *story) example(what string, id uuid.UUID) {
	if !slices.ContainsFunc(s.follow, func(i storyItem) bool { return i.what == what }) {
		s.follow = append(s.follow, storyItem{what, id})
	}
}

// lead is registered a month before; on the day it comes due its agent looks after it in time, or
// too late, or not at all.
func (s *story) lead() {
	s.begin()
	who := s.someone()
	tick := s.random.IntN(storyTicks + 8)
	r := crm.Registration{
		Lead: newStoryID[crm.LeadID](s), Tenant: who.tenant, Executor: who.user, Investor: newStoryID[ids.UserID](s),
		ExpiresAt: s.within(tick, tick+1),
	}
	actor := actorOf(who.user)
	s.act(s.day.AddDate(0, -1, 0), "leads registered", func(ctx context.Context, o operations) error {
		return o.crm.Register(ctx, actor, r)
	})
	extend := func(ctx context.Context, o operations) error {
		return o.crm.Extend(ctx, actor, r.Lead, r.ExpiresAt.AddDate(0, 1, 0))
	}
	switch luck := s.random.IntN(100); {
	case tick >= storyTicks: // comes due after the day
	case luck < 15:
		s.act(r.ExpiresAt.Add(-time.Hour), "leads extended in time", extend)
	case luck < 20:
		s.act(r.ExpiresAt.Add(-time.Hour), "leads archived in time", func(ctx context.Context, o operations) error {
			return o.crm.Archive(ctx, actor, r.Lead)
		})
	default:
		s.leads++
		if tick+2 < storyTicks && luck < 30 {
			s.example("a lead that expired and was extended after all", uuid.UUID(r.Lead))
			s.act(r.ExpiresAt.Add(2*storyTick), "leads revived", extend)
		}
	}
}

// booking is a slot that an investor takes: the agent confirms, declines or forgets it, or the
// investor calls it off. A slot that comes back in time is often taken by someone else.
func (s *story) booking() {
	s.begin()
	who := s.someone()
	actor := actorOf(who.user)
	start := s.day.Add(time.Duration(26+s.random.IntN(100)) * time.Hour)
	made := s.within(0, storyTicks-2).AddDate(0, 0, -1) // times out a day later
	late := s.perhaps(25)
	if late { // times out when the slot's lead time begins: too late to sell it again
		start = s.within(8, storyTicks-2).Add(2 * time.Hour)
		made = start.Add(-26 * time.Hour)
	}
	slot := calendar.Publication{
		Slot: newStoryID[calendar.SlotID](s), Tenant: who.tenant, Agent: who.user, StartAt: start, EndAt: start.Add(time.Hour),
		MinLeadTimeMinutes: 120, AutoConfirm: !late && s.perhaps(10),
	}
	due := made.Add(24 * time.Hour)
	s.act(made.Add(-24*time.Hour), "slots published", func(ctx context.Context, o operations) error {
		return o.calendar.Publish(ctx, actor, slot)
	})
	first := s.book(made, slot)
	if slot.AutoConfirm {
		return
	}
	ended := []string{published.TopicAppointmentCancelled, published.TopicEventStatusChanged}
	switch luck := s.random.IntN(100); {
	case luck < 40:
		s.act(due.Add(-3*time.Hour), "appointments confirmed", func(ctx context.Context, o operations) error {
			return o.calendar.Confirm(ctx, actor, first.Appointment)
		})
		return
	case luck < 50:
		s.act(due.Add(-3*time.Hour), "appointments declined", func(ctx context.Context, o operations) error {
			return o.calendar.Decline(ctx, actor, first.Appointment)
		}, ended...)
	case luck < 60:
		s.act(due.Add(-3*time.Hour), "appointments cancelled", func(ctx context.Context, o operations) error {
			return o.calendar.CancelAppointment(ctx, actorOf(first.Investor), first.Appointment, first.Investor)
		}, ended...)
	default: // forgotten
		s.example("an appointment that its agent forgot", uuid.UUID(first.Appointment))
		s.example("the slot that it had blocked", uuid.UUID(slot.Slot))
	}
	if !late && s.perhaps(50) {
		s.book(due.Add(2*storyTick), slot)
	}
}

func (s *story) book(at time.Time, slot calendar.Publication) calendar.Request {
	request := calendar.Request{
		Appointment: newStoryID[calendar.AppointmentID](s), CalendarEvent: newStoryID[calendar.EventID](s),
		Investor: newStoryID[ids.UserID](s), Kind: "Viewing", TimeZone: "Europe/Moscow", Reminders: s.reminders(slot.StartAt),
	}
	s.act(at, "slots booked", func(ctx context.Context, o operations) error {
		return o.calendar.Book(ctx, actorOf(request.Investor), slot.Slot, request)
	}, published.TopicEventStatusChanged)
	return request
}

// reminders are one an hour before and one that comes due somewhere in the day, if that can be.
func (s *story) reminders(start time.Time) []calendar.ReminderPlan {
	plans := []calendar.ReminderPlan{{Reminder: newStoryID[calendar.ReminderID](s), OffsetMinutes: 60}}
	if before := start.Sub(s.within(0, storyTicks)); before > 2*time.Hour {
		plans = append(plans, calendar.ReminderPlan{Reminder: newStoryID[calendar.ReminderID](s), OffsetMinutes: int(before.Minutes())})
	}
	return plans
}

// event is a call on the day, planned the day before; some are moved, cancelled, or held.
func (s *story) event() {
	s.begin()
	who := s.someone()
	actor := actorOf(who.user)
	tick := 5 + s.random.IntN(storyTicks-8)
	start := s.within(tick, tick+1)
	plan := calendar.EventPlan{
		CalendarEvent: newStoryID[calendar.EventID](s), Tenant: who.tenant, Owner: who.user, Client: newStoryID[ids.UserID](s),
		Kind: "Call", Origin: "Manual", StartAt: start, EndAt: start.Add(30 * time.Minute), TimeZone: "Asia/Almaty",
		Reminders: []calendar.ReminderPlan{
			{Reminder: newStoryID[calendar.ReminderID](s), OffsetMinutes: 60}, {Reminder: newStoryID[calendar.ReminderID](s), OffsetMinutes: 15},
		},
	}
	s.act(s.day.AddDate(0, 0, -1), "calls planned", func(ctx context.Context, o operations) error {
		return o.calendar.Schedule(ctx, actor, plan)
	}, published.TopicEventStatusChanged)
	switch luck := s.random.IntN(100); {
	case luck < 15: // before any reminder, or between the two
		s.act(start.Add(-time.Duration(20+s.random.IntN(60))*time.Minute), "calls cancelled", func(ctx context.Context, o operations) error {
			return o.calendar.CancelEvent(ctx, actor, plan.CalendarEvent)
		}, published.TopicEventStatusChanged)
	case luck < 30:
		later := start.Add(2 * time.Hour)
		moved := s.reminders(later)
		s.act(start.Add(-time.Duration(20+s.random.IntN(60))*time.Minute), "calls moved", func(ctx context.Context, o operations) error {
			return o.calendar.Reschedule(ctx, actor, plan.CalendarEvent, later, later.Add(30*time.Minute), moved)
		})
	case luck < 60:
		s.example("a reminder of a call that took place", uuid.UUID(plan.Reminders[0].Reminder))
		s.act(start, "calls begun", func(ctx context.Context, o operations) error {
			return o.calendar.Start(ctx, actor, plan.CalendarEvent)
		}, published.TopicEventStatusChanged)
		s.act(start.Add(20*time.Minute), "calls held", func(ctx context.Context, o operations) error {
			return o.calendar.Complete(ctx, actor, plan.CalendarEvent)
		}, published.TopicEventStatusChanged)
	}
}

// promotion was bought a week before and ends on the day, unless its agency's manager, who bought it,
// takes it back.
func (s *story) promotion() {
	s.begin()
	tick := 1 + s.random.IntN(storyTicks+8)
	ends := s.within(tick, tick+1)
	order := promotion.Order{
		Purchase: newStoryID[promotion.PurchaseID](s), Tenant: s.someone().tenant, PackageKind: "Premium", PaymentStatus: "NotRequired",
		StartsAt: ends.AddDate(0, 0, -7), EndsAt: ends,
		Targets: []promotion.Target{{Type: "Property", ID: newStoryID[uuid.UUID](s)}, {Type: "Property", ID: newStoryID[uuid.UUID](s)}},
	}
	manager := actorOf(ids.UserID(uuid.NewSHA1(uuid.UUID(order.Tenant), []byte("manager")))) // one an agency
	s.act(ends.AddDate(0, 0, -7), "promotions bought", func(ctx context.Context, o operations) error {
		return o.promotion.Purchase(ctx, manager, order)
	}, published.TopicPurchaseChanged)
	if s.perhaps(15) {
		s.act(ends.Add(-storyTick), "promotions taken back", func(ctx context.Context, o operations) error {
			return o.promotion.Cancel(ctx, manager, order.Purchase)
		}, published.TopicPurchaseChanged)
	}
}
