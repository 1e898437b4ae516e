package simulation

import (
	"time"

	"github.com/pin-platform/pinworker/domain/calendar"
)

// What may happen to an aggregate, as the specification says it (domain.md and the pages of the
// jobs), told a second time and not taken from the domain's code: who would check a rule by itself?

// The aggregates, by the names of their streams.
const (
	lead        = "Lead"
	purchase    = "PromotionPurchase"
	slot        = string(calendar.KindSlot)
	appointment = string(calendar.KindAppointment)
	event       = string(calendar.KindEvent)
	reminder    = string(calendar.KindReminder)
)

// who may make an event happen.
type who int

const (
	people who = iota
	worker
	either
)

// when an event may happen, beside the moment that its aggregate has.
type when int

const (
	always    when = iota
	after          // strictly after the moment
	fromThen       // at the moment, or after it
	untilThen      // at the moment, or before it
)

// rule is what must hold for an event to happen, and what it makes of its aggregate.
type rule struct {
	of   string
	from []string
	to   string // "": see next
	who  who
	when when
}

var (
	born  = []string{""}
	alive = []string{"Planned", "InProgress"}
)

var rules = map[string]rule{
	"LeadRegistered": {lead, born, "Active", people, always},
	"LeadExtended":   {lead, []string{"Active", "Expired"}, "Active", people, always},
	"LeadArchived":   {lead, []string{"Active", "Expired"}, "Archived", people, always},
	"LeadExpired":    {lead, []string{"Active"}, "Expired", worker, after}, // INV-LEAD-4

	"PromotionPurchased":         {purchase, born, "Pending", people, always},
	"PromotionActivated":         {purchase, []string{"Pending"}, "Active", people, always},
	"PromotionPurchaseCancelled": {purchase, []string{"Pending", "Active"}, "Cancelled", people, always}, // INV-6
	"PromotionPurchaseExpired":   {purchase, []string{"Active"}, "Expired", worker, fromThen},

	"SlotPublished": {slot, born, "Available", people, always},
	"SlotBooked":    {slot, []string{"Available"}, "Booked", people, untilThen}, // INV-SLT-3
	"SlotReleased":  {slot, []string{"Booked"}, "Available", either, untilThen}, // INV-SLT-5
	"SlotExpired":   {slot, []string{"Booked"}, "Expired", either, after},       // INV-SLT-5

	"AppointmentBooked":    {appointment, born, "", people, always},
	"AppointmentConfirmed": {appointment, []string{"Pending"}, "Confirmed", people, always}, // after its moment, too
	"AppointmentDeclined":  {appointment, []string{"Pending"}, "Declined", people, always},
	"AppointmentCancelled": {appointment, []string{"Pending", "Confirmed"}, "Cancelled", people, always},
	"AppointmentCompleted": {appointment, []string{"Confirmed"}, "Completed", people, always},
	"AppointmentExpired":   {appointment, []string{"Pending"}, "Expired", worker, after}, // INV-APT-6

	"CalendarEventPlanned":   {event, born, "Planned", people, always},
	"CalendarEventMoved":     {event, []string{"Planned"}, "Planned", people, always},
	"CalendarEventStarted":   {event, []string{"Planned"}, "InProgress", people, always},
	"CalendarEventEnded":     {event, []string{"InProgress"}, "Completed", people, always},
	"CalendarEventCalledOff": {event, alive, "Cancelled", either, always},

	"ReminderScheduled": {reminder, born, "Pending", people, always},
	"ReminderDropped":   {reminder, []string{"Pending"}, "Dropped", people, always},
	"ReminderSkipped":   {reminder, []string{"Pending"}, "Skipped", either, always},
	"ReminderSent":      {reminder, []string{"Pending"}, "Sent", worker, after}, // INV-REM-2
}

// operationRule is what an operation leads to.
type operationRule struct {
	of   string
	root string // the event that it makes happen, whatever else comes with it
	// already is where it has nothing to do and says so; permits is where it is not refused.
	already string
	permits map[string][]string // states, by aggregate
}

var operationRules = map[Kind]operationRule{
	RegisterLead: {of: lead, root: "LeadRegistered"},
	ExtendLead:   {of: lead, root: "LeadExtended", already: "Active"}, // until the same moment
	ArchiveLead:  {of: lead, root: "LeadArchived", already: "Archived"},

	Purchase:       {of: purchase, root: "PromotionPurchased"},
	CancelPurchase: {of: purchase, root: "PromotionPurchaseCancelled", already: "Cancelled"},

	PublishSlot:       {of: slot, root: "SlotPublished"},
	BookSlot:          {of: appointment, root: "AppointmentBooked", permits: map[string][]string{slot: {"Available"}}},
	Confirm:           {appointment, "AppointmentConfirmed", "Confirmed", map[string][]string{appointment: {"Pending", "Confirmed"}}},
	Decline:           {appointment, "AppointmentDeclined", "Declined", map[string][]string{appointment: {"Pending", "Declined"}}},
	CancelAppointment: {appointment, "AppointmentCancelled", "Cancelled", map[string][]string{appointment: {"Pending", "Confirmed", "Cancelled"}}},
	CompleteAppointment: {appointment, "AppointmentCompleted", "Completed", map[string][]string{
		appointment: {"Confirmed", "Completed"}, event: {"InProgress"},
	}},

	ScheduleEvent:   {of: event, root: "CalendarEventPlanned"},
	RescheduleEvent: {event, "CalendarEventMoved", "", map[string][]string{event: {"Planned"}}},
	StartEvent:      {event, "CalendarEventStarted", "InProgress", map[string][]string{event: {"Planned", "InProgress"}}},
	CompleteEvent:   {event, "CalendarEventEnded", "Completed", map[string][]string{event: {"InProgress", "Completed"}}},
	CancelEvent:     {event, "CalendarEventCalledOff", "Cancelled", map[string][]string{event: {"Planned", "InProgress", "Cancelled"}}},
}

// pendingUntil is when an appointment of a slot, made at a moment, times out; zero for never.
func pendingUntil(slot calendar.Publication, made time.Time) time.Time {
	if slot.AutoConfirm {
		return time.Time{}
	}
	latest := soldUntil(slot)
	if dayLater := made.Add(24 * time.Hour); dayLater.Before(latest) {
		return dayLater
	}
	return latest
}

// soldUntil is the last moment at which a slot can be sold.
func soldUntil(slot calendar.Publication) time.Time {
	return slot.StartAt.Add(-time.Duration(slot.MinLeadTimeMinutes) * time.Minute)
}
