package deploy_test

import (
	"os"
	"os/exec"
	"regexp"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

// The page's command is run, but for kubectl.
func TestKubernetes_TheAlertsBecomeARuleOfThePrometheusOperator(t *testing.T) {
	page, err := os.ReadFile("../docs/deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^(\{ .*kind: PrometheusRule.*\}) \| kubectl apply -f -$`).FindStringSubmatch(string(page))
	if command == nil {
		t.Fatal("docs/deploy.md has no such command")
	}
	shell := exec.Command("sh", "-c", command[1])
	shell.Dir = ".."
	made, err := shell.Output()
	if err != nil {
		t.Fatal(err)
	}
	var rule monitoringv1.PrometheusRule
	if err := yaml.UnmarshalStrict(made, &rule); err != nil {
		t.Fatal(err)
	}
	var rules struct{ Groups []any }
	alone, err := os.ReadFile("prometheus/pinworker-alerts.yaml")
	if err == nil {
		err = yaml.Unmarshal(alone, &rules)
	}
	if err != nil || rule.Name != "pinworker" || len(rule.Spec.Groups) == 0 || len(rule.Spec.Groups) != len(rules.Groups) {
		t.Errorf("%s, %d of %d groups, %v", rule.Name, len(rule.Spec.Groups), len(rules.Groups), err)
	}
}
