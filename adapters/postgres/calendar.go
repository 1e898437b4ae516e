package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pin-platform/pinworker/adapters/postgres/internal/calendardb"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/ports"
)

// Calendar is the calendar context's part of a database.
type Calendar struct {
	DueReminders ports.DueReminders
	Overdue      ports.OverdueAppointments

	ReminderPreview    ports.ReminderPreview
	AppointmentPreview ports.AppointmentPreview

	Slots     ports.Slots
	Bookable  ports.BookableSlots
	Bookings  ports.Bookings
	Schedules ports.Schedules

	SlotLedger        ports.SlotLedger
	AppointmentLedger ports.AppointmentLedger
	EventLedger       ports.EventLedger
	ReminderLedger    ports.ReminderLedger
}

// NewCalendar returns the calendar context in a database, its messages going to outbox.
func NewCalendar(db *DB, outbox Outbox) Calendar {
	s := &schema[calendar.Event]{db: db, name: "calendar", outbox: outbox, save: saveCalendar, codec: calendarCodec}
	reminders, overdue := &Due[calendar.DueReminder, calendar.Event]{s, polledReminders}, &Due[calendar.Booking, calendar.Event]{s, polledAppointments}
	return Calendar{
		DueReminders: reminders, ReminderPreview: reminders,
		Overdue: overdue, AppointmentPreview: overdue,
		Slots:     &Store[calendar.SlotID, calendar.AvailabilitySlot, calendar.Event]{s, lockSlot},
		Bookable:  &Store[calendar.SlotID, calendar.Booking, calendar.Event]{s, lockSlotToBook},
		Bookings:  &Store[calendar.AppointmentID, calendar.Booking, calendar.Event]{s, lockBooking},
		Schedules: &Store[calendar.EventID, calendar.Schedule, calendar.Event]{s, lockSchedule},
		SlotLedger: &Ledger[calendar.AvailabilitySlot, calendar.Event]{
			s, string(calendar.KindSlot),
			func(ctx context.Context, db dbtx, from idPage) ([]pgtype.UUID, error) {
				return calendardb.New(db).SlotPage(ctx, calendardb.SlotPageParams(from))
			},
			func(ctx context.Context, db dbtx, ids []pgtype.UUID) ([]restored[calendar.AvailabilitySlot], error) {
				rows, err := calendardb.New(db).SlotsByID(ctx, ids)
				return restoreAll(rows, func(r calendardb.CalendarAvailabilitySlot) pgtype.UUID { return r.ID }, slotFromRow), err
			},
		},
		AppointmentLedger: &Ledger[calendar.Appointment, calendar.Event]{
			s, string(calendar.KindAppointment),
			func(ctx context.Context, db dbtx, from idPage) ([]pgtype.UUID, error) {
				return calendardb.New(db).AppointmentPage(ctx, calendardb.AppointmentPageParams(from))
			},
			func(ctx context.Context, db dbtx, ids []pgtype.UUID) ([]restored[calendar.Appointment], error) {
				rows, err := calendardb.New(db).AppointmentsByID(ctx, ids)
				return restoreAll(rows, func(r calendardb.CalendarAppointment) pgtype.UUID { return r.ID }, appointmentFromRow), err
			},
		},
		EventLedger: &Ledger[calendar.CalendarEvent, calendar.Event]{
			s, string(calendar.KindEvent),
			func(ctx context.Context, db dbtx, from idPage) ([]pgtype.UUID, error) {
				return calendardb.New(db).EventPage(ctx, calendardb.EventPageParams(from))
			},
			func(ctx context.Context, db dbtx, ids []pgtype.UUID) ([]restored[calendar.CalendarEvent], error) {
				rows, err := calendardb.New(db).EventsByID(ctx, ids)
				return restoreAll(rows, func(r calendardb.CalendarCalendarEvent) pgtype.UUID { return r.ID }, eventFromRow), err
			},
		},
		ReminderLedger: &Ledger[calendar.EventReminder, calendar.Event]{
			s, string(calendar.KindReminder),
			func(ctx context.Context, db dbtx, from idPage) ([]pgtype.UUID, error) {
				return calendardb.New(db).ReminderPage(ctx, calendardb.ReminderPageParams(from))
			},
			func(ctx context.Context, db dbtx, ids []pgtype.UUID) ([]restored[calendar.EventReminder], error) {
				rows, err := calendardb.New(db).RemindersByID(ctx, ids)
				return restoreAll(rows, func(r calendardb.CalendarEventReminder) pgtype.UUID { return r.ID }, reminderFromRow), err
			},
		},
	}
}

var calendarCodec = newCodec(func(e calendar.Event) string { return string(e.Kind()) }, map[string]calendar.Event{
	"SlotPublished":          calendar.SlotPublished{},
	"SlotBooked":             calendar.SlotBooked{},
	"SlotReleased":           calendar.SlotReleased{},
	"SlotExpired":            calendar.SlotExpired{},
	"SlotImported":           calendar.SlotImported{},
	"AppointmentBooked":      calendar.AppointmentBooked{},
	"AppointmentConfirmed":   calendar.AppointmentConfirmed{},
	"AppointmentDeclined":    calendar.AppointmentDeclined{},
	"AppointmentCancelled":   calendar.AppointmentCancelled{},
	"AppointmentExpired":     calendar.AppointmentExpired{},
	"AppointmentCompleted":   calendar.AppointmentCompleted{},
	"AppointmentImported":    calendar.AppointmentImported{},
	"CalendarEventPlanned":   calendar.EventScheduled{},
	"CalendarEventMoved":     calendar.EventRescheduled{},
	"CalendarEventStarted":   calendar.EventStarted{},
	"CalendarEventEnded":     calendar.EventCompleted{},
	"CalendarEventCalledOff": calendar.EventCancelled{},
	"CalendarEventImported":  calendar.EventImported{},
	"ReminderScheduled":      calendar.ReminderScheduled{},
	"ReminderSent":           calendar.ReminderSent{},
	"ReminderSkipped":        calendar.ReminderSkipped{},
	"ReminderDropped":        calendar.ReminderDropped{},
	"ReminderImported":       calendar.ReminderImported{},
})

// polledReminders is the table of reminder-dispatch.
var polledReminders = polled[calendar.DueReminder]{
	job: ports.ReminderDispatch,
	claim: func(ctx context.Context, db dbtx, p page) ([]claimed[calendar.DueReminder], func(context.Context, dbtx) error, error) {
		rows, err := calendardb.New(db).ClaimDueReminders(ctx, calendardb.ClaimDueRemindersParams(p))
		items := make([]claimed[calendar.DueReminder], len(rows))
		for i, r := range rows {
			items[i] = claimedReminder(r.CalendarEventReminder, r.Failures)
			items[i].item, items[i].err = dueReminder(r)
		}
		return items, nil, err
	},
	orphans: func(ctx context.Context, db dbtx, p page) ([]claimed[calendar.DueReminder], error) {
		rows, err := calendardb.New(db).ClaimReminderOrphans(ctx, calendardb.ClaimReminderOrphansParams(p))
		items := make([]claimed[calendar.DueReminder], len(rows))
		for i, r := range rows {
			items[i] = claimedReminder(r.CalendarEventReminder, r.Failures)
			items[i].err = calendar.MissingPartnerError{Kind: calendar.KindEvent, ID: r.CalendarEventReminder.EventID.Bytes}
		}
		return items, err
	},
	count: func(ctx context.Context, db dbtx, s span) (int64, error) {
		return calendardb.New(db).CountDueReminders(ctx, calendardb.CountDueRemindersParams(s))
	},
	held: func(ctx context.Context, db dbtx, p page) ([]heldRow, error) {
		rows, err := calendardb.New(db).HeldReminders(ctx, calendardb.HeldRemindersParams(p))
		return each(rows, func(r calendardb.HeldRemindersRow) heldRow { return heldRow(r) }), err
	},
	tables: []string{"event_reminders", "calendar_events"},
	release: func(ctx context.Context, db dbtx, asOf pgtype.Timestamptz) error {
		return calendardb.New(db).ReleaseSettledReminders(ctx, asOf)
	},
	backlog: func(ctx context.Context, db dbtx, h horizon) (waiting, error) {
		row, err := calendardb.New(db).ReminderBacklog(ctx, calendardb.ReminderBacklogParams(h))
		return waiting(row), err
	},
}

func claimedReminder(r calendardb.CalendarEventReminder, failures pgtype.Int4) claimed[calendar.DueReminder] {
	return claimed[calendar.DueReminder]{id: r.ID, of: r.EventID, tenant: r.TenantID, due: r.DueAt, failures: failures}
}

func dueReminder(r calendardb.ClaimDueRemindersRow) (due calendar.DueReminder, err error) {
	if due.Reminder, err = reminderFromRow(r.CalendarEventReminder); err != nil {
		return due, err
	}
	due.Event, err = eventFromRow(r.CalendarCalendarEvent)
	return due, err
}

// polledAppointments is the table of appointment-timeout.
var polledAppointments = polled[calendar.Booking]{
	job:   ports.AppointmentTimeout,
	claim: claimOverdue,
	heads: func(ctx context.Context, db dbtx, items []claimed[calendar.Booking]) (map[uuid.UUID]int, error) {
		var p calendardb.HeadsOfBookingsParams
		for _, i := range items {
			a := i.item.Appointment.Snapshot()
			p.Ids = append(p.Ids, i.id, asUUID(a.SlotID), asUUID(a.CalendarEventID))
			p.EventIds = append(p.EventIds, asUUID(a.CalendarEventID))
		}
		rows, err := calendardb.New(db).HeadsOfBookings(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("read the streams' heads: %w", err)
		}
		heads := make(map[uuid.UUID]int, len(rows))
		for _, row := range rows {
			heads[row.ID.Bytes] = int(row.Head.Int32)
		}
		return heads, nil
	},
	orphans: func(ctx context.Context, db dbtx, p page) ([]claimed[calendar.Booking], error) {
		rows, err := calendardb.New(db).ClaimAppointmentOrphans(ctx, calendardb.ClaimAppointmentOrphansParams(p))
		items := make([]claimed[calendar.Booking], len(rows))
		for i, r := range rows {
			items[i] = claimedAppointment(r.CalendarAppointment, r.Failures)
			items[i].err = errLacksPartner
		}
		return items, err
	},
	count: func(ctx context.Context, db dbtx, s span) (int64, error) {
		return calendardb.New(db).CountDueAppointments(ctx, calendardb.CountDueAppointmentsParams(s))
	},
	held: func(ctx context.Context, db dbtx, p page) ([]heldRow, error) {
		rows, err := calendardb.New(db).HeldAppointments(ctx, calendardb.HeldAppointmentsParams(p))
		return each(rows, func(r calendardb.HeldAppointmentsRow) heldRow { return heldRow(r) }), err
	},
	tables: []string{"appointments", "availability_slots", "calendar_events", "event_reminders"},
	release: func(ctx context.Context, db dbtx, asOf pgtype.Timestamptz) error {
		return calendardb.New(db).ReleaseSettledAppointments(ctx, asOf)
	},
	backlog: func(ctx context.Context, db dbtx, h horizon) (waiting, error) {
		row, err := calendardb.New(db).AppointmentBacklog(ctx, calendardb.AppointmentBacklogParams(h))
		return waiting(row), err
	},
}

var errLacksPartner = errors.New("its slot or its calendar event does not exist")

func claimedAppointment(a calendardb.CalendarAppointment, failures pgtype.Int4) claimed[calendar.Booking] {
	return claimed[calendar.Booking]{id: a.ID, tenant: a.TenantID, due: a.PendingExpiresAt, failures: failures}
}

// claimOverdue claims appointments with their slots and events. The rest waits for their reminders,
// as a cascade must: whoever holds one of them without its event's lock is about to let go of it.
func claimOverdue(ctx context.Context, db dbtx, p page) ([]claimed[calendar.Booking], func(context.Context, dbtx) error, error) {
	rows, err := calendardb.New(db).ClaimDueAppointments(ctx, calendardb.ClaimDueAppointmentsParams(p))
	if err != nil || len(rows) == 0 {
		return nil, nil, err
	}
	events, items := make([]pgtype.UUID, len(rows)), make([]claimed[calendar.Booking], len(rows))
	for i, r := range rows {
		events[i] = r.CalendarCalendarEvent.ID
		items[i] = claimedAppointment(r.CalendarAppointment, r.Failures)
		items[i].item, items[i].err = booking(r.CalendarAppointment, r.CalendarAvailabilitySlot, r.CalendarCalendarEvent, nil)
	}
	return items, func(ctx context.Context, db dbtx) error {
		reminders, err := lockRemindersOf(ctx, calendardb.New(db), events)
		if err != nil {
			return err
		}
		for i, r := range rows {
			if items[i].err == nil {
				items[i].item.Reminders, items[i].err = reminders.restore(r.CalendarCalendarEvent.ID)
			}
		}
		return nil
	}, nil
}

// remindersOf are the pending reminders of some events, by event.
type remindersOf map[pgtype.UUID][]calendardb.CalendarEventReminder

func lockRemindersOf(ctx context.Context, q *calendardb.Queries, events []pgtype.UUID) (remindersOf, error) {
	rows, err := q.LockRemindersOf(ctx, events)
	if err != nil {
		return nil, fmt.Errorf("lock the reminders: %w", err)
	}
	found := make(remindersOf, len(events))
	for _, r := range rows {
		found[r.EventID] = append(found[r.EventID], r)
	}
	return found, nil
}

func (r remindersOf) restore(event pgtype.UUID) ([]calendar.EventReminder, error) {
	var reminders []calendar.EventReminder
	for _, row := range r[event] {
		reminder, err := reminderFromRow(row)
		if err != nil {
			return nil, err
		}
		reminders = append(reminders, reminder)
	}
	return reminders, nil
}

func booking(
	a calendardb.CalendarAppointment, s calendardb.CalendarAvailabilitySlot, e calendardb.CalendarCalendarEvent, reminders remindersOf,
) (b calendar.Booking, err error) {
	if b.Appointment, err = appointmentFromRow(a); err != nil {
		return b, err
	}
	if b.Slot, err = slotFromRow(s); err != nil {
		return b, err
	}
	if b.Event, err = eventFromRow(e); err != nil {
		return b, err
	}
	b.Reminders, err = reminders.restore(e.ID)
	return b, err
}

func lockSlot(ctx context.Context, db dbtx, id calendar.SlotID) (calendar.AvailabilitySlot, error) {
	row, err := calendardb.New(db).LockSlot(ctx, asUUID(id))
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return calendar.AvailabilitySlot{}, nil
	case err != nil:
		return calendar.AvailabilitySlot{}, fmt.Errorf("lock the slot: %w", err)
	}
	return slotFromRow(row)
}

// lockSlotToBook locks a slot before an appointment refers to it: the other way round two bookers
// would stand in each other's way.
func lockSlotToBook(ctx context.Context, db dbtx, id calendar.SlotID) (calendar.Booking, error) {
	slot, err := lockSlot(ctx, db, id)
	return calendar.Booking{Slot: slot}, err
}

// lockBooking waits for an appointment, its slot, its event and its reminders, in this order.
func lockBooking(ctx context.Context, db dbtx, id calendar.AppointmentID) (calendar.Booking, error) {
	q := calendardb.New(db)
	a, err := q.LockAppointment(ctx, asUUID(id))
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return calendar.Booking{}, nil
	case err != nil:
		return calendar.Booking{}, fmt.Errorf("lock the appointment: %w", err)
	}
	s, err := q.LockSlot(ctx, a.SlotID)
	if err != nil {
		return calendar.Booking{}, partner(calendar.KindSlot, a.SlotID, err)
	}
	e, err := q.LockEvent(ctx, a.CalendarEventID)
	if err != nil {
		return calendar.Booking{}, partner(calendar.KindEvent, a.CalendarEventID, err)
	}
	reminders, err := lockRemindersOf(ctx, q, []pgtype.UUID{e.ID})
	if err != nil {
		return calendar.Booking{}, err
	}
	return booking(a, s, e, reminders)
}

func partner(kind calendar.Kind, id pgtype.UUID, err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return calendar.MissingPartnerError{Kind: kind, ID: id.Bytes}
	}
	return fmt.Errorf("lock the %s: %w", kind, err)
}

// lockSchedule waits for an event, then for its reminders.
func lockSchedule(ctx context.Context, db dbtx, id calendar.EventID) (s calendar.Schedule, err error) {
	q := calendardb.New(db)
	row, err := q.LockEvent(ctx, asUUID(id))
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return s, nil
	case err != nil:
		return s, fmt.Errorf("lock the event: %w", err)
	}
	if s.Event, err = eventFromRow(row); err != nil {
		return s, err
	}
	reminders, err := lockRemindersOf(ctx, q, []pgtype.UUID{row.ID})
	if err != nil {
		return s, err
	}
	s.Reminders, err = reminders.restore(row.ID)
	return s, err
}
