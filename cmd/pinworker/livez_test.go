package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/opshttp"
	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/adapters/poller"
)

// pollers are those of a worker: its jobs', and what keeps house.
func (d *driven) pollers() (all []*poller.Poller) {
	for _, c := range d.w.contexts {
		for _, j := range c.jobs {
			all = append(all, j.poller)
		}
		all = append(all, c.gauges)
	}
	return all
}

func TestLivez_NamesEachLoopThatHangsUntilItGoesOn(t *testing.T) {
	p := newPlatform(t)
	d := prepare(t, "database.url="+p.url, "kafka.brokers=127.0.0.1:1")
	var hanging []string
	release := make(chan struct{})
	for _, loop := range d.pollers() {
		loop.Interval, loop.Deadline = 50*time.Millisecond, 50*time.Millisecond
		n := 0
		loop.Cycle = func(context.Context) {
			if n++; n == 2 {
				<-release
			}
		}
		hanging = append(hanging, loop.Loop)
	}
	d.serve()
	eventually(t, "it is not alive, for each of the loops", func() bool {
		status, body := d.get("/livez")
		return status == http.StatusServiceUnavailable && !slices.ContainsFunc(hanging, func(loop string) bool {
			return !strings.Contains(body, loop+": no cycle has begun or ended for ")
		})
	})
	if want := len(jobNames) + len(d.w.contexts); len(hanging) != want {
		t.Errorf("%d loops, %q; want %d, beside the relays", len(hanging), hanging, want)
	}
	close(release)
	eventually(t, "it is alive", func() bool { status, _ := d.get("/livez"); return status == http.StatusOK })
	if code := d.stop(); code != exitDone {
		t.Errorf("exit %d", code)
	}
}

// The relay hangs in what it tells the metrics. Time is the test's: a look may take a minute.
func TestLivez_NamesARelayThatHangsUntilItGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config, err := pgxpool.ParseConfig("postgres://127.0.0.1/pin")
		if err != nil {
			t.Fatal(err)
		}
		config.ConnConfig.DialFunc = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no database") }
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		hangs := hangingObserver{release: make(chan struct{})}
		c := &boundedContext{name: "crm", gauges: &poller.Poller{}, relay: outbox.NewRelay(
			pool, outbox.Table{Schema: "crm"}, nil, outbox.RelayConfig{PollInterval: time.Second}, hangs, slog.New(slog.DiscardHandler))}
		w := &worker{contexts: []*boundedContext{c}, metrics: prometheus.NewRegistry()}
		livez := func() (int, string) {
			answer := httptest.NewRecorder()
			opshttp.Handler(w.checks(), w.metrics).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/livez", nil))
			return answer.Code, answer.Body.String()
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.loops()[0].run(ctx) }()

		time.Sleep(time.Minute)
		if status, body := livez(); status != http.StatusOK {
			t.Errorf("/livez %d %s while a look may last", status, body)
		}
		time.Sleep(time.Minute)
		if status, body := livez(); status != http.StatusServiceUnavailable || !strings.Contains(body, "outbox relay of crm: has not looked for messages for 2m0s") {
			t.Errorf("/livez %d %s", status, body)
		}
		close(hangs.release)
		time.Sleep(2 * time.Second)
		if status, body := livez(); status != http.StatusOK {
			t.Errorf("/livez %d %s after it went on", status, body)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// hangingObserver is a relay's, which does not return until it is released.
type hangingObserver struct {
	outbox.Observer
	release chan struct{}
}

func (h hangingObserver) HeldUp(string) { <-h.release }

// However long it lasts, an outage is no reason to be killed: here it is longer than a cycle may take.
func TestLivez_AnOutageOfDatabaseAndKafkaIsNoStall(t *testing.T) {
	p := newPlatform(t)
	u, err := url.Parse(p.url)
	p.must(err)
	database := newLine(t, u.Host)
	u.Host = database.address
	d := prepare(t, "database.url="+u.String(), fmt.Sprintf("kafka.brokers=127.0.0.1:%d", embeddedtest.FreePort(t)))
	var outage atomic.Bool
	loops := d.pollers()
	within := make([]atomic.Int32, len(loops)) // the outage: how many cycles each had
	for i, loop := range loops {
		loop.Interval, loop.Deadline = 50*time.Millisecond, 5*time.Second
		cycle := loop.Cycle
		loop.Cycle = func(ctx context.Context) {
			cycle(ctx)
			if outage.Load() {
				within[i].Add(1)
			}
		}
	}
	p.dueItems()
	d.serve()
	eventually(t, "messages wait for Kafka", func() bool { return p.due() == 0 && len(p.waiting()) > 0 })
	database.cut()
	outage.Store(true)
	eventually(t, "each loop has had cycles for longer than one may take", func() bool {
		if status, body := d.get("/livez"); status != http.StatusOK {
			t.Fatalf("/livez %d %s", status, body)
		}
		for i := range within {
			if within[i].Load() < 104 {
				return false
			}
		}
		return true
	})
	if status, _ := d.get("/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("/readyz %d without a database", status)
	}
	if code := d.stop(); code != exitDone {
		t.Errorf("exit %d", code)
	}
}
