package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/app/published"
)

// panel is one of a dashboard's panels, as far as it asks for something. deploy's tests read the rest.
type panel struct {
	Title   string
	Targets []struct{ Expr string }
}

// dashboards are the panels of each, by its name; their queries are at a resolution of a minute.
func dashboards(t *testing.T) map[string][]panel {
	t.Helper()
	files, err := filepath.Glob("../../deploy/grafana/*.json")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string][]panel)
	for _, file := range files {
		var d struct{ Panels []panel }
		content, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal([]byte(strings.ReplaceAll(string(content), "$__rate_interval", "1m")), &d)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".json")] = d.Panels
	}
	return all
}

// What the platform's documents name for each job, its dashboard shows.
func TestDashboards_ShowEachMetricThatTheirJobsHave(t *testing.T) {
	want := map[string][]string{
		"calendar-overview": {
			"calendar_reminder_dispatch_cycle_duration_seconds_bucket", "calendar_reminder_dispatch_items_total", "calendar_reminder_dispatch_backlog",
			"calendar_reminder_dispatch_lateness_seconds_bucket", "calendar_reminder_dispatch_skip_locked_total", "calendar_reminder_dispatch_errors_total",
			"calendar_appointment_timeout_cycle_duration_seconds_bucket", "calendar_appointment_timeout_items_total",
			"calendar_appointment_timeout_backlog", "calendar_appointment_timeout_skip_locked_total", "calendar_appointment_timeout_errors_total",
			"job_last_success_timestamp_seconds", "job_oldest_due_age_seconds", "job_quarantined", "outbox_backlog", "outbox_due_to_ack_seconds_bucket",
		},
		"pin-promotion": {
			"promotion_expire_run_total", "promotion_expire_cycle_duration_seconds_bucket", "promotion_expire_items_total", "promotion_expire_backlog",
			"promotion_expire_skip_locked_total", "promotion_expire_errors_total", "job_last_success_timestamp_seconds", "job_interval_seconds",
			"job_oldest_due_age_seconds", "job_quarantined", "outbox_backlog", "outbox_due_to_ack_seconds_bucket",
		},
		"pin-crm": {
			"crm_lead_expiration_expired_total", "crm_lead_expiration_duration_seconds_sum", "crm_lead_expiration_duration_seconds_count",
			"crm_lead_expiration_backlog", "crm_lead_expiration_errors_total", "crm_lead_expiration_lateness_seconds_bucket",
			"job_last_success_timestamp_seconds", "job_oldest_due_age_seconds", "job_quarantined", "outbox_backlog", "outbox_oldest_age_seconds",
		},
		"pinworker-outbox": {
			"outbox_backlog", "outbox_oldest_age_seconds", "outbox_parked", "outbox_published_total", "outbox_publish_errors_total",
			"outbox_due_to_ack_seconds_bucket", "database_oldest_snapshot_age_seconds",
		},
	}
	all := dashboards(t)
	if len(all) != len(want) {
		t.Errorf("%d dashboards; want %d", len(all), len(want))
	}
	for name, metrics := range want {
		var shown []string
		for _, p := range all[name] {
			for _, target := range p.Targets {
				for _, selector := range selectors(t, target.Expr) {
					metric, _, _ := strings.Cut(selector, "{")
					shown = append(shown, metric)
				}
			}
		}
		slices.Sort(shown)
		slices.Sort(metrics)
		if shown = slices.Compact(shown); !slices.Equal(shown, metrics) {
			t.Errorf("%s shows\n%v\nwant\n%v", name, shown, metrics)
		}
	}
}

func TestDashboards_EachQueryReturnsDataOfAWorkerUnderTraffic(t *testing.T) {
	prometheusProgram(t, "prometheus")
	p := newPlatform(t)
	broker := embeddedtest.Kafka(t, 0, published.Topics...)
	w := watch(t, nil, serveEachSecond(t, p.url, broker))
	eventually(t, "Prometheus sees the worker", func() bool { return w.has("job_interval_seconds") }) // and then what grows
	if code, report := p.simulate(broker, "--for", "5s", "--rate", "50"); code != exitDone {
		t.Errorf("exit %d: %.3000v", code, report.Findings)
	}
	for name, panels := range dashboards(t) {
		for _, panel := range panels {
			for _, target := range panel.Targets {
				eventually(t, name+", "+panel.Title+": data for "+target.Expr, func() bool { return w.has(target.Expr) })
			}
		}
	}
}
