package calendar_test

import (
	"testing"
	"time"

	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/domaintest"
	"github.com/pin-platform/pinworker/domain/ids"
)

func TestSlot_Publish(t *testing.T) {
	publication := func(change func(*calendar.Publication)) calendar.Publication {
		p := calendar.Publication{Slot: slot, Tenant: tenant, Agent: agent, StartAt: noon, EndAt: one, MinLeadTimeMinutes: 60}
		change(&p)
		return p
	}
	when := func(t *testing.T, change func(*calendar.Publication), history ...calendar.Event) domaintest.Decision[calendar.AvailabilitySlot, calendar.Event] {
		return domaintest.Given[calendar.AvailabilitySlot](t, history...).When(func(s calendar.AvailabilitySlot) ([]calendar.Event, error) {
			return s.Publish(publication(change), made)
		})
	}
	t.Run("begins an available slot at version 1", func(t *testing.T) {
		want := calendar.SlotSnapshot{
			ID: slot, TenantID: tenant, AgentUserID: agent, StartAt: noon, EndAt: one, MinLeadTimeMinutes: 60,
			Status: calendar.SlotStatusAvailable, Version: 1, CreatedAt: made, UpdatedAt: made,
		}
		if after := when(t, asItIs).Then(published).Snapshot(); after != want {
			t.Errorf("slot %+v; want %+v", after, want)
		}
	})
	t.Run("again with other data is refused", func(t *testing.T) {
		for name, change := range map[string]func(*calendar.Publication){
			"id":           func(p *calendar.Publication) { p.Slot[0]++ },
			"tenant":       func(p *calendar.Publication) { p.Tenant[0]++ },
			"agent":        func(p *calendar.Publication) { p.Agent[0]++ },
			"start":        func(p *calendar.Publication) { p.StartAt = leadTime },
			"end":          func(p *calendar.Publication) { p.EndAt = justAfter(one) },
			"lead time":    func(p *calendar.Publication) { p.MinLeadTimeMinutes = 0 },
			"auto-confirm": func(p *calendar.Publication) { p.AutoConfirm = true },
		} {
			t.Run(name, func(t *testing.T) { when(t, change, published).ThenRefused(calendar.ExistsError{}) })
		}
	})
	t.Run("with something missing is refused", func(t *testing.T) {
		for name, change := range map[string]func(*calendar.Publication){
			"id":        func(p *calendar.Publication) { p.Slot = calendar.SlotID{} },
			"tenant":    func(p *calendar.Publication) { p.Tenant = ids.TenantID{} },
			"agent":     func(p *calendar.Publication) { p.Agent = ids.UserID{} },
			"start":     func(p *calendar.Publication) { p.StartAt = time.Time{} },
			"end":       func(p *calendar.Publication) { p.EndAt = p.StartAt },
			"lead time": func(p *calendar.Publication) { p.MinLeadTimeMinutes = -1 },
		} {
			t.Run(name, func(t *testing.T) { when(t, change).ThenRefused(calendar.InvalidError{}) })
		}
	})
}
