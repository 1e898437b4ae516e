package crm_test

import (
	"testing"
	"time"

	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/domaintest"
	"github.com/pin-platform/pinworker/domain/ids"
)

var (
	lead     = crm.LeadID{1}
	tenant   = ids.TenantID{2}
	executor = ids.UserID{3}
	investor = ids.UserID{4}

	noon          = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	dawn          = noon.Add(-6 * time.Hour)
	dusk          = noon.Add(6 * time.Hour)
	justAfterNoon = noon.Add(time.Microsecond)
)

// registered is a lead that began at dawn and expires at noon.
var registered = crm.LeadRegistered{
	Lead: lead, Tenant: tenant, Executor: executor, Investor: investor, ExpiresAt: noon, At: dawn,
}

var (
	expired  = crm.LeadExpired{Lead: lead, At: justAfterNoon}
	extended = crm.LeadExtended{Lead: lead, ExpiresAt: dusk, At: justAfterNoon}
	archived = crm.LeadArchived{Lead: lead, At: justAfterNoon}
)

func given(t *testing.T, history ...crm.Event) domaintest.Scenario[crm.Lead, crm.Event] {
	t.Helper()
	return domaintest.Given[crm.Lead](t, history...)
}

func register(r crm.Registration) func(crm.Lead) ([]crm.Event, error) {
	return func(l crm.Lead) ([]crm.Event, error) { return l.Register(r, dawn) }
}

func extend(to time.Time) func(crm.Lead) ([]crm.Event, error) {
	return func(l crm.Lead) ([]crm.Event, error) { return l.Extend(to, justAfterNoon) }
}

func archive(l crm.Lead) ([]crm.Event, error) { return l.Archive(justAfterNoon) }

func expire(at time.Time) func(crm.Lead) ([]crm.Event, error) {
	return func(l crm.Lead) ([]crm.Event, error) { return l.Expire(at) }
}

func registration(change func(*crm.Registration)) crm.Registration {
	r := crm.Registration{Lead: lead, Tenant: tenant, Executor: executor, Investor: investor, ExpiresAt: noon}
	change(&r)
	return r
}

func asItIs(*crm.Registration) {}

func TestLead_Register(t *testing.T) {
	t.Run("begins an active lead at version 1", func(t *testing.T) {
		after := given(t).When(register(registration(asItIs))).Then(registered)
		want := crm.Snapshot{
			ID: lead, TenantID: tenant, ExecutorAgentUserID: executor, PrimaryInvestorUserID: investor,
			Status: crm.Active, ExpiresAt: noon, Version: 1, CreatedAt: dawn, UpdatedAt: dawn,
		}
		if after.Snapshot() != want {
			t.Errorf("state %+v; want %+v", after.Snapshot(), want)
		}
	})
	t.Run("again with the same data: it has happened", func(t *testing.T) {
		given(t, registered).When(register(registration(asItIs))).ThenNothing()
	})
	t.Run("again with other data is refused", func(t *testing.T) {
		for name, change := range map[string]func(*crm.Registration){
			"tenant":     func(r *crm.Registration) { r.Tenant[0]++ },
			"executor":   func(r *crm.Registration) { r.Executor[0]++ },
			"investor":   func(r *crm.Registration) { r.Investor[0]++ },
			"expires at": func(r *crm.Registration) { r.ExpiresAt = dusk },
		} {
			t.Run(name, func(t *testing.T) {
				given(t, registered).When(register(registration(change))).ThenRefused(crm.AlreadyRegisteredError{})
			})
		}
	})
	t.Run("with something missing is refused", func(t *testing.T) {
		for name, change := range map[string]func(*crm.Registration){
			"id":         func(r *crm.Registration) { r.Lead = crm.LeadID{} },
			"tenant":     func(r *crm.Registration) { r.Tenant = ids.TenantID{} },
			"executor":   func(r *crm.Registration) { r.Executor = ids.UserID{} },
			"investor":   func(r *crm.Registration) { r.Investor = ids.UserID{} },
			"expires at": func(r *crm.Registration) { r.ExpiresAt = time.Time{} },
		} {
			t.Run(name, func(t *testing.T) {
				given(t).When(register(registration(change))).ThenRefused(crm.InvalidError{})
			})
		}
	})
	t.Run("that would begin expired is refused", func(t *testing.T) {
		already := registration(func(r *crm.Registration) { r.ExpiresAt = dawn })
		given(t).When(register(already)).ThenRefused(crm.InvalidError{})
	})
}

func TestLead_Expire_INV_LEAD_4(t *testing.T) {
	t.Run("stays active at the very moment it expires", func(t *testing.T) {
		given(t, registered).When(expire(noon)).ThenRefused(crm.NotDueError{})
	})
	t.Run("expires a microsecond later", func(t *testing.T) {
		after := given(t, registered).When(expire(justAfterNoon)).Then(expired).Snapshot()
		if after.Status != crm.Expired || !after.ExpiredAt.Equal(justAfterNoon) ||
			!after.UpdatedAt.Equal(justAfterNoon) || after.Version != 2 {
			t.Errorf("state %+v; want Expired just after noon, version 2", after)
		}
	})
	t.Run("is a no-op on a lead that expired already", func(t *testing.T) {
		given(t, registered, expired).When(expire(dusk)).ThenNothing()
	})
	t.Run("is a no-op on an archived lead", func(t *testing.T) {
		given(t, registered, archived).When(expire(dusk)).ThenNothing()
	})
	t.Run("is a no-op on a lead that does not exist", func(t *testing.T) {
		given(t).When(expire(dusk)).ThenNothing()
	})
	t.Run("is refused before an extension's moment", func(t *testing.T) {
		given(t, registered, extended).When(expire(justAfterNoon)).ThenRefused(crm.NotDueError{})
	})
	t.Run("expires again after an extension ran out", func(t *testing.T) {
		later := dusk.Add(time.Microsecond)
		given(t, registered, expired, extended).When(expire(later)).Then(crm.LeadExpired{Lead: lead, At: later})
	})
}

func TestLead_Extend(t *testing.T) {
	t.Run("moves an active lead's moment", func(t *testing.T) {
		after := given(t, registered).When(extend(dusk)).Then(extended).Snapshot()
		if after.Status != crm.Active || !after.ExpiresAt.Equal(dusk) || after.Version != 2 {
			t.Errorf("state %+v; want Active until dusk, version 2", after)
		}
	})
	t.Run("makes an expired lead active again and clears its ExpiredAt", func(t *testing.T) {
		after := given(t, registered, expired).When(extend(dusk)).Then(extended).Snapshot()
		if after.Status != crm.Active || !after.ExpiredAt.IsZero() {
			t.Errorf("state %+v; want Active, not expired", after)
		}
	})
	t.Run("to the moment it has: it has happened", func(t *testing.T) {
		given(t, registered).When(extend(noon)).ThenNothing()
	})
	t.Run("of an expired lead to the moment it had is refused", func(t *testing.T) {
		given(t, registered, expired).When(extend(noon)).ThenRefused(crm.NotLaterError{})
	})
	t.Run("to an earlier moment is refused", func(t *testing.T) {
		given(t, registered).When(extend(noon.Add(-time.Microsecond))).ThenRefused(crm.NotLaterError{})
	})
	t.Run("of an archived lead is refused", func(t *testing.T) {
		given(t, registered, archived).When(extend(dusk)).ThenRefused(crm.ArchivedError{})
	})
	t.Run("of a lead that does not exist is refused", func(t *testing.T) {
		given(t).When(extend(dusk)).ThenRefused(crm.NotRegisteredError{})
	})
}

func TestLead_Archive(t *testing.T) {
	t.Run("puts an active lead away", func(t *testing.T) {
		if after := given(t, registered).When(archive).Then(archived).Snapshot(); after.Status != crm.Archived {
			t.Errorf("state %+v; want Archived", after)
		}
	})
	t.Run("puts an expired lead away and keeps when it expired", func(t *testing.T) {
		after := given(t, registered, expired).When(archive).Then(archived).Snapshot()
		if after.Status != crm.Archived || !after.ExpiredAt.Equal(justAfterNoon) {
			t.Errorf("state %+v; want Archived, with its ExpiredAt", after)
		}
	})
	t.Run("again: it has happened", func(t *testing.T) {
		given(t, registered, archived).When(archive).ThenNothing()
	})
	t.Run("of a lead that does not exist is refused", func(t *testing.T) {
		given(t).When(archive).ThenRefused(crm.NotRegisteredError{})
	})
}

func TestRestore_RefusesWhatNoLeadCanBe(t *testing.T) {
	sound := given(t, registered).When(expire(justAfterNoon)).Then(expired).Snapshot()
	if restored, err := crm.Restore(sound); err != nil || restored.Snapshot() != sound {
		t.Fatalf("a sound lead: %v, %v", restored, err)
	}
	for field, spoil := range map[string]func(*crm.Snapshot){
		"ID":                    func(s *crm.Snapshot) { s.ID = crm.LeadID{} },
		"TenantID":              func(s *crm.Snapshot) { s.TenantID = ids.TenantID{} },
		"ExecutorAgentUserID":   func(s *crm.Snapshot) { s.ExecutorAgentUserID = ids.UserID{} },
		"PrimaryInvestorUserID": func(s *crm.Snapshot) { s.PrimaryInvestorUserID = ids.UserID{} },
		"Status":                func(s *crm.Snapshot) { s.Status = "Sleeping" },
		"ExpiresAt":             func(s *crm.Snapshot) { s.ExpiresAt = time.Time{} },
		"Version":               func(s *crm.Snapshot) { s.Version = 0 },
	} {
		t.Run(field, func(t *testing.T) {
			spoilt := sound
			spoil(&spoilt)
			_, err := crm.Restore(spoilt)
			if invalid, ok := err.(crm.InvalidError); !ok || invalid.Field != field {
				t.Errorf("error %v; want an InvalidError about %s", err, field)
			}
		})
	}
}

func TestLead_Import_IsTheWholeStateAtItsVersion(t *testing.T) {
	restored := given(t, registered, expired).When(extend(dusk)).Then(extended)
	given(t, restored.Import(dusk)).When(expire(dusk)).ThenRefused(crm.NotDueError{})
	if folded := (crm.Lead{}).Apply(restored.Import(dusk)); folded != restored {
		t.Errorf("folded %+v; want %+v", folded, restored)
	}
}
