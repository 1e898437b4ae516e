// Package opshttp serves what operators and their machines ask: is it alive, is it ready,
// what are its figures.
package opshttp

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Checks are the questions that the endpoints ask.
type Checks struct {
	// Alive returns an error for a loop that makes no progress. An outage of the database
	// or of Kafka is none: being restarted would not mend it.
	Alive []func() error
	// Ready returns an error while the worker cannot do its work.
	Ready []func(context.Context) error
}

// readyTimeout is less than Kubernetes and its like wait.
const readyTimeout = 800 * time.Millisecond

// Handler serves /livez, /readyz and /metrics.
func Handler(checks Checks, metrics prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		var faults []error
		for _, alive := range checks.Alive {
			if err := alive(); err != nil {
				faults = append(faults, err)
			}
		}
		answer(w, faults)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		var faults []error
		for _, ready := range checks.Ready {
			if err := ready(ctx); err != nil {
				faults = append(faults, err)
			}
		}
		answer(w, faults)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	return mux
}

func answer(w http.ResponseWriter, faults []error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if len(faults) == 0 {
		fmt.Fprintln(w, "ok") //nolint:errcheck // whoever asked has gone
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	for _, fault := range faults {
		fmt.Fprintln(w, fault) //nolint:errcheck // as above
	}
}
