package main

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	promapi "github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
)

// prometheusProgram finds a program of Debian's package prometheus. .ci/run does not let such a test be skipped.
func prometheusProgram(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("needs %s: apt-get install prometheus", name)
	}
	return path
}

// watcher is a Prometheus that looks at workers four times a second.
type watcher struct {
	*testing.T
	api promv1.API
}

// watch starts a Prometheus as deploy/prometheus sets it up, but for where the workers are and how often it
// looks, and for its rules.
func watch(t *testing.T, rules []string, workers ...string) *watcher {
	t.Helper()
	program, folder, address := prometheusProgram(t, "prometheus"), t.TempDir(), fmt.Sprintf("127.0.0.1:%d", embeddedtest.FreePort(t))
	var config struct {
		Global  map[string]string `yaml:"global"`
		Rules   []string          `yaml:"rule_files"`
		Scrapes []map[string]any  `yaml:"scrape_configs"`
	}
	readYAML(t, "../../deploy/prometheus/prometheus.yaml", &config)
	config.Global = map[string]string{"scrape_interval": "250ms", "scrape_timeout": "250ms", "evaluation_interval": "250ms"}
	config.Rules = rules
	for _, scrape := range config.Scrapes {
		delete(scrape, "dns_sd_configs")
		scrape["static_configs"] = []map[string][]string{{"targets": workers}}
	}
	content, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "prometheus.yaml")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	log := new(lockedBuffer)
	cmd := exec.Command(program, "--config.file="+file, "--storage.tsdb.path="+folder, "--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // it may have ended by itself
		cmd.Wait()         //nolint:errcheck // it was killed
		if t.Failed() {
			t.Logf("Prometheus: %s", log)
		}
	})
	eventually(t, "Prometheus is ready", func() bool {
		response, err := http.Get("http://" + address + "/-/ready")
		return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK
	})
	client, err := promapi.NewClient(promapi.Config{Address: "http://" + address})
	if err != nil {
		t.Fatal(err)
	}
	return &watcher{T: t, api: promv1.NewAPI(client)}
}

// has reports whether an expression yields a number now.
func (w *watcher) has(expression string) bool {
	w.Helper()
	result, _, _, err := w.api.Query(context.Background(), expression, time.Now())
	if err != nil {
		w.Fatalf("%s: %v", expression, err)
	}
	vector, _ := result.(model.Vector)
	for _, sample := range vector {
		if !math.IsNaN(float64(sample.Value)) {
			return true
		}
	}
	return false
}
