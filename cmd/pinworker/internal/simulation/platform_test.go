package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/adapters/memory"
	appcalendar "github.com/pin-platform/pinworker/app/calendar"
	appcrm "github.com/pin-platform/pinworker/app/crm"
	"github.com/pin-platform/pinworker/app/cycle"
	apppromotion "github.com/pin-platform/pinworker/app/promotion"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/domain/promotion"
	"github.com/pin-platform/pinworker/ports"
)

// world is a whole platform in memory, with its workers: the operations and rules that the product
// has, and a journal of what they commit. A test spoils a rule to seed a bug.
type world struct {
	Platform
	calendar  memory.Calendar
	promotion memory.Promotion
	crm       memory.CRM

	timeOut  ports.Rule[calendar.Booking, calendar.Event]
	dispatch ports.Rule[calendar.DueReminder, calendar.Event]
	end      ports.Rule[promotion.PromotionPurchase, promotion.Event]
	expire   ports.Rule[crm.Lead, crm.Event]

	*journal
	traffic *traffic
	log     Log
}

// journal is what databases and Kafka hold.
type journal struct {
	mu      sync.Mutex
	slow    bool // commits take some time
	streams map[uuid.UUID][]ports.Happened
	records []Record
}

func newWorld() *world {
	w := &world{
		calendar: memory.NewCalendar(), promotion: memory.NewPromotion(), crm: memory.NewCRM(),
		timeOut: appcalendar.TimeOut, dispatch: appcalendar.Dispatch, end: apppromotion.Expire, expire: appcrm.Expire,
		journal: &journal{streams: make(map[uuid.UUID][]ports.Happened)},
		traffic: newTraffic(Plan{For: 10 * time.Second, Seed: 1, Tenant: newID[ids.TenantID]()}),
	}
	w.Platform = Platform{
		Calendar: appcalendar.Operations{
			Slots:     recorded[calendar.SlotID, calendar.AvailabilitySlot, calendar.Event]{w.calendar.Slots, w.journal},
			Bookable:  recorded[calendar.SlotID, calendar.Booking, calendar.Event]{w.calendar.Bookable, w.journal},
			Bookings:  recorded[calendar.AppointmentID, calendar.Booking, calendar.Event]{w.calendar.Bookings, w.journal},
			Schedules: recorded[calendar.EventID, calendar.Schedule, calendar.Event]{w.calendar.Schedules, w.journal},
		},
		Promotion: apppromotion.Operations{Purchases: recorded[promotion.PurchaseID, promotion.PromotionPurchase, promotion.Event]{w.promotion.Purchases, w.journal}},
		CRM:       appcrm.Operations{Leads: recorded[crm.LeadID, crm.Lead, crm.Event]{w.crm.Leads, w.journal}},
	}
	return w
}

// recorded is a store whose commits are on record.
type recorded[ID ~[16]byte, A eventsourcing.State[A, E], E eventsourcing.Event] struct {
	ports.Store[ID, A, E]
	journal *journal
}

func (r recorded[ID, A, E]) Change(ctx context.Context, command ports.Command[ID], rule ports.Rule[A, E]) (ports.Transitioned[A, E], error) {
	r.journal.wait()
	defer r.journal.wait()
	r.journal.mu.Lock()
	defer r.journal.mu.Unlock()
	t, err := r.Store.Change(ctx, command, rule)
	if err == nil {
		err = keep(r.journal, t, rule, command.By, command.Run)
	}
	return t, err
}

func (j *journal) wait() {
	if j.slow {
		time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond)
	}
}

// keep puts a commit on record.
func keep[A eventsourcing.State[A, E], E eventsourcing.Event](
	j *journal, t ports.Transitioned[A, E], rule ports.Rule[A, E], by ports.Actor, run ports.RunID,
) error {
	if len(t.Events) == 0 {
		return nil
	}
	for _, e := range t.Events {
		data, err := json.Marshal(e)
		if err != nil {
			return err
		}
		kind, name := stored(e)
		j.streams[e.Stream()] = append(j.streams[e.Stream()], ports.Happened{
			Aggregate: kind, Version: len(j.streams[e.Stream()]) + 1, Event: name, At: e.OccurredAt(), Actor: by, Run: run, Data: data,
		})
	}
	if rule.Announce == nil {
		return nil
	}
	messages, err := rule.Announce(t.After, t.Events)
	for _, m := range messages {
		hash := fnv.New32()
		hash.Write([]byte(m.Key))
		j.records = append(j.records, Record{
			Topic: m.Topic, Partition: int32(hash.Sum32() % 8), Offset: int64(len(j.records)), Key: m.Key, Value: m.Payload, Headers: map[string]string{
				"ce_id": m.ID.String(), "ce_type": m.Topic, "ce_source": "pin/" + contextOf[m.AggregateType], "ce_subject": m.Subject.String(),
				"ce_correlationid": run.String(), "ce_tenantid": m.Tenant.String(), "ce_aggregatetype": m.AggregateType,
				"ce_aggregateversion": strconv.Itoa(m.AggregateVersion), "ce_contractversion": strconv.Itoa(m.ContractVersion),
				"content-type": "application/json", "ce_specversion": "1.0", "ce_partitionkey": m.Key, "ce_time": m.OccurredAt.Format(time.RFC3339Nano),
			},
		})
	}
	return err
}

// stored is whose an event is, and the name that databases keep it by.
func stored(e any) (kind, name string) {
	of, name, _ := strings.Cut(fmt.Sprintf("%T", e), ".")
	switch of {
	case "crm":
		return lead, name
	case "promotion":
		return purchase, map[string]string{
			"Purchased": "PromotionPurchased", "Activated": "PromotionActivated",
			"PurchaseExpired": "PromotionPurchaseExpired", "PurchaseCancelled": "PromotionPurchaseCancelled",
		}[name]
	}
	if other, is := map[string]string{
		"EventScheduled": "CalendarEventPlanned", "EventRescheduled": "CalendarEventMoved", "EventStarted": "CalendarEventStarted",
		"EventCompleted": "CalendarEventEnded", "EventCancelled": "CalendarEventCalledOff",
	}[name]; is {
		name = other
	}
	return string(e.(calendar.Event).Kind()), name
}

// tick runs one cycle of each job.
func (w *world) tick(t *testing.T, now time.Time) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	taken(t, w.journal, w.calendar.DueReminders, w.dispatch, now)
	taken(t, w.journal, w.calendar.Overdue, w.timeOut, now)
	taken(t, w.journal, w.promotion.Due, w.end, now)
	taken(t, w.journal, w.crm.Due, w.expire, now)
}

func taken[A eventsourcing.State[A, E], E eventsourcing.Event](
	t *testing.T, j *journal, due ports.Due[A, E], rule ports.Rule[A, E], now time.Time,
) {
	t.Helper()
	tick := cycle.Begin(now)
	_, err := cycle.Drain(t.Context(), due, rule, tick, cycle.Limits{BatchSize: 50, MaxBatches: 100, Interval: time.Second}, func(done ports.Transitioned[A, E]) {
		if err := keep(j, done, rule, ports.System, tick.Run); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// ask does an act at a moment and returns it.
func (w *world) ask(t *testing.T, a act, at time.Time) act {
	t.Helper()
	a.op.Began = at
	a.op.Answer = AnswerOf(a.do(t.Context(), w.at(a.op.At)))
	a.op.Ended = at.Add(5 * time.Millisecond)
	if a.op.Outcome == Unknown {
		t.Fatal(a.op.Err)
	}
	w.log.add(a.op)
	return a
}

// evidence is what the check would go by at a moment; a test may spoil it.
func (w *world) evidence(until time.Time) Evidence {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := Evidence{Log: w.log.Operations(), Streams: make(map[uuid.UUID][]ports.Happened), Tenant: w.traffic.tenant, Until: until}
	for id, stream := range w.streams {
		e.Streams[id] = slices.Clone(stream)
	}
	e.Records = slices.Clone(w.records)
	return e
}
