package postgres

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pin-platform/pinworker/adapters/postgres/internal/calendardb"
	"github.com/pin-platform/pinworker/adapters/postgres/internal/crmdb"
	"github.com/pin-platform/pinworker/adapters/postgres/internal/promotiondb"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/domain/promotion"
)

var (
	null     = pgtype.Timestamptz{}
	never    = pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}
	allAlong = pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	nobody   = pgtype.UUID{}
	unsaid   = pgtype.Text{}
	nonsense = pgtype.Text{String: "Sleeping", Valid: true}
)

// spoilt is what PostgreSQL can hold and an aggregate cannot.
type spoilt[R any] map[string]func(*R)

// isAnError checks that a sound row can be restored, and each spoilt one cannot.
func (s spoilt[R]) isAnError(t *testing.T, sound R, restore func(R) error) {
	t.Helper()
	if err := restore(sound); err != nil {
		t.Fatal(err)
	}
	for what, spoil := range s {
		t.Run(what, func(t *testing.T) {
			row := sound
			spoil(&row)
			if restore(row) == nil {
				t.Errorf("restored %+v; want an error", row)
			}
		})
	}
}

func TestLeadFromRow_WhatPostgresCanHoldAndALeadCannotIsAnError(t *testing.T) {
	spoilt[crmdb.CrmLead]{
		"a null tenant":           func(r *crmdb.CrmLead) { r.TenantID = nobody },
		"a null executor":         func(r *crmdb.CrmLead) { r.ExecutorAgentUserID = nobody },
		"a null investor":         func(r *crmdb.CrmLead) { r.PrimaryInvestorUserID = nobody },
		"a null status":           func(r *crmdb.CrmLead) { r.Status = unsaid },
		"an unknown status":       func(r *crmdb.CrmLead) { r.Status = nonsense },
		"a null version":          func(r *crmdb.CrmLead) { r.Version = pgtype.Int4{} },
		"-infinity in expires_at": func(r *crmdb.CrmLead) { r.ExpiresAt = allAlong },
		"infinity in expired_at":  func(r *crmdb.CrmLead) { r.ExpiredAt = never },
		"infinity in created_at":  func(r *crmdb.CrmLead) { r.CreatedAt = never },
		"infinity in updated_at":  func(r *crmdb.CrmLead) { r.UpdatedAt = never },
	}.isAnError(t, crmdb.CrmLead{
		ID: asUUID(leadID), TenantID: asUUID(ids.TenantID{1}), ExecutorAgentUserID: asUUID(ids.UserID{2}),
		PrimaryInvestorUserID: asUUID(ids.UserID{3}), Status: asText("Active"), ExpiresAt: asTimestamptz(dusk), Version: asInt4(1),
		CreatedAt: asTimestamptz(noon), UpdatedAt: asTimestamptz(noon),
	}, func(r crmdb.CrmLead) error { _, err := leadFromRow(r); return err })
}

func TestSlotFromRow_WhatPostgresCanHoldAndASlotCannotIsAnError(t *testing.T) {
	type row = calendardb.CalendarAvailabilitySlot
	spoilt[row]{
		"a null tenant":          func(r *row) { r.TenantID = nobody },
		"a null agent":           func(r *row) { r.AgentUserID = nobody },
		"a null start":           func(r *row) { r.StartAt = null },
		"-infinity in start_at":  func(r *row) { r.StartAt = allAlong },
		"a null end":             func(r *row) { r.EndAt = null },
		"infinity in end_at":     func(r *row) { r.EndAt = never },
		"a null lead time":       func(r *row) { r.MinLeadTimeMinutes = pgtype.Int4{} },
		"a lead time below 0":    func(r *row) { r.MinLeadTimeMinutes = asInt4(-1) },
		"a null auto_confirm":    func(r *row) { r.AutoConfirm = pgtype.Bool{} },
		"a null status":          func(r *row) { r.Status = unsaid },
		"an unknown status":      func(r *row) { r.Status = nonsense },
		"a null version":         func(r *row) { r.Version = pgtype.Int4{} },
		"infinity in created_at": func(r *row) { r.CreatedAt = never },
		"infinity in updated_at": func(r *row) { r.UpdatedAt = never },
	}.isAnError(t, row{
		ID: asUUID(slotID), TenantID: asUUID(ids.TenantID{1}), AgentUserID: asUUID(ids.UserID{2}), StartAt: asTimestamptz(dusk),
		EndAt: asTimestamptz(dusk.Add(time.Hour)), MinLeadTimeMinutes: asInt4(0), AutoConfirm: pgtype.Bool{Valid: true},
		Status: asText("Booked"), Version: asInt4(1), CreatedAt: asTimestamptz(noon), UpdatedAt: asTimestamptz(noon),
	}, func(r row) error { _, err := slotFromRow(r); return err })
}

func TestAppointmentFromRow_WhatPostgresCanHoldAndAnAppointmentCannotIsAnError(t *testing.T) {
	type row = calendardb.CalendarAppointment
	spoilt[row]{
		"a null tenant":                   func(r *row) { r.TenantID = nobody },
		"a null slot":                     func(r *row) { r.SlotID = nobody },
		"a null event":                    func(r *row) { r.CalendarEventID = nobody },
		"a null agent":                    func(r *row) { r.AgentUserID = nobody },
		"a null investor":                 func(r *row) { r.InvestorUserID = nobody },
		"a null status":                   func(r *row) { r.Status = unsaid },
		"an unknown status":               func(r *row) { r.Status = nonsense },
		"-infinity in pending_expires_at": func(r *row) { r.PendingExpiresAt = allAlong },
		"a null version":                  func(r *row) { r.Version = pgtype.Int4{} },
		"infinity in created_at":          func(r *row) { r.CreatedAt = never },
		"infinity in updated_at":          func(r *row) { r.UpdatedAt = never },
	}.isAnError(t, row{
		ID: asUUID(appointmentID), TenantID: asUUID(ids.TenantID{1}), SlotID: asUUID(slotID), CalendarEventID: asUUID(eventID),
		AgentUserID: asUUID(ids.UserID{2}), InvestorUserID: asUUID(ids.UserID{3}), Status: asText("Pending"), Version: asInt4(1),
		CreatedAt: asTimestamptz(noon), UpdatedAt: asTimestamptz(noon),
	}, func(r row) error { _, err := appointmentFromRow(r); return err })
}

var soundEvent = calendardb.CalendarCalendarEvent{
	ID: asUUID(eventID), TenantID: asUUID(ids.TenantID{1}), OwnerUserID: asUUID(ids.UserID{2}), Kind: asText("Call"), Origin: asText("Manual"),
	Status: asText("Planned"), StartAt: asTimestamptz(dusk), EndAt: asTimestamptz(dusk.Add(time.Hour)), TimeZone: asText("Asia/Almaty"),
	Version: asInt4(1), CreatedAt: asTimestamptz(noon), UpdatedAt: asTimestamptz(noon),
}

func TestEventFromRow_WhatPostgresCanHoldAndAnEventCannotIsAnError(t *testing.T) {
	type row = calendardb.CalendarCalendarEvent
	spoilt[row]{
		"a null tenant":          func(r *row) { r.TenantID = nobody },
		"a null owner":           func(r *row) { r.OwnerUserID = nobody },
		"a null kind":            func(r *row) { r.Kind = unsaid },
		"a null origin":          func(r *row) { r.Origin = unsaid },
		"a null status":          func(r *row) { r.Status = unsaid },
		"an unknown status":      func(r *row) { r.Status = nonsense },
		"a null start":           func(r *row) { r.StartAt = null },
		"-infinity in start_at":  func(r *row) { r.StartAt = allAlong },
		"a null end":             func(r *row) { r.EndAt = null },
		"infinity in end_at":     func(r *row) { r.EndAt = never },
		"a null time zone":       func(r *row) { r.TimeZone = unsaid },
		"a null version":         func(r *row) { r.Version = pgtype.Int4{} },
		"infinity in created_at": func(r *row) { r.CreatedAt = never },
		"infinity in updated_at": func(r *row) { r.UpdatedAt = never },
	}.isAnError(t, soundEvent, func(r row) error { _, err := eventFromRow(r); return err })
}

// Streams and messages would carry it on (spec: domain, CancelReason).
func TestEventFromRow_TakesOverNoReasonButOurs(t *testing.T) {
	for text, want := range map[string]calendar.CancelReason{
		"":                                     "",
		"Ivan Petrov is ill, +7 900 000-00-00": "",
		string(calendar.ReasonTimedOut) + ".":  "",
		string(calendar.ReasonTimedOut):        calendar.ReasonTimedOut,
	} {
		row := soundEvent
		row.Status, row.CancelReason = asText("Cancelled"), optionalText(text)
		event, err := eventFromRow(row)
		if got := event.Snapshot().CancelReason; err != nil || got != want {
			t.Errorf("%q: reason %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestReminderFromRow_WhatPostgresCanHoldAndAReminderCannotIsAnError(t *testing.T) {
	type row = calendardb.CalendarEventReminder
	spoilt[row]{
		"a null event":           func(r *row) { r.EventID = nobody },
		"a null tenant":          func(r *row) { r.TenantID = nobody },
		"a null offset":          func(r *row) { r.OffsetMinutes = pgtype.Int4{} },
		"an offset below 0":      func(r *row) { r.OffsetMinutes = asInt4(-1) },
		"a null moment":          func(r *row) { r.DueAt = null },
		"-infinity in due_at":    func(r *row) { r.DueAt = allAlong },
		"a null status":          func(r *row) { r.Status = unsaid },
		"an unknown status":      func(r *row) { r.Status = nonsense },
		"what has no row":        func(r *row) { r.Status = asText(calendar.ReminderStatusDropped) },
		"infinity in sent_at":    func(r *row) { r.SentAt = never },
		"a null version":         func(r *row) { r.Version = pgtype.Int4{} },
		"infinity in created_at": func(r *row) { r.CreatedAt = never },
		"infinity in updated_at": func(r *row) { r.UpdatedAt = never },
	}.isAnError(t, row{
		ID: asUUID(reminderID), EventID: asUUID(eventID), TenantID: asUUID(ids.TenantID{1}), OffsetMinutes: asInt4(0),
		DueAt: asTimestamptz(dusk), Status: asText("Pending"), Version: asInt4(1), CreatedAt: asTimestamptz(noon), UpdatedAt: asTimestamptz(noon),
	}, func(r row) error { _, err := reminderFromRow(r); return err })
}

func TestPurchaseFromRow_WhatPostgresCanHoldAndAPurchaseCannotIsAnError(t *testing.T) {
	type row struct {
		promotiondb.PromotionPromotionPurchase
		targets []promotion.Target
	}
	spoilt[row]{
		"a null tenant":                func(r *row) { r.TenantID = nobody },
		"a null package":               func(r *row) { r.PackageKind = unsaid },
		"a null status":                func(r *row) { r.Status = unsaid },
		"an unknown status":            func(r *row) { r.Status = nonsense },
		"a null start":                 func(r *row) { r.StartsAt = null },
		"infinity in starts_at":        func(r *row) { r.StartsAt = never },
		"a null end":                   func(r *row) { r.EndsAt = null },
		"-infinity in ends_at":         func(r *row) { r.EndsAt = allAlong },
		"a null version":               func(r *row) { r.Version = pgtype.Int4{} },
		"infinity in created_at":       func(r *row) { r.CreatedAt = never },
		"infinity in updated_at":       func(r *row) { r.UpdatedAt = never },
		"a target of a null type":      func(r *row) { r.targets = []promotion.Target{{ID: target.ID}} },
		"a target that is null":        func(r *row) { r.targets = []promotion.Target{{Type: target.Type}} },
		"a target that is there twice": func(r *row) { r.targets = []promotion.Target{target, target} },
	}.isAnError(t, row{promotiondb.PromotionPromotionPurchase{
		ID: asUUID(purchaseID), TenantID: asUUID(ids.TenantID{1}), PackageKind: asText("Premium"), Status: asText("Active"),
		PaymentStatus: asText("NotRequired"), StartsAt: asTimestamptz(noon), EndsAt: asTimestamptz(dusk), Version: asInt4(1),
		CreatedAt: asTimestamptz(noon), UpdatedAt: asTimestamptz(noon),
	}, []promotion.Target{target}}, func(r row) error {
		_, err := targets{r.ID: r.targets}.restore(r.PromotionPromotionPurchase)
		return err
	})
}
