package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/portstest"
	appcalendar "github.com/pin-platform/pinworker/app/calendar"
	appcrm "github.com/pin-platform/pinworker/app/crm"
	apppromotion "github.com/pin-platform/pinworker/app/promotion"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/ports"
)

// unit is a unit of work. It is the same whenever it is begun again.
type unit struct {
	name   string
	job    bool // the worker's; else an operation of the platform's
	schema string
	given  []func(*world)
	act    func(ctx context.Context, h hands) error
	// refuses is how a repetition begins that comes after it was done; "" where it finds it done.
	refuses string
}

// units are a page of each job, and every operation.
func units() []unit {
	noon := portstest.Noon
	due := func(n int) time.Time { return noon.Add(-time.Duration(n) * time.Minute) }
	page := func(claim func(hands, context.Context, int) (taken, error), limit int) func(context.Context, hands) error {
		return func(ctx context.Context, h hands) error {
			took, err := claim(h, ctx, limit)
			if err == nil && took.failed > 0 {
				return fmt.Errorf("%d items were blamed", took.failed)
			}
			return err
		}
	}

	lead, foreign := portstest.Registration(due(2)), portstest.Registration(due(1))
	order, strange := portstest.Order(due(2)), portstest.Order(due(1))
	toCome := portstest.Order(noon.AddDate(0, 0, 1))
	plan, off, alien := portstest.Plan(due(3)), portstest.Plan(due(2)), portstest.Plan(due(1))
	later := portstest.Plan(noon.Add(time.Hour))
	slot, request := portstest.Booking(due(2))
	otherSlot, other := portstest.Booking(due(1))
	agreed := []func(*world){booked(slot, request, due(2)), confirmed(request.Appointment)}
	moved := []calendar.ReminderPlan{{Reminder: portstest.NewID[calendar.EventReminder](), OffsetMinutes: 10}}

	return []unit{
		{"lead-expiration", true, "crm", []func(*world){registered(lead), registered(foreign), unjournalled(foreign.Lead)}, page(hands.expireLeads, 3), ""},
		{"register", false, "crm", nil, func(ctx context.Context, h hands) error {
			return h.leads(monthAgo).Register(ctx, "agent", lead)
		}, ""},
		{"extend", false, "crm", []func(*world){registered(lead)}, func(ctx context.Context, h hands) error {
			return h.leads(noon).Extend(ctx, "agent", lead.Lead, noon.AddDate(0, 1, 0))
		}, ""},
		{"archive", false, "crm", []func(*world){registered(lead), unjournalled(lead.Lead)}, func(ctx context.Context, h hands) error {
			return h.leads(noon).Archive(ctx, "agent", lead.Lead)
		}, ""},

		{"expire-promotions", true, "promotion", []func(*world){purchased(order), purchased(strange), unjournalled(strange.Purchase)}, page(hands.expirePromotions, 3), ""},
		{"purchase", false, "promotion", nil, func(ctx context.Context, h hands) error {
			return h.purchases(noon).Purchase(ctx, "manager", toCome)
		}, ""},
		{"cancel purchase", false, "promotion", []func(*world){purchased(order)}, func(ctx context.Context, h hands) error {
			return h.purchases(noon).Cancel(ctx, "manager", order.Purchase)
		}, ""},

		{"reminder-dispatch", true, "calendar", []func(*world){
			scheduled(plan), scheduled(off), calledOff(off.CalendarEvent),
			scheduled(alien), unjournalled(uuid.UUID(alien.CalendarEvent), uuid.UUID(alien.Reminders[0].Reminder)),
		}, page(hands.dispatch, 3), ""},
		{"appointment-timeout", true, "calendar", []func(*world){booked(slot, request, due(2))}, page(hands.timeOut, 1), ""},
		{"appointment-timeout of several", true, "calendar", []func(*world){
			booked(slot, request, due(2)), booked(otherSlot, other, due(1)),
			unjournalled(uuid.UUID(otherSlot.Slot), uuid.UUID(other.Appointment), uuid.UUID(other.CalendarEvent), uuid.UUID(other.Reminders[0].Reminder)),
		}, page(hands.timeOut, 20), ""},
		{"publish", false, "calendar", nil, func(ctx context.Context, h hands) error {
			return h.agenda(noon).Publish(ctx, "agent", slot)
		}, ""},
		{"book", false, "calendar", []func(*world){published(slot)}, func(ctx context.Context, h hands) error {
			return h.agenda(noon).Book(ctx, "investor", slot.Slot, request)
		}, "INV-SLT-3"}, // what it made is not told from what somebody else booked
		{"confirm", false, "calendar", []func(*world){booked(slot, request, due(2))}, func(ctx context.Context, h hands) error {
			return h.agenda(noon).Confirm(ctx, "agent", request.Appointment)
		}, ""},
		{"decline", false, "calendar", []func(*world){booked(slot, request, due(2))}, func(ctx context.Context, h hands) error {
			return h.agenda(noon).Decline(ctx, "agent", request.Appointment)
		}, ""},
		{"cancel appointment", false, "calendar", agreed, func(ctx context.Context, h hands) error {
			return h.agenda(noon).CancelAppointment(ctx, "investor", request.Appointment, request.Investor)
		}, ""},
		{"complete appointment", false, "calendar", append(agreed[:2:2], started(request.CalendarEvent)), func(ctx context.Context, h hands) error {
			return h.agenda(noon).CompleteAppointment(ctx, "agent", request.Appointment)
		}, ""},
		{"schedule", false, "calendar", nil, func(ctx context.Context, h hands) error {
			return h.agenda(noon).Schedule(ctx, "agent", later)
		}, ""},
		{"reschedule", false, "calendar", []func(*world){scheduled(later)}, func(ctx context.Context, h hands) error {
			return h.agenda(noon).Reschedule(ctx, "agent", later.CalendarEvent, later.StartAt.AddDate(0, 0, 1), later.EndAt.AddDate(0, 0, 1), moved)
		}, ""},
		{"start", false, "calendar", []func(*world){scheduled(later)}, func(ctx context.Context, h hands) error {
			return h.agenda(noon).Start(ctx, "agent", later.CalendarEvent)
		}, ""},
		{"complete event", false, "calendar", []func(*world){scheduled(later), started(later.CalendarEvent)}, func(ctx context.Context, h hands) error {
			return h.agenda(noon).Complete(ctx, "agent", later.CalendarEvent)
		}, ""},
		{"cancel event", false, "calendar", []func(*world){scheduled(later)}, func(ctx context.Context, h hands) error {
			return h.agenda(noon).CancelEvent(ctx, "agent", later.CalendarEvent)
		}, ""},
	}
}

// cuts loses one message of all that a proxy passes on, in either direction, and counts them.
type cuts struct {
	mu     sync.Mutex
	passed int
	at     int // the message that is lost; 0: none
	lost   string
}

func (c *cuts) before(m embeddedtest.Message) (pass bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passed++
	if c.passed == c.at {
		c.lost = string(m.Kind)
	}
	return c.passed != c.at
}

// begin counts from the next message on, and cuts in place of the n-th.
func (c *cuts) begin(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passed, c.at, c.lost = 0, n, ""
}

func (c *cuts) count() (passed int, lost string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.passed, c.lost
}

// allCuts has every message cut; else a sample of them is.
var _, allCuts = os.LookupEnv("PINWORKER_TEST_CUTS")

const (
	cutConnection = "cut" // its application_name
	sampleOfCuts  = 13    // one in so many
)

func TestUnits_ACutAtAnyProtocolMessageLeavesNothingHalfDone(t *testing.T) {
	w := newWorld(t)
	p, through := embeddedtest.NewProxy(t, w.url)
	pw, throughAsWorker := embeddedtest.NewProxy(t, embeddedtest.AsWorker(t, w.url))
	var cut cuts
	p.Before(cut.before)
	pw.Before(cut.before)

	messages, total := 0, 0
	for n, u := range units() {
		w.run(u.name, func(*testing.T) {
			test := cutTest{unit: u, world: w, cut: &cut, through: through, direct: w.owner}
			if u.job {
				test.through, test.direct = throughAsWorker, w.worker
			}
			w.given(u.schema, u.given...)
			test.run(n)
			messages, total = messages+test.messages, total+test.cuts
		})
	}
	t.Logf("%d units, %d cuts of %d messages", len(units()), total, messages)
}

func TestUnits_AreAllOperations(t *testing.T) {
	operations := reflect.TypeFor[appcrm.Operations]().NumMethod() + reflect.TypeFor[apppromotion.Operations]().NumMethod() +
		reflect.TypeFor[appcalendar.Operations]().NumMethod()
	for _, u := range units() {
		if !u.job {
			operations--
		}
	}
	if operations != 0 {
		t.Errorf("%d operations have no unit", operations)
	}
}

type cutTest struct {
	unit
	*world
	cut     *cuts
	through string // the URL of the connection that is cut
	direct  hands

	messages, cuts int
}

// attempt does the unit through a connection that is cut at the n-th message. The connection is
// new, so that each attempt has the same messages, the start of it included.
func (c *cutTest) attempt(n int) (passed int, lost string, err error) {
	c.cut.begin(n)
	db := openAs(c.T, c.through, cutConnection, 1)
	defer db.Close() // which sends one more
	err = c.act(c.Context(), handsOf(db))
	passed, lost = c.cut.count()
	return passed, lost, err
}

func (c *cutTest) run(offset int) {
	before := c.state()
	var err error
	if c.messages, _, err = c.attempt(0); err != nil {
		c.Fatal(err)
	}
	c.left()
	after := c.state()
	c.sound("without a cut")
	if before == after {
		c.Fatal("the unit does nothing")
	}
	committed := 0
	for n := 1; n <= c.messages; n++ {
		// COMMIT, its CommandComplete and its ReadyForQuery are the last three.
		if !allCuts && n%sampleOfCuts != offset%sampleOfCuts && n <= c.messages-3 {
			continue
		}
		c.again()
		_, lost, err := c.attempt(n)
		if refused := (*ports.RefusedError)(nil); err == nil || errors.As(err, &refused) || errors.Is(err, ports.ErrConflict) {
			c.Fatalf("cut %d (%s): %v; want a fault that blames nobody", n, lost, err)
		}
		c.cuts++
		c.left()
		was := c.state()
		if was != before && was != after {
			c.Fatalf("cut %d (%s): half done:\n%s\nbefore:\n%s\nafter:\n%s", n, lost, was, before, after)
		}
		c.sound("after a cut")

		// The next cycle, or a repetition, finds either state right and finishes the work once.
		err = c.act(c.Context(), c.direct)
		if was == after {
			committed++
			if (c.refuses == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.refuses) {
				c.Fatalf("cut %d (%s): a repetition of what was done: %v", n, lost, err)
			}
		} else {
			c.must(err)
			c.sound("after the repetition")
		}
		if is := c.state(); is != after {
			c.Fatalf("cut %d (%s): in the end\n%s\nwant\n%s", n, lost, is, after)
		}
	}
	c.Logf("%d cuts of %d messages", c.cuts, c.messages)
	// The answer to COMMIT is lost both ways: COMMIT itself (nothing is committed) and its
	// answer, CommandComplete and ReadyForQuery (all is).
	if allCuts && c.cuts != c.messages || c.cuts < c.messages/sampleOfCuts || c.messages < 60 || committed != 2 {
		c.Errorf("%d cuts of %d messages, committed after %d; want 2 after COMMIT had been heard", c.cuts, c.messages, committed)
	}
}

// left waits until the server has noticed that the connection is gone.
func (c *cutTest) left() {
	c.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for there := true; there; {
		c.must(c.db.Pool.QueryRow(c.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = $1)`, cutConnection).Scan(&there))
		if time.Now().After(deadline) {
			c.Fatal("a cut connection stays")
		}
	}
}
