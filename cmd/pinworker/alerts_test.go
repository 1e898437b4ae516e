package main

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metricsql"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"go.yaml.in/yaml/v3"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/app/published"
)

const (
	alertRules = "../../deploy/prometheus/pinworker-alerts.yaml"
	alertCases = "../../deploy/prometheus/pinworker-alerts_test.yaml"
)

// rule is one of the rules, as far as it is looked at.
type rule struct {
	Alert       string // "" where it only records
	Expr        string
	Labels      map[string]string
	Annotations map[string]string
}

func rules(t *testing.T) (all []rule) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	readYAML(t, alertRules, &file)
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// expectation is what a case of promtool expects of an alert at a moment.
type expectation struct {
	Alert  string `yaml:"alertname"`
	Alerts []struct {
		Annotations map[string]string `yaml:"exp_annotations"`
	} `yaml:"exp_alerts"`
}

func expectations(t *testing.T) (all []expectation) {
	t.Helper()
	var file struct {
		Tests []struct {
			Expects []expectation `yaml:"alert_rule_test"`
		}
	}
	readYAML(t, alertCases, &file)
	for _, test := range file.Tests {
		all = append(all, test.Expects...)
	}
	return all
}

// selectors are what an expression asks for: metrics, each with the labels that it must have.
func selectors(t *testing.T, expression string) (all []string) {
	t.Helper()
	parsed, err := metricsql.Parse(expression)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	metricsql.VisitAll(parsed, func(e metricsql.Expr) {
		if selector, is := e.(*metricsql.MetricExpr); is {
			all = append(all, string(selector.AppendString(nil)))
		}
	})
	return all
}

func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	content, err := os.ReadFile(name)
	if err == nil {
		err = yaml.Unmarshal(content, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestAlerts_PromtoolAcceptsTheRulesAndFindsEachCaseAsItIsExpected(t *testing.T) {
	promtool := prometheusProgram(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "--lint-fatal", alertRules}, {"test", "rules", alertCases}} {
		if output, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, output)
		}
	}
}

func TestAlerts_EachFiresInOneCaseAndIsSilentInAnother(t *testing.T) {
	fires, silent := make(map[string]bool), make(map[string]bool)
	for _, e := range expectations(t) {
		if len(e.Alerts) > 0 {
			fires[e.Alert] = true
		} else {
			silent[e.Alert] = true
		}
	}
	alerts := make(map[string]bool)
	for _, r := range rules(t) {
		if r.Alert != "" {
			alerts[r.Alert] = true
		}
	}
	if len(alerts) == 0 || !maps.Equal(fires, alerts) || !maps.Equal(silent, alerts) {
		t.Errorf("alerts %v\nfire %v\nstay silent %v", alerts, fires, silent)
	}
}

func TestAlerts_EachSaysHowBadItIsWhatIsWrongAndWhatToDo(t *testing.T) {
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		if severity := r.Labels["severity"]; severity != "ticket" && severity != "page" {
			t.Errorf("%s: severity %q", r.Alert, severity)
		}
		if r.Annotations["summary"] == "" || r.Annotations["runbook_url"] == "" {
			t.Errorf("%s: annotations %v; want a summary and a runbook_url", r.Alert, r.Annotations)
		}
	}
}

// hastened returns a file of the rules in which a minute takes a second, and an hour, which would be too long
// for a test all the same, 20 of them: 5m is 5s, 5 * 60 is 5, 2h is 40s.
func hastened(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(alertRules)
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`\b\d+[mh]\b`).ReplaceAllStringFunc(string(content), func(span string) string {
		n, err := strconv.Atoi(span[:len(span)-1])
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(span, "h") {
			n *= 20
		}
		return fmt.Sprintf("%ds", n)
	})
	name := filepath.Join(t.TempDir(), "alerts.yaml")
	if err := os.WriteFile(name, []byte(strings.ReplaceAll(text, " * 60", "")), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// firing returns the alerts that fire, each with its severity and what it is about.
func (w *watcher) firing() (alerts []string) {
	w.Helper()
	result, err := w.api.Alerts(context.Background())
	if err != nil {
		w.Fatal(err)
	}
	for _, a := range result.Alerts {
		if a.State == promv1.AlertStateFiring {
			about := strings.TrimSpace(string(a.Labels["context"] + " " + a.Labels["topic"]))
			alerts = append(alerts, strings.TrimSpace(string(a.Labels["severity"]+" "+a.Labels["alertname"])+" "+about))
		}
	}
	slices.Sort(alerts)
	return alerts
}

// wantFiring waits until these alerts fire, and no other.
func (w *watcher) wantFiring(when string, want ...string) {
	w.Helper()
	slices.Sort(want)
	var got []string
	began := time.Now()
	defer func() { w.Logf("%s: after %s these fire: %q", when, time.Since(began).Round(time.Second), got) }()
	within(w.T, 5*time.Minute, when+", these alerts fire and no other: "+strings.Join(want, ", "), func() bool {
		got = w.firing()
		return slices.Equal(got, want)
	})
}

func TestAlerts_TheRightOnesFireWhileKafkaThenTheDatabaseIsAwayAndGoOnceItIsBack(t *testing.T) {
	prometheusProgram(t, "prometheus")
	p := newPlatform(t)
	u, err := url.Parse(p.url)
	p.must(err)
	database := newLine(t, u.Host)
	u.Host = database.address
	port := embeddedtest.FreePort(t)
	kafka := embeddedtest.Kafka(t, port, published.Topics...)
	worker := serveEvery(t, 3*time.Second, "database.url="+u.String(), fmt.Sprintf("kafka.brokers=127.0.0.1:%d", port))
	w := watch(t, []string{hastened(t)}, worker)
	p.populate()
	for _, r := range rules(t) {
		for _, selector := range selectors(t, r.Expr) {
			eventually(t, r.Alert+" finds "+selector, func() bool { return w.has(selector) })
		}
	}
	w.wantFiring("all is well")

	kafka.Close()
	p.populate()
	p.overdue(1100)
	w.wantFiring("Kafka is away",
		"page PinworkerOutboxLate calendar", "page PinworkerOutboxLate promotion", "ticket PinworkerLeadOutboxStuck crm",
		"ticket PinworkerOutboxBacklog calendar pin.calendar.reminder-due.v1")
	embeddedtest.Kafka(t, port, published.Topics...)
	w.wantFiring("Kafka is back")

	database.cut()
	w.wantFiring("the database is away",
		"page AppointmentTimeoutStopped", "page ExpirePromotionsStopped", "page LeadExpirationStopped", "page ReminderDispatchStopped",
		"ticket AppointmentTimeoutErrors", "ticket ExpirePromotionsErrors", "ticket LeadExpirationErrors", "ticket ReminderDispatchErrors")
	database.mend()
	w.wantFiring("the database is back")
}
