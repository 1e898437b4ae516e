package published

import (
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/ports"
)

// TopicLeadExpired carries LeadExpiredEvent, keyed by the lead.
const TopicLeadExpired = "pin.crm.lead-expired.v1"

// LeadExpiredEvent tells the agent that a lead's time is up: "extend the lead".
type LeadExpiredEvent struct {
	ContractVersion int          // 1
	LeadID          crm.LeadID   `json:"LeadId"`
	TenantID        ids.TenantID `json:"TenantId"`
	AgentUserID     ids.UserID   `json:"AgentUserId"`
	InvestorUserID  ids.UserID   `json:"InvestorUserId"`
	ExpiredAt       time.Time
}

// LeadExpired announces an expired lead.
func LeadExpired(after crm.Lead, _ []crm.Event) ([]ports.Message, error) {
	lead := after.Snapshot()
	const contractVersion = 1
	m, err := message("LeadExpiredEvent", ports.Message{
		Topic:            TopicLeadExpired,
		Key:              lead.ID.String(),
		Subject:          uuid.UUID(lead.ID),
		Tenant:           lead.TenantID,
		AggregateType:    "Lead",
		AggregateVersion: lead.Version,
		ContractVersion:  contractVersion,
		OccurredAt:       lead.ExpiredAt,
		DueAt:            lead.ExpiresAt,
	}, LeadExpiredEvent{
		ContractVersion: contractVersion,
		LeadID:          lead.ID,
		TenantID:        lead.TenantID,
		AgentUserID:     lead.ExecutorAgentUserID,
		InvestorUserID:  lead.PrimaryInvestorUserID,
		ExpiredAt:       lead.ExpiredAt,
	})
	return []ports.Message{m}, err
}
