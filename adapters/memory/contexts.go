package memory

import (
	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/domain/promotion"
	"github.com/pin-platform/pinworker/ports"
)

// CRM is the crm context in memory.
type CRM struct {
	*World[crm.Event]
	Due     ports.DueLeads
	Preview ports.LeadPreview
	Leads   ports.Leads
	Ledger  ports.LeadLedger
}

// NewCRM returns an empty context.
func NewCRM() CRM {
	w := newWorld[crm.Event]()
	due := &Due[crm.Lead, crm.Event]{world: w, job: ports.LeadExpiration, waiting: func() []candidate[crm.Lead, crm.Event] {
		return waiting(w, func(l crm.Lead) (candidate[crm.Lead, crm.Event], bool) {
			s := l.Snapshot()
			return candidate[crm.Lead, crm.Event]{failure(l.Stream(), s.TenantID), s.ExpiresAt, l.Parts(), l}, s.Status == crm.Active
		})
	}}
	return CRM{
		World: w, Due: due, Preview: due,
		Leads:  &Store[crm.LeadID, crm.Lead, crm.Event]{w, func(id crm.LeadID) (crm.Lead, error) { return row[crm.Lead](w, uuid.UUID(id)), nil }},
		Ledger: &Ledger[crm.Lead, crm.Event]{w, func(crm.Event) bool { return true }},
	}
}

// Promotion is the promotion context in memory.
type Promotion struct {
	*World[promotion.Event]
	Due       ports.DuePurchases
	Purchases ports.Purchases
	Ledger    ports.PurchaseLedger
}

// NewPromotion returns an empty context.
func NewPromotion() Promotion {
	type item = candidate[promotion.PromotionPurchase, promotion.Event]
	w := newWorld[promotion.Event]()
	return Promotion{
		World: w,
		Due: &Due[promotion.PromotionPurchase, promotion.Event]{world: w, job: ports.ExpirePromotions, inclusive: true, waiting: func() []item {
			return waiting(w, func(p promotion.PromotionPurchase) (item, bool) {
				s := p.Snapshot()
				return item{failure(p.Stream(), s.TenantID), s.EndsAt, p.Parts(), p}, s.Status == promotion.Active
			})
		}},
		Purchases: &Store[promotion.PurchaseID, promotion.PromotionPurchase, promotion.Event]{w, func(id promotion.PurchaseID) (promotion.PromotionPurchase, error) {
			return row[promotion.PromotionPurchase](w, uuid.UUID(id)), nil
		}},
		Ledger: &Ledger[promotion.PromotionPurchase, promotion.Event]{w, func(promotion.Event) bool { return true }},
	}
}

// Calendar is the calendar context in memory.
type Calendar struct {
	*World[calendar.Event]
	DueReminders ports.DueReminders
	Overdue      ports.OverdueAppointments

	Slots     ports.Slots
	Bookable  ports.BookableSlots
	Bookings  ports.Bookings
	Schedules ports.Schedules

	SlotLedger        ports.SlotLedger
	AppointmentLedger ports.AppointmentLedger
	EventLedger       ports.EventLedger
	ReminderLedger    ports.ReminderLedger
}

// NewCalendar returns an empty context.
func NewCalendar() Calendar {
	w := calendarWorld{newWorld[calendar.Event]()}
	ofKind := func(kind calendar.Kind) func(calendar.Event) bool {
		return func(e calendar.Event) bool { return e.Kind() == kind }
	}
	return Calendar{
		World:        w.World,
		DueReminders: &Due[calendar.DueReminder, calendar.Event]{world: w.World, job: ports.ReminderDispatch, waiting: w.dueReminders},
		Overdue:      &Due[calendar.Booking, calendar.Event]{world: w.World, job: ports.AppointmentTimeout, waiting: w.bookings},
		Slots: &Store[calendar.SlotID, calendar.AvailabilitySlot, calendar.Event]{w.World, func(id calendar.SlotID) (calendar.AvailabilitySlot, error) {
			return row[calendar.AvailabilitySlot](w.World, uuid.UUID(id)), nil
		}},
		Bookable: &Store[calendar.SlotID, calendar.Booking, calendar.Event]{w.World, func(id calendar.SlotID) (calendar.Booking, error) {
			return calendar.Booking{Slot: row[calendar.AvailabilitySlot](w.World, uuid.UUID(id))}, nil
		}},
		Bookings: &Store[calendar.AppointmentID, calendar.Booking, calendar.Event]{w.World, func(id calendar.AppointmentID) (calendar.Booking, error) {
			return w.booking(row[calendar.Appointment](w.World, uuid.UUID(id)))
		}},
		Schedules: &Store[calendar.EventID, calendar.Schedule, calendar.Event]{w.World, func(id calendar.EventID) (calendar.Schedule, error) {
			return calendar.Schedule{Event: row[calendar.CalendarEvent](w.World, uuid.UUID(id)), Reminders: w.reminders(id)}, nil
		}},
		SlotLedger:        &Ledger[calendar.AvailabilitySlot, calendar.Event]{w.World, ofKind(calendar.KindSlot)},
		AppointmentLedger: &Ledger[calendar.Appointment, calendar.Event]{w.World, ofKind(calendar.KindAppointment)},
		EventLedger:       &Ledger[calendar.CalendarEvent, calendar.Event]{w.World, ofKind(calendar.KindEvent)},
		ReminderLedger:    &Ledger[calendar.EventReminder, calendar.Event]{w.World, ofKind(calendar.KindReminder)},
	}
}

type calendarWorld struct{ *World[calendar.Event] }

func (w calendarWorld) dueReminders() []candidate[calendar.DueReminder, calendar.Event] {
	return waiting(w.World, func(r calendar.EventReminder) (candidate[calendar.DueReminder, calendar.Event], bool) {
		s := r.Snapshot()
		event := row[calendar.CalendarEvent](w.World, uuid.UUID(s.EventID))
		c := candidate[calendar.DueReminder, calendar.Event]{
			Failure: ports.Failure{Item: r.Stream(), Of: uuid.UUID(s.EventID), Tenant: s.TenantID}, due: s.DueAt,
			locks: []eventsourcing.Part[calendar.Event]{event, r}, item: calendar.DueReminder{Reminder: r, Event: event},
		}
		if event.Version() == 0 {
			c.Err = calendar.MissingPartnerError{Kind: calendar.KindEvent, ID: uuid.UUID(s.EventID)}
		}
		return c, s.Status == calendar.ReminderStatusPending
	})
}

func (w calendarWorld) bookings() []candidate[calendar.Booking, calendar.Event] {
	return waiting(w.World, func(a calendar.Appointment) (candidate[calendar.Booking, calendar.Event], bool) {
		s := a.Snapshot()
		c := candidate[calendar.Booking, calendar.Event]{Failure: failure(a.Stream(), s.TenantID), due: s.PendingExpiresAt}
		c.item, c.Err = w.booking(a)
		c.locks = []eventsourcing.Part[calendar.Event]{c.item.Appointment, c.item.Slot, c.item.Event}
		return c, s.Status == calendar.AppointmentStatusPending && !s.PendingExpiresAt.IsZero()
	})
}

func (w calendarWorld) booking(a calendar.Appointment) (calendar.Booking, error) {
	s := a.Snapshot()
	b := calendar.Booking{
		Appointment: a,
		Slot:        row[calendar.AvailabilitySlot](w.World, uuid.UUID(s.SlotID)),
		Event:       row[calendar.CalendarEvent](w.World, uuid.UUID(s.CalendarEventID)),
		Reminders:   w.reminders(s.CalendarEventID),
	}
	switch {
	case a.Version() == 0: // there is none
		return calendar.Booking{}, nil
	case b.Slot.Version() == 0:
		return b, calendar.MissingPartnerError{Kind: calendar.KindSlot, ID: uuid.UUID(s.SlotID)}
	case b.Event.Version() == 0:
		return b, calendar.MissingPartnerError{Kind: calendar.KindEvent, ID: uuid.UUID(s.CalendarEventID)}
	}
	return b, nil
}

// reminders are an event's pending ones, in the order of their ids.
func (w calendarWorld) reminders(event calendar.EventID) []calendar.EventReminder {
	var pending []calendar.EventReminder
	for _, c := range waiting(w.World, func(r calendar.EventReminder) (candidate[calendar.EventReminder, calendar.Event], bool) {
		s := r.Snapshot()
		return candidate[calendar.EventReminder, calendar.Event]{item: r}, s.EventID == event && s.Status == calendar.ReminderStatusPending
	}) {
		pending = append(pending, c.item)
	}
	return pending
}

// waiting returns the aggregates of one kind that a job may look at, by id.
func waiting[R eventsourcing.Part[E], A any, E eventsourcing.Event](w *World[E], look func(R) (candidate[A, E], bool)) []candidate[A, E] {
	var found []candidate[A, E]
	for _, part := range sorted(w.rows) {
		if r, ok := part.(R); ok {
			if c, polled := look(r); polled {
				found = append(found, c)
			}
		}
	}
	return found
}

// row returns an aggregate, or the zero one.
func row[R eventsourcing.Part[E], E eventsourcing.Event](w *World[E], id uuid.UUID) R {
	r, _ := w.rows[id].(R)
	return r
}
