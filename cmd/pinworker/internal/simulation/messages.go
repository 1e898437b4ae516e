package simulation

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/cmd/pinworker/internal/contracts"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/promotion"
	"github.com/pin-platform/pinworker/ports"
)

// Record is one message as Kafka holds it.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	Key       string
	Value     []byte
	Headers   map[string]string
}

// Messages count a topic's.
type Messages struct {
	Expected    int `json:"expected"` // that must have been published
	Read        int `json:"read"`     // in Kafka, of this simulation
	Repetitions int `json:"repetitions"`
}

// address tells messages apart: one topic has one message for a version of an aggregate.
type address struct {
	topic   string
	subject uuid.UUID
	version int
}

// announcement is a message that must be in Kafka.
type announcement struct {
	of     *life
	event  string // its name, of which the ce_id is made
	key    uuid.UUID
	run    ports.RunID
	fields map[string]any
	seen   int
}

// announces is the message that an event of a life leads to (spec: events).
func announces(l *life, v int, byActor map[ports.Actor]*Operation) (topic string, a announcement) {
	e, s := l.events[v-1], l.states[v]
	a = announcement{of: l, key: l.id, run: e.Run}
	switch e.Event {
	case "LeadExpired":
		r, _ := l.made.Asked.(crm.Registration)
		a.event, a.fields = "LeadExpiredEvent", map[string]any{
			"LeadId": l.id, "TenantId": r.Tenant, "AgentUserId": r.Executor, "InvestorUserId": r.Investor, "ExpiredAt": e.At,
		}
		return published.TopicLeadExpired, a
	case "PromotionPurchased", "PromotionActivated", "PromotionPurchaseExpired", "PromotionPurchaseCancelled":
		order, _ := l.made.Asked.(promotion.Order)
		if e.Event == "PromotionPurchased" && !order.PaymentRequired { // active at once: one message for both
			return "", a
		}
		a.event, a.fields = "PromotionPurchaseChangedKafkaEvent", map[string]any{
			"PurchaseId": l.id, "TenantId": order.Tenant, "Status": s.status, "PaymentStatus": string(order.PaymentStatus),
			"EndsAt": order.EndsAt, "Version": v, "OccurredAt": e.At,
		}
		return published.TopicPurchaseChanged, a
	case "CalendarEventPlanned", "CalendarEventStarted", "CalendarEventEnded", "CalendarEventCalledOff":
		a.event, a.fields = "CalendarEventStatusChangedEvent", map[string]any{
			"EventId": l.id, "Status": s.status, "StartAt": s.start, "OccurredAt": e.At, "AppointmentId": nil, "CancelReason": nil,
		}
		if l.booked != nil {
			a.fields["AppointmentId"] = l.booked.id
		}
		if e.Actor == ports.System {
			a.fields["CancelReason"] = string(calendar.ReasonTimedOut)
		}
		return published.TopicEventStatusChanged, a
	case "AppointmentDeclined", "AppointmentCancelled", "AppointmentExpired":
		a.event, a.fields = "AppointmentCancelledEvent", map[string]any{
			"AppointmentId": l.id, "SlotId": l.slot.id, "CalendarEventId": l.event.id, "Reason": s.status,
			"StartAt": l.slot.publication().StartAt, "CancelledBy": nil, "OccurredAt": e.At,
		}
		if op := byActor[e.Actor]; op != nil && op.Kind == CancelAppointment {
			a.fields["CancelledBy"] = string(op.Actor)
		}
		return published.TopicAppointmentCancelled, a
	case "ReminderSent":
		a.event, a.key = "ReminderDueEvent", l.event.id
		a.fields = map[string]any{
			"ReminderId": l.id, "EventId": l.event.id, "OffsetMinutes": l.offset, "AppointmentId": nil,
			"StartAt": l.due.Add(time.Duration(l.offset) * time.Minute),
		}
		if l.event.booked != nil {
			a.fields["AppointmentId"] = l.event.booked.id
		}
		return published.TopicReminderDue, a
	}
	return "", a
}

// messages checks that Kafka holds what the streams lead to, and nothing else of the simulation.
func (c *checker) messages() {
	expected := make(map[address]*announcement)
	var order []address
	for _, topic := range published.Topics {
		c.report.Messages[topic] = Messages{}
	}
	for _, l := range c.inOrder() {
		for v := 1; v <= len(l.events); v++ {
			topic, a := announces(l, v, c.byActor)
			if topic == "" {
				continue
			}
			at := address{topic, l.id, v}
			expected[at] = &a
			order = append(order, at)
			counts := c.report.Messages[topic]
			counts.Expected++
			c.report.Messages[topic] = counts
		}
	}
	c.read(expected)
	c.lost(expected, order)
}

// read checks each record of the simulation's, in Kafka's order.
func (c *checker) read(expected map[address]*announcement) {
	latest := make(map[address]int)         // version, of each subject in each topic
	partitions := make(map[[2]string]int32) // of each key in each topic
	for _, r := range slices.SortedStableFunc(slices.Values(c.Records), func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	}) {
		subject, ours := c.ours(r)
		if !ours {
			continue
		}
		against := func(format string, args ...any) {
			what := fmt.Sprintf("partition %d, offset %d, ce_id %s: ", r.Partition, r.Offset, r.Headers["ce_id"]) + fmt.Sprintf(format, args...)
			c.report.Findings = append(c.report.Findings, Finding{r.Topic, subject, what})
		}
		key := [2]string{r.Topic, r.Key}
		if before, known := partitions[key]; known && before != r.Partition {
			against("its key %s is in partition %d, too: no order is kept", r.Key, before)
		}
		partitions[key] = r.Partition

		if err := contracts.Check(r.Topic, r.Key, r.Headers, r.Value); err != nil {
			against("%v", err)
		}
		counts := c.report.Messages[r.Topic]
		counts.Read++
		version, _ := strconv.Atoi(r.Headers["ce_aggregateversion"])
		if a := expected[address{r.Topic, subject, version}]; a == nil {
			against("nothing that happened leads to this message, of version %q", r.Headers["ce_aggregateversion"])
		} else {
			if why := a.differs(r, subject, version); why != "" {
				against("the message of version %d: %s", version, why)
			}
			stream := address{topic: r.Topic, subject: subject}
			if a.seen++; a.seen > 1 { // after an outage: at least once
				counts.Repetitions++
			} else if version < latest[stream] {
				against("version %d comes after version %d", version, latest[stream])
			}
			latest[stream] = max(latest[stream], version)
		}
		c.report.Messages[r.Topic] = counts
	}
}

// ours tells whether a record is the simulation's, and what it is about.
func (c *checker) ours(r Record) (uuid.UUID, bool) {
	subject, _ := uuid.Parse(r.Headers["ce_subject"])
	key, _ := uuid.Parse(r.Key)
	return subject, r.Headers["ce_tenantid"] == c.Tenant.String() || c.lives[subject] != nil || c.lives[key] != nil
}

// differs says what is wrong with a message.
func (a *announcement) differs(r Record, subject uuid.UUID, version int) string {
	headers := [][2]string{
		{"ce_id", published.MessageID(subject, version, a.event).String()}, {"ce_type", r.Topic}, {"ce_source", "pin/" + contextOf[a.of.kind]},
		{"ce_correlationid", a.run.String()}, {"ce_aggregatetype", a.of.kind},
	}
	if r.Key != a.key.String() {
		return fmt.Sprintf("its key is %s, and should be %s", r.Key, a.key)
	}
	for _, h := range headers {
		if got := r.Headers[h[0]]; got != h[1] {
			return fmt.Sprintf("its %s is %s, and should be %s", h[0], got, h[1])
		}
	}
	return differs(r.Value, a.fields)
}

// lost reports what Kafka does not hold.
func (c *checker) lost(expected map[address]*announcement, order []address) {
	for _, topic := range published.Topics {
		if counts := c.report.Messages[topic]; counts.Expected > 1 && counts.Read == 0 {
			c.report.Findings = append(c.report.Findings, Finding{Of: topic, What: fmt.Sprintf(
				"none of the %d messages that were committed is in Kafka: does a relay run?", counts.Expected,
			)})
		}
	}
	for _, at := range order {
		counts, a := c.report.Messages[at.topic], expected[at]
		if a.seen == 0 && (counts.Read > 0 || counts.Expected == 1) {
			c.find(a.of, "version %d, %s: its message is not in Kafka, topic %s", at.version, a.of.events[at.version-1].Event, at.topic)
		}
	}
}
