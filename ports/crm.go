package ports

import "github.com/pin-platform/pinworker/domain/crm"

// LeadExpiration is the job of the crm context (spec: lead-expiration).
const LeadExpiration Job = "lead-expiration"

// What the crm context needs.
type (
	// DueLeads are active leads by their ExpiresAt (spec: lead-expiration).
	DueLeads = Due[crm.Lead, crm.Event]
	// LeadPreview is what lead-expiration would do.
	LeadPreview = Preview[crm.Lead, crm.Event]
	// Leads are all leads, for registering, extending and archiving.
	Leads = Store[crm.LeadID, crm.Lead, crm.Event]
	// LeadLedger is what `verify` reads of the leads.
	LeadLedger = Ledger[crm.Lead, crm.Event]
)
