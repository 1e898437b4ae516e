package main

import (
	"time"

	"github.com/pin-platform/pinworker/adapters/portstest"
)

const leadBacklog, leadPoison = "lead-expiration-backlog", "lead-expiration-poison-item"

var leadExpirationSituations = []situation{
	{
		page: leadPoison, cause: "A constraint refuses it",
		given: func(k *terminal) {
			k.register(1)
			now := time.Now().UTC().Truncate(time.Microsecond)
			k.must(k.worker.at(now.AddDate(0, 0, -10)).crm.Register(k.Context(), "agent", portstest.Registration(now.Add(-time.Minute))))
			k.execute("ALTER TABLE crm.leads ADD CONSTRAINT leads_live_for_20_days CHECK (expired_at <= created_at + interval '20 days')")
			k.runUntilHeld("lead-expiration")
		},
		then: func(k *terminal) { k.wantLeads("Expired", 2) },
	},
	{
		page: leadPoison, cause: "Its row has lost a change",
		given: func(k *terminal) {
			lead := k.register(2)[0]
			k.must(k.worker.crm.Extend(k.Context(), "agent", lead.Lead, time.Now().UTC().AddDate(0, 1, 0).Truncate(time.Microsecond)))
			k.execute("UPDATE crm.leads SET version = 1, expires_at = now() - interval '1 minute', updated_at = created_at WHERE id = '" + lead.Lead.String() + "'")
			k.runUntilHeld("lead-expiration")
		},
		then: func(k *terminal) { k.wantLeads("Active", 1) },
	},
	{
		page: leadPoison, cause: "Its row is unsound",
		given: func(k *terminal) {
			lead := k.register(2)[0]
			k.execute("UPDATE crm.leads SET expires_at = '0001-01-01 00:00:00Z' WHERE id = '" + lead.Lead.String() + "'")
			k.runUntilHeld("lead-expiration")
		},
		then: func(k *terminal) { k.wantLeads("Expired", 2) },
	},
	{
		page: leadBacklog, cause: "Somebody holds them",
		given: func(k *terminal) {
			k.register(20)
			k.forget("crm-import", "SELECT FROM crm.leads ORDER BY expires_at LIMIT 3 FOR UPDATE")
			k.serve()
			k.leadsDue(3)
		},
		then: func(k *terminal) { k.wantLeads("Expired", 20) },
	},
	{
		page: leadBacklog, cause: "No worker serves",
		given: func(k *terminal) { k.register(20) },
		then:  func(k *terminal) { k.wantLeads("Expired", 20) },
	},
	{
		page: leadBacklog, cause: "The cap is too low",
		given: func(k *terminal) {
			k.env["PINWORKER_JOBS_LEAD_EXPIRATION_BATCH_SIZE"], k.env["PINWORKER_JOBS_LEAD_EXPIRATION_MAX_BATCHES_PER_CYCLE"] = "5", "2"
			k.register(50)
			k.serve()
			k.leadsDue(40)
		},
		then: func(k *terminal) { k.wantLeads("Expired", 50) },
	},
	{
		page: leadBacklog, cause: "More came at once",
		given: func(k *terminal) {
			k.serve()
			eventually(k.T, "a cycle is done", func() bool { return k.run(`$LOGS | grep -c '"job.completed"'`) == "1\n" })
			k.register(200)
		},
		then: func(k *terminal) { k.wantLeads("Expired", 200) },
	},
}

// leadsDue returns once a cycle has left so many.
func (k *terminal) leadsDue(left int) {
	k.Helper()
	eventually(k.T, "a cycle leaves some", func() bool {
		return k.count("SELECT count(*) FROM crm.leads WHERE status = 'Active'") == left && k.run(`$LOGS | grep -c '"job.completed"'`) == "1\n"
	})
}

// runUntilHeld runs a job until its poison is held back.
func (k *terminal) runUntilHeld(job string) {
	k.Helper()
	for range 3 {
		done[runResult](k.T, "run", job)
	}
}

func (k *terminal) wantLeads(status string, want int) {
	k.Helper()
	if n := k.count("SELECT count(*) FROM crm.leads WHERE status = '" + status + "'"); n != want {
		k.Errorf("%d leads are %s; want %d", n, status, want)
	}
}
