package published_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/ports"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares a message, its payload as JSON, with testdata: the contract that consumers
// read. A difference is a broken contract, unless a field was added.
func golden(t *testing.T, name string, m ports.Message) {
	t.Helper()
	got, err := json.MarshalIndent(map[string]any{
		"topic": m.Topic, "key": m.Key, "ce_id": m.ID, "subject": m.Subject, "tenant": m.Tenant,
		"aggregate_type": m.AggregateType, "aggregate_version": m.AggregateVersion,
		"contract_version": m.ContractVersion, "time": m.OccurredAt, "payload": json.RawMessage(m.Payload),
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name+".json")
	if *update {
		if err := os.WriteFile(path, append(got, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(bytes.TrimSpace(want), got) {
		t.Errorf("%s is now\n%s\nand was\n%s", name, got, want)
	}
}

func expiredLead(t *testing.T) crm.Lead {
	t.Helper()
	lead, err := crm.Restore(crm.Snapshot{
		ID: crm.LeadID{0xAA, 1}, TenantID: ids.TenantID{0xBB, 2},
		ExecutorAgentUserID: ids.UserID{0xCC, 3}, PrimaryInvestorUserID: ids.UserID{0xDD, 4},
		Status: crm.Expired, ExpiresAt: time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC),
		ExpiredAt: time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC), Version: 3,
		CreatedAt: time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC), UpdatedAt: time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC),
	})
	if err != nil {
		t.Fatal(err)
	}
	return lead
}

func TestLeadExpired_KeepsItsContract(t *testing.T) {
	messages, err := published.LeadExpired(expiredLead(t), nil)
	if err != nil || len(messages) != 1 {
		t.Fatalf("messages %v, %v; want one", messages, err)
	}
	golden(t, "LeadExpiredEvent", messages[0])
}

func TestMessageID_IsTheSameForTheSameEventAndAnotherForAnother(t *testing.T) {
	lead := uuid.UUID{1}
	id := published.MessageID(lead, 2, "LeadExpiredEvent")
	if id != published.MessageID(lead, 2, "LeadExpiredEvent") || id.Version() != 5 {
		t.Errorf("id %s; want the same UUID v5 each time", id)
	}
	for _, other := range []uuid.UUID{
		published.MessageID(uuid.UUID{2}, 2, "LeadExpiredEvent"),
		published.MessageID(lead, 3, "LeadExpiredEvent"),
		published.MessageID(lead, 2, "LeadArchivedEvent"),
	} {
		if other == id {
			t.Errorf("another event has the same id %s", id)
		}
	}
}
