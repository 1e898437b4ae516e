package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/portstest"
	appcrm "github.com/pin-platform/pinworker/app/crm"
	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/ports"
)

func TestRole_CannotReadPersonalDataNorRewriteHistory(t *testing.T) {
	url := embeddedtest.Database(t)
	db, worker := open(t, url), open(t, embeddedtest.AsWorker(t, url))
	execute(t, db, "ALTER TABLE crm.leads ADD COLUMN client_name text")
	for _, forbidden := range []string{
		"SELECT client_name FROM crm.leads", "SELECT * FROM crm.leads", "DELETE FROM crm.leads",
		"UPDATE crm.leads SET executor_agent_user_id = id", "INSERT INTO crm.leads (id) VALUES (gen_random_uuid())",
		"UPDATE crm.domain_events SET actor = ''", "DELETE FROM crm.domain_events", "TRUNCATE crm.domain_events",
		"SELECT * FROM crm.deals", "CREATE TABLE crm.mine ()", "UPDATE crm.outbox SET key = ''",
	} {
		_, err := worker.Pool.Exec(t.Context(), forbidden)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "42501" {
			t.Errorf("%s: %v; want it forbidden", forbidden, err)
		}
	}
}

func TestLeads_ADrainSurvivesAConnectionThatIsKilledBetweenPages(t *testing.T) {
	store, db := leadStore(t)
	due(t, store, 40)
	pages := 0
	killing := pageHook{store.Due, func() {
		if pages++; pages == 3 {
			execute(t, db, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'worker' AND datname = current_database()")
		}
	}}
	summary, err := cycle.Drain(t.Context(), killing, appcrm.Expire, cycle.Begin(portstest.Noon),
		cycle.Limits{BatchSize: 10, MaxBatches: 20, Interval: time.Hour}, nil)
	if err != nil || summary.Applied != 40 {
		t.Errorf("summary %+v, %v; want all expired in this cycle", summary, err)
	}
}

// pageHook does something before each page.
type pageHook struct {
	ports.DueLeads
	before func()
}

func (p pageHook) Transition(ctx context.Context, c ports.Claim, r ports.Rule[crm.Lead, crm.Event]) (ports.Outcome[crm.Lead, crm.Event], error) {
	p.before()
	return p.DueLeads.Transition(ctx, c, r)
}

func TestDB_ComesBackFromAReadOnlyPhaseByItself(t *testing.T) {
	store, db := leadStore(t)
	due(t, store, 2)
	limits := cycle.Limits{BatchSize: 10, MaxBatches: 20, Interval: time.Hour}
	var name string
	if err := db.Pool.QueryRow(t.Context(), "SELECT current_database()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	execute(t, db, "ALTER DATABASE "+name+" SET default_transaction_read_only = on")
	execute(t, db, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'worker' AND datname = current_database()")
	if summary, err := cycle.Drain(t.Context(), store.Due, appcrm.Expire, cycle.Begin(portstest.Noon), limits, nil); summary.Applied > 0 || err == nil && summary.Faults == 0 {
		t.Errorf("summary %+v, %v; want a fault while it is read-only", summary, err)
	}
	execute(t, db, "ALTER DATABASE "+name+" RESET default_transaction_read_only")
	if summary, err := cycle.Drain(t.Context(), store.Due, appcrm.Expire, cycle.Begin(portstest.Noon), limits, nil); err != nil || summary.Applied != 2 {
		t.Errorf("summary %+v, %v; want both expired once it can be written to", summary, err)
	}
}
