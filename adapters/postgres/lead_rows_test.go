package postgres

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pin-platform/pinworker/adapters/postgres/internal/crmdb"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/domain/ids"
)

var update = flag.Bool("update", false, "write the golden files anew")

var (
	leadID = crm.LeadID{0xAA, 1}
	noon   = time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)
	dusk   = noon.Add(6 * time.Hour)
)

// everyLeadEvent has one of each.
var everyLeadEvent = []crm.Event{
	crm.LeadRegistered{
		Lead: leadID, Tenant: ids.TenantID{0xBB, 2}, Executor: ids.UserID{0xCC, 3}, Investor: ids.UserID{0xDD, 4},
		ExpiresAt: dusk, At: noon,
	},
	crm.LeadExtended{Lead: leadID, ExpiresAt: dusk.AddDate(0, 1, 0), At: noon},
	crm.LeadExpired{Lead: leadID, At: dusk},
	crm.LeadArchived{Lead: leadID, At: dusk},
	crm.LeadImported{At: dusk, Lead: crm.Snapshot{
		ID: leadID, TenantID: ids.TenantID{0xBB, 2}, ExecutorAgentUserID: ids.UserID{0xCC, 3},
		PrimaryInvestorUserID: ids.UserID{0xDD, 4}, Status: crm.Active, ExpiresAt: dusk, Version: 7,
		CreatedAt: noon, UpdatedAt: noon,
	}},
}

// The names and the JSON of stored events outlive the code: a difference here means that
// streams written before can no longer be read.
func TestStoredLeadEvents_KeepTheirNamesAndTheirJSON(t *testing.T) {
	const path = "testdata/lead_events.jsonl"
	var got bytes.Buffer
	for i, event := range everyLeadEvent {
		stored, err := leadCodec.encode(eventsourcing.Recorded[crm.Event]{Version: i + 1, Event: event})
		if err != nil {
			t.Fatal(err)
		}
		line, err := json.Marshal(map[string]any{"type": stored.eventType, "data": json.RawMessage(stored.data)})
		if err != nil {
			t.Fatal(err)
		}
		got.Write(append(line, '\n'))
	}
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("stored events are now\n%s\nand were\n%s", got.Bytes(), want)
	}
}

func TestStoredLeadEvents_ReadBackAsTheyWere(t *testing.T) {
	for i, event := range everyLeadEvent {
		stored, err := leadCodec.encode(eventsourcing.Recorded[crm.Event]{Version: i + 1, Event: event})
		if err != nil {
			t.Fatal(err)
		}
		if back, err := leadCodec.decode(stored); err != nil || back != event {
			t.Errorf("read back %+v, %v; want %+v", back, err, event)
		}
	}
}

func TestStoredLeadEvents_AnUnknownNameOrBrokenJSONIsAnError(t *testing.T) {
	for _, stored := range []journalled{
		{version: 1, eventType: "LeadSold", data: []byte(`{}`)},
		{version: 1, eventType: "LeadExpired", data: []byte(`{"At": "yesterday"}`)},
	} {
		if event, err := leadCodec.decode(stored); err == nil {
			t.Errorf("%s %s: read %+v; want an error", stored.eventType, stored.data, event)
		}
	}
}

func TestDigest_DiffersWithEveryFieldOfAnEvent(t *testing.T) {
	event := journalled{
		stream: [16]byte{1}, streamType: "Lead", version: 1, eventType: "LeadExpired",
		data: []byte(`{}`), occurredAt: noon,
	}
	from := origin{actor: "System", run: [16]byte{2}}
	digest := event.digest(from)
	for field, alter := range map[string]func(*journalled, *origin){
		"stream":         func(e *journalled, _ *origin) { e.stream[15]++ },
		"stream type":    func(e *journalled, _ *origin) { e.streamType = "Deal" },
		"version":        func(e *journalled, _ *origin) { e.version++ },
		"event type":     func(e *journalled, _ *origin) { e.eventType = "LeadArchived" },
		"data":           func(e *journalled, _ *origin) { e.data = []byte(`{ }`) },
		"actor":          func(_ *journalled, o *origin) { o.actor = "system" },
		"correlation id": func(_ *journalled, o *origin) { o.run[15]++ },
		"time":           func(e *journalled, _ *origin) { e.occurredAt = e.occurredAt.Add(time.Microsecond) },
	} {
		altered, alteredFrom := event, from
		alter(&altered, &alteredFrom)
		if err := altered.check(alteredFrom, digest); err == nil {
			t.Errorf("an altered %s keeps the digest", field)
		}
	}
	if err := event.check(from, digest); err != nil {
		t.Error(err)
	}
}

func TestLeadFromRow_WhatPostgresCanHoldAndALeadCannotIsAnError(t *testing.T) {
	sound := crmdb.CrmLead{
		ID: asUUID(leadID), TenantID: asUUID(ids.TenantID{1}), ExecutorAgentUserID: asUUID(ids.UserID{2}),
		PrimaryInvestorUserID: asUUID(ids.UserID{3}), Status: pgtype.Text{String: "Active", Valid: true},
		ExpiresAt: asTimestamptz(dusk), Version: pgtype.Int4{Int32: 1, Valid: true},
		CreatedAt: asTimestamptz(noon), UpdatedAt: asTimestamptz(noon),
	}
	if _, err := leadFromRow(sound); err != nil {
		t.Fatal(err)
	}
	infinity := pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}
	for what, spoil := range map[string]func(*crmdb.CrmLead){
		"a null executor":   func(r *crmdb.CrmLead) { r.ExecutorAgentUserID = pgtype.UUID{} },
		"a null investor":   func(r *crmdb.CrmLead) { r.PrimaryInvestorUserID = pgtype.UUID{} },
		"a null status":     func(r *crmdb.CrmLead) { r.Status = pgtype.Text{} },
		"an unknown status": func(r *crmdb.CrmLead) { r.Status.String = "Sleeping" },
		"a null version":    func(r *crmdb.CrmLead) { r.Version = pgtype.Int4{} },
		"-infinity in expires_at": func(r *crmdb.CrmLead) {
			r.ExpiresAt = pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
		},
		"infinity in expired_at": func(r *crmdb.CrmLead) { r.ExpiredAt = infinity },
		"infinity in created_at": func(r *crmdb.CrmLead) { r.CreatedAt = infinity },
		"infinity in updated_at": func(r *crmdb.CrmLead) { r.UpdatedAt = infinity },
	} {
		t.Run(what, func(t *testing.T) {
			spoilt := sound
			spoil(&spoilt)
			if lead, err := leadFromRow(spoilt); err == nil {
				t.Errorf("restored %+v; want an error", lead)
			}
		})
	}
}
