package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Tracing says which spans are made, and where they go.
type Tracing struct {
	// Endpoint is an OTLP receiver's URL, http or https; "": spans go nowhere, and give messages their
	// traceparent all the same.
	Endpoint string
	// SampleRatio is the share of cycles that are traced, from 0 to 1. The traceparent tells it on.
	SampleRatio float64
	// Batch is how many items a unit takes at most: each is an event of the unit's span.
	Batch   int
	Version string // of this program
}

// eventsAtOnce is how many items a request tells of: about a megabyte, of which receivers take four at
// least. queued is how many requests wait at most; what is more is lost.
const (
	eventsAtOnce = 8000
	queued       = 8
)

// NewTracerProvider returns what makes spans. Whatever becomes of the receiver, a span that ends never
// waits for it; Shutdown sends what is left. The error is about the endpoint.
func NewTracerProvider(t Tracing, log *slog.Logger) (*sdktrace.TracerProvider, error) {
	limits := sdktrace.NewSpanLimits()
	limits.EventCountLimit = 0 // nobody would see them
	options := []sdktrace.TracerProviderOption{sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(t.SampleRatio)))}
	if t.Endpoint != "" {
		exporter, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(t.Endpoint))
		if err != nil {
			return nil, fmt.Errorf("send spans to %s: %w", t.Endpoint, err)
		}
		us, err := resource.Merge(resource.Default(), resource.NewSchemaless(
			attribute.String("service.name", "pinworker"), attribute.String("service.version", t.Version)))
		if err != nil {
			return nil, fmt.Errorf("describe this program to %s: %w", t.Endpoint, err)
		}
		limits.EventCountLimit = max(t.Batch, sdktrace.DefaultEventCountLimit)
		atOnce := max(1, eventsAtOnce/limits.EventCountLimit)
		options = append(options, sdktrace.WithResource(us), sdktrace.WithBatcher(&seldomToldExporter{SpanExporter: exporter, log: log},
			sdktrace.WithMaxExportBatchSize(atOnce), sdktrace.WithMaxQueueSize(queued*atOnce)))
	}
	return sdktrace.NewTracerProvider(append(options, sdktrace.WithRawSpanLimits(limits))...), nil
}

// seldomToldExporter tells of spans that were lost once a minute at most.
type seldomToldExporter struct {
	sdktrace.SpanExporter

	log  *slog.Logger
	mu   sync.Mutex
	told time.Time
	lost int // since then
}

// ExportSpans implements sdktrace.SpanExporter. It always succeeds: the SDK would tell of each failure.
func (e *seldomToldExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost += len(spans)
	if time.Since(e.told) >= time.Minute {
		e.log.Warn("spans could not be sent to tracing.endpoint and are lost", "count", e.lost, "error", err)
		e.told, e.lost = time.Now(), 0
	}
	return nil
}
