package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pin-platform/pinworker/adapters/postgres/internal/calendardb"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/ids"
)

// Rows become aggregates here: a ColumnError or a calendar.InvalidError says what they cannot be.

func slotFromRow(row calendardb.CalendarAvailabilitySlot) (calendar.AvailabilitySlot, error) {
	err := finite(
		moment{"start_at", row.StartAt}, moment{"end_at", row.EndAt},
		moment{"created_at", row.CreatedAt}, moment{"updated_at", row.UpdatedAt},
	)
	if err == nil {
		err = told(column{"min_lead_time_minutes", row.MinLeadTimeMinutes.Valid}, column{"auto_confirm", row.AutoConfirm.Valid})
	}
	if err != nil {
		return calendar.AvailabilitySlot{}, err
	}
	return calendar.RestoreSlot(calendar.SlotSnapshot{
		ID:                 calendar.SlotID(row.ID.Bytes),
		TenantID:           ids.TenantID(row.TenantID.Bytes),
		AgentUserID:        ids.UserID(row.AgentUserID.Bytes),
		StartAt:            fromTimestamptz(row.StartAt),
		EndAt:              fromTimestamptz(row.EndAt),
		MinLeadTimeMinutes: int(row.MinLeadTimeMinutes.Int32),
		AutoConfirm:        row.AutoConfirm.Bool,
		Status:             calendar.SlotStatus(row.Status.String),
		Version:            int(row.Version.Int32),
		CreatedAt:          fromTimestamptz(row.CreatedAt),
		UpdatedAt:          fromTimestamptz(row.UpdatedAt),
	})
}

func appointmentFromRow(row calendardb.CalendarAppointment) (calendar.Appointment, error) {
	err := finite(
		moment{"pending_expires_at", row.PendingExpiresAt},
		moment{"created_at", row.CreatedAt}, moment{"updated_at", row.UpdatedAt},
	)
	if err != nil {
		return calendar.Appointment{}, err
	}
	return calendar.RestoreAppointment(calendar.AppointmentSnapshot{
		ID:               calendar.AppointmentID(row.ID.Bytes),
		TenantID:         ids.TenantID(row.TenantID.Bytes),
		SlotID:           calendar.SlotID(row.SlotID.Bytes),
		CalendarEventID:  calendar.EventID(row.CalendarEventID.Bytes),
		LeadID:           calendar.LeadID(row.LeadID.Bytes),
		AgentUserID:      ids.UserID(row.AgentUserID.Bytes),
		InvestorUserID:   ids.UserID(row.InvestorUserID.Bytes),
		Status:           calendar.AppointmentStatus(row.Status.String),
		PendingExpiresAt: fromTimestamptz(row.PendingExpiresAt),
		CancelledBy:      ids.UserID(row.CancelledBy.Bytes),
		Version:          int(row.Version.Int32),
		CreatedAt:        fromTimestamptz(row.CreatedAt),
		UpdatedAt:        fromTimestamptz(row.UpdatedAt),
	})
}

// eventFromRow takes over no reason but the one that is ours: what people write stays where it is.
func eventFromRow(row calendardb.CalendarCalendarEvent) (calendar.CalendarEvent, error) {
	err := finite(
		moment{"start_at", row.StartAt}, moment{"end_at", row.EndAt},
		moment{"created_at", row.CreatedAt}, moment{"updated_at", row.UpdatedAt},
	)
	if err != nil {
		return calendar.CalendarEvent{}, err
	}
	return calendar.RestoreEvent(calendar.EventSnapshot{
		ID:            calendar.EventID(row.ID.Bytes),
		TenantID:      ids.TenantID(row.TenantID.Bytes),
		OwnerUserID:   ids.UserID(row.OwnerUserID.Bytes),
		ClientUserID:  ids.UserID(row.ClientUserID.Bytes),
		Kind:          calendar.EventKind(row.Kind.String),
		Origin:        calendar.EventOrigin(row.Origin.String),
		Status:        calendar.EventStatus(row.Status.String),
		CancelReason:  knownReason(row.CancelReason.String),
		StartAt:       fromTimestamptz(row.StartAt),
		EndAt:         fromTimestamptz(row.EndAt),
		TimeZone:      calendar.TimeZone(row.TimeZone.String),
		AppointmentID: calendar.AppointmentID(row.AppointmentID.Bytes),
		Version:       int(row.Version.Int32),
		CreatedAt:     fromTimestamptz(row.CreatedAt),
		UpdatedAt:     fromTimestamptz(row.UpdatedAt),
	})
}

func knownReason(text string) calendar.CancelReason {
	if reason := calendar.CancelReason(text); reason == calendar.ReasonTimedOut {
		return reason
	}
	return ""
}

func reminderFromRow(row calendardb.CalendarEventReminder) (calendar.EventReminder, error) {
	err := finite(
		moment{"due_at", row.DueAt}, moment{"sent_at", row.SentAt},
		moment{"created_at", row.CreatedAt}, moment{"updated_at", row.UpdatedAt},
	)
	if err == nil {
		err = told(column{"offset_minutes", row.OffsetMinutes.Valid})
	}
	if err != nil {
		return calendar.EventReminder{}, err
	}
	return calendar.RestoreReminder(calendar.ReminderSnapshot{
		ID:            calendar.ReminderID(row.ID.Bytes),
		EventID:       calendar.EventID(row.EventID.Bytes),
		TenantID:      ids.TenantID(row.TenantID.Bytes),
		OffsetMinutes: int(row.OffsetMinutes.Int32),
		DueAt:         fromTimestamptz(row.DueAt),
		Status:        calendar.ReminderStatus(row.Status.String),
		SentAt:        fromTimestamptz(row.SentAt),
		Version:       int(row.Version.Int32),
		CreatedAt:     fromTimestamptz(row.CreatedAt),
		UpdatedAt:     fromTimestamptz(row.UpdatedAt),
	})
}

// saveCalendar writes changed aggregates, those first that others refer to.
func saveCalendar(ctx context.Context, w *writes, parts []changedPart[calendar.Event]) {
	var rows calendarRows
	for _, part := range parts {
		seen := 0
		if part.before != nil {
			seen = part.before.Version()
		}
		switch after := part.after.(type) {
		case calendar.AvailabilitySlot:
			rows.slot(after.Snapshot(), seen)
		case calendar.CalendarEvent:
			rows.event(after.Snapshot(), seen)
		case calendar.Appointment:
			rows.appointment(after.Snapshot(), seen)
		case calendar.EventReminder:
			rows.reminder(after.Snapshot(), seen)
		}
	}
	rows.save(ctx, w)
}

// calendarRows are the rows to write, by table.
type calendarRows struct {
	newSlots        []calendardb.InsertSlotParams
	newEvents       []calendardb.InsertEventParams
	newAppointments []calendardb.InsertAppointmentParams
	newReminders    []calendardb.InsertReminderParams

	slots        calendardb.UpdateSlotsParams
	events       calendardb.UpdateEventsParams
	appointments calendardb.UpdateAppointmentsParams
	reminders    calendardb.UpdateRemindersParams
	dropped      calendardb.DeleteRemindersParams
}

func (r *calendarRows) slot(s calendar.SlotSnapshot, seen int) {
	if seen == 0 {
		r.newSlots = append(r.newSlots, calendardb.InsertSlotParams{
			ID: asUUID(s.ID), TenantID: asUUID(s.TenantID), AgentUserID: asUUID(s.AgentUserID),
			StartAt: asTimestamptz(s.StartAt), EndAt: asTimestamptz(s.EndAt),
			MinLeadTimeMinutes: asInt4(s.MinLeadTimeMinutes), AutoConfirm: pgtype.Bool{Bool: s.AutoConfirm, Valid: true},
			Status: asText(s.Status), Version: asInt4(s.Version),
			CreatedAt: asTimestamptz(s.CreatedAt), UpdatedAt: asTimestamptz(s.UpdatedAt),
		})
		return
	}
	r.slots.Ids = append(r.slots.Ids, asUUID(s.ID))
	r.slots.SeenVersions = append(r.slots.SeenVersions, asInt4(seen))
	r.slots.Statuses = append(r.slots.Statuses, asText(s.Status))
	r.slots.Versions = append(r.slots.Versions, asInt4(s.Version))
	r.slots.UpdatedAt = append(r.slots.UpdatedAt, asTimestamptz(s.UpdatedAt))
}

func (r *calendarRows) event(s calendar.EventSnapshot, seen int) {
	if seen == 0 {
		r.newEvents = append(r.newEvents, calendardb.InsertEventParams{
			ID: asUUID(s.ID), TenantID: asUUID(s.TenantID), OwnerUserID: asUUID(s.OwnerUserID), ClientUserID: optionalUUID(s.ClientUserID),
			Kind: asText(s.Kind), Origin: asText(s.Origin), Status: asText(s.Status), CancelReason: optionalText(s.CancelReason),
			StartAt: asTimestamptz(s.StartAt), EndAt: asTimestamptz(s.EndAt), TimeZone: asText(s.TimeZone),
			AppointmentID: optionalUUID(s.AppointmentID), Version: asInt4(s.Version),
			CreatedAt: asTimestamptz(s.CreatedAt), UpdatedAt: asTimestamptz(s.UpdatedAt),
		})
		return
	}
	r.events.Ids = append(r.events.Ids, asUUID(s.ID))
	r.events.SeenVersions = append(r.events.SeenVersions, asInt4(seen))
	r.events.Statuses = append(r.events.Statuses, asText(s.Status))
	r.events.CancelReasons = append(r.events.CancelReasons, optionalText(s.CancelReason))
	r.events.StartAt = append(r.events.StartAt, asTimestamptz(s.StartAt))
	r.events.EndAt = append(r.events.EndAt, asTimestamptz(s.EndAt))
	r.events.Versions = append(r.events.Versions, asInt4(s.Version))
	r.events.UpdatedAt = append(r.events.UpdatedAt, asTimestamptz(s.UpdatedAt))
}

func (r *calendarRows) appointment(s calendar.AppointmentSnapshot, seen int) {
	if seen == 0 {
		r.newAppointments = append(r.newAppointments, calendardb.InsertAppointmentParams{
			ID: asUUID(s.ID), TenantID: asUUID(s.TenantID), SlotID: asUUID(s.SlotID), CalendarEventID: asUUID(s.CalendarEventID),
			LeadID: optionalUUID(s.LeadID), AgentUserID: asUUID(s.AgentUserID), InvestorUserID: asUUID(s.InvestorUserID),
			Status: asText(s.Status), PendingExpiresAt: asTimestamptz(s.PendingExpiresAt), CancelledBy: optionalUUID(s.CancelledBy),
			Version: asInt4(s.Version), CreatedAt: asTimestamptz(s.CreatedAt), UpdatedAt: asTimestamptz(s.UpdatedAt),
		})
		return
	}
	r.appointments.Ids = append(r.appointments.Ids, asUUID(s.ID))
	r.appointments.SeenVersions = append(r.appointments.SeenVersions, asInt4(seen))
	r.appointments.Statuses = append(r.appointments.Statuses, asText(s.Status))
	r.appointments.CancelledBy = append(r.appointments.CancelledBy, optionalUUID(s.CancelledBy))
	r.appointments.Versions = append(r.appointments.Versions, asInt4(s.Version))
	r.appointments.UpdatedAt = append(r.appointments.UpdatedAt, asTimestamptz(s.UpdatedAt))
}

func (r *calendarRows) reminder(s calendar.ReminderSnapshot, seen int) {
	switch {
	case seen == 0:
		r.newReminders = append(r.newReminders, calendardb.InsertReminderParams{
			ID: asUUID(s.ID), EventID: asUUID(s.EventID), TenantID: asUUID(s.TenantID), OffsetMinutes: asInt4(s.OffsetMinutes),
			DueAt: asTimestamptz(s.DueAt), Status: asText(s.Status), SentAt: asTimestamptz(s.SentAt), Version: asInt4(s.Version),
			CreatedAt: asTimestamptz(s.CreatedAt), UpdatedAt: asTimestamptz(s.UpdatedAt),
		})
	case s.Status == calendar.ReminderStatusDropped:
		r.dropped.Ids = append(r.dropped.Ids, asUUID(s.ID))
		r.dropped.SeenVersions = append(r.dropped.SeenVersions, asInt4(seen))
	default:
		r.reminders.Ids = append(r.reminders.Ids, asUUID(s.ID))
		r.reminders.SeenVersions = append(r.reminders.SeenVersions, asInt4(seen))
		r.reminders.Statuses = append(r.reminders.Statuses, asText(s.Status))
		r.reminders.SentAt = append(r.reminders.SentAt, asTimestamptz(s.SentAt))
		r.reminders.Versions = append(r.reminders.Versions, asInt4(s.Version))
		r.reminders.UpdatedAt = append(r.reminders.UpdatedAt, asTimestamptz(s.UpdatedAt))
	}
}

func (r *calendarRows) save(ctx context.Context, w *writes) {
	for _, p := range r.newSlots {
		w.insert("availability_slots", 1, func(db dbtx) error { return calendardb.New(db).InsertSlot(ctx, p) })
	}
	for _, p := range r.newEvents {
		w.insert("calendar_events", 1, func(db dbtx) error { return calendardb.New(db).InsertEvent(ctx, p) })
	}
	for _, p := range r.newAppointments {
		w.insert("appointments", 1, func(db dbtx) error { return calendardb.New(db).InsertAppointment(ctx, p) })
	}
	for _, p := range r.newReminders {
		w.insert("event_reminders", 1, func(db dbtx) error { return calendardb.New(db).InsertReminder(ctx, p) })
	}
	w.update("appointments", len(r.appointments.Ids), func(db dbtx) error {
		_, err := calendardb.New(db).UpdateAppointments(ctx, r.appointments)
		return err
	})
	w.update("availability_slots", len(r.slots.Ids), func(db dbtx) error {
		_, err := calendardb.New(db).UpdateSlots(ctx, r.slots)
		return err
	})
	w.update("calendar_events", len(r.events.Ids), func(db dbtx) error {
		_, err := calendardb.New(db).UpdateEvents(ctx, r.events)
		return err
	})
	w.update("event_reminders", len(r.reminders.Ids), func(db dbtx) error {
		_, err := calendardb.New(db).UpdateReminders(ctx, r.reminders)
		return err
	})
	w.update("event_reminders", len(r.dropped.Ids), func(db dbtx) error {
		_, err := calendardb.New(db).DeleteReminders(ctx, r.dropped)
		return err
	})
}
