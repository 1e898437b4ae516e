package outbox

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"
	"pgregory.net/rapid"

	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/ports"
)

// caught is a publisher that keeps what it is given.
type caught struct {
	message.Publisher
	payload string
}

func (c *caught) Publish(_ string, messages ...*message.Message) error {
	c.payload = string(messages[0].Payload)
	return nil
}

func TestEnvelope_IsWhatWatermillsForwarderPublishes(t *testing.T) {
	id := func(t *rapid.T, name string) (id [16]byte) {
		copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, name))
		return id
	}
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		if rapid.Bool().Draw(t, "traced") {
			ctx = trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
				TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled,
			}))
		}
		run := ports.RunID(id(t, "run"))
		m := ports.Message{
			ID: id(t, "id"), Topic: rapid.String().Filter(func(s string) bool { return s != "" }).Draw(t, "topic"), Key: rapid.String().Draw(t, "key"),
			Subject: id(t, "subject"), Tenant: ids.TenantID(id(t, "tenant")), AggregateType: rapid.String().Draw(t, "type"),
			AggregateVersion: rapid.Int().Draw(t, "version"), ContractVersion: rapid.IntRange(1, 9).Draw(t, "contract"),
			OccurredAt: time.UnixMicro(rapid.Int64Range(0, 1e15).Draw(t, "at")).UTC(), Payload: rapid.SliceOf(rapid.Byte()).Draw(t, "payload"),
		}
		out := message.NewMessage(m.ID.String(), m.Payload)
		out.Metadata = message.Metadata{
			"content-type": "application/json", "ce_specversion": "1.0", "ce_id": m.ID.String(), "ce_source": "pin/crm",
			"ce_type": m.Topic, "ce_subject": m.Subject.String(), "ce_time": m.OccurredAt.Format(time.RFC3339Nano),
			"ce_correlationid": run.String(), "ce_tenantid": m.Tenant.String(), "ce_aggregatetype": m.AggregateType,
			"ce_aggregateversion": itoa(m.AggregateVersion), "ce_contractversion": itoa(m.ContractVersion), "ce_partitionkey": m.Key,
		}
		traced := traceHeaders(ctx)
		for _, h := range traced {
			out.Metadata[h.name] = h.value
		}
		var want caught
		if err := forwarder.NewPublisher(&want, forwarder.PublisherConfig{ForwarderTopic: "outbox"}).Publish(m.Topic, out); err != nil {
			t.Fatal(err)
		}
		if len(m.Payload) == 0 {
			return // encoding/json tells nil from empty, and nobody publishes nothing
		}
		if got := string(appendEnvelope(nil, "pin/crm", run, m, traced)); got != want.payload {
			t.Fatalf("envelope\n%s\nwant\n%s", got, want.payload)
		}
	})
}

func itoa(n int) string { return string(appendInt(nil, n)[1 : len(appendInt(nil, n))-1]) }

func BenchmarkEnvelope(b *testing.B) {
	m := ports.Message{Topic: "pin.crm.lead-expired.v1", Key: uuid.Nil.String(), AggregateType: "Lead", Payload: make([]byte, 250)}
	for b.Loop() {
		appendEnvelope(make([]byte, 0, envelopeSize), "pin/crm", ports.RunID{}, m, nil)
	}
}
