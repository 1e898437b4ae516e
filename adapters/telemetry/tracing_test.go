package telemetry_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pin-platform/pinworker/adapters/telemetry"
)

func TestTracing_TellsOnceAMinuteOfSpansThatWereLost(t *testing.T) {
	var asked atomic.Int32
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		http.Error(w, "no such tenant", http.StatusBadRequest)
	}))
	defer refuses.Close()
	var out bytes.Buffer
	spans, err := telemetry.NewTracerProvider(telemetry.Tracing{Endpoint: refuses.URL, SampleRatio: 1}, slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, span := spans.Tracer("test").Start(t.Context(), "cycle")
		span.End()
		if err := spans.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := spans.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if n := asked.Load(); n != 3 {
		t.Errorf("it was tried %d times; want 3", n)
	}
	if lines := strings.Count(out.String(), "\n"); lines != 1 || !strings.Contains(out.String(), "level=WARN") || !strings.Contains(out.String(), "no such tenant") {
		t.Errorf("told %s; want one warning, and why", &out)
	}
}
