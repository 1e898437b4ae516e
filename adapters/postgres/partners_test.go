package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/adapters/portstest"
	appcalendar "github.com/pin-platform/pinworker/app/calendar"
	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/ports"
)

// Rows that stand beside the ones that are polled: a reminder's event, an appointment's slot, event
// and reminders. What is wrong with them is their item's failure, and nobody else's.

// witness keeps what a drain was told.
type witness[A, E any] struct {
	ports.Due[A, E]
	failed *[]ports.Failure
}

func (d witness[A, E]) Transition(ctx context.Context, c ports.Claim, r ports.Rule[A, E]) (ports.Outcome[A, E], error) {
	outcome, err := d.Due.Transition(ctx, c, r)
	*d.failed = append(*d.failed, outcome.Failed...)
	return outcome, err
}

// drained is a whole cycle at noon, in pages of a size, and whom it blamed.
func drained[A, E any](w *world, due ports.Due[A, E], rule ports.Rule[A, E], page int) (cycle.Summary, []ports.Failure) {
	w.Helper()
	var failed []ports.Failure
	done, err := cycle.Drain(w.Context(), witness[A, E]{due, &failed}, rule, cycle.Begin(portstest.Noon),
		cycle.Limits{BatchSize: page, MaxBatches: 100, Interval: time.Minute}, nil)
	if err != nil || done.Faults > 0 {
		w.Fatalf("summary %+v, %v", done, err)
	}
	return done, failed
}

// blames wants one item to have failed, named with its ids.
func (w *world) blames(failed []ports.Failure, item, of uuid.UUID, why string) {
	w.Helper()
	if len(failed) != 1 || failed[0].Item != item || failed[0].Of != of || failed[0].Tenant.IsZero() {
		w.Fatalf("failed %+v; want %s (of %s) alone, once, with its tenant", failed, item, of)
	}
	if got := failed[0].Err.Error(); !strings.Contains(got, why) {
		w.Errorf("failed with %q; want %q", got, why)
	}
}

// nullable lets columns of the platform's tables hold null, and rows refer to nothing: its tables are
// not ours.
const nullable = `
	ALTER TABLE calendar.appointments DROP CONSTRAINT appointments_slot_id_fkey, DROP CONSTRAINT appointments_calendar_event_id_fkey;
	ALTER TABLE calendar.event_reminders DROP CONSTRAINT event_reminders_event_id_fkey,
		ALTER tenant_id DROP NOT NULL, ALTER offset_minutes DROP NOT NULL, ALTER due_at DROP NOT NULL;
	ALTER TABLE calendar.calendar_events ALTER tenant_id DROP NOT NULL, ALTER owner_user_id DROP NOT NULL, ALTER status DROP NOT NULL,
		ALTER end_at DROP NOT NULL, ALTER time_zone DROP NOT NULL, ALTER version DROP NOT NULL;
	ALTER TABLE calendar.availability_slots ALTER tenant_id DROP NOT NULL, ALTER status DROP NOT NULL, ALTER start_at DROP NOT NULL,
		ALTER min_lead_time_minutes DROP NOT NULL, ALTER auto_confirm DROP NOT NULL, ALTER version DROP NOT NULL`

func TestReminders_AnUnsoundEventIsItsRemindersFailureAlone(t *testing.T) {
	w := newWorld(t)
	w.execute(nullable)
	spoilt, one, another := portstest.Plan(portstest.Noon.Add(-2*time.Minute)), portstest.Plan(portstest.Noon.Add(-3*time.Minute)), portstest.Plan(portstest.Noon.Add(-time.Minute))
	w.given("calendar", scheduled(spoilt), scheduled(one), scheduled(another))
	for what, spoil := range map[string]struct{ statement, why string }{
		"it is missing":           {"DELETE FROM calendar.calendar_events WHERE id = $1", "does not exist"},
		"it begins at infinity":   {"UPDATE calendar.calendar_events SET start_at = 'infinity', end_at = 'infinity' WHERE id = $1", "start_at is infinity"},
		"it ends at infinity":     {"UPDATE calendar.calendar_events SET end_at = 'infinity' WHERE id = $1", "end_at is infinity"},
		"it never ends":           {"UPDATE calendar.calendar_events SET end_at = NULL WHERE id = $1", "EndAt is missing"},
		"it has no status":        {"UPDATE calendar.calendar_events SET status = NULL WHERE id = $1", "Status"},
		"it has no tenant":        {"UPDATE calendar.calendar_events SET tenant_id = NULL WHERE id = $1", "TenantID is missing"},
		"it has no owner":         {"UPDATE calendar.calendar_events SET owner_user_id = NULL WHERE id = $1", "OwnerUserID is missing"},
		"it has no time zone":     {"UPDATE calendar.calendar_events SET time_zone = NULL WHERE id = $1", "TimeZone is missing"},
		"it has no version":       {"UPDATE calendar.calendar_events SET version = NULL WHERE id = $1", "Version is below 1"},
		"no offset of a reminder": {"UPDATE calendar.event_reminders SET offset_minutes = NULL WHERE event_id = $1", "offset_minutes is null"},
	} {
		for _, page := range []int{1, 200} {
			w.run(fmt.Sprintf("%s, pages of %d", what, page), func(t *testing.T) {
				w.again()
				w.execute(spoil.statement, uuid.UUID(spoilt.CalendarEvent))
				done, failed := drained(w, w.worker.calendar.DueReminders, appcalendar.Dispatch, page)
				w.blames(failed, uuid.UUID(spoilt.Reminders[0].Reminder), uuid.UUID(spoilt.CalendarEvent), spoil.why)
				if done.Applied != 2 || done.Failed != 1 || done.SkippedLocked != 0 {
					t.Errorf("summary %+v; want two sent, one failed", done)
				}
			})
		}
	}
}

func TestAppointments_AnUnsoundPartnerIsItsAppointmentsFailureAlone(t *testing.T) {
	w := newWorld(t)
	w.execute(nullable)
	before, moment, after := portstest.Noon.Add(-3*time.Minute), portstest.Noon.Add(-2*time.Minute), portstest.Noon.Add(-time.Minute)
	slot, spoilt := portstest.Booking(moment)
	oneSlot, one := portstest.Booking(before)
	anotherSlot, another := portstest.Booking(after)
	w.given("calendar", booked(slot, spoilt, moment), started(spoilt.CalendarEvent), booked(oneSlot, one, before), booked(anotherSlot, another, after))
	const lacks = "its slot or its calendar event does not exist"
	for what, spoil := range map[string]struct {
		table, change, why string
		of                 [16]byte
	}{
		"the slot is missing":            {"availability_slots", "", lacks, slot.Slot},
		"the slot was released before":   {"availability_slots", "status = 'Available', version = version + 1", "INV-SLT-5", slot.Slot},
		"the slot was withdrawn":         {"availability_slots", "status = 'Withdrawn', version = version + 1", "INV-SLT-5", slot.Slot},
		"the slot begins at infinity":    {"availability_slots", "start_at = 'infinity', end_at = 'infinity'", "start_at is infinity", slot.Slot},
		"the slot never begins":          {"availability_slots", "start_at = NULL", "StartAt is missing", slot.Slot},
		"the slot has no tenant":         {"availability_slots", "tenant_id = NULL", "TenantID is missing", slot.Slot},
		"the slot has no status":         {"availability_slots", "status = NULL", "Status", slot.Slot},
		"the slot has no lead time":      {"availability_slots", "min_lead_time_minutes = NULL", "min_lead_time_minutes is null", slot.Slot},
		"the slot may confirm by itself": {"availability_slots", "auto_confirm = NULL", "auto_confirm is null", slot.Slot},
		"the slot's row lags":            {"availability_slots", "version = 1", "the stream is at version 2, ahead of the row at 1", slot.Slot},
		"the event is missing":           {"calendar_events", "", lacks, spoilt.CalendarEvent},
		"the event was cancelled before": {"calendar_events", "status = 'Cancelled', version = version + 1", "INV-CAL-3", spoilt.CalendarEvent},
		"the event is over":              {"calendar_events", "status = 'Completed', version = version + 1", "INV-CAL-3", spoilt.CalendarEvent},
		"the event is another one's":     {"calendar_events", "appointment_id = gen_random_uuid()", "is not the appointment's own", spoilt.CalendarEvent},
		"the event is nobody's":          {"calendar_events", "appointment_id = NULL", "is not the appointment's own", spoilt.CalendarEvent},
		"the event was made by hand":     {"calendar_events", "origin = 'Manual'", "is not the appointment's own", spoilt.CalendarEvent},
		"the event ends at infinity":     {"calendar_events", "end_at = 'infinity'", "end_at is infinity", spoilt.CalendarEvent},
		"the event has no time zone":     {"calendar_events", "time_zone = NULL", "TimeZone is missing", spoilt.CalendarEvent},
		"the event's row lags":           {"calendar_events", "version = 1", "the stream is at version 2, ahead of the row at 1", spoilt.CalendarEvent},
		"a reminder is due at infinity":  {"event_reminders", "due_at = 'infinity'", "due_at is infinity", spoilt.Reminders[0].Reminder},
		"a reminder is never due":        {"event_reminders", "due_at = NULL", "DueAt is missing", spoilt.Reminders[0].Reminder},
		"a reminder has no tenant":       {"event_reminders", "tenant_id = NULL", "TenantID is missing", spoilt.Reminders[0].Reminder},
	} {
		for _, page := range []int{1, 20} {
			w.run(fmt.Sprintf("%s, pages of %d", what, page), func(t *testing.T) {
				w.again()
				if spoil.change == "" {
					w.execute("DELETE FROM calendar."+spoil.table+" WHERE id = $1", uuid.UUID(spoil.of))
				} else {
					w.execute("UPDATE calendar."+spoil.table+" SET "+spoil.change+" WHERE id = $1", uuid.UUID(spoil.of))
				}
				done, failed := drained(w, w.worker.calendar.Overdue, appcalendar.TimeOut, page)
				w.blames(failed, uuid.UUID(spoilt.Appointment), uuid.Nil, spoil.why)
				if done.Applied != 2 || done.Failed != 1 || done.SkippedLocked != 0 {
					t.Errorf("summary %+v; want two expired, one failed", done)
				}
			})
		}
	}
}

func TestAppointments_OfTwoOnOneSlotTheFirstExpiresAndTheSecondIsAFailure(t *testing.T) {
	w := newWorld(t)
	first, moment, last := portstest.Noon.Add(-3*time.Minute), portstest.Noon.Add(-2*time.Minute), portstest.Noon.Add(-time.Minute)
	slot, request := portstest.Booking(first)
	_, second := portstest.Booking(moment)
	otherSlot, other := portstest.Booking(last)
	w.given("calendar", booked(slot, request, first), booked(otherSlot, other, last), func(w *world) {
		w.execute("UPDATE calendar.availability_slots SET status = 'Available' WHERE id = $1", uuid.UUID(slot.Slot))
		w.must(w.owner.agenda(moment.Add(-24*time.Hour)).Book(w.Context(), "investor", slot.Slot, second))
	})
	for _, page := range []int{1, 2, 20} {
		w.run(fmt.Sprintf("pages of %d", page), func(t *testing.T) {
			w.again()
			done, failed := drained(w, w.worker.calendar.Overdue, appcalendar.TimeOut, page)
			w.blames(failed, uuid.UUID(second.Appointment), uuid.Nil, "INV-SLT-5")
			if done.Applied != 2 || done.Failed != 1 || done.SkippedLocked != 0 {
				t.Errorf("summary %+v; want two expired, one failed", done)
			}
			const want = "appointment Expired 2, appointment Expired 2, appointment Pending 1, slot Available 3, slot Available 4, " +
				"event Cancelled 2, event Cancelled 2, event Planned 1, " +
				"reminder Pending 1, reminder Pending 1, reminder Skipped 2, reminder Skipped 2, reminder Skipped 2, reminder Skipped 2: " +
				"appointment-cancelled, event-status-changed, appointment-cancelled, event-status-changed"
			if got := strings.ReplaceAll(w.end(), "appointment-cancelled, appointment-cancelled, event-status-changed, event-status-changed",
				"appointment-cancelled, event-status-changed, appointment-cancelled, event-status-changed"); got != want {
				t.Errorf("in the end %s\nwant %s", got, want)
			}
			w.sound("in the end")
		})
	}
}

// More of them than a page holds, and next to each other: each is told once, and none passes for one
// that somebody else holds.
func TestOrphans_ManyOfThemAreEachToldInOneCycle(t *testing.T) {
	const orphans = 5
	w := newWorld(t)
	w.execute(nullable)
	var makes []func(*world)
	var reminders, appointments []uuid.UUID
	for n := range orphans + 2 {
		due := portstest.Noon.Add(-time.Duration(10-n) * time.Minute)
		plan := portstest.Plan(due)
		slot, request := portstest.Booking(due)
		request.Reminders = nil
		makes = append(makes, scheduled(plan), booked(slot, request, due))
		if n > 0 && n <= orphans { // the first and the last are sound
			reminders, appointments = append(reminders, uuid.UUID(plan.Reminders[0].Reminder)), append(appointments, uuid.UUID(request.Appointment))
			makes = append(makes, func(w *world) {
				w.execute("DELETE FROM calendar.calendar_events WHERE id = $1", uuid.UUID(plan.CalendarEvent))
				w.execute("DELETE FROM calendar.availability_slots WHERE id = $1", uuid.UUID(slot.Slot))
			})
		}
	}
	w.given("calendar", makes...)
	check := func(t *testing.T, done cycle.Summary, failed []ports.Failure, want []uuid.UUID) {
		var told []uuid.UUID
		for _, f := range failed {
			told = append(told, f.Item)
		}
		if !slices.Equal(told, want) {
			t.Errorf("told %v; want each orphan once, in their order: %v", told, want)
		}
		if done.Applied != 2 || done.Failed != orphans || done.SkippedLocked != 0 {
			t.Errorf("summary %+v; want 2 done, %d failed, none passed over", done, orphans)
		}
	}
	for _, page := range []int{1, 2, 3, 200} {
		w.run(fmt.Sprintf("pages of %d", page), func(t *testing.T) {
			w.again()
			done, failed := drained(w, w.worker.calendar.DueReminders, appcalendar.Dispatch, page)
			check(t, done, failed, reminders)
			done, failed = drained(w, w.worker.calendar.Overdue, appcalendar.TimeOut, page)
			check(t, done, failed, appointments)
		})
	}
}

func TestPartners_ThatAreLockedAreTheirItemsPassedOver(t *testing.T) {
	w := newWorld(t)
	moment, after := portstest.Noon.Add(-2*time.Minute), portstest.Noon.Add(-time.Minute)
	held, free := portstest.Plan(moment), portstest.Plan(after)
	slot, request := portstest.Booking(moment)
	otherSlot, other := portstest.Booking(after)
	w.given("calendar", scheduled(held), scheduled(free), booked(slot, request, moment), booked(otherSlot, other, after))
	for what, held := range map[string]struct {
		table string
		id    [16]byte
		page  func(hands, context.Context, int) (taken, error)
	}{
		"a reminder's event":     {"calendar_events", held.CalendarEvent, hands.dispatch},
		"an appointment's slot":  {"availability_slots", slot.Slot, hands.timeOut},
		"an appointment's event": {"calendar_events", request.CalendarEvent, hands.timeOut},
		"a reminder":             {"event_reminders", held.Reminders[0].Reminder, hands.dispatch},
		"an appointment":         {"appointments", request.Appointment, hands.timeOut},
	} {
		w.run(what, func(t *testing.T) {
			w.again()
			release := hooks(t, w.db, w.db, "calendar", held.table).Lock(held.id)
			if took, err := held.page(w.worker, t.Context(), 10); err != nil || took != (taken{done: 1, passedOver: 1}) {
				t.Errorf("took %+v, %v; want the other one alone", took, err)
			}
			release()
			if took, err := held.page(w.worker, t.Context(), 10); err != nil || took != (taken{done: 1}) {
				t.Errorf("took %+v, %v; want the one that was held", took, err)
			}
			w.sound("in the end")
		})
	}
}

func TestOperations_AnAppointmentWhosePartnerIsMissingNamesIt(t *testing.T) {
	w := newWorld(t)
	w.execute(nullable)
	slot, request := portstest.Booking(portstest.Noon)
	w.given("calendar", booked(slot, request, portstest.Noon))
	for table, want := range map[string]calendar.MissingPartnerError{
		"availability_slots": {Kind: calendar.KindSlot, ID: uuid.UUID(slot.Slot)},
		"calendar_events":    {Kind: calendar.KindEvent, ID: uuid.UUID(request.CalendarEvent)},
	} {
		w.again()
		w.execute("DELETE FROM calendar." + table)
		err := w.owner.agenda(portstest.Noon).Confirm(t.Context(), "agent", request.Appointment)
		if missing := (calendar.MissingPartnerError{}); !errors.As(err, &missing) || missing != want {
			t.Errorf("error %v; want %v", err, want)
		}
	}
}
