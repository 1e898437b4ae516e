package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/app/published"
)

// receiver takes spans by OTLP over HTTP, in this process.
type receiver struct {
	url string

	mu    sync.Mutex
	from  map[string]string // what a request says of its sender
	spans []*tracepb.Span
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		var sent collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &sent)
		}
		if err != nil || request.URL.Path != "/v1/traces" {
			t.Errorf("POST %s of %d bytes: %v", request.URL, len(body), err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, of := range sent.GetResourceSpans() {
			r.from = texts(of.GetResource().GetAttributes())
			for _, scope := range of.GetScopeSpans() {
				r.spans = append(r.spans, scope.GetSpans()...)
			}
		}
	}))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func texts(attributes []*common.KeyValue) map[string]string {
	all := make(map[string]string)
	for _, a := range attributes {
		all[a.GetKey()] = a.GetValue().GetStringValue()
	}
	return all
}

// sender is who sent the last request.
func (r *receiver) sender() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.from
}

func (r *receiver) all() []*tracepb.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans)
}

// named returns the spans of a name, in the order of their beginning.
func (r *receiver) named(name string) []*tracepb.Span {
	found := slices.DeleteFunc(r.all(), func(s *tracepb.Span) bool { return s.GetName() != name })
	slices.SortFunc(found, func(a, b *tracepb.Span) int { return int(a.GetStartTimeUnixNano()) - int(b.GetStartTimeUnixNano()) })
	return found
}

func TestTracing_ACyclesSpansReachTheReceiverAndItsMessagesCarryThemOn(t *testing.T) {
	p := newPlatform(t)
	broker := embeddedtest.Kafka(t, 0, published.TopicLeadExpired)
	leads := p.register(450) // 300 and 150: more events than the SDK keeps unless told to
	r := newReceiver(t)
	s := serveWorker(t, "--set", "kafka.brokers="+broker.Brokers()[0], "--set", "jobs.lead-expiration.batch_size=300",
		"--set", "tracing.endpoint="+r.url)
	eventually(t, "all leads are expired and published", func() bool { return p.everythingDone(len(leads)) })
	if code := s.stop(); code != exitDone { // which sends what was not sent yet
		t.Errorf("exit %d: %s", code, &s.log)
	}

	if from := r.sender(); from["service.name"] != "pinworker" || from["service.version"] != version() {
		t.Errorf("the spans are from %v", from)
	}
	cycles, batches := r.named("lead-expiration cycle"), r.named("lead-expiration batch")
	if len(cycles) != 1 || len(batches) != 3 { // the last one finds none
		t.Fatalf("%d cycles, %d batches; want 1 and 3", len(cycles), len(batches))
	}
	cycle, run := cycles[0], texts(cycles[0].GetAttributes())["job.run_id"]
	if !strings.Contains(s.log.String(), `"jobRunId":"`+run+`"`) {
		t.Errorf("the log does not know the run %q", run)
	}
	told := make(map[string]string) // by lead, its tenant
	for i, b := range batches {
		if string(b.GetParentSpanId()) != string(cycle.GetSpanId()) || string(b.GetTraceId()) != string(cycle.GetTraceId()) ||
			texts(b.GetAttributes())["job.run_id"] != run {
			t.Errorf("a batch is not of the cycle: %v", b)
		}
		if want := []int{300, 150, 0}[i]; len(b.GetEvents()) != want || b.GetDroppedEventsCount() != 0 {
			t.Errorf("%d events, %d were dropped; want %d", len(b.GetEvents()), b.GetDroppedEventsCount(), want)
		}
		for _, e := range b.GetEvents() {
			item := texts(e.GetAttributes())
			told[item["LeadId"]] = item["TenantId"]
		}
	}
	for _, lead := range leads {
		if told[lead.Lead.String()] != lead.Tenant.String() {
			t.Errorf("lead %s is told of with tenant %q", lead.Lead, told[lead.Lead.String()])
		}
	}

	records, err := readBack(t.Context(), broker.Brokers(), published.TopicLeadExpired)
	p.must(err)
	consumer := sdktrace.NewTracerProvider().Tracer("notifications")
	for _, record := range records {
		ctx := propagation.TraceContext{}.Extract(t.Context(), propagation.MapCarrier(record.Headers))
		_, span := consumer.Start(ctx, "notify")
		parent := trace.SpanContextFromContext(ctx).SpanID()
		if of := span.SpanContext(); of.TraceID() != trace.TraceID(cycle.GetTraceId()) || !of.IsSampled() ||
			!slices.ContainsFunc(batches, func(b *tracepb.Span) bool { return parent == trace.SpanID(b.GetSpanId()) }) ||
			record.Headers["ce_correlationid"] != run {
			t.Fatalf("a consumer's span does not join the cycle's: %v", record.Headers)
		}
	}
	if len(records) != len(leads) {
		t.Errorf("%d messages; want %d", len(records), len(leads))
	}
}

func TestTracing_WhatIsNotSampledIsNotSentAndMessagesSaySo(t *testing.T) {
	p := newPlatform(t)
	p.register(3)
	r := newReceiver(t)
	done[runResult](t, "run", "lead-expiration", "--set", "tracing.endpoint="+r.url, "--set", "tracing.sample_ratio=0")
	if from := r.sender(); from != nil {
		t.Errorf("spans were sent from %v", from)
	}
	if n := p.count(`SELECT count(*) FROM crm.outbox WHERE convert_from(payload, 'UTF8')::json->'metadata'->>'traceparent' LIKE '%-00'`); n != 3 {
		t.Errorf("%d messages say that their cycle is not traced; want 3", n)
	}
}

// Nobody listens, or somebody who never answers.
func TestTracing_AReceiverThatIsAwayDisturbsNothing(t *testing.T) {
	silent := make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-silent }))
	defer hangs.Close()
	defer close(silent)
	for name, endpoint := range map[string]string{
		"refuses": fmt.Sprintf("http://127.0.0.1:%d", embeddedtest.FreePort(t)),
		"hangs":   hangs.URL,
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlatform(t)
			broker := embeddedtest.Kafka(t, 0, published.TopicLeadExpired)
			leads := p.register(30)
			s := serveWorker(t, "--set", "kafka.brokers="+broker.Brokers()[0], "--set", "jobs.lead-expiration.batch_size=1",
				"--set", "tracing.endpoint="+endpoint, "--set", "relay.shutdown_grace=1s")
			eventually(t, "all leads are expired and published", func() bool { return p.everythingDone(len(leads)) })
			for _, path := range []string{"/livez", "/readyz"} {
				if status, body := s.get(path); status != http.StatusOK {
					t.Errorf("%s %d %s", path, status, body)
				}
			}
			if code := s.stop(); code != exitDone {
				t.Errorf("exit %d: %s", code, &s.log)
			}
			if n := strings.Count(s.log.String(), "spans could not be sent"); n > 1 {
				t.Errorf("told %d times: %s", n, &s.log)
			}
		})
	}
}
