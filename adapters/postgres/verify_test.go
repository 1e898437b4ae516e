package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/adapters/postgres"
	appcrm "github.com/pin-platform/pinworker/app/crm"
	"github.com/pin-platform/pinworker/app/verify"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/ports"
)

// history makes a lead that was registered, extended and expired: versions 1, 2 and 3.
func history(t *testing.T, store portstest.LeadStore) crm.LeadID {
	t.Helper()
	r := portstest.Registration(portstest.Noon.Add(-2 * time.Hour))
	operations := appcrm.Operations{Leads: store.Leads, Clock: func() time.Time { return portstest.Noon.AddDate(0, -1, 0) }}
	if err := operations.Register(t.Context(), "agent", r); err != nil {
		t.Fatal(err)
	}
	if err := operations.Extend(t.Context(), "agent", r.Lead, portstest.Noon.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	claim := ports.Claim{AsOf: portstest.Noon, Limit: 10, Run: ports.NewRunID()}
	if outcome, err := store.Due.Transition(t.Context(), claim, appcrm.Expire); err != nil || len(outcome.Applied) != 1 {
		t.Fatalf("outcome %+v, %v", outcome, err)
	}
	return r.Lead
}

func findings(t *testing.T, db *postgres.DB, since time.Time) (verify.Report, []verify.Finding) {
	t.Helper()
	var found []verify.Finding
	report, err := verify.Run(t.Context(), postgres.NewCRM(db, nil).Ledger, since, func(f verify.Finding) { found = append(found, f) })
	if err != nil {
		t.Fatal(err)
	}
	return report, found
}

func TestVerify_FindsEveryChangeMadeBehindItsBack(t *testing.T) {
	for _, change := range []struct {
		name, statement string
		want            []string // one finding holds each of these
	}{
		{"lead id", "UPDATE crm.leads SET id = gen_random_uuid()", []string{"row: is missing"}},
		{"lead tenant_id", "UPDATE crm.leads SET tenant_id = gen_random_uuid()", []string{"TenantID:"}},
		{"lead executor_agent_user_id", "UPDATE crm.leads SET executor_agent_user_id = gen_random_uuid()", []string{"ExecutorAgentUserID:"}},
		{"lead primary_investor_user_id", "UPDATE crm.leads SET primary_investor_user_id = gen_random_uuid()", []string{"PrimaryInvestorUserID:"}},
		{"lead status", "UPDATE crm.leads SET status = 'Active'", []string{"Status:"}},
		{"lead expires_at", "UPDATE crm.leads SET expires_at = expires_at + interval '1 microsecond'", []string{"ExpiresAt:"}},
		{"lead expires_at to infinity", "UPDATE crm.leads SET expires_at = 'infinity'", []string{"row: expires_at is infinity"}},
		{"lead expired_at", "UPDATE crm.leads SET expired_at = expired_at + interval '1 microsecond'", []string{"ExpiredAt:"}},
		{"lead expired_at to null", "UPDATE crm.leads SET expired_at = NULL", []string{"ExpiredAt:"}},
		{"lead version down", "UPDATE crm.leads SET version = 2", []string{"Version: the row is at 2, behind its stream at 3"}},
		{"lead created_at", "UPDATE crm.leads SET created_at = created_at - interval '1 microsecond'", []string{"CreatedAt:"}},
		{"lead updated_at", "UPDATE crm.leads SET updated_at = updated_at - interval '1 microsecond'", []string{"UpdatedAt:"}},
		{"lead deleted", "DELETE FROM crm.leads", []string{"row: is missing"}},

		{"event stream_id", "UPDATE crm.domain_events SET stream_id = gen_random_uuid() WHERE version = 2", []string{"event 3: stands where event 2 belongs", "event 2 (LeadExtended) is not what was recorded"}},
		{"event stream_type", "UPDATE crm.domain_events SET stream_type = 'Deal' WHERE version = 2", []string{"event 2 (LeadExtended) is not what was recorded"}},
		{"event version", "UPDATE crm.domain_events SET version = 9 WHERE version = 3", []string{"event 9: stands where event 3 belongs"}},
		{"event event_type", "UPDATE crm.domain_events SET event_type = 'LeadArchived' WHERE version = 3", []string{"event 3 (LeadArchived) is not what was recorded", "Status:"}},
		{"event event_type unknown", "UPDATE crm.domain_events SET event_type = 'LeadSold' WHERE version = 3", []string{`there is no event "LeadSold"`}},
		{"event data that a later event overrides", `UPDATE crm.domain_events SET data = replace(data::text, '"ExpiresAt":"2026-03-01T10', '"ExpiresAt":"2026-03-01T09')::json WHERE version = 1`, []string{"event 1 (LeadRegistered) is not what was recorded"}},
		{"event data", `UPDATE crm.domain_events SET data = replace(data::text, '"At":"2026-03-01T12:00', '"At":"2026-03-01T12:01')::json WHERE version = 3`, []string{"event 3 (LeadExpired) is not what was recorded", "ExpiredAt:", "UpdatedAt:"}},
		{"event data broken", `UPDATE crm.domain_events SET data = '{"At": 5}' WHERE version = 3`, []string{"decode event 3 (LeadExpired)"}},
		{"event actor", "UPDATE crm.domain_events SET actor = 'nobody' WHERE version = 1", []string{"event 1 (LeadRegistered) is not what was recorded"}},
		{"event correlation_id", "UPDATE crm.domain_events SET correlation_id = gen_random_uuid() WHERE version = 3", []string{"event 3 (LeadExpired) is not what was recorded"}},
		{"event occurred_at", "UPDATE crm.domain_events SET occurred_at = now() WHERE version = 2", []string{"event 2 (LeadExtended) is not what was recorded"}},
		{"event digest", `UPDATE crm.domain_events SET digest = '\x00' WHERE version = 2`, []string{"event 2 (LeadExtended) is not what was recorded"}},
		{"first event deleted", "DELETE FROM crm.domain_events WHERE version = 1", []string{"event 2: stands where event 1 belongs"}},
		{"event deleted", "DELETE FROM crm.domain_events WHERE version = 2", []string{"event 3: stands where event 2 belongs"}},
	} {
		t.Run(change.name, func(t *testing.T) {
			store, db := leadStore(t)
			history(t, store)
			if report, found := findings(t, db, time.Time{}); report != (verify.Report{Streams: 1}) {
				t.Fatalf("before the change: %+v, %+v", report, found)
			}
			tag, err := db.Pool.Exec(t.Context(), change.statement)
			if err != nil || tag.RowsAffected() != 1 {
				t.Fatalf("the change: %v, %v", tag, err)
			}
			report, found := findings(t, db, time.Time{})
			if report.Differences == 0 {
				t.Fatalf("not found: %+v, %+v", report, found)
			}
			for _, want := range change.want {
				matches := 0
				for _, f := range found {
					if strings.Contains(f.What, want) {
						matches++
					}
				}
				if matches != 1 {
					t.Errorf("%d findings say %q: %+v", matches, want, found)
				}
			}
		})
	}
}

func TestVerify_ARowAheadOfItsStreamIsCountedApart(t *testing.T) {
	store, db := leadStore(t)
	history(t, store)
	execute(t, db, "UPDATE crm.leads SET version = version + 1, status = 'Archived'")
	report, found := findings(t, db, time.Time{})
	if report != (verify.Report{Streams: 1, Ahead: 1}) {
		t.Errorf("report %+v; want one row ahead and no difference", report)
	}
	if len(found) != 1 || !found[0].Ahead || found[0].What != "Version: the row is at 4, ahead of its stream at 3" {
		t.Errorf("findings %+v", found)
	}
}

func TestVerify_ARowThatWasNeverJournalledIsCountedApart(t *testing.T) {
	_, db := leadStore(t)
	execute(t, db, `INSERT INTO crm.leads SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(),
		'Active', now(), NULL, 1, now(), now()`)
	if report, found := findings(t, db, time.Time{}); report != (verify.Report{Ahead: 1}) || len(found) > 0 {
		t.Errorf("report %+v, findings %+v; want it counted only", report, found)
	}
}

func TestVerify_SinceLooksAtWhatChangedLaterOnly(t *testing.T) {
	store, db := leadStore(t)
	history(t, store)
	if report, _ := findings(t, db, portstest.Noon); report.Streams != 1 {
		t.Errorf("%d streams changed since noon; want 1", report.Streams)
	}
	if report, _ := findings(t, db, portstest.Noon.Add(time.Microsecond)); report.Streams != 0 {
		t.Errorf("%d streams changed since then; want none", report.Streams)
	}
}

func TestVerify_ReadsMoreThanAPage(t *testing.T) {
	_, db := leadStore(t)
	execute(t, db, `INSERT INTO crm.leads SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(),
		'Active', now(), NULL, 1, now(), now() FROM generate_series(1, 2500)`)
	if report, _ := findings(t, db, time.Time{}); report.Ahead != 2500 {
		t.Errorf("%d rows; want 2500", report.Ahead)
	}
}
