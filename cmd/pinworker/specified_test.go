package main

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/google/uuid"
	dto "github.com/prometheus/client_model/go"
)

// The tables of this file are written from the platform's documents, not from the code. What is ours
// beside them says so.

// Of a figure that no test can foresee, as a duration, it is known that it is above 0, or not below.
var above, atLeast = math.Inf(1), math.Inf(-1)

// metric is a family of /metrics.
type metric struct {
	name string
	kind dto.MetricType
	// within are promises in seconds that a histogram has a boundary at, so that how many were kept can
	// be told.
	within []float64
	values map[string]float64 // by labels; of a histogram how many were observed
}

const (
	counter   = dto.MetricType_COUNTER
	gauge     = dto.MetricType_GAUGE
	histogram = dto.MetricType_HISTOGRAM
)

// specifiedMetrics are all of them, with what TestObservability_… makes of them: of each job a cycle in
// which nothing was due, one that did its work beside a locked item, one with poison, and one without a
// database, which is asked twice.
func specifiedMetrics(interval map[string]float64) []metric {
	byJob := func(of func(job string) float64) map[string]float64 {
		values := make(map[string]float64)
		for job := range interval {
			values[`job="`+job+`"`] = of(job)
		}
		return values
	}
	one := func(value float64) map[string]float64 { return map[string]float64{"": value} }
	ofContexts := func(value float64) map[string]float64 {
		return map[string]float64{`context="calendar"`: value, `context="crm"`: value, `context="promotion"`: value}
	}
	return []metric{
		// reminder-dispatch
		{name: "calendar_reminder_dispatch_cycle_duration_seconds", kind: histogram, within: []float64{30}, values: one(4)},
		{name: "calendar_reminder_dispatch_items_total", kind: counter, values: map[string]float64{`result="sent"`: 3, `result="skipped"`: 1}},
		{name: "calendar_reminder_dispatch_backlog", kind: gauge, values: one(2)},
		{name: "calendar_reminder_dispatch_lateness_seconds", kind: histogram, within: []float64{120}, values: one(3)},
		{name: "calendar_reminder_dispatch_skip_locked_total", kind: counter, values: one(2)},
		{name: "calendar_reminder_dispatch_errors_total", kind: counter, values: one(3)},
		// appointment-timeout
		{name: "calendar_appointment_timeout_cycle_duration_seconds", kind: histogram, within: []float64{30}, values: one(4)},
		{name: "calendar_appointment_timeout_items_total", kind: counter, values: map[string]float64{`slot_outcome="released"`: 2, `slot_outcome="expired"`: 1}},
		{name: "calendar_appointment_timeout_backlog", kind: gauge, values: one(2)},
		{name: "calendar_appointment_timeout_skip_locked_total", kind: counter, values: one(2)},
		{name: "calendar_appointment_timeout_errors_total", kind: counter, values: one(3)},
		// expire-promotions
		{name: "promotion_expire_run_total", kind: counter, values: one(3)},
		{name: "promotion_expire_cycle_duration_seconds", kind: histogram, within: []float64{30}, values: one(4)},
		{name: "promotion_expire_items_total", kind: counter, values: map[string]float64{`outcome="expired"`: 3}},
		{name: "promotion_expire_backlog", kind: gauge, values: one(2)},
		{name: "promotion_expire_skip_locked_total", kind: counter, values: one(2)},
		{name: "promotion_expire_errors_total", kind: counter, values: one(3)},
		// lead-expiration
		{name: "crm_lead_expiration_expired_total", kind: counter, values: one(3)},
		{name: "crm_lead_expiration_duration_seconds", kind: histogram, values: one(4)},
		{name: "crm_lead_expiration_backlog", kind: gauge, values: one(2)},
		{name: "crm_lead_expiration_errors_total", kind: counter, values: one(3)},
		{name: "crm_lead_expiration_lateness_seconds", kind: histogram, within: []float64{3900}, values: one(3)},
		// what all jobs share
		{name: "job_last_success_timestamp_seconds", kind: gauge, values: byJob(func(string) float64 { return above })},
		{name: "job_interval_seconds", kind: gauge, values: byJob(func(job string) float64 { return interval[job] })},
		{name: "job_oldest_due_age_seconds", kind: gauge, values: byJob(func(string) float64 { return above })},
		{name: "job_quarantined", kind: gauge, values: byJob(func(string) float64 { return 0 })}, // from the third failure on
		// the outbox: purchases' topic is not there, and a lead's message is none
		{name: "outbox_backlog", kind: gauge, values: map[string]float64{
			`context="calendar",topic="pin.calendar.reminder-due.v1"`: 0, `context="calendar",topic="pin.calendar.appointment-cancelled.v1"`: 0,
			`context="calendar",topic="pin.calendar.event-status-changed.v1"`: 0, `context="crm",topic="pin.crm.lead-expired.v1"`: 0,
			`context="promotion",topic="pin.promotion.purchase-changed.v1"`: 8, // five bought, three expired
		}},
		{name: "outbox_parked", kind: gauge, values: map[string]float64{
			`context="calendar",topic="pin.calendar.reminder-due.v1"`: 0, `context="calendar",topic="pin.calendar.appointment-cancelled.v1"`: 0,
			`context="calendar",topic="pin.calendar.event-status-changed.v1"`: 0, `context="crm",topic="pin.crm.lead-expired.v1"`: 1,
			`context="promotion",topic="pin.promotion.purchase-changed.v1"`: 0,
		}},
		{name: "outbox_oldest_age_seconds", kind: gauge, values: map[string]float64{`context="calendar"`: 0, `context="crm"`: 0, `context="promotion"`: above}},
		{name: "outbox_published_total", kind: counter, values: map[string]float64{
			`topic="pin.calendar.reminder-due.v1"`: 3, `topic="pin.calendar.appointment-cancelled.v1"`: 3,
			`topic="pin.calendar.event-status-changed.v1"`: 14, // six events and five bookings made, three timed out
			`topic="pin.crm.lead-expired.v1"`:              3, `topic="pin.promotion.purchase-changed.v1"`: 0,
		}},
		{name: "outbox_publish_errors_total", kind: counter, values: map[string]float64{
			`kind="permanent",topic="pin.calendar.reminder-due.v1"`: 0, `kind="transient",topic="pin.calendar.reminder-due.v1"`: 0,
			`kind="permanent",topic="pin.calendar.appointment-cancelled.v1"`: 0, `kind="transient",topic="pin.calendar.appointment-cancelled.v1"`: 0,
			`kind="permanent",topic="pin.calendar.event-status-changed.v1"`: 0, `kind="transient",topic="pin.calendar.event-status-changed.v1"`: 0,
			`kind="permanent",topic="pin.crm.lead-expired.v1"`: 1, `kind="transient",topic="pin.crm.lead-expired.v1"`: 0,
			`kind="permanent",topic="pin.promotion.purchase-changed.v1"`: 0, `kind="transient",topic="pin.promotion.purchase-changed.v1"`: above,
		}},
		{name: "outbox_due_to_ack_seconds", kind: histogram, within: []float64{60, 120, 3900}, values: map[string]float64{
			`topic="pin.calendar.reminder-due.v1"`: 3, `topic="pin.calendar.appointment-cancelled.v1"`: 3,
			`topic="pin.calendar.event-status-changed.v1"`: 3, `topic="pin.crm.lead-expired.v1"`: 3, `topic="pin.promotion.purchase-changed.v1"`: 0,
		}},
		{name: "database_oldest_snapshot_age_seconds", kind: gauge, values: ofContexts(atLeast)},
	}
}

// logLine is one of the log.
type logLine struct {
	level string
	// run is what it calls the run id; "": it is of no run.
	run    string
	fields []string // beside the run id; also of a span's event, where it is told of an item
	// and are what it has in addition, where several jobs share it: one of these.
	and   [][]string
	times int // 0: any number
}

const either = "runId or jobRunId" // as the job has it

// specifiedLines are all that a worker says in TestObservability_…, by their names.
var specifiedLines = map[string]logLine{
	// the three jobs that poll each minute
	"cycle started":  {level: "INFO", run: "runId", fields: []string{"AsOf"}, times: 3 * 4},
	"batch selected": {level: "INFO", run: "runId", fields: []string{"count"}},
	"item failed": {
		level: "ERROR", run: "runId", fields: []string{"TenantId", "error", "streak"},
		and: [][]string{{"ReminderId", "EventId"}, {"AppointmentId"}, {"PurchaseId"}}, times: 3,
	},
	"cycle completed": {
		level: "INFO", run: "runId", fields: []string{"DurationMs", "SkippedLocked"},
		and: [][]string{{"SentCount", "SkippedCount"}, {"ExpiredCount", "SlotsReleasedCount", "SlotsExpiredCount"}, {"ExpiredCount"}}, times: 3 * 3,
	},
	"reminder sent":       {level: "INFO", run: "runId", fields: []string{"ReminderId", "EventId", "OffsetMinutes", "TenantId"}, times: 3},
	"reminder skipped":    {level: "INFO", run: "runId", fields: []string{"ReminderId", "EventId", "EventStatus", "TenantId"}, times: 1},
	"appointment expired": {level: "INFO", run: "runId", fields: []string{"AppointmentId", "SlotId", "CalendarEventId", "SlotOutcome", "TenantId"}, times: 3},
	"promotion expired":   {level: "INFO", run: "runId", fields: []string{"PurchaseId", "PackageKind", "TargetsCount", "TenantId"}, times: 3},
	// lead-expiration
	"job.started":     {level: "INFO", run: "jobRunId", fields: []string{"Now"}, times: 4},
	"batch.processed": {level: "INFO", run: "jobRunId", fields: []string{"size", "elapsedMs"}},
	"lead.expired":    {level: "DEBUG", run: "jobRunId", fields: []string{"LeadId", "TenantId"}, times: 3},
	"item.failed":     {level: "ERROR", run: "jobRunId", fields: []string{"LeadId", "TenantId", "error", "streak"}, times: 1},
	"job.completed":   {level: "INFO", run: "jobRunId", fields: []string{"ExpiredCount", "BatchesProcessed", "cappedByMaxBatches", "Elapsed"}, times: 3},
	// ours: what stands in the way
	"no batch could be claimed":                                      {level: "WARN", run: either, fields: []string{"error"}, times: 4 * 2},
	"cycle failed: the next one takes what it left":                  {level: "ERROR", run: either, fields: []string{"error"}, times: 4},
	"the backlog could not be counted":                               {level: "WARN", run: either, fields: []string{"error"}},
	"batch undone by one of its items: going over it one by one":     {level: "WARN", run: either, fields: []string{"size", "error"}, times: 3},
	"outbox message is parked: Kafka refuses it for good":            {level: "ERROR", fields: []string{"outbox", "topic", "message", "key", "error"}, times: 1},
	"outbox relay is held up: messages wait and are tried again":     {level: "WARN", fields: []string{"outbox", "topic", "error"}},
	"outbox relay goes on":                                           {level: "INFO", fields: []string{"outbox", "topic"}},
	"worker started":                                                 {level: "INFO", fields: []string{"http", "version"}, times: 1},
	"worker is stopping: what is in hand is finished or rolled back": {level: "INFO", times: 1},
	"worker stopped":                                                 {level: "INFO", times: 1},
}

// sort of a field's value, where it is not a whole number.
var (
	isID     = func(v any) bool { text, ok := v.(string); return ok && uuid.Validate(text) == nil }
	isMoment = func(v any) bool {
		text, ok := v.(string)
		at, err := time.Parse(time.RFC3339Nano, text)
		return ok && err == nil && at.Location() == time.UTC
	}
	isOneOf = func(words ...string) func(any) bool {
		return func(v any) bool {
			for _, w := range words {
				if v == w {
					return true
				}
			}
			return false
		}
	}
	isWhole    = func(v any) bool { n, err := strconv.Atoi(fmt.Sprint(v)); return err == nil && n >= 0 }
	isBool     = func(v any) bool { _, ok := v.(bool); return ok }
	isText     = func(v any) bool { _, ok := v.(string); return ok }
	isDuration = func(v any) bool {
		text, ok := v.(string)
		_, err := time.ParseDuration(text)
		return ok && err == nil
	}
)

var sorts = map[string]func(any) bool{
	"runId": isID, "jobRunId": isID, "ReminderId": isID, "EventId": isID, "TenantId": isID, "AppointmentId": isID, "SlotId": isID,
	"CalendarEventId": isID, "PurchaseId": isID, "LeadId": isID, "message": isID, "AsOf": isMoment, "Now": isMoment,
	"EventStatus": isOneOf("Cancelled", "Completed"), "SlotOutcome": isOneOf("released", "expired"), "PackageKind": isText,
	"cappedByMaxBatches": isBool, "Elapsed": isDuration,
	"error": isText, "outbox": isText, "topic": isText, "key": isText, "http": isText, "version": isText,
}
