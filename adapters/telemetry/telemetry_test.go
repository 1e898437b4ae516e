package telemetry_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	pkgerrors "github.com/pkg/errors"

	"github.com/pin-platform/pinworker/adapters/telemetry"
)

func TestJobs_TellTheIntervalAndThatNoCycleHasSucceededYet(t *testing.T) {
	o := leadExpiration(t)
	o.sinks.Jobs.Interval(o.job, time.Hour)
	o.wantMetrics(map[string]float64{
		o.labelled("job_interval_seconds"): 3600, o.labelled("job_last_success_timestamp_seconds"): 0,
	})
}

func TestOutbox_ShowsWhatIsCountedOfATopicBeforeThereIsAny(t *testing.T) {
	o := leadExpiration(t)
	outbox := telemetry.NewOutbox(o.registry, "other")
	outbox.Carries("leads")
	outbox.Published("somebody's", 2, nil)
	outbox.HeldUp("anything")
	o.wantMetrics(map[string]float64{
		`outbox_published_total{topic="leads"}`: 0, `outbox_due_to_ack_seconds_count{topic="leads"}`: 0,
		`outbox_publish_errors_total{kind="permanent",topic="leads"}`: 0, `outbox_publish_errors_total{kind="transient",topic="leads"}`: 0,
		`outbox_published_total{topic="other"}`: 2, `outbox_publish_errors_total{kind="transient",topic="other"}`: 1,
	})
}

func TestNewLogger_TellsAnErrorsTextWithoutItsStack(t *testing.T) {
	var out bytes.Buffer
	log, err := telemetry.NewLogger(&out, slog.LevelInfo, "text")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("stopped", "error", pkgerrors.New("router close timeout"))
	if !strings.HasSuffix(out.String(), "error=\"router close timeout\"\n") {
		t.Errorf("log %q", out.String())
	}
}

func TestNewLogger_RefusesAFormatThatItDoesNotKnow(t *testing.T) {
	if _, err := telemetry.NewLogger(&bytes.Buffer{}, slog.LevelInfo, "xml"); err == nil {
		t.Error("there is a logger for xml")
	}
}
