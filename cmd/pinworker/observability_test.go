package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/app/published"
)

func TestObservability_AWorkerTellsWhatIsSpecifiedAndNothingElse(t *testing.T) {
	p := newPlatform(t)
	u, err := url.Parse(p.url)
	p.must(err)
	database := newLine(t, u.Host)
	u.Host = database.address
	topics := slices.DeleteFunc(slices.Clone(published.Topics), func(topic string) bool { return topic == published.TopicPurchaseChanged })
	broker, spans := embeddedtest.Kafka(t, 0, topics...), newReceiver(t)

	d := drive(t, "database.url="+u.String(), "kafka.brokers="+broker.Brokers()[0], "tracing.endpoint="+spans.url)
	// Success and skip: two of each job, the slot of one of them past its lead time; an event that a
	// service cancelled without its reminders; something that somebody is at.
	held := p.dueItems()
	release := p.holdAll(held)
	p.dueItems()
	late := p.dueItems()[1]
	p.execute("UPDATE calendar.availability_slots SET start_at = now() + interval '1 minute', version = version + 1 WHERE id = (SELECT slot_id FROM calendar.appointments WHERE id = '" + late.String() + "')")
	cancelled := polledJobs[0].make(p, time.Now().UTC().Add(-time.Second))
	p.execute("UPDATE calendar.calendar_events SET status = 'Cancelled', version = version + 1 WHERE id = (SELECT event_id FROM calendar.event_reminders WHERE id = '" + cancelled.String() + "')")
	if failed := d.cycles(); failed != 0 {
		t.Errorf("%d cycles failed", failed)
	}
	// Poison, beside a sound item of each job.
	release()
	p.refuse(p.dueItems())
	release = p.holdAll(held)
	defer release()
	p.dueItems()
	if failed := d.cycles(); failed != 0 {
		t.Errorf("%d cycles failed, of poison", failed)
	}
	// A message that is none.
	p.execute(`INSERT INTO crm.outbox (topic, shard, key, uuid, payload) VALUES ('pin.crm.lead-expired.v1', 0, 'key', gen_random_uuid(), 'no envelope')`)
	eventually(t, "all is published that can be, and the relay is held up by purchases", func() bool {
		waiting := p.waiting()
		return len(waiting) == 1 && waiting[published.TopicPurchaseChanged] > 0 && strings.Contains(d.log.String(), "outbox relay is held up")
	})
	// An outage.
	database.cut()
	if failed := d.cycles(); failed != 4 {
		t.Errorf("%d cycles failed without a database; want all", failed)
	}
	eventually(t, "a relay misses the database", func() bool { return strings.Contains(d.log.String(), `"topic":"","error"`) })
	database.mend()
	eventually(t, "it is ready again, and the relay goes on", func() bool {
		status, _ := d.get("/readyz")
		return status == http.StatusOK && strings.Contains(d.log.String(), "outbox relay goes on")
	})
	for _, c := range d.w.contexts {
		d.w.gauge(t.Context(), c)
	}

	_, scraped := d.get("/metrics")
	if code := d.stop(); code != exitDone {
		t.Errorf("exit %d: %s", code, &d.log)
	}
	t.Run("metrics", func(t *testing.T) { checkMetrics(t, scraped) })
	t.Run("promtool check metrics", func(t *testing.T) {
		check := exec.Command(prometheusProgram(t, "promtool"), "check", "metrics")
		check.Stdin = strings.NewReader(scraped)
		if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("promtool check metrics: %v\n%s", err, out)
		}
	})
	runs := make(map[string]bool)
	t.Run("log", func(t *testing.T) { runs = checkLog(t, d.log.String()) })
	t.Run("spans", func(t *testing.T) { checkSpans(t, spans, runs) })
}

// checkMetrics compares what was scraped with the table, both ways.
func checkMetrics(t *testing.T, scraped string) {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(scraped))
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(families, func(name string, _ *dto.MetricFamily) bool {
		return strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_")
	})
	interval := make(map[string]float64)
	for _, j := range jobNames {
		interval[j] = 3600
	}
	for _, want := range specifiedMetrics(interval) {
		family := families[want.name]
		delete(families, want.name)
		if family.GetType() != want.kind || family.GetHelp() == "" {
			t.Errorf("%s is a %s, %q; want a %s that says what it is", want.name, family.GetType(), family.GetHelp(), want.kind)
		}
		got := make(map[string]float64)
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			slices.Sort(labels)
			got[strings.Join(labels, ",")] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			for _, promise := range want.within {
				if !slices.ContainsFunc(m.GetHistogram().GetBucket(), func(b *dto.Bucket) bool { return b.GetUpperBound() == promise }) {
					t.Errorf("%s has no boundary at %v s", want.name, promise)
				}
			}
		}
		for labels, value := range want.values {
			actual, has := got[labels]
			delete(got, labels)
			if fits := actual == value || value == above && actual > 0 || value == atLeast && actual >= 0; !has || !fits || math.IsNaN(actual) {
				t.Errorf("%s{%s} = %v (there: %v); want %v", want.name, labels, actual, has, value)
			}
		}
		if len(got) > 0 {
			t.Errorf("%s has %v as well", want.name, got)
		}
	}
	if len(families) > 0 {
		t.Errorf("/metrics has %v as well", slices.Sorted(maps.Keys(families)))
	}
}

// checkLog compares each line with the table, and returns the runs that it is about.
func checkLog(t *testing.T, log string) (runs map[string]bool) {
	t.Helper()
	runs, times := make(map[string]bool), make(map[string]int)
	for text := range strings.Lines(log) {
		line := make(map[string]any)
		decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
		decoder.UseNumber()
		if err := decoder.Decode(&line); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if line["from"] == "watermill" {
			continue
		}
		name := fmt.Sprint(line["msg"])
		want, specified := specifiedLines[name]
		times[name]++
		called := ""
		for _, key := range []string{"runId", "jobRunId"} {
			if run, has := line[key]; has {
				called = key
				runs[fmt.Sprint(run)] = true
			}
		}
		if !specified || line["time"] == nil || line["level"] != want.level || called != want.run && (want.run != either || called == "") {
			t.Errorf("a line that is not specified, or not so: %s", text)
			continue
		}
		for _, key := range []string{"time", "level", "msg", called} {
			delete(line, key)
		}
		want.check(t, name, line)
	}
	for name, want := range specifiedLines {
		if times[name] != want.times && (want.times != 0 || times[name] == 0) {
			t.Errorf("%q was said %d times; want %d (0: any number)", name, times[name], want.times)
		}
	}
	return runs
}

// check compares a line's own fields with those that are specified.
func (want logLine) check(t *testing.T, name string, fields map[string]any) {
	t.Helper()
	keys := slices.Sorted(maps.Keys(fields))
	fits := func(and []string) bool {
		return slices.Equal(keys, slices.Sorted(slices.Values(slices.Concat(want.fields, and))))
	}
	if !fits(nil) && !slices.ContainsFunc(want.and, fits) || fits(nil) && want.and != nil {
		t.Errorf("%q has the fields %q; want %q, and one of %q", name, keys, want.fields, want.and)
	}
	for key, value := range fields {
		sound, known := sorts[key]
		if !known {
			sound = isWhole
		}
		if !sound(value) {
			t.Errorf("%q has %s = %v", name, key, value)
		}
	}
}

// checkSpans compares spans with what is specified: one of each cycle, with its run id, failed where it
// failed; those of its batches below it, with what the log tells of items.
func checkSpans(t *testing.T, r *receiver, runs map[string]bool) {
	t.Helper()
	told := make(map[string]int)
	for _, job := range jobNames {
		cycles := r.named(job + " cycle")
		for i, c := range cycles {
			run := texts(c.GetAttributes())["job.run_id"]
			if !runs[run] || len(c.GetParentSpanId()) > 0 {
				t.Errorf("%s: a cycle of the run %q, which no line is about", job, run)
			}
			delete(runs, run)
			if failed := c.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR; failed != (i == 3) {
				t.Errorf("%s: cycle %d has the status %v", job, i+1, c.GetStatus())
			}
		}
		if len(cycles) != 4 {
			t.Errorf("%s: %d cycles; want 4", job, len(cycles))
		}
		for _, b := range r.named(job + " batch") {
			of := slices.IndexFunc(cycles, func(c *tracepb.Span) bool { return string(c.GetSpanId()) == string(b.GetParentSpanId()) })
			if of < 0 || texts(b.GetAttributes())["job.run_id"] != texts(cycles[of].GetAttributes())["job.run_id"] {
				t.Errorf("%s: a batch of no cycle", job)
			}
			for _, e := range b.GetEvents() {
				fields := make(map[string]any)
				for key, value := range texts(e.GetAttributes()) {
					fields[key] = value
				}
				told[e.GetName()]++
				specifiedLines[e.GetName()].check(t, e.GetName(), fields)
			}
		}
	}
	if len(runs) > 0 {
		t.Errorf("%d runs have no span", len(runs))
	}
	for name, want := range specifiedLines {
		if of := slices.Concat(append(want.and, want.fields)...); slices.Contains(of, "TenantId") && told[name] != want.times {
			t.Errorf("%d events %q; want %d", told[name], name, want.times)
		}
	}
}

// docs_test.go checks what the page says; here is what it must not leave out.
func TestObservability_ThePageHasAllOfIt(t *testing.T) {
	page, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range specifiedMetrics(nil) {
		all = append(all, m.name)
	}
	all = slices.AppendSeq(all, maps.Keys(specifiedLines))
	for _, r := range rules(t) {
		all = append(all, r.Alert)
	}
	for _, pattern := range []string{"deploy/grafana/*.json", "docs/runbooks/*-*.md"} {
		files, err := filepath.Glob("../../" + pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			all = append(all, strings.TrimPrefix(file, "../../"))
		}
	}
	for _, named := range all {
		if named != "" && !strings.Contains(string(page), "`"+named+"`") { // "" only records
			t.Errorf("docs/observability.md leaves out %s", named)
		}
	}
}
