package opshttp_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pin-platform/pinworker/adapters/opshttp"
)

func TestHandler_AnswersWithTheReasons(t *testing.T) {
	hangs := func() error { return errors.New("job lead-expiration hangs") }
	away := func(context.Context) error { return errors.New("crm: database away") }
	alive := func() error { return nil }
	ready := func(context.Context) error { return nil }
	for _, test := range []struct {
		name, path string
		checks     opshttp.Checks
		status     int
		body       string
	}{
		{"every loop makes progress", "/livez", opshttp.Checks{Alive: []func() error{alive}}, http.StatusOK, "ok\n"},
		{"a loop hangs", "/livez", opshttp.Checks{Alive: []func() error{alive, hangs}}, http.StatusServiceUnavailable, "job lead-expiration hangs\n"},
		{"an outage is no reason to be killed", "/livez", opshttp.Checks{Ready: []func(context.Context) error{away}}, http.StatusOK, "ok\n"},
		{"ready", "/readyz", opshttp.Checks{Ready: []func(context.Context) error{ready}}, http.StatusOK, "ok\n"},
		{"not ready, for each reason", "/readyz", opshttp.Checks{Ready: []func(context.Context) error{away, ready, away}}, http.StatusServiceUnavailable, "crm: database away\ncrm: database away\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			opshttp.Handler(test.checks, prometheus.NewRegistry()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, test.path, nil))
			if w.Code != test.status || w.Body.String() != test.body {
				t.Errorf("%d %q; want %d %q", w.Code, w.Body, test.status, test.body)
			}
		})
	}
}

func TestHandler_ADatabaseThatIsSlowTakesNoTimeFromTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answersAfter := func(name string, took time.Duration) func(context.Context) error {
			return func(ctx context.Context) error {
				select {
				case <-ctx.Done():
					return errors.New(name + ": no answer")
				case <-time.After(took):
					return nil
				}
			}
		}
		for _, test := range []struct {
			crm    time.Duration
			status int
			body   string
		}{
			{700 * time.Millisecond, http.StatusOK, "ok\n"},
			{time.Minute, http.StatusServiceUnavailable, "crm: no answer\n"},
		} {
			w := httptest.NewRecorder()
			opshttp.Handler(opshttp.Checks{Ready: []func(context.Context) error{
				answersAfter("crm", test.crm), answersAfter("calendar", 700*time.Millisecond), answersAfter("promotion", 700*time.Millisecond),
			}}, prometheus.NewRegistry()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
			if w.Code != test.status || w.Body.String() != test.body {
				t.Errorf("crm answers after %s: %d %q; want %d %q", test.crm, w.Code, w.Body, test.status, test.body)
			}
		}
	})
}

func TestHandler_ServesMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "leads_total", Help: "Leads."})
	registry.MustRegister(counter)
	counter.Inc()
	w := httptest.NewRecorder()
	opshttp.Handler(opshttp.Checks{}, registry).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if !strings.Contains(w.Body.String(), "leads_total 1") {
		t.Errorf("metrics %s", w.Body)
	}
}
