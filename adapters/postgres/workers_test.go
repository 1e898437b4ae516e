package postgres_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/portstest"
	appcalendar "github.com/pin-platform/pinworker/app/calendar"
	appcrm "github.com/pin-platform/pinworker/app/crm"
	"github.com/pin-platform/pinworker/app/cycle"
	apppromotion "github.com/pin-platform/pinworker/app/promotion"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/promotion"
	"github.com/pin-platform/pinworker/ports"
)

// crowd is eight workers that drain one job at once, beside an operation on each of the same items.
type crowd struct {
	job, schema string
	given       []func(*world)
	// drain is one cycle; it calls first within a page that it holds.
	drain func(ctx context.Context, h hands, first func()) (cycle.Summary, error)
	// operations are in the order in which the job takes the items.
	operations []func(context.Context, hands) error
	// events are what the job records of an item, once. messages are what follows from which events.
	events   []string
	messages map[string][]string
}

func drains[A, E any](due func(hands) ports.Due[A, E], rule ports.Rule[A, E], page int) func(context.Context, hands, func()) (cycle.Summary, error) {
	return func(ctx context.Context, h hands, first func()) (cycle.Summary, error) {
		held := rule
		held.Decide = func(item A, at time.Time) ([]E, error) {
			first()
			return rule.Decide(item, at)
		}
		return cycle.Drain(ctx, due(h), held, cycle.Begin(portstest.Noon), cycle.Limits{BatchSize: page, MaxBatches: 1000, Interval: time.Minute}, nil)
	}
}

const crowdItems = 120

func crowds() []crowd {
	noon := portstest.Noon
	leads := crowd{
		job: "lead-expiration", schema: "crm", events: []string{"LeadExpired"}, messages: map[string][]string{"lead-expired": {"LeadExpired"}},
		drain: drains(func(h hands) ports.DueLeads { return h.crm.Due }, appcrm.Expire, 5),
	}
	purchases := crowd{
		job: "expire-promotions", schema: "promotion", events: []string{"PromotionPurchaseExpired"},
		messages: map[string][]string{"purchase-changed": {"PromotionPurchaseExpired", "PromotionPurchaseCancelled"}},
		drain:    drains(func(h hands) ports.DuePurchases { return h.promotion.Due }, apppromotion.Expire, 5),
	}
	reminders := crowd{
		job: "reminder-dispatch", schema: "calendar", events: []string{"ReminderSent"},
		messages: map[string][]string{
			"reminder-due": {"ReminderSent"}, "event-status-changed": {"CalendarEventStarted", "CalendarEventCalledOff"},
		},
		drain: drains(func(h hands) ports.DueReminders { return h.calendar.DueReminders }, appcalendar.Dispatch, 5),
	}
	appointments := crowd{
		job: "appointment-timeout", schema: "calendar", events: []string{"AppointmentExpired"},
		messages: map[string][]string{
			"appointment-cancelled": {"AppointmentExpired", "AppointmentDeclined", "AppointmentCancelled"},
			"event-status-changed":  {"CalendarEventPlanned", "CalendarEventCalledOff"},
		},
		drain: drains(func(h hands) ports.OverdueAppointments { return h.calendar.Overdue }, appcalendar.TimeOut, 1),
	}
	for n := range crowdItems {
		due := noon.Add(-time.Duration(crowdItems-n) * time.Minute)
		lead, order := portstest.Registration(due), portstest.Order(due)
		leads.given, purchases.given = append(leads.given, registered(lead)), append(purchases.given, purchased(order))
		leads.operations = append(leads.operations, func(ctx context.Context, h hands) error {
			if n%2 == 0 {
				return h.leads(noon).Extend(ctx, "agent", lead.Lead, noon.AddDate(0, 1, 0))
			}
			return h.leads(noon).Archive(ctx, "agent", lead.Lead)
		})
		purchases.operations = append(purchases.operations, func(ctx context.Context, h hands) error {
			return h.purchases(noon).Cancel(ctx, "manager", order.Purchase)
		})

		plan, moved := portstest.Plan(due), portstest.Plan(due).Reminders
		plan.Reminders = append(plan.Reminders, calendar.ReminderPlan{Reminder: portstest.NewID[calendar.EventReminder](), OffsetMinutes: 40}) // workers share its event
		reminders.given = append(reminders.given, scheduled(plan))
		reminders.operations = append(reminders.operations, func(ctx context.Context, h hands) error {
			switch n % 3 {
			case 0:
				return h.agenda(noon).CancelEvent(ctx, "agent", plan.CalendarEvent)
			case 1:
				return h.agenda(noon).Reschedule(ctx, "agent", plan.CalendarEvent, noon.AddDate(0, 0, 1), noon.AddDate(0, 0, 2), moved)
			}
			return h.agenda(noon).Start(ctx, "agent", plan.CalendarEvent)
		})

		slot, request := portstest.Booking(due)
		request.Reminders[0].OffsetMinutes = 7 * 24 * 60 // it is due as well
		_, anew := portstest.Booking(due)
		appointments.given = append(appointments.given, booked(slot, request, due))
		appointments.operations = append(appointments.operations, func(ctx context.Context, h hands) error {
			switch n % 4 {
			case 0:
				return h.agenda(noon).Confirm(ctx, "agent", request.Appointment)
			case 1:
				return h.agenda(noon).Decline(ctx, "agent", request.Appointment)
			case 2:
				return h.agenda(noon).CancelAppointment(ctx, "investor", request.Appointment, request.Investor)
			}
			return h.agenda(noon).Book(ctx, "another investor", slot.Slot, anew)
		})
	}
	several, both := appointments, appointments
	several.job += " of several"
	several.drain = drains(func(h hands) ports.OverdueAppointments { return h.calendar.Overdue }, appcalendar.TimeOut, 20)
	both.job = "reminder-dispatch and appointment-timeout"
	both.drain = func(ctx context.Context, h hands, first func()) (cycle.Summary, error) {
		sent, err := reminders.drain(ctx, h, func() {})
		timedOut, also := appointments.drain(ctx, h, first)
		return cycle.Summary{
			Applied: sent.Applied + timedOut.Applied, Failed: sent.Failed + timedOut.Failed, Faults: sent.Faults + timedOut.Faults,
			SkippedLocked: sent.SkippedLocked + timedOut.SkippedLocked,
		}, errors.Join(err, also)
	}
	both.events = append(slices.Clone(reminders.events), appointments.events...)
	both.messages = maps.Clone(appointments.messages)
	both.messages["reminder-due"] = reminders.events
	return []crowd{leads, purchases, reminders, appointments, several, both}
}

func TestWorkers_EightOfThemBesideOperationsDoEachItemOnce(t *testing.T) {
	for _, c := range crowds() {
		t.Run(c.job, func(t *testing.T) {
			w := newWorld(t)
			w.given(c.schema, c.given...)
			applied, refused, waits := w.crowded(c)

			var recorded, streams int
			w.must(w.db.Pool.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT stream_id) FROM `+c.schema+`.domain_events
				WHERE event_type = ANY ($1) AND actor = 'System'`, c.events).Scan(&recorded, &streams))
			if recorded != streams || recorded != applied || recorded == 0 || waits == 0 {
				t.Errorf("%d times recorded, of %d items, and %d were taken; %d waits for a lock", recorded, streams, applied, waits)
			}
			var published int
			for topic, because := range c.messages {
				var messages, distinct, events int
				w.must(w.db.Pool.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT uuid),
					(SELECT count(*) FROM `+c.schema+`.domain_events WHERE event_type = ANY ($2) AND occurred_at = $3)
					FROM `+c.schema+`.outbox WHERE split_part(topic, '.', 3) = $1`, topic, because, portstest.Noon).Scan(&messages, &distinct, &events))
				if messages != events || distinct != events || events == 0 {
					t.Errorf("%s: %d messages, %d of them distinct, for %d events", topic, messages, distinct, events)
				}
				published += messages
			}
			var all, deadlocks int
			w.must(w.db.Pool.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM "+c.schema+".outbox), deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&all, &deadlocks))
			if all != published || deadlocks > 0 {
				t.Errorf("%d messages, of which %d are accounted for; %d deadlocks", all, published, deadlocks)
			}
			w.sound("in the end")
			t.Logf("the workers took %d items; %d of %d operations were refused; they were seen to wait for a lock %d times",
				applied, refused, len(c.operations), waits)
		})
	}
}

// crowded has eight workers drain a job while four goroutines do the operations, two from the first
// item on and two from the last.
func (w *world) crowded(c crowd) (applied, refused, waits int) {
	w.Helper()
	workers := openAs(w.T, embeddedtest.AsWorker(w.T, w.url), "crowd-worker", 8)
	platform := openAs(w.T, w.url, "crowd-platform", 4)

	// The first page is held until an operation has been seen to wait for a lock, and operations begin
	// once it is: there is one on each of its items.
	held, waited, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		seen := sync.OnceFunc(func() { close(waited) })
		defer seen()
		for {
			var waiting int
			if err := w.db.Pool.QueryRow(w.Context(), `SELECT count(*) FROM pg_stat_activity
				WHERE application_name = 'crowd-platform' AND wait_event_type = 'Lock' AND wait_event IN ('transactionid', 'tuple')`).Scan(&waiting); err != nil {
				w.Error(err)
				return
			}
			if waits += waiting; waiting > 0 {
				seen()
			}
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	var once sync.Once
	first := func() {
		once.Do(func() {
			close(held)
			<-waited
		})
	}

	var crowd sync.WaitGroup
	var done, no atomic.Int32
	for range 8 {
		crowd.Go(func() {
			summary, err := c.drain(w.Context(), handsOf(workers), first)
			if err != nil || summary.Faults+summary.Failed > 0 {
				w.Errorf("summary %+v, %v", summary, err)
			}
			done.Add(int32(summary.Applied))
		})
	}
	for n := range 4 {
		crowd.Go(func() {
			<-held
			for i := n / 2; i < len(c.operations)/2; i += 2 {
				at := i
				if n%2 == 1 {
					at = len(c.operations) - 1 - i
				}
				err := c.operations[at](w.Context(), handsOf(platform))
				state, terminal := calendar.StateError{}, promotion.TerminalError{}
				switch {
				case errors.As(err, &state), errors.As(err, &terminal):
					no.Add(1)
				case err != nil:
					w.Error(err)
				}
			}
		})
	}
	crowd.Wait()
	close(over)
	watching.Wait()

	// What was locked when it was its turn is left for the next cycle.
	summary, err := c.drain(w.Context(), handsOf(workers), func() {})
	if err != nil || summary.Faults+summary.Failed+summary.SkippedLocked > 0 {
		w.Errorf("summary %+v, %v", summary, err)
	}
	workers.Close() // a server process tells its statistics when it ends
	platform.Close()
	var there bool
	for there = true; there; {
		w.must(w.db.Pool.QueryRow(w.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name LIKE 'crowd-%')").Scan(&there))
	}
	return int(done.Load()) + summary.Applied, int(no.Load()), waits
}
