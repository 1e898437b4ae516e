package main

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/adapters/memory"
	appcalendar "github.com/pin-platform/pinworker/app/calendar"
	appcrm "github.com/pin-platform/pinworker/app/crm"
	apppromotion "github.com/pin-platform/pinworker/app/promotion"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/promotion"
	"github.com/pin-platform/pinworker/ports"
)

// overheard is a store that tells who changes what into what.
type overheard[ID, A, E any] struct {
	ports.Store[ID, A, E]
	tell func(ports.Actor, A)
}

func (o overheard[ID, A, E]) Change(ctx context.Context, c ports.Command[ID], rule ports.Rule[A, E]) (ports.Transitioned[A, E], error) {
	changed, err := o.Store.Change(ctx, c, rule)
	if err == nil {
		o.tell(c.By, changed.After)
	}
	return changed, err
}

func overhear[ID, A, E any](store ports.Store[ID, A, E], tell func(ports.Actor, A)) ports.Store[ID, A, E] {
	return overheard[ID, A, E]{store, tell}
}

func TestDemo_EveryActIsAUsersAndWhoCallsAnAppointmentOffIsItsInvestor(t *testing.T) {
	acts, cancelled := 0, 0
	isUser := func(by ports.Actor) {
		acts++
		if _, err := uuid.Parse(string(by)); err != nil {
			t.Errorf("%q acts; want a user's id", by)
		}
	}
	calendars, promotions, leads := memory.NewCalendar(), memory.NewPromotion(), memory.NewCRM()
	o := operations{
		calendar: appcalendar.Operations{
			Slots:     overhear(calendars.Slots, func(by ports.Actor, _ calendar.AvailabilitySlot) { isUser(by) }),
			Bookable:  overhear(calendars.Bookable, func(by ports.Actor, _ calendar.Booking) { isUser(by) }),
			Schedules: overhear(calendars.Schedules, func(by ports.Actor, _ calendar.Schedule) { isUser(by) }),
			Bookings: overhear(calendars.Bookings, func(by ports.Actor, b calendar.Booking) {
				isUser(by)
				a := b.Appointment.Snapshot()
				if a.Status != calendar.AppointmentStatusCancelled {
					return
				}
				if cancelled++; a.CancelledBy != a.InvestorUserID || ports.Actor(a.CancelledBy.String()) != by {
					t.Errorf("%s calls off an appointment of %s; it says %s", by, a.InvestorUserID, a.CancelledBy)
				}
			}),
		},
		promotion: apppromotion.Operations{Purchases: overhear(promotions.Purchases, func(by ports.Actor, _ promotion.PromotionPurchase) { isUser(by) })},
		crm:       appcrm.Operations{Leads: overhear(leads.Leads, func(by ports.Actor, _ crm.Lead) { isUser(by) })},
	}
	story := newStory(1, time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC), storySizes{leads: 50, bookings: 50, events: 50, promotions: 50})
	for _, act := range story.acts {
		clock := func() time.Time { return act.at }
		o.calendar.Clock, o.promotion.Clock, o.crm.Clock = clock, clock, clock
		act.do(t.Context(), o) //nolint:errcheck // without the jobs some of it is refused
	}
	if acts == 0 || cancelled == 0 {
		t.Errorf("%d acts, %d appointments called off; want some of both", acts, cancelled)
	}
}
