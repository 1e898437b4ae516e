package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/cmd/pinworker/internal/settings"
)

// driven is a worker that serves in this process, with its cycles in the test's hand: after those of its
// start the next ones are an hour away.
type driven struct {
	*server
	settings settings.Settings
	w        *worker
}

func drive(t *testing.T, set ...string) *driven {
	t.Helper()
	d := prepare(t, set...)
	d.serve()
	eventually(t, "the first cycle of each job", func() bool {
		return strings.Count(d.log.String(), `"cycle completed"`)+strings.Count(d.log.String(), `"job.completed"`) == len(jobNames)
	})
	return d
}

// prepare returns one that does not serve yet.
func prepare(t *testing.T, set ...string) *driven {
	t.Helper()
	s, _, err := settings.Load(settings.Sources{Flags: append([]string{
		"http.listen=127.0.0.1:0", "log.level=debug", "relay.poll_interval=50ms",
		"jobs.reminder-dispatch.interval=1h", "jobs.appointment-timeout.interval=1h", "jobs.lead-expiration.interval=1h",
	}, set...)}, settings.EveryDatabase, settings.Relay)
	if err != nil {
		t.Fatal(err)
	}
	s.ExpirePromotions.Interval = time.Hour // no deployment may say so
	d := &driven{server: &server{t: t}, settings: s}
	if d.w, err = newWorker(s, &d.log); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *driven) serve() {
	d.t.Helper()
	d.start(context.Background(), func(ctx context.Context) int {
		if err := errors.Join(serve(ctx, d.settings, d.w), d.w.close()); err != nil {
			d.t.Error(err)
			return exitFailed
		}
		return exitDone
	})
}

// cycles runs one cycle of each job, and returns how many failed.
func (d *driven) cycles() (failed int) {
	d.t.Helper()
	for _, name := range jobNames {
		_, j := d.w.job(name)
		if _, err := j.run(d.t.Context(), cycle.Begin(time.Now())); err != nil {
			failed++
		}
	}
	return failed
}

// dueItems makes one item for each job that came due a second ago.
func (p *platform) dueItems() (items []uuid.UUID) {
	p.Helper()
	for _, j := range polledJobs {
		items = append(items, j.make(p, time.Now().UTC().Add(-time.Second)))
	}
	return items
}

// refuse has the database refuse whatever becomes of items.
func (p *platform) refuse(items []uuid.UUID) {
	p.Helper()
	for i, j := range polledJobs {
		p.execute(fmt.Sprintf("ALTER TABLE %s.%s ADD CONSTRAINT refuse CHECK (id <> '%s' OR status IN ('Pending', 'Active'))", j.schema, j.table, items[i]))
	}
}

// holdAll has somebody be at items until they are released.
func (p *platform) holdAll(items []uuid.UUID) (release func()) {
	p.Helper()
	var releases []func()
	for i, j := range polledJobs {
		_, one := p.hold(j, items[i], "an operation")
		releases = append(releases, one)
	}
	return func() {
		for _, one := range releases {
			one()
		}
	}
}
