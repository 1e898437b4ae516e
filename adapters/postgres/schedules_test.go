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
	"github.com/pin-platform/pinworker/app/verify"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/ports"
)

// actor is one side of a race. It takes a step, a message that asks the database for something,
// when it is told to.
type actor struct {
	t       *testing.T
	owner   *postgres.DB
	name    string // its application_name
	db      *postgres.DB
	permits chan struct{}
	arrived chan struct{}
	done    chan struct{}
	waits   bool // for a lock
	ended   bool
}

func newActor(t *testing.T, owner *postgres.DB, databaseURL, name string) *actor {
	t.Helper()
	a := &actor{t: t, owner: owner, name: name, permits: make(chan struct{}), arrived: make(chan struct{})}
	p, through := embeddedtest.NewProxy(t, databaseURL)
	db, err := postgres.Open(postgres.Config{
		URL: through, MaxConnections: 1, ApplicationName: name, StatementTimeout: 30 * time.Second, LockTimeout: 20 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	a.db = db
	if err := db.Pool.Ping(t.Context()); err != nil { // connects before anything asks
		t.Fatal(err)
	}
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

// await returns once the actor stands before its next step, has ended, or waits for a lock.
func (a *actor) await() {
	a.t.Helper()
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
		err := a.owner.Pool.QueryRow(a.t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE application_name = $1 AND wait_event_type = 'Lock')`, a.name).Scan(&waits)
		if err != nil {
			a.t.Fatal(err)
		}
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

func TestLeads_NoScheduleOfAnOperationAgainstTheWorkerHasAThirdOutcome(t *testing.T) {
	database := embeddedtest.Database(t)
	owner := open(t, database)
	worker := newActor(t, owner, embeddedtest.AsWorker(t, database), "schedule-worker")
	agent := newActor(t, owner, database, "schedule-agent")
	writer := outbox.NewWriter(outbox.Table{Schema: "crm"}, "pin/crm", func() {})
	job, operations := postgres.NewCRM(worker.db, writer).Due, appcrm.Operations{
		Leads: postgres.NewCRM(agent.db, writer).Leads, Clock: func() time.Time { return portstest.Noon },
	}
	later := portstest.Noon.AddDate(0, 1, 0)

	for name, operation := range map[string]struct {
		act     func(context.Context, crm.LeadID) error
		outcome map[string]bool // status, version, messages
	}{
		"extend": {
			func(ctx context.Context, id crm.LeadID) error { return operations.Extend(ctx, "agent", id, later) },
			map[string]bool{"Active 2 0": true, "Active 3 1": true},
		},
		"archive": {
			func(ctx context.Context, id crm.LeadID) error { return operations.Archive(ctx, "agent", id) },
			map[string]bool{"Archived 2 0": true, "Archived 3 1": true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			// race runs a schedule: first takes some steps, then second, then each to its end.
			race := func(first, second *actor, firstSteps, secondSteps int) (taken [2]int, outcome string) {
				execute(t, owner, "TRUNCATE crm.leads, crm.domain_events, crm.outbox, crm.quarantine CASCADE")
				r := portstest.Registration(portstest.Noon.Add(-time.Minute))
				setUp := appcrm.Operations{Leads: postgres.NewCRM(owner, writer).Leads, Clock: func() time.Time { return portstest.Noon.AddDate(0, -1, 0) }}
				if err := setUp.Register(t.Context(), "agent", r); err != nil {
					t.Fatal(err)
				}
				var jobErr, agentErr error
				worker.start(func() {
					_, jobErr = job.Transition(t.Context(), ports.Claim{AsOf: portstest.Noon, Limit: 10, Run: ports.NewRunID()}, appcrm.Expire)
				})
				agent.start(func() { agentErr = operation.act(t.Context(), r.Lead) })
				taken[0] = first.advance(firstSteps)
				taken[1] = second.advance(secondSteps)
				for !first.ended || !second.ended {
					first.advance(toTheEnd)
					second.advance(toTheEnd)
				}
				if err := errors.Join(jobErr, agentErr); err != nil {
					t.Fatal(err)
				}
				err := owner.Pool.QueryRow(t.Context(), `SELECT status || ' ' || version || ' ' || (SELECT count(*) FROM crm.outbox)
					FROM crm.leads`).Scan(&outcome)
				if err != nil {
					t.Fatal(err)
				}
				return taken, outcome
			}
			check := func(schedule, outcome string) {
				if !operation.outcome[outcome] {
					t.Errorf("%s: a third outcome: %s", schedule, outcome)
				}
				_, err := verify.Run(t.Context(), postgres.NewCRM(owner, nil).Ledger, time.Time{}, func(f verify.Finding) {
					t.Errorf("%s: %s", schedule, f.What)
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			schedules, seen := 0, make(map[string]int)
			for _, order := range [][2]*actor{{worker, agent}, {agent, worker}} {
				for firstSteps := 0; ; firstSteps++ {
					var ended bool
					for secondSteps := 0; ; secondSteps++ {
						taken, outcome := race(order[0], order[1], firstSteps, secondSteps)
						check(fmt.Sprintf("%s %d, %s %d", order[0].name, firstSteps, order[1].name, secondSteps), outcome)
						schedules++
						seen[outcome]++
						ended = taken[0] < firstSteps
						if ended || taken[1] < secondSteps { // it had no more steps to take
							break
						}
					}
					if ended {
						break
					}
				}
			}
			t.Logf("%d schedules: %v", schedules, seen)
			if len(seen) != 2 || schedules < 70 {
				t.Errorf("%d schedules with outcomes %v; want at least 70, and both", schedules, seen)
			}
		})
	}
}
