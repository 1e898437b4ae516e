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
	"github.com/pin-platform/pinworker/domain/eventsourcing"
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

var (
	now     = time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)
	created = time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
)

// must is a value that the test cannot do without.
func must[V any](value V, err error) V {
	if err != nil {
		panic(err)
	}
	return value
}

// announced decides on a state at now, and returns what others hear of it.
func announced[A eventsourcing.Aggregate[A, E], E any](
	t *testing.T, before A, decide func(A, time.Time) ([]E, error), announce func(A, []E) ([]ports.Message, error),
) []ports.Message {
	t.Helper()
	events, err := decide(before, now)
	if err != nil || len(events) == 0 {
		t.Fatalf("events %v, %v; want some", events, err)
	}
	messages, err := announce(eventsourcing.Fold(before, events...), events)
	if err != nil {
		t.Fatal(err)
	}
	return messages
}

// only is the one message that there is.
func only(t *testing.T, messages []ports.Message) ports.Message {
	t.Helper()
	if len(messages) != 1 {
		t.Fatalf("messages %v; want one", messages)
	}
	return messages[0]
}

func TestLeadExpired_KeepsItsContract(t *testing.T) {
	lead := must(crm.Restore(crm.Snapshot{
		ID: crm.LeadID{0xAA, 1}, TenantID: ids.TenantID{0xBB, 2},
		ExecutorAgentUserID: ids.UserID{0xCC, 3}, PrimaryInvestorUserID: ids.UserID{0xDD, 4},
		Status: crm.Active, ExpiresAt: time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC), Version: 2,
		CreatedAt: created, UpdatedAt: created,
	}))
	golden(t, "LeadExpiredEvent", only(t, announced(t, lead, crm.Lead.Expire, published.LeadExpired)))
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
