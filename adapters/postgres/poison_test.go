package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/adapters/postgres"
	appcrm "github.com/pin-platform/pinworker/app/crm"
	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/ports"
)

func TestLeads_AStreamAheadOfItsRowIsPoison(t *testing.T) {
	store, db := leadStore(t)
	id := history(t, store)
	execute(t, db, "UPDATE crm.leads SET status = 'Active', version = 2")
	claim := ports.Claim{AsOf: portstest.Noon, Limit: 10, Run: ports.NewRunID()}
	outcome, err := store.Due.Transition(t.Context(), claim, appcrm.Expire)
	if err != nil || len(outcome.Failed) != 1 {
		t.Fatalf("outcome %+v, %v; want the lead failed", outcome, err)
	}
	ahead, ok := outcome.Failed[0].Err.(postgres.StreamAheadError)
	if !ok || outcome.Failed[0].Item != [16]byte(id) || ahead.Row != 2 || ahead.Stream != 3 {
		t.Errorf("failed with %v; want a StreamAheadError, 3 ahead of 2", outcome.Failed[0].Err)
	}
}

func TestLeads_AMomentAtMinusInfinityIsPoisonAndDoesNotStopThePage(t *testing.T) {
	store, db := leadStore(t)
	poison, sound := history(t, store), portstest.Registration(portstest.Noon.Add(-time.Minute))
	execute(t, db, "UPDATE crm.leads SET status = 'Active', expires_at = '-infinity'")
	operations := appcrm.Operations{Leads: store.Leads, Clock: func() time.Time { return portstest.Noon.AddDate(0, -1, 0) }}
	if err := operations.Register(t.Context(), "agent", sound); err != nil {
		t.Fatal(err)
	}
	early := portstest.Noon.Add(-30 * time.Minute) // the sound lead is due within the hour
	if backlog, err := store.Due.Backlog(t.Context(), early, ports.Cursor{}); err != nil || backlog.Due != 1 || !backlog.Oldest.IsZero() {
		t.Errorf("backlog %+v, %v; want one due, without an age", backlog, err)
	}
	claim := ports.Claim{AsOf: portstest.Noon, Limit: 1, Run: ports.NewRunID()}
	first, err := store.Due.Transition(t.Context(), claim, appcrm.Expire)
	if err != nil || len(first.Failed) != 1 || first.Failed[0].Item != [16]byte(poison) {
		t.Fatalf("outcome %+v, %v; want the lead at -infinity failed", first, err)
	}
	claim.After = first.Next
	second, err := store.Due.Transition(t.Context(), claim, appcrm.Expire)
	if err != nil || len(second.Applied) != 1 || second.Applied[0].After.ID() != sound.Lead {
		t.Errorf("outcome %+v, %v; want the sound lead expired", second, err)
	}
}

func TestLeads_AnActiveDealOfAnExpiredLeadIsUntouched_INV_LEAD_4(t *testing.T) {
	store, db := leadStore(t)
	r := portstest.Registration(portstest.Noon.Add(-time.Minute))
	operations := appcrm.Operations{Leads: store.Leads, Clock: func() time.Time { return portstest.Noon.AddDate(0, -1, 0) }}
	if err := operations.Register(t.Context(), "agent", r); err != nil {
		t.Fatal(err)
	}
	execute(t, db, `INSERT INTO crm.deals VALUES (gen_random_uuid(), $1, 'Active', now(), 1, now(), now())`, r.Lead.String())
	deal := func() (row string) {
		t.Helper()
		if err := db.Pool.QueryRow(t.Context(), "SELECT xmin || ' ' || d::text FROM crm.deals AS d").Scan(&row); err != nil {
			t.Fatal(err)
		}
		return row
	}
	before := deal()
	claim := ports.Claim{AsOf: portstest.Noon, Limit: 10, Run: ports.NewRunID()}
	if outcome, err := store.Due.Transition(t.Context(), claim, appcrm.Expire); err != nil || len(outcome.Applied) != 1 {
		t.Fatalf("outcome %+v, %v", outcome, err)
	}
	if after := deal(); after != before {
		t.Errorf("the deal was %s and is %s", before, after)
	}
}

func TestLeads_WhatATriggerRefusesIsPoisonAndItsWordsAreNotRepeated(t *testing.T) {
	const said = "Ivan Petrov, +7 900 000-00-00"
	for code, refuses := range map[string]bool{
		"P0001": true, "PT403": true, "45000": true, "42501": true, "23505": true, "22012": true,
		"40001": false, "55P03": false, "57014": false, "53100": false,
	} {
		t.Run(code, func(t *testing.T) {
			store, db := leadStore(t)
			due(t, store, 1)
			execute(t, db, fmt.Sprintf(`CREATE FUNCTION crm.refuse() RETURNS trigger LANGUAGE plpgsql AS
				$$ BEGIN RAISE EXCEPTION 'no: %s' USING ERRCODE = '%s'; END $$`, said, code))
			execute(t, db, "CREATE TRIGGER refuse BEFORE UPDATE ON crm.leads FOR EACH ROW EXECUTE FUNCTION crm.refuse()")
			outcome, err := store.Due.Transition(t.Context(), claim(), appcrm.Expire)
			if refuses {
				if err != nil || len(outcome.Failed) != 1 {
					t.Fatalf("outcome %+v, %v; want the lead failed", outcome, err)
				}
				err = outcome.Failed[0].Err
			}
			if want := "update leads: refused by the database: SQLSTATE " + code; err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("failed with %q; want %q", err, want)
			}
		})
	}
}

func TestLeads_WhatAPolicyRefusesIsPoisonAndAMissingRightIsNot(t *testing.T) {
	t.Run("a policy", func(t *testing.T) {
		store, db := leadStore(t)
		due(t, store, 1)
		execute(t, db, "ALTER TABLE crm.leads ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
		execute(t, db, "CREATE POLICY seen ON crm.leads USING (true) WITH CHECK (status <> 'Expired')")
		outcome, err := store.Due.Transition(t.Context(), claim(), appcrm.Expire)
		if err != nil || len(outcome.Failed) != 1 {
			t.Errorf("outcome %+v, %v; want the lead failed", outcome, err)
		}
	})
	t.Run("a missing right", func(t *testing.T) {
		store, db := leadStore(t)
		due(t, store, 1)
		execute(t, db, "REVOKE UPDATE ON crm.leads FROM pinworker")
		outcome, err := store.Due.Transition(t.Context(), claim(), appcrm.Expire)
		if err == nil || len(outcome.Failed) > 0 {
			t.Errorf("outcome %+v, %v; want the unit undone", outcome, err)
		}
	})
}

func TestLeads_AnUpdateThatIsSilentlySkippedIsPoison(t *testing.T) {
	store, db := leadStore(t)
	history(t, store)
	execute(t, db, "UPDATE crm.leads SET status = 'Active', version = 3, expired_at = NULL")
	execute(t, db, `CREATE FUNCTION crm.skip() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$`)
	execute(t, db, "CREATE TRIGGER skip BEFORE UPDATE ON crm.leads FOR EACH ROW EXECUTE FUNCTION crm.skip()")
	claim := ports.Claim{AsOf: portstest.Noon, Limit: 10, Run: ports.NewRunID()}
	outcome, err := store.Due.Transition(t.Context(), claim, appcrm.Expire)
	if err != nil || len(outcome.Failed) != 1 || len(store.Messages()) != 1 {
		t.Errorf("outcome %+v, %v, messages %v; want the lead failed and no second message", outcome, err, store.Messages())
	}
}

func TestLeads_YearOneIsPoisonAndTheCursorMovesOn(t *testing.T) {
	store, db := leadStore(t)
	const n = 5
	execute(t, db, `INSERT INTO crm.leads SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(),
		'Active', '0001-01-01 00:00:00Z', NULL, 1, now(), now() FROM generate_series(1, $1)`, n)
	summary, err := cycle.Drain(t.Context(), store.Due, appcrm.Expire, cycle.Begin(portstest.Noon),
		cycle.Limits{BatchSize: 2, MaxBatches: 20, Interval: time.Hour}, nil)
	if err != nil || summary.Failed != n || summary.Capped {
		t.Errorf("summary %+v, %v; want each to fail once", summary, err)
	}
}

func TestLeads_EventsThatATriggerSwallowsUndoTheUnit(t *testing.T) {
	store, db := leadStore(t)
	due(t, store, 1)
	execute(t, db, "CREATE FUNCTION crm.swallow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")
	execute(t, db, "CREATE TRIGGER swallow BEFORE INSERT ON crm.domain_events FOR EACH ROW EXECUTE FUNCTION crm.swallow()")
	outcome, err := store.Due.Transition(t.Context(), claim(), appcrm.Expire)
	if err != nil || len(outcome.Failed) != 1 || len(store.Messages()) > 0 {
		t.Errorf("outcome %+v, %v, messages %v; want the lead failed, and nothing written", outcome, err, store.Messages())
	}
}

func TestLeads_AMessageThatATriggerSwallowsIsItsLeadsPoisonAlone(t *testing.T) {
	store, db := leadStore(t)
	leads := due(t, store, 3)
	execute(t, db, fmt.Sprintf(`CREATE FUNCTION crm.swallow() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN IF NEW.key = '%s' THEN RETURN NULL; END IF; RETURN NEW; END $$`, leads[1]))
	execute(t, db, "CREATE TRIGGER swallow BEFORE INSERT ON crm.outbox FOR EACH ROW EXECUTE FUNCTION crm.swallow()")
	summary, err := cycle.Drain(t.Context(), store.Due, appcrm.Expire, cycle.Begin(portstest.Noon),
		cycle.Limits{BatchSize: 10, MaxBatches: 20, Interval: time.Hour}, nil)
	if err != nil || summary.Applied != 2 || summary.Failed != 1 || len(store.Messages()) != 2 {
		t.Errorf("summary %+v, %v, messages %v; want two expired and published, one failed", summary, err, store.Messages())
	}
}

func TestLeads_HundredsOfPoisonsAheadOfTheSoundOnesDoNotStopADrain(t *testing.T) {
	const sound, page = 50, 100
	for what, poison := range map[string]struct {
		leads                 int // more than a page
		expiresAt, constraint string
	}{
		"rows that are no leads":  {600, "'-infinity'", "true"},
		"writes that are refused": {250, "$1::timestamptz - interval '2 hours'", "executor_agent_user_id <> tenant_id OR status = 'Active'"},
	} {
		t.Run(what, func(t *testing.T) {
			poisons := poison.leads
			store, db := leadStore(t)
			execute(t, db, "ALTER TABLE crm.leads ADD CONSTRAINT poison CHECK ("+poison.constraint+")")
			execute(t, db, `INSERT INTO crm.leads SELECT gen_random_uuid(), p.party, p.party, gen_random_uuid(), 'Active',
				`+poison.expiresAt+`, NULL, 1, $1, $1 FROM (SELECT gen_random_uuid() AS party FROM generate_series(1, $2)) AS p`,
				portstest.Noon, poisons)
			for n, want := range []struct{ failed, held, streak int }{
				{poisons, 0, 1}, {poisons, 0, 2}, {poisons, poisons, 3}, {0, poisons, 3}, {poisons, poisons, 4},
			} {
				due(t, store, sound)
				at := portstest.Noon.Add(time.Duration(n) * time.Hour)
				tried := make(map[uuid.UUID]int)
				summary, err := cycle.Drain(t.Context(), failures{store.Due, tried}, appcrm.Expire, cycle.Begin(at),
					cycle.Limits{BatchSize: page, MaxBatches: 20, Interval: time.Hour}, nil)
				if err != nil || summary.Applied != sound || summary.Failed != want.failed || summary.Faults > 0 || summary.Capped {
					t.Errorf("cycle %d: summary %+v, %v; want %d expired and %d failed", n+1, summary, err, sound, want.failed)
				}
				if len(tried) != want.failed {
					t.Errorf("cycle %d: %d leads failed; want %d", n+1, len(tried), want.failed)
				}
				for item, times := range tried {
					if times != 1 {
						t.Errorf("cycle %d: lead %s failed %d times", n+1, item, times)
					}
				}
				var recorded, held int
				err = db.Pool.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE failures = $1),
					count(*) FILTER (WHERE next_attempt > $2) FROM crm.quarantine`, want.streak, at).Scan(&recorded, &held)
				if err != nil || recorded != poisons || held != want.held {
					t.Errorf("cycle %d: %d have failed %d times, %d are held back, %v; want %d and %d", n+1, recorded, want.streak, held, err, poisons, want.held)
				}
			}
		})
	}
}

// failures counts how often each lead has failed.
type failures struct {
	ports.DueLeads
	tried map[uuid.UUID]int
}

func (f failures) Transition(ctx context.Context, c ports.Claim, r ports.Rule[crm.Lead, crm.Event]) (ports.Outcome[crm.Lead, crm.Event], error) {
	outcome, err := f.DueLeads.Transition(ctx, c, r)
	for _, failure := range outcome.Failed {
		f.tried[failure.Item]++
	}
	return outcome, err
}

// The platform may have constraints of its own: what an UPDATE breaks of them is a data fault.
func TestLeads_AnUpdateThatBreaksAUniqueConstraintIsItsLeadsPoisonAlone(t *testing.T) {
	store, db := leadStore(t)
	leads := due(t, store, 3)
	execute(t, db, "UPDATE crm.leads SET executor_agent_user_id = $1 WHERE id IN ($2, $3)", uuid.NewString(), leads[0].String(), leads[1].String())
	execute(t, db, "CREATE UNIQUE INDEX one_expired_lead_an_agent ON crm.leads (executor_agent_user_id) WHERE status = 'Expired'")
	summary, err := cycle.Drain(t.Context(), store.Due, appcrm.Expire, cycle.Begin(portstest.Noon),
		cycle.Limits{BatchSize: 10, MaxBatches: 20, Interval: time.Hour}, nil)
	if err != nil || summary.Applied != 2 || summary.Failed != 1 || summary.Faults > 0 {
		t.Errorf("summary %+v, %v; want two expired, one failed", summary, err)
	}
}
