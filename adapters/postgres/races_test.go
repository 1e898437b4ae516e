package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/adapters/postgres"
	appcrm "github.com/pin-platform/pinworker/app/crm"
	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/ports"
)

// due registers n leads that are due at noon.
func due(t *testing.T, store portstest.LeadStore, n int) []crm.LeadID {
	t.Helper()
	operations := appcrm.Operations{Leads: store.Leads, Clock: func() time.Time { return portstest.Noon.AddDate(0, -1, 0) }}
	leads := make([]crm.LeadID, n)
	for i := range leads {
		r := portstest.Registration(portstest.Noon.Add(-time.Duration(i+1) * time.Second))
		if err := operations.Register(t.Context(), "agent", r); err != nil {
			t.Fatal(err)
		}
		leads[i] = r.Lead
	}
	return leads
}

func claim() ports.Claim {
	return ports.Claim{AsOf: portstest.Noon, Limit: 10, Run: ports.NewRunID()}
}

// meanwhile is the rule of the job, and something that happens while it decides: after the
// lead's row and stream were read, before anything is written.
func meanwhile(something func()) ports.Rule[crm.Lead, crm.Event] {
	rule := appcrm.Expire
	rule.Decide = func(l crm.Lead, at time.Time) ([]crm.Event, error) {
		something()
		return l.Expire(at)
	}
	return rule
}

// otherEvent takes the place in a stream that the next event would have.
const otherEvent = `INSERT INTO crm.domain_events SELECT id, 'Lead', version + 1, 'LeadArchived', '{}', 'someone', id, now(), '' FROM crm.leads`

func TestLeads_WhoeverLosesTheRaceForAnEventIsNotBlamed(t *testing.T) {
	store, db := leadStore(t)
	due(t, store, 1)
	outcome, err := store.Due.Transition(t.Context(), claim(), meanwhile(func() { execute(t, db, otherEvent) }))
	if err != nil || outcome.Claimed != 1 || len(outcome.Applied)+len(outcome.Failed)+len(store.Messages()) > 0 {
		t.Errorf("outcome %+v, %v; want the lead left alone, and nobody blamed", outcome, err)
	}
}

func TestLeads_AnOperationThatLosesTheRaceIsAConflict(t *testing.T) {
	store, db := leadStore(t)
	id := due(t, store, 1)[0]
	command := ports.Command[crm.LeadID]{ID: id, At: portstest.Noon, By: "agent", Run: ports.NewRunID()}
	_, err := store.Leads.Change(t.Context(), command, meanwhile(func() { execute(t, db, otherEvent) }))
	if !errors.Is(err, ports.ErrConflict) {
		t.Errorf("error %v; want ErrConflict", err)
	}
}

func TestLeads_TwoRegistrationsOfOneIDAreAConflict(t *testing.T) {
	store, db := leadStore(t)
	r := portstest.Registration(portstest.Noon)
	command := ports.Command[crm.LeadID]{ID: r.Lead, At: portstest.Noon.AddDate(0, -1, 0), By: "agent", Run: ports.NewRunID()}
	rule := ports.Rule[crm.Lead, crm.Event]{Decide: func(l crm.Lead, at time.Time) ([]crm.Event, error) {
		execute(t, db, `INSERT INTO crm.leads VALUES ($1, gen_random_uuid(), gen_random_uuid(), gen_random_uuid(),
			'Active', now(), NULL, 1, now(), now())`, r.Lead.String())
		return l.Register(r, at)
	}}
	if _, err := store.Leads.Change(t.Context(), command, rule); !errors.Is(err, ports.ErrConflict) {
		t.Errorf("error %v; want ErrConflict", err)
	}
}

// Departure 3 of the specification: FOR NO KEY UPDATE, where FOR UPDATE would block inserts that
// refer to the lead.
func TestLeads_AClaimDoesNotBlockADealOfItsLead(t *testing.T) {
	store, db := leadStore(t)
	id := due(t, store, 1)[0]
	rule := meanwhile(func() {
		execute(t, db, fmt.Sprintf(`BEGIN; SET LOCAL lock_timeout = '2s';
			INSERT INTO crm.deals VALUES (gen_random_uuid(), '%s', 'Active', NULL, 1, now(), now()); COMMIT`, id))
	})
	if outcome, err := store.Due.Transition(t.Context(), claim(), rule); err != nil || len(outcome.Applied) != 1 {
		t.Errorf("outcome %+v, %v", outcome, err)
	}
}

// committed counts what an outbox hears.
type committed struct {
	*outbox.Writer
	times int
}

func (c *committed) Committed() { c.times++ }

func TestLeads_WakeTheRelayAfterACommitAndOnlyThen(t *testing.T) {
	store, db := leadStore(t)
	due(t, store, 1)
	heard := &committed{Writer: outbox.NewWriter(outbox.Table{Schema: "crm"}, "pin/crm", func() {})}
	leads := postgres.NewCRM(db, heard).Due
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := leads.Transition(ctx, claim(), meanwhile(cancel)); err == nil || heard.times != 0 {
		t.Errorf("error %v, woken %d times by what was rolled back", err, heard.times)
	}
	settled(t, db)
	if _, err := leads.Transition(t.Context(), claim(), appcrm.Expire); err != nil || heard.times != 1 {
		t.Errorf("error %v, woken %d times; want once", err, heard.times)
	}
	if _, err := leads.Transition(t.Context(), claim(), appcrm.Expire); err != nil || heard.times != 1 {
		t.Errorf("error %v, woken %d times by an empty claim", err, heard.times-1)
	}
}

func TestLeads_TwoWorkersExpireEachLeadOnce(t *testing.T) {
	store, db := leadStore(t)
	const n = 2000
	execute(t, db, `INSERT INTO crm.leads SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(),
		'Active', $1::timestamptz - n * interval '1 second', NULL, 1, $1::timestamptz - interval '1 month', $1::timestamptz - interval '1 month'
		FROM generate_series(1, $2) AS n`, portstest.Noon, n)
	done := make(chan int, 2)
	for range cap(done) {
		go func() {
			tick := cycle.Begin(portstest.Noon)
			summary, err := cycle.Drain(t.Context(), store.Due, appcrm.Expire, tick,
				cycle.Limits{BatchSize: 50, MaxBatches: 1000, Interval: time.Hour}, nil)
			if err != nil || summary.Faults+summary.Failed > 0 {
				t.Errorf("summary %+v, %v", summary, err)
			}
			done <- summary.Applied
		}()
	}
	first, second := <-done, <-done
	if first+second != n || first == 0 || second == 0 {
		t.Errorf("the workers expired %d and %d leads; want %d together, some each", first, second, n)
	}
	for what, query := range map[string]string{
		"leads expired at version 2": "SELECT count(*) FROM crm.leads WHERE status = 'Expired' AND version = 2",
		"LeadExpired events":         "SELECT count(DISTINCT stream_id) FROM crm.domain_events WHERE event_type = 'LeadExpired' AND version = 2",
		"events beside baselines":    "SELECT count(*) FROM crm.domain_events WHERE event_type <> 'LeadImported'",
		"messages":                   "SELECT count(*) FROM crm.outbox",
		"distinct messages":          "SELECT count(DISTINCT uuid) FROM crm.outbox",
	} {
		var got int
		if err := db.Pool.QueryRow(t.Context(), query).Scan(&got); err != nil || got != n {
			t.Errorf("%d %s, %v; want %d", got, what, err, n)
		}
	}
}

func TestWritable_TellsAReadOnlyDatabase(t *testing.T) {
	url := embeddedtest.Database(t)
	if err := open(t, url).Writable(t.Context()); err != nil {
		t.Error(err)
	}
	readOnly := open(t, url+"&options=-c%20default_transaction_read_only%3Don")
	if err := readOnly.Writable(t.Context()); !errors.Is(err, postgres.ErrReadOnly) {
		t.Errorf("error %v; want ErrReadOnly", err)
	}
}

// panics is an outbox that breaks.
type panics struct{ postgres.Outbox }

func (panics) Compose(context.Context, ports.RunID, []ports.Message) (string, []any, error) {
	panic("a nil map")
}

func TestLeads_APanicWhileMessagesAreComposedReachesTheCaller(t *testing.T) {
	store, db := leadStore(t)
	due(t, store, 1)
	defer func() {
		if value := fmt.Sprint(recover()); value != "a nil map" {
			t.Errorf("recovered %s; want the panic", value)
		}
		settled(t, db)
		if outcome, err := store.Due.Transition(t.Context(), claim(), appcrm.Expire); err != nil || len(outcome.Applied) != 1 {
			t.Errorf("outcome %+v, %v; want the unit rolled back, and the lead expired now", outcome, err)
		}
	}()
	_, err := postgres.NewCRM(db, panics{}).Due.Transition(t.Context(), claim(), appcrm.Expire)
	t.Errorf("error %v; want a panic", err)
}
