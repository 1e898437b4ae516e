package calendar_test

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/eventsourcing"
)

// aggregate is what each of the four is, with its snapshot.
type aggregate[A, S any] interface {
	comparable
	eventsourcing.Aggregate[A, calendar.Event]
	eventsourcing.Part[calendar.Event]
	Snapshot() S
}

// checkRestore takes a sound snapshot there and back, through Restore and through a baseline, and
// expects an InvalidError about each field that is not set, but for those that may be, and about
// those that are set wrong.
func checkRestore[A aggregate[A, S], S comparable](t *testing.T, sound S, restore func(S) (A, error), optional []string, wrong map[string]func(*S)) {
	t.Helper()
	restored, err := restore(sound)
	if err != nil || restored.Snapshot() != sound {
		t.Fatalf("a sound one: %+v, %v", restored, err)
	}
	var unborn A
	if folded := unborn.Apply(restored.Import(noon)); folded != restored {
		t.Errorf("the baseline folds to %+v; want %+v", folded, restored)
	}
	refuse := func(field, how string, spoil func(*S)) {
		t.Run(field+how, func(t *testing.T) {
			spoilt := sound
			spoil(&spoilt)
			restored, err := restore(spoilt)
			if slices.Contains(optional, field) && how == " missing" {
				if err != nil || restored.Snapshot() != spoilt {
					t.Errorf("restored %+v, %v; want it as it is", restored, err)
				}
				return
			}
			if invalid, ok := err.(calendar.InvalidError); !ok || invalid.Field != field || restored != unborn {
				t.Errorf("restored %+v, %v; want an InvalidError about %s", restored, err, field)
			}
		})
	}
	for field := range reflect.TypeFor[S]().Fields() {
		refuse(field.Name, " missing", func(s *S) { reflect.ValueOf(s).Elem().FieldByIndex(field.Index).SetZero() })
	}
	for _, field := range slices.Sorted(maps.Keys(wrong)) {
		refuse(field, " wrong", wrong[field])
	}
}

func TestRestoreSlot(t *testing.T) {
	sound := pending.Slot.Snapshot()
	sound.AutoConfirm = true
	checkRestore(
		t, sound, calendar.RestoreSlot,
		[]string{"MinLeadTimeMinutes", "AutoConfirm", "CreatedAt", "UpdatedAt"},
		map[string]func(*calendar.SlotSnapshot){
			"EndAt":              func(s *calendar.SlotSnapshot) { s.EndAt = time.Time{} },
			"MinLeadTimeMinutes": func(s *calendar.SlotSnapshot) { s.MinLeadTimeMinutes = -1 },
			"Status":             func(s *calendar.SlotSnapshot) { s.Status = "Sold" },
			"Version":            func(s *calendar.SlotSnapshot) { s.Version = -1 },
		},
	)
}

func TestRestoreAppointment(t *testing.T) {
	sound := pending.Appointment.Snapshot()
	sound.Status, sound.CancelledBy = calendar.AppointmentStatusCancelled, investor
	checkRestore(
		t, sound, calendar.RestoreAppointment,
		[]string{"LeadID", "PendingExpiresAt", "CancelledBy", "CreatedAt", "UpdatedAt"},
		map[string]func(*calendar.AppointmentSnapshot){
			"Status":  func(s *calendar.AppointmentSnapshot) { s.Status = "Planned" },
			"Version": func(s *calendar.AppointmentSnapshot) { s.Version = -1 },
		},
	)
}

func TestRestoreEvent(t *testing.T) {
	sound := pending.Event.Snapshot()
	sound.Status, sound.CancelReason = calendar.EventStatusCancelled, calendar.ReasonTimedOut
	checkRestore(
		t, sound, calendar.RestoreEvent,
		[]string{"ClientUserID", "CancelReason", "AppointmentID", "CreatedAt", "UpdatedAt"},
		map[string]func(*calendar.EventSnapshot){
			"EndAt":   func(s *calendar.EventSnapshot) { s.EndAt = time.Time{} },
			"Status":  func(s *calendar.EventSnapshot) { s.Status = "Pending" },
			"Version": func(s *calendar.EventSnapshot) { s.Version = -1 },
		},
	)
}

func TestRestoreReminder(t *testing.T) {
	sound := pending.Reminders[1].Snapshot()
	sound.Status, sound.SentAt = calendar.ReminderStatusSent, justAfter(sound.DueAt)
	checkRestore(
		t, sound, calendar.RestoreReminder,
		[]string{"OffsetMinutes", "SentAt", "CreatedAt", "UpdatedAt"},
		map[string]func(*calendar.ReminderSnapshot){
			"OffsetMinutes": func(s *calendar.ReminderSnapshot) { s.OffsetMinutes = -1 },
			"Status":        func(s *calendar.ReminderSnapshot) { s.Status = calendar.ReminderStatusDropped }, // it has no row
			"Version":       func(s *calendar.ReminderSnapshot) { s.Version = -1 },
		},
	)
}
