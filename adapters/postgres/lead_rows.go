package postgres

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pin-platform/pinworker/adapters/postgres/internal/crmdb"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/domain/ids"
)

// leadFromRow restores a lead. A row may hold what PostgreSQL can and a lead cannot: a
// ColumnError or a crm.InvalidError says so.
func leadFromRow(row crmdb.CrmLead) (crm.Lead, error) {
	moments := []struct {
		column string
		stored pgtype.Timestamptz
	}{{"expires_at", row.ExpiresAt}, {"expired_at", row.ExpiredAt}, {"created_at", row.CreatedAt}, {"updated_at", row.UpdatedAt}}
	for _, m := range moments {
		if m.stored.InfinityModifier != pgtype.Finite {
			return crm.Lead{}, ColumnError{m.column, "is " + m.stored.InfinityModifier.String()}
		}
	}
	return crm.Restore(crm.Snapshot{ // a null id, status or version is a zero that it refuses
		ID:                    crm.LeadID(row.ID.Bytes),
		TenantID:              ids.TenantID(row.TenantID.Bytes),
		ExecutorAgentUserID:   ids.UserID(row.ExecutorAgentUserID.Bytes),
		PrimaryInvestorUserID: ids.UserID(row.PrimaryInvestorUserID.Bytes),
		Status:                crm.Status(row.Status.String),
		ExpiresAt:             fromTimestamptz(row.ExpiresAt),
		ExpiredAt:             fromTimestamptz(row.ExpiredAt),
		Version:               int(row.Version.Int32),
		CreatedAt:             fromTimestamptz(row.CreatedAt),
		UpdatedAt:             fromTimestamptz(row.UpdatedAt),
	})
}

// fromTimestamptz takes null for the zero time, as asTimestamptz does the other way.
func fromTimestamptz(t pgtype.Timestamptz) time.Time {
	if !t.Valid {
		return time.Time{}
	}
	return t.Time.UTC()
}

func leadInsert(lead crm.Lead) crmdb.InsertLeadParams {
	s := lead.Snapshot()
	return crmdb.InsertLeadParams{
		ID:                    asUUID(s.ID),
		TenantID:              asUUID(s.TenantID),
		ExecutorAgentUserID:   asUUID(s.ExecutorAgentUserID),
		PrimaryInvestorUserID: asUUID(s.PrimaryInvestorUserID),
		Status:                pgtype.Text{String: string(s.Status), Valid: true},
		ExpiresAt:             asTimestamptz(s.ExpiresAt),
		ExpiredAt:             asTimestamptz(s.ExpiredAt),
		Version:               pgtype.Int4{Int32: int32(s.Version), Valid: true},
		CreatedAt:             asTimestamptz(s.CreatedAt),
		UpdatedAt:             asTimestamptz(s.UpdatedAt),
	}
}

func leadUpdates(changes []leadChange) crmdb.UpdateLeadsParams {
	var p crmdb.UpdateLeadsParams
	for _, c := range changes {
		s := c.after.Snapshot()
		p.Ids = append(p.Ids, asUUID(s.ID))
		p.SeenVersions = append(p.SeenVersions, int32(c.before.Version()))
		p.Statuses = append(p.Statuses, string(s.Status))
		p.ExpiresAt = append(p.ExpiresAt, asTimestamptz(s.ExpiresAt))
		p.ExpiredAt = append(p.ExpiredAt, asTimestamptz(s.ExpiredAt))
		p.Versions = append(p.Versions, int32(s.Version))
		p.UpdatedAt = append(p.UpdatedAt, asTimestamptz(s.UpdatedAt))
	}
	return p
}

// leadStream is the stream type of leads.
const leadStream = "Lead"

// The events as they are stored. Names and JSON outlive the code: testdata/lead_events.jsonl pins them.
// A stored event changes by adding optional fields only.
type (
	leadRegistered struct {
		Lead      crm.LeadID   `json:"lead_id"`
		Tenant    ids.TenantID `json:"tenant_id"`
		Executor  ids.UserID   `json:"executor_agent_user_id"`
		Investor  ids.UserID   `json:"primary_investor_user_id"`
		ExpiresAt time.Time    `json:"expires_at"`
		At        time.Time    `json:"at"`
	}
	leadExtended struct {
		Lead      crm.LeadID `json:"lead_id"`
		ExpiresAt time.Time  `json:"expires_at"`
		At        time.Time  `json:"at"`
	}
	leadExpired struct {
		Lead crm.LeadID `json:"lead_id"`
		At   time.Time  `json:"at"`
	}
	leadArchived struct {
		Lead crm.LeadID `json:"lead_id"`
		At   time.Time  `json:"at"`
	}
	leadSnapshot struct {
		ID                    crm.LeadID   `json:"id"`
		TenantID              ids.TenantID `json:"tenant_id"`
		ExecutorAgentUserID   ids.UserID   `json:"executor_agent_user_id"`
		PrimaryInvestorUserID ids.UserID   `json:"primary_investor_user_id"`
		Status                crm.Status   `json:"status"`
		ExpiresAt             time.Time    `json:"expires_at"`
		ExpiredAt             time.Time    `json:"expired_at,omitzero"`
		Version               int          `json:"version"`
		CreatedAt             time.Time    `json:"created_at"`
		UpdatedAt             time.Time    `json:"updated_at"`
	}
	leadImported struct {
		Lead leadSnapshot `json:"lead"`
		At   time.Time    `json:"at"`
	}
)

// encodeLeadEvent turns a lead's event into what is stored. A moment that JSON has no form
// for (a year beyond 9999) is a data fault.
func encodeLeadEvent(r eventsourcing.Recorded[crm.Event]) (journalled, error) {
	var name string
	var stored any
	switch e := r.Event.(type) {
	case crm.LeadRegistered:
		name, stored = "LeadRegistered", leadRegistered(e)
	case crm.LeadExtended:
		name, stored = "LeadExtended", leadExtended(e)
	case crm.LeadExpired:
		name, stored = "LeadExpired", leadExpired(e)
	case crm.LeadArchived:
		name, stored = "LeadArchived", leadArchived(e)
	case crm.LeadImported:
		name, stored = "LeadImported", leadImported{Lead: leadSnapshot(e.Lead), At: e.At}
	default:
		return journalled{}, fmt.Errorf("event %d: %T has no stored form", r.Version, e)
	}
	data, err := json.Marshal(stored)
	if err != nil {
		return journalled{}, fmt.Errorf("encode event %d (%s): %w", r.Version, name, err)
	}
	return journalled{
		stream:     uuid.UUID(r.Event.Stream()),
		streamType: leadStream,
		version:    r.Version,
		eventType:  name,
		data:       data,
		occurredAt: r.Event.OccurredAt(),
	}, nil
}

// decodeLeadEvent reads a stored event back.
func decodeLeadEvent(e journalled) (crm.Event, error) {
	switch e.eventType {
	case "LeadRegistered":
		return decode(e, func(s leadRegistered) crm.Event { return crm.LeadRegistered(s) })
	case "LeadExtended":
		return decode(e, func(s leadExtended) crm.Event { return crm.LeadExtended(s) })
	case "LeadExpired":
		return decode(e, func(s leadExpired) crm.Event { return crm.LeadExpired(s) })
	case "LeadArchived":
		return decode(e, func(s leadArchived) crm.Event { return crm.LeadArchived(s) })
	case "LeadImported":
		return decode(e, func(s leadImported) crm.Event {
			return crm.LeadImported{Lead: crm.Snapshot(s.Lead), At: s.At}
		})
	}
	return nil, fmt.Errorf("event %d: a lead has no event %q", e.version, e.eventType)
}

func decode[S, E any](e journalled, toDomain func(S) E) (E, error) {
	var stored S
	if err := json.Unmarshal(e.data, &stored); err != nil {
		var none E
		return none, fmt.Errorf("decode event %d (%s): %w", e.version, e.eventType, err)
	}
	return toDomain(stored), nil
}
