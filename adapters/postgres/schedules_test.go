package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/promotion"
)

// actor is one side of a race. It takes a step, a message that asks the database for something,
// when it is told to.
type actor struct {
	*world
	name    string // its application_name
	hands   hands
	permits chan struct{}
	arrived chan struct{}
	done    chan struct{}
	waits   bool // for a lock
	ended   bool
}

func newActor(w *world, databaseURL, name string) *actor {
	w.Helper()
	a := &actor{world: w, name: name, permits: make(chan struct{}), arrived: make(chan struct{})}
	p, through := embeddedtest.NewProxy(w.T, databaseURL)
	db := openAs(w.T, through, name, 1)
	a.hands = handsOf(db)
	w.must(db.Pool.Ping(w.Context())) // connects before anything asks
	p.Before(func(m embeddedtest.Message) bool {
		if m.Asks() {
			a.arrived <- struct{}{}
			<-a.permits
		}
		return true
	})
	return a
}

// start begins to act, up to the first step.
func (a *actor) start(act func()) {
	a.done, a.ended, a.waits = make(chan struct{}), false, false
	go func() { defer close(a.done); act() }()
	a.await()
}

// await returns once the actor stands before its next step, has ended, or waits for a row's lock. (A
// lock on a page that grows is a moment's, and its statement is not over.)
func (a *actor) await() {
	a.Helper()
	a.waits = false
	for {
		select {
		case <-a.arrived:
			return
		case <-a.done:
			a.ended = true
			return
		case <-time.After(2 * time.Millisecond):
		}
		var waits bool
		a.must(a.db.Pool.QueryRow(a.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE application_name = $1 AND wait_event_type = 'Lock' AND wait_event IN ('transactionid', 'tuple'))`, a.name).Scan(&waits))
		if waits {
			a.waits = true
			return
		}
	}
}

// advance takes up to n steps; none while it waits for a lock.
func (a *actor) advance(n int) (taken int) {
	for taken < n && !a.ended {
		if a.waits {
			if a.await(); a.waits {
				return taken
			}
			continue
		}
		a.permits <- struct{}{}
		a.await()
		taken++
	}
	return taken
}

const toTheEnd = 1000

// race is two units of work that want the same rows.
type race struct {
	name        string
	schema      string
	given       []func(*world)
	first, then side
	// outcomes are the only ones: what the two said, in the order in which they ended, and what the
	// context's rows are then (status and version) and what was published since.
	outcomes map[string]string
}

// side is one of the two.
type side struct {
	name string
	job  bool // the worker's; else an operation of the platform's
	act  func(ctx context.Context, h hands) (said string)
}

// claims is a worker that takes a page.
func claims(name string, page func(hands, context.Context, int) (taken, error), limit int) side {
	return side{name, true, func(ctx context.Context, h hands) string {
		took, err := page(h, ctx, limit)
		said := fmt.Sprintf("took %d", took.done)
		switch {
		case err != nil:
			said = err.Error()
		case took.failed > 0:
			said = fmt.Sprintf("blamed %d", took.failed)
		case took.passedOver > 0:
			said += fmt.Sprintf(" and passed over %d", took.passedOver)
		}
		return said
	}}
}

// operates is an operation that somebody asks for.
func operates(name string, operation func(ctx context.Context, h hands) error) side {
	return side{name, false, func(ctx context.Context, h hands) string {
		err := operation(ctx, h)
		state, terminal := calendar.StateError{}, promotion.TerminalError{}
		switch {
		case err == nil:
			return "did it"
		case errors.As(err, &state), errors.As(err, &terminal):
			return "was refused"
		}
		return err.Error()
	}}
}

// updates is a service of the platform's that keeps no journal, and changes one row by itself.
func updates(name, statement string, id [16]byte) side {
	return operates(name, func(ctx context.Context, h hands) error {
		return pgx.BeginFunc(ctx, h.db.Pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, statement, uuid.UUID(id))
			return err
		})
	})
}

func races() []race {
	noon := portstest.Noon
	due := func(n int) time.Time { return noon.Add(-time.Duration(n) * time.Minute) }
	lead, otherLead := portstest.Registration(due(2)), portstest.Registration(due(1))
	order, otherOrder := portstest.Order(due(2)), portstest.Order(due(1))
	plan := portstest.Plan(due(2))
	moved := []calendar.ReminderPlan{{Reminder: portstest.NewID[calendar.EventReminder](), OffsetMinutes: 10}}
	twice := portstest.Plan(due(2)) // two reminders of one event
	twice.Reminders = append(twice.Reminders, calendar.ReminderPlan{Reminder: portstest.NewID[calendar.EventReminder](), OffsetMinutes: 31})
	slot, request := portstest.Booking(due(2))
	request.Reminders = request.Reminders[:1]
	otherSlot, other := portstest.Booking(due(1))
	other.Reminders = nil
	_, anew := portstest.Booking(due(1))
	anew.Reminders = nil
	soon := request // a reminder of the appointment's event is due as well
	soon.Reminders = []calendar.ReminderPlan{request.Reminders[0], {Reminder: portstest.NewID[calendar.EventReminder](), OffsetMinutes: 7 * 24 * 60}}

	pending := []func(*world){booked(slot, request, due(2))}
	confirm := operates("confirm", func(ctx context.Context, h hands) error {
		return h.agenda(noon).Confirm(ctx, "agent", request.Appointment)
	})
	decline := operates("decline", func(ctx context.Context, h hands) error {
		return h.agenda(noon).Decline(ctx, "agent", request.Appointment)
	})
	book := func(name string, r calendar.Request) side {
		return operates(name, func(ctx context.Context, h hands) error {
			return h.agenda(noon).Book(ctx, "investor", slot.Slot, r)
		})
	}
	expires := claims("lead-expiration", hands.expireLeads, 10)
	ends := claims("expire-promotions", hands.expirePromotions, 10)
	dispatches := claims("reminder-dispatch", hands.dispatch, 10)
	timesOut := claims("appointment-timeout", hands.timeOut, 1)
	const (
		untouched  = "appointment Pending 1, slot Booked 2, event Planned 1, reminder Pending 1: "
		oneBooking = "appointment Pending 1, slot Booked 2, event Planned 1: event-status-changed"
		sent       = "appointment Pending 1, slot Booked 2, event Planned 1, reminder Pending 1, reminder Sent 2: reminder-due"
		skipped    = "appointment Expired 2, slot Available 3, event Cancelled 2, reminder Skipped 2, reminder Skipped 2: appointment-cancelled, event-status-changed"
		agreed     = "appointment Confirmed 2, slot Booked 2, event Planned 1, reminder Pending 1: "
		declined   = "appointment Declined 2, slot Available 3, event Cancelled 2, reminder Skipped 2: appointment-cancelled, event-status-changed"
		timedOut   = "appointment Expired 2, slot Available 3, event Cancelled 2, reminder Skipped 2: appointment-cancelled, event-status-changed"
	)

	return []race{
		{"lead-expiration and extend", "crm", []func(*world){registered(lead)}, expires,
			operates("extend", func(ctx context.Context, h hands) error {
				return h.leads(noon).Extend(ctx, "agent", lead.Lead, noon.AddDate(0, 1, 0))
			}),
			whoeverIsFirst("lead-expiration", "extend", "did it",
				"lead Active 3: lead-expired", "lead Active 2: ")},
		{"lead-expiration and archive", "crm", []func(*world){registered(lead)}, expires,
			operates("archive", func(ctx context.Context, h hands) error {
				return h.leads(noon).Archive(ctx, "agent", lead.Lead)
			}),
			whoeverIsFirst("lead-expiration", "archive", "did it",
				"lead Archived 3: lead-expired", "lead Archived 2: ")},
		{"two of lead-expiration", "crm", []func(*world){registered(lead), registered(otherLead)},
			expires, claims("another", hands.expireLeads, 10),
			onePage("lead-expiration", "another", "lead Expired 2, lead Expired 2: lead-expired, lead-expired")},

		{"expire-promotions and cancel", "promotion", []func(*world){purchased(order)}, ends,
			operates("cancel", func(ctx context.Context, h hands) error {
				return h.purchases(noon).Cancel(ctx, "manager", order.Purchase)
			}),
			whoeverIsFirst("expire-promotions", "cancel", "was refused",
				"purchase Expired 3: purchase-changed", "purchase Cancelled 3: purchase-changed")},
		{"two of expire-promotions", "promotion", []func(*world){purchased(order), purchased(otherOrder)},
			ends, claims("another", hands.expirePromotions, 10),
			onePage("expire-promotions", "another", "purchase Expired 3, purchase Expired 3: purchase-changed, purchase-changed")},

		{"reminder-dispatch and cancel event", "calendar", []func(*world){scheduled(plan)}, dispatches,
			operates("cancel", func(ctx context.Context, h hands) error {
				return h.agenda(noon).CancelEvent(ctx, "agent", plan.CalendarEvent)
			}),
			whoeverIsFirst("reminder-dispatch", "cancel", "did it",
				"event Cancelled 2, reminder Sent 2: reminder-due, event-status-changed",
				"event Cancelled 2, reminder Skipped 2: event-status-changed")},
		{"reminder-dispatch and reschedule", "calendar", []func(*world){scheduled(plan)}, dispatches,
			operates("reschedule", func(ctx context.Context, h hands) error {
				return h.agenda(noon).Reschedule(ctx, "agent", plan.CalendarEvent, plan.StartAt.AddDate(0, 0, 1), plan.EndAt.AddDate(0, 0, 1), moved)
			}),
			whoeverIsFirst("reminder-dispatch", "reschedule", "did it",
				"event Planned 2, reminder Pending 1, reminder Sent 2: reminder-due", "event Planned 2, reminder Pending 1: ")},
		{"reminder-dispatch and a service that cancels the event alone", "calendar", []func(*world){scheduled(plan)}, dispatches,
			updates("cancel", "UPDATE calendar.calendar_events SET status = 'Cancelled', version = version + 1 WHERE id = $1", plan.CalendarEvent),
			map[string]string{
				"reminder-dispatch took 1, cancel did it":                   "event Cancelled 2, reminder Sent 2: reminder-due",
				"cancel did it, reminder-dispatch took 1":                   "event Cancelled 2, reminder Skipped 2: ",
				"cancel did it, reminder-dispatch took 0 and passed over 1": "event Cancelled 2, reminder Pending 1: ",
				"reminder-dispatch took 0 and passed over 1, cancel did it": "event Cancelled 2, reminder Pending 1: ",
			}},
		{"two of reminder-dispatch", "calendar", []func(*world){scheduled(twice)},
			claims("reminder-dispatch", hands.dispatch, 1), claims("another", hands.dispatch, 1),
			oneEach("reminder-dispatch", "another", "event Planned 1, reminder Sent 2, reminder Sent 2: reminder-due, reminder-due")},
		{"reminder-dispatch and appointment-timeout", "calendar", []func(*world){booked(slot, soon, due(2))},
			dispatches, timesOut, map[string]string{
				"reminder-dispatch took 1, appointment-timeout took 1": "appointment Expired 2, slot Available 3, event Cancelled 2, reminder Sent 2, reminder Skipped 2: " +
					"reminder-due, appointment-cancelled, event-status-changed",
				"reminder-dispatch took 1, appointment-timeout took 0 and passed over 1": sent,
				"appointment-timeout took 0 and passed over 1, reminder-dispatch took 1": sent,
				"appointment-timeout took 1, reminder-dispatch took 0":                   skipped,
				"appointment-timeout took 1, reminder-dispatch took 0 and passed over 1": skipped,
				"reminder-dispatch took 0 and passed over 1, appointment-timeout took 1": skipped,
			}},

		{"appointment-timeout and confirm", "calendar", pending, timesOut, confirm,
			whoeverIsFirst("appointment-timeout", "confirm", "was refused", timedOut, agreed)},
		{"appointment-timeout and decline", "calendar", pending, timesOut, decline,
			whoeverIsFirst("appointment-timeout", "decline", "was refused", timedOut, declined)},
		{"appointment-timeout and cancel", "calendar", pending, timesOut,
			operates("cancel", func(ctx context.Context, h hands) error {
				return h.agenda(noon).CancelAppointment(ctx, "investor", request.Appointment, request.Investor)
			}),
			whoeverIsFirst("appointment-timeout", "cancel", "was refused", timedOut, strings.Replace(declined, "Declined", "Cancelled", 1))},
		{"appointment-timeout and book of its slot", "calendar", pending, timesOut, book("book", anew), map[string]string{
			"appointment-timeout took 1, book did it": "appointment Expired 2, appointment Pending 1, slot Booked 4, event Cancelled 2, event Planned 1, reminder Skipped 2: " +
				"appointment-cancelled, event-status-changed, event-status-changed",
			"book was refused, appointment-timeout took 1":                   timedOut,
			"book was refused, appointment-timeout took 0 and passed over 1": untouched,
			"appointment-timeout took 0 and passed over 1, book was refused": untouched,
		}},
		{"appointment-timeout and a service that withdraws the slot alone", "calendar", pending, timesOut,
			updates("withdraw", "UPDATE calendar.availability_slots SET status = 'Withdrawn', version = version + 1 WHERE id = $1", slot.Slot),
			map[string]string{
				"appointment-timeout took 1, withdraw did it":                   strings.Replace(timedOut, "Available 3", "Withdrawn 4", 1),
				"withdraw did it, appointment-timeout blamed 1":                 strings.Replace(untouched, "Booked 2", "Withdrawn 3", 1),
				"withdraw did it, appointment-timeout took 0 and passed over 1": strings.Replace(untouched, "Booked 2", "Withdrawn 3", 1),
				"appointment-timeout took 0 and passed over 1, withdraw did it": strings.Replace(untouched, "Booked 2", "Withdrawn 3", 1),
			}},
		{"two of appointment-timeout", "calendar", []func(*world){booked(slot, request, due(2)), booked(otherSlot, other, due(1))},
			timesOut, claims("another", hands.timeOut, 1),
			oneEach("appointment-timeout", "another", "appointment Expired 2, appointment Expired 2, slot Available 3, slot Available 3, event Cancelled 2, event Cancelled 2, "+
				"reminder Skipped 2: appointment-cancelled, event-status-changed, appointment-cancelled, event-status-changed")},
		{"confirm and decline", "calendar", pending, confirm, decline, map[string]string{
			"confirm did it, decline was refused": agreed,
			"decline did it, confirm was refused": declined,
		}},
		{"two of book", "calendar", []func(*world){published(slot)}, book("book", other), book("another", anew), map[string]string{
			"book did it, another was refused": oneBooking,
			"another did it, book was refused": oneBooking,
		}},
	}
}

// whoeverIsFirst is how a job and an operation on one item end: the worker took it before the
// operation, which then says so, or the operation did it and the worker found nothing due, or the
// worker passed it over.
func whoeverIsFirst(job, operation, then, worker, platform string) map[string]string {
	return map[string]string{
		job + " took 1, " + operation + " " + then:                  worker,
		operation + " did it, " + job + " took 0":                   platform,
		operation + " did it, " + job + " took 0 and passed over 1": platform,
		job + " took 0 and passed over 1, " + operation + " did it": platform,
	}
}

// onePage is how two workers end that want the same two items on a page: one of them gets both.
func onePage(one, another, end string) map[string]string {
	outcomes := make(map[string]string)
	for _, by := range [][2]string{{one, another}, {another, one}} {
		outcomes[by[0]+" took 2, "+by[1]+" took 0"] = end
		outcomes[by[0]+" took 2, "+by[1]+" took 0 and passed over 2"] = end
		outcomes[by[1]+" took 0 and passed over 2, "+by[0]+" took 2"] = end
	}
	return outcomes
}

// oneEach is how two workers end that take one of two items each.
func oneEach(one, another, end string) map[string]string {
	outcomes := make(map[string]string)
	for _, by := range [][2]string{{one, another}, {another, one}} {
		outcomes[by[0]+" took 1, "+by[1]+" took 1"] = end
		outcomes[by[0]+" took 1, "+by[1]+" took 1 and passed over 1"] = end
		outcomes[by[0]+" took 1 and passed over 1, "+by[1]+" took 1"] = end
	}
	return outcomes
}

// words are what the tables' rows are called in outcomes.
var words = map[string]string{
	"leads": "lead", "promotion_purchases": "purchase",
	"appointments": "appointment", "availability_slots": "slot", "calendar_events": "event", "event_reminders": "reminder",
}

// end is what the context's rows are, and what was published, unit by unit.
func (w *world) end() (text string) {
	w.Helper()
	var rows []string
	for place, table := range []string{"leads", "promotion_purchases", "appointments", "availability_slots", "calendar_events", "event_reminders"} {
		if slices.Contains(tables[w.schema], table) {
			rows = append(rows, fmt.Sprintf("SELECT %d AS place, '%s ' || status || ' ' || version AS line FROM %s.%s", place, words[table], w.schema, table))
		}
	}
	w.must(w.db.Pool.QueryRow(w.Context(), "SELECT (SELECT string_agg(line, ', ' ORDER BY place, line) FROM ("+strings.Join(rows, " UNION ALL ")+") AS lines) || ': ' || "+
		`(SELECT coalesce(string_agg(split_part(topic, '.', 3), ', ' ORDER BY unit, id), '') FROM
		(SELECT topic, id, min(id) OVER (PARTITION BY xmin::text) AS unit FROM `+w.schema+".outbox) AS messages)").Scan(&text))
	return text
}

func TestRaces_NoScheduleHasAThirdOutcome(t *testing.T) {
	w := newWorld(t)
	asWorker := embeddedtest.AsWorker(t, w.url)
	actors := map[bool][2]*actor{
		true:  {newActor(w, asWorker, "schedule-worker"), newActor(w, asWorker, "schedule-another-worker")},
		false: {newActor(w, w.url, "schedule-platform"), newActor(w, w.url, "schedule-another-platform")},
	}
	total := 0
	for _, r := range races() {
		w.run(r.name, func(t *testing.T) {
			w.given(r.schema, r.given...)
			test := schedules{world: w, race: r, actors: [2]*actor{actors[r.first.job][0], actors[r.then.job][1]}, seen: make(map[string]int)}
			test.all()
			total += test.run
			t.Logf("%d schedules: %v", test.run, test.seen)
			if len(test.seen) != len(r.outcomes) || test.run < 50 {
				t.Errorf("%d schedules with %d outcomes; want a good many, and all %d", test.run, len(test.seen), len(r.outcomes))
			}
		})
	}
	t.Logf("%d schedules of %d races", total, len(races()))
}

// schedules are all of a race with at most two switches.
type schedules struct {
	*world
	race
	actors [2]*actor
	run    int
	seen   map[string]int
}

func (s *schedules) all() {
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		for firstSteps, ended := 0, false; !ended; firstSteps++ {
			for secondSteps := 0; ; secondSteps++ {
				taken := s.schedule(order, firstSteps, secondSteps)
				ended = taken[0] < firstSteps
				if ended || taken[1] < secondSteps { // it had no more steps to take
					break
				}
			}
		}
	}
}

// schedule has one side take some steps, then the other one, then each go to its end.
func (s *schedules) schedule(order [2]int, firstSteps, secondSteps int) (taken [2]int) {
	s.again()
	var said [2]string
	for i, side := range []side{s.first, s.then} {
		s.actors[i].start(func() { said[i] = side.name + " " + side.act(s.Context(), s.actors[i].hands) })
	}
	first, second := s.actors[order[0]], s.actors[order[1]]
	var ended []string
	advance := func(i, n int) int {
		was := s.actors[i].ended
		n = s.actors[i].advance(n)
		if !was && s.actors[i].ended {
			ended = append(ended, said[i])
		}
		return n
	}
	taken[0] = advance(order[0], firstSteps)
	taken[1] = advance(order[1], secondSteps)
	for !first.ended || !second.ended {
		advance(order[0], toTheEnd)
		advance(order[1], toTheEnd)
	}
	outcome, end := strings.Join(ended, ", "), s.end()
	s.run++
	s.seen[outcome]++
	schedule := fmt.Sprintf("%s %d, %s %d", first.name, firstSteps, second.name, secondSteps)
	if want, known := s.outcomes[outcome]; !known || want != end {
		s.Errorf("%s: a third outcome: %s: %s", schedule, outcome, end)
	}
	s.sound(schedule)
	return taken
}
