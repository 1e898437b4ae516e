package memory_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/adapters/memory"
	"github.com/pin-platform/pinworker/adapters/portstest"
)

func TestLeads_KeepThePortsPromises(t *testing.T) {
	portstest.Leads(t, func(*testing.T) portstest.LeadStore {
		leads := memory.NewLeads()
		return portstest.LeadStore{
			Due: leads, Leads: leads, Ledger: leads,
			Import: leads.Import, Lock: leads.Lock, Refuse: leads.Refuse, Accept: leads.Accept, Cut: leads.Cut, Quarantine: leads,
			Messages: func() []uuid.UUID {
				var ids []uuid.UUID
				for _, m := range leads.Messages() {
					ids = append(ids, m.ID)
				}
				return ids
			},
		}
	})
}
