package crm_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/adapters/memory"
	"github.com/pin-platform/pinworker/adapters/portstest"
	appcrm "github.com/pin-platform/pinworker/app/crm"
	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/ports"
)

var noon = portstest.Noon

// world is a store with leads, and a clock that stands still until it is moved.
type world struct {
	t     *testing.T
	leads memory.CRM
	now   time.Time
}

func newWorld(t *testing.T) *world {
	return &world{t: t, leads: memory.NewCRM(), now: noon.AddDate(0, -1, 0)}
}

func (w *world) operations() appcrm.Operations {
	return appcrm.Operations{Leads: w.leads.Leads, Clock: func() time.Time { return w.now }}
}

// register makes n leads, the first of which expires at a moment, the others each a minute later.
func (w *world) register(n int, expiresAt time.Time) []crm.Registration {
	w.t.Helper()
	registrations := make([]crm.Registration, n)
	for i := range registrations {
		registrations[i] = portstest.Registration(expiresAt.Add(time.Duration(i) * time.Minute))
		if err := w.operations().Register(w.t.Context(), "agent", registrations[i]); err != nil {
			w.t.Fatal(err)
		}
	}
	return registrations
}

func (w *world) job(batchSize, maxBatches int) appcrm.ExpireLeads {
	return appcrm.ExpireLeads{
		Leads:  w.leads.Due,
		Limits: cycle.Limits{BatchSize: batchSize, MaxBatches: maxBatches, Interval: time.Hour},
		Clock:  func() time.Time { w.now = w.now.Add(time.Second); return w.now },
	}
}

func (w *world) run(batchSize, maxBatches int, want appcrm.LeadsExpired) {
	w.t.Helper()
	want.Elapsed = time.Second
	got, err := w.job(batchSize, maxBatches).Run(w.t.Context(), cycle.Begin(noon))
	if err != nil || got != want {
		w.t.Errorf("result %+v, %v; want %+v", got, err, want)
	}
}

func (w *world) status(r crm.Registration) crm.Status {
	w.t.Helper()
	return w.rows()[r.Lead].Status
}

// rows are all leads as they are now.
func (w *world) rows() map[crm.LeadID]crm.Snapshot {
	w.t.Helper()
	rows := make(map[crm.LeadID]crm.Snapshot)
	for entry, err := range w.leads.Ledger.Entries(w.t.Context(), time.Time{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		rows[crm.LeadID(entry.ID)] = entry.Row.Snapshot()
	}
	return rows
}

func TestExpireLeads_WithNothingDueIsANoOp(t *testing.T) {
	w := newWorld(t)
	w.register(1, noon)
	w.run(10, 10, appcrm.LeadsExpired{})
	if len(w.leads.Messages()) > 0 {
		t.Errorf("messages %v about nothing", w.leads.Messages())
	}
}

func TestExpireLeads_WhatExpiresLaterOrIsExpiredOrArchivedIsUntouched(t *testing.T) {
	w := newWorld(t)
	leads := w.register(4, noon.Add(-3*time.Minute)) // the last one expires at noon, which is not before it
	w.run(1, 1, appcrm.LeadsExpired{ExpiredCount: 1, BatchesProcessed: 1, CappedByMaxBatches: true})
	for _, err := range []error{
		w.operations().Archive(t.Context(), "agent", leads[1].Lead),
		w.operations().Extend(t.Context(), "agent", leads[2].Lead, noon.AddDate(0, 1, 0)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	before, messages := w.rows(), len(w.leads.Messages())
	w.run(10, 10, appcrm.LeadsExpired{})
	if after := w.rows(); !maps.Equal(after, before) || len(w.leads.Messages()) != messages {
		t.Errorf("leads %+v, %d messages; want them as they were: %+v, %d", after, len(w.leads.Messages()), before, messages)
	}
}

func TestExpireLeads_ExpiresADueLeadAndPublishesExactlyOneMessage(t *testing.T) {
	w := newWorld(t)
	due := w.register(1, noon.Add(-time.Hour))[0]
	w.run(10, 10, appcrm.LeadsExpired{ExpiredCount: 1, BatchesProcessed: 1})
	w.run(10, 10, appcrm.LeadsExpired{})
	if got := w.status(due); got != crm.Expired {
		t.Errorf("status %q; want Expired", got)
	}
	messages := w.leads.Messages()
	if len(messages) != 1 || messages[0].Topic != published.TopicLeadExpired || messages[0].Key != due.Lead.String() {
		t.Errorf("messages %+v; want one of the lead", messages)
	}
}

func TestExpireLeads_DrainsPageByPage(t *testing.T) {
	w := newWorld(t)
	w.register(7, noon.Add(-time.Hour))
	w.run(3, 10, appcrm.LeadsExpired{ExpiredCount: 7, BatchesProcessed: 3})
}

func TestExpireLeads_TheCapLeavesTheRestForTheNextCycle(t *testing.T) {
	w := newWorld(t)
	w.register(7, noon.Add(-time.Hour))
	w.run(3, 2, appcrm.LeadsExpired{ExpiredCount: 6, BatchesProcessed: 2, CappedByMaxBatches: true})
	w.run(3, 2, appcrm.LeadsExpired{ExpiredCount: 1, BatchesProcessed: 1})
}

func TestExpireLeads_TheCapIsNotToldWhereNothingElseIsDue(t *testing.T) {
	w := newWorld(t)
	w.register(6, noon.Add(-time.Hour))
	w.run(3, 2, appcrm.LeadsExpired{ExpiredCount: 6, BatchesProcessed: 2})
}

func TestExpireLeads_PoisonIsLeftAndNeitherStopsTheDrainNorCapsIt(t *testing.T) {
	w := newWorld(t)
	leads := w.register(6, noon.Add(-time.Hour))
	w.leads.Refuse(uuid.UUID(leads[1].Lead))
	w.run(3, 2, appcrm.LeadsExpired{ExpiredCount: 5, BatchesProcessed: 2, FailedCount: 1})
	if got := w.status(leads[1]); got != crm.Active {
		t.Errorf("the poison is %q; want it left Active", got)
	}
}

// cutOnce is a store that loses the connection of the first unit that decides on something.
type cutOnce struct {
	ports.DueLeads
	cut func()
}

func (c cutOnce) Transition(ctx context.Context, claim ports.Claim, rule ports.Rule[crm.Lead, crm.Event]) (ports.Outcome[crm.Lead, crm.Event], error) {
	decide := rule.Decide
	rule.Decide = func(l crm.Lead, at time.Time) ([]crm.Event, error) { c.cut(); return decide(l, at) }
	return c.DueLeads.Transition(ctx, claim, rule)
}

func TestExpireLeads_ABatchThatIsRolledBackStaysActiveAndTheNextCycleTakesIt(t *testing.T) {
	w := newWorld(t)
	leads := w.register(3, noon.Add(-time.Hour))
	job := w.job(2, 10)
	job.Leads = cutOnce{w.leads.Due, sync.OnceFunc(w.leads.Cut)}
	result, err := job.Run(t.Context(), cycle.Begin(noon))
	if err != nil || result.ExpiredCount != 1 || result.BatchesProcessed != 1 || result.FaultCount != 1 || result.FailedCount != 0 {
		t.Errorf("result %+v, %v; want the first batch rolled back, nobody blamed, and the second one expired", result, err)
	}
	if w.status(leads[0]) != crm.Active || w.status(leads[1]) != crm.Active || len(w.leads.Messages()) != 1 {
		t.Errorf("leads %+v, messages %v; want two Active, and a message of the third alone", w.rows(), w.leads.Messages())
	}
	w.run(2, 10, appcrm.LeadsExpired{ExpiredCount: 2, BatchesProcessed: 1})
	if len(w.leads.Messages()) != 3 {
		t.Errorf("messages %v; want one of each lead", w.leads.Messages())
	}
}

func TestExpireLeads_WhatIsHeldBackIsNoReasonToSayCapped(t *testing.T) {
	w := newWorld(t)
	leads := w.register(7, noon.Add(-time.Hour))
	held := ports.Held{Failure: ports.Failure{Item: uuid.UUID(leads[6].Lead), Err: memory.ErrRefused, Streak: 3}, NextAttempt: noon.Add(time.Hour)}
	if err := w.leads.Due.Hold(t.Context(), noon, []ports.Held{held}); err != nil {
		t.Fatal(err)
	}
	w.run(3, 2, appcrm.LeadsExpired{ExpiredCount: 6, BatchesProcessed: 2})
}

func TestExpireLeads_SixHundredPoisonLeadsAtTheHeadDoNotStopTheDrain(t *testing.T) {
	w := newWorld(t)
	poison, sound := w.register(600, noon.Add(-100*time.Hour)), w.register(50, noon.Add(-50*time.Hour))
	for _, lead := range poison {
		w.leads.Refuse(uuid.UUID(lead.Lead))
	}
	w.run(500, 10, appcrm.LeadsExpired{ExpiredCount: len(sound), BatchesProcessed: 1, FailedCount: len(poison)})
	list, err := w.leads.List(t.Context())
	if err != nil || len(list) != len(poison) {
		t.Fatalf("%d on record, %v; want %d", len(list), err, len(poison))
	}
	for _, q := range list {
		if q.Streak != 1 {
			t.Errorf("lead %s was tried %d times in one cycle", q.Item, q.Streak)
		}
	}
}

func TestExpireLeads_AnExtendedLeadExpiresAgainWithAnotherMessage(t *testing.T) {
	w := newWorld(t)
	lead := w.register(1, noon.Add(-2*time.Hour))[0]
	w.run(10, 10, appcrm.LeadsExpired{ExpiredCount: 1, BatchesProcessed: 1})
	if err := w.operations().Extend(t.Context(), "agent", lead.Lead, noon.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	w.run(10, 10, appcrm.LeadsExpired{ExpiredCount: 1, BatchesProcessed: 1})
	messages := w.leads.Messages()
	if len(messages) != 2 || messages[0].ID == messages[1].ID {
		t.Errorf("messages %+v; want two, with ids of their own", messages)
	}
}

func TestExpireLeads_ALimitOutOfRangeIsAValidationError(t *testing.T) {
	w := newWorld(t)
	w.register(1, noon.Add(-time.Hour))
	_, err := w.job(0, 10).Run(t.Context(), cycle.Begin(noon))
	if limit := (cycle.LimitError{}); !errors.As(err, &limit) || limit.Limit != "BatchSize" {
		t.Errorf("error %v; want a LimitError about BatchSize", err)
	}
}

func TestOperations_TellWhatWasActedOn(t *testing.T) {
	w := newWorld(t)
	stranger := portstest.NewID[crm.Lead]()
	for name, act := range map[string]func(context.Context) error{
		"extend":  func(ctx context.Context) error { return w.operations().Extend(ctx, "agent", stranger, noon) },
		"archive": func(ctx context.Context) error { return w.operations().Archive(ctx, "agent", stranger) },
	} {
		t.Run(name, func(t *testing.T) {
			err := act(t.Context())
			if refusal := (crm.NotRegisteredError{}); !errors.As(err, &refusal) {
				t.Fatalf("error %v; want a NotRegisteredError", err)
			}
			if want := name + " lead " + stranger.String() + ": the lead is not registered"; err.Error() != want {
				t.Errorf("error %q; want %q", err, want)
			}
		})
	}
}
