// Package opshttp serves what operators and their machines ask: is it alive, is it ready,
// what are its figures.
package opshttp

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Checks are the questions that the endpoints ask.
type Checks struct {
	// Alive returns an error for a loop that makes no progress. An outage of the database
	// or of Kafka is none: being restarted would not mend it.
	Alive []func() error
	// Ready returns an error while the worker cannot do its work. They are asked side by side: one that
	// waits for its database takes no time from the others'.
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
		faults := make([]error, len(checks.Ready))
		var asked sync.WaitGroup
		for i, ready := range checks.Ready {
			asked.Go(func() { faults[i] = ready(ctx) })
		}
		asked.Wait()
		answer(w, slices.DeleteFunc(faults, func(err error) bool { return err == nil }))
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
