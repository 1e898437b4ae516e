package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pin-platform/pinworker/ports"
)

// NewLogger returns the process's logger. format is json or text; level is slog's.
func NewLogger(w io.Writer, level slog.Level, format string) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: plainErrors}
	switch format {
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	}
	return nil, fmt.Errorf("log format %q: json or text are allowed", format)
}

// plainErrors logs an error's text: some libraries' errors would print a stack.
func plainErrors(_ []string, a slog.Attr) slog.Attr {
	if err, ok := a.Value.Any().(error); ok {
		return slog.String(a.Key, err.Error())
	}
	return a
}

// Jobs are the metrics that all jobs share (spec: interface, metrics).
type Jobs struct {
	lastSuccess *prometheus.GaugeVec
	interval    *prometheus.GaugeVec
	oldest      *prometheus.GaugeVec
	quarantine  *prometheus.GaugeVec
}

// NewJobs registers the metrics.
func NewJobs(registry prometheus.Registerer) *Jobs {
	gauge := func(name, help string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"job"})
		registry.MustRegister(g)
		return g
	}
	return &Jobs{
		lastSuccess: gauge("job_last_success_timestamp_seconds", "When a cycle of the job last succeeded; 0 where none has since the start."),
		interval:    gauge("job_interval_seconds", "The interval that the job is set to."),
		oldest:      gauge("job_oldest_due_age_seconds", "For how long the oldest item that is due has been so; 0 where none is."),
		quarantine:  gauge("job_quarantined", "Items that are due, keep failing, and are held back for longer and longer."),
	}
}

// Interval tells a job's setting, so that alerts follow it, and that no cycle has succeeded yet: of a
// job that never succeeds there would be nothing to see.
func (j *Jobs) Interval(job ports.Job, interval time.Duration) {
	j.lastSuccess.WithLabelValues(string(job))
	j.interval.WithLabelValues(string(job)).Set(interval.Seconds())
}

func (j *Jobs) succeeded(job ports.Job) {
	j.lastSuccess.WithLabelValues(string(job)).SetToCurrentTime()
}

func (j *Jobs) quarantined(job ports.Job, n int) {
	j.quarantine.WithLabelValues(string(job)).Set(float64(n))
}

func (j *Jobs) oldestDue(job ports.Job, asOf, oldest time.Time) {
	age := 0.0
	if !oldest.IsZero() {
		age = asOf.Sub(oldest).Seconds()
	}
	j.oldest.WithLabelValues(string(job)).Set(age)
}
