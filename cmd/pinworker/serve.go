package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/pin-platform/pinworker/adapters/opshttp"
	"github.com/pin-platform/pinworker/adapters/poller"
	"github.com/pin-platform/pinworker/cmd/pinworker/internal/settings"
)

func newServe(global *globals, std streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the jobs, the outbox relay and the HTTP endpoints until told to stop",
		Long: `Runs the enabled jobs, the relay that carries their messages to Kafka, and /livez,
/readyz and /metrics, until SIGTERM or SIGINT. What is in hand then is finished or rolled
back as a whole; a second signal stops at once, and loses nothing either.

A database or a Kafka that is away is waited for. A context begins as soon as its own database is
there; a schema that is behind at the start ends it with exit code 2. Without relay.enabled it needs
no Kafka: another instance carries the messages.`,
		Example: `  pinworker serve --config /etc/pinworker.yaml
  PINWORKER_DATABASE_URL=postgres://... PINWORKER_KAFKA_BROKERS=kafka:9092 pinworker serve`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = command(func(cmd *cobra.Command, _ []string) error {
		s, _, err := global.load(os.Environ(), settings.EveryDatabase, settings.Relay)
		if err != nil {
			return err
		}
		w, err := newWorker(s, std.err)
		if err != nil {
			return err
		}
		return errors.Join(serve(cmd.Context(), s, w), w.close())
	})
	return cmd
}

// serve runs a worker until ctx ends.
func serve(ctx context.Context, s settings.Settings, w *worker) error {
	if s.Relay.Enabled {
		if err := w.addRelays(s); err != nil {
			return err
		}
	}
	listener, err := net.Listen("tcp", s.HTTPListen)
	if err != nil {
		return fmt.Errorf("listen on http.listen: %w", err)
	}
	server := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: opshttp.Handler(w.checks(), w.metrics)}

	loops, ctx := errgroup.WithContext(ctx)
	loops.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	loops.Go(func() error {
		<-ctx.Done()
		w.stopBy = time.Now().Add(w.grace)
		w.log.Info("worker is stopping: what is in hand is finished or rolled back")
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := server.Shutdown(closing); err != nil { // someone does not hang up
			return server.Close()
		}
		return nil
	})
	w.log.Info("worker started", "http", listener.Addr().String(), "version", version())
	if len(w.contexts) == 0 {
		w.log.Warn("nothing to do: every job is disabled")
	}
	for _, c := range w.contexts {
		loops.Go(func() error { return w.serveContext(ctx, c) })
	}
	err = loops.Wait()
	w.log.Info("worker stopped")
	return err
}

// serveContext runs one context's loops, as soon as its own database can be used.
func (w *worker) serveContext(ctx context.Context, c *boundedContext) error {
	if err := w.awaitSchema(ctx, c); err != nil || ctx.Err() != nil {
		return err
	}
	running, ctx := errgroup.WithContext(ctx)
	for _, l := range c.loops() {
		running.Go(func() error { return l.run(ctx) })
	}
	return running.Wait()
}

// loop is one of a context's, which ends with its context. None runs that is not watched.
type loop struct {
	run     func(context.Context) error
	stalled func() error
}

func (c *boundedContext) loops() (all []loop) {
	polls := func(p *poller.Poller) loop {
		return loop{func(ctx context.Context) error { p.Run(ctx); return nil }, p.Stalled}
	}
	for _, j := range c.jobs {
		all = append(all, polls(j.poller))
	}
	if c.relay != nil {
		all = append(all, loop{c.relay.Run, c.relay.Stalled})
	}
	return append(all, polls(c.gauges))
}

// checks are what /livez and /readyz ask.
func (w *worker) checks() (checks opshttp.Checks) {
	for _, c := range w.contexts {
		checks.Alive = append(checks.Alive, func() error { return c.waiting.Stalled("wait for "+c.name+"'s database", awaitDeadline) })
		for _, l := range c.loops() {
			checks.Alive = append(checks.Alive, l.stalled)
		}
		checks.Ready = append(checks.Ready, func(ctx context.Context) error {
			err := c.db.Writable(ctx)
			if err == nil {
				err = c.migrator.Current(ctx)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			return nil
		})
	}
	return checks
}

// awaitDeadline is when an attempt at a database counts as hanging.
const awaitDeadline = time.Minute

// awaitSchema waits until a context's database can be used. A schema that is seen to be behind at the
// start is a mistake of the deployment: exit code 2, with the command that mends it. Where the database
// was away at first, the others' loops run by now and are not ended for it: it is waited for as well.
func (w *worker) awaitSchema(ctx context.Context, c *boundedContext) error {
	const patience, pause, remind = 10 * time.Second, time.Second, time.Minute
	var told time.Time
	defer c.waiting.Ended()
	for first := true; ; first = false {
		c.waiting.Made()
		attempt, cancel := context.WithTimeout(ctx, patience)
		err := c.current(attempt)
		cancel()
		var coded *exitError
		switch {
		case err == nil && !told.IsZero():
			w.log.Info("the database can be used now", "context", c.name)
			return nil
		case err == nil, ctx.Err() != nil:
			return nil // or told to stop before it could begin
		case first && errors.As(unready(err), &coded):
			return coded
		case time.Since(told) > remind:
			w.log.Warn("the database cannot be used yet: waiting for it, not ready", "context", c.name, "error", err)
			told = time.Now()
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}
