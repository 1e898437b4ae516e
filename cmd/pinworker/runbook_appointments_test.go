package main

import (
	"time"

	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/domain/calendar"
)

const appointmentTimeout = "appointment-timeout"

var appointmentSituations = []situation{
	{
		page: appointmentTimeout, cause: "Somebody holds it, or its slot",
		given: func(k *terminal) {
			k.overdueAppointment()
			k.forget("agent-api", "SELECT FROM calendar.availability_slots FOR UPDATE")
			k.serve()
		},
		then: (*terminal).wantSlotsFree,
	},
	{
		page: appointmentTimeout, cause: "Its slot or its event is missing",
		given: func(k *terminal) {
			slot, _ := k.overdueAppointment()
			k.execute("ALTER TABLE calendar.appointments DROP CONSTRAINT appointments_slot_id_fkey")
			k.execute("DELETE FROM calendar.availability_slots WHERE id = '" + slot.Slot.String() + "'")
			k.runUntilHeld(appointmentTimeout)
			k.serve()
		},
		then: (*terminal).wantSlotsFree,
	},
	{
		page: appointmentTimeout, cause: "Its slot was freed by hand",
		given: func(k *terminal) {
			slot, _ := k.overdueAppointment()
			k.execute("UPDATE calendar.availability_slots SET status = 'Available', version = version + 1 WHERE id = '" + slot.Slot.String() + "'")
			k.runUntilHeld(appointmentTimeout)
			k.serve()
		},
		then: (*terminal).wantSlotsFree,
	},
	{
		page: appointmentTimeout, cause: "No worker serves",
		given: func(k *terminal) { k.overdueAppointment() },
		then:  (*terminal).wantSlotsFree,
	},
	{
		page: appointmentTimeout, cause: "Somebody locks in another order",
		given: func(k *terminal) {
			k.overdueAppointment()
			k.forget("notifications", "SELECT FROM calendar.event_reminders FOR UPDATE")
			k.env["PINWORKER_DATABASE_LOCK_TIMEOUT"] = "100ms"
			k.serve()
			eventually(k.T, "a cycle has waited", func() bool { return k.run("$LOGS | grep -c 55P03") != "0\n" })
		},
		then: (*terminal).wantSlotsFree,
	},
}

// overdueAppointment makes one that its agent has not decided on in time.
func (k *terminal) overdueAppointment() (calendar.Publication, calendar.Request) {
	k.Helper()
	due := time.Now().Add(-time.Minute)
	slot, request := portstest.Booking(due)
	o := k.worker.at(due.AddDate(0, 0, -1)).calendar
	k.must(o.Publish(k.Context(), "agent", slot))
	k.must(o.Book(k.Context(), "investor", slot.Slot, request))
	return slot, request
}

// wantSlotsFree checks that an appointment's whole cascade has happened.
func (k *terminal) wantSlotsFree() {
	k.Helper()
	for query, want := range map[string]int{
		"SELECT count(*) FROM calendar.appointments WHERE status = 'Expired'":         1,
		"SELECT count(*) FROM calendar.availability_slots WHERE status = 'Available'": 1,
		"SELECT count(*) FROM calendar.calendar_events WHERE status = 'Cancelled'":    1,
		"SELECT count(*) FROM calendar.event_reminders WHERE status = 'Skipped'":      2,
	} {
		if n := k.count(query); n != want {
			k.Errorf("%s: %d; want %d", query, n, want)
		}
	}
}
