package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/pin-platform/pinworker/adapters/kafka"
	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/adapters/poller"
	"github.com/pin-platform/pinworker/adapters/postgres"
	"github.com/pin-platform/pinworker/adapters/telemetry"
	appcalendar "github.com/pin-platform/pinworker/app/calendar"
	appcrm "github.com/pin-platform/pinworker/app/crm"
	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/app/plan"
	apppromotion "github.com/pin-platform/pinworker/app/promotion"
	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/app/verify"
	"github.com/pin-platform/pinworker/cmd/pinworker/internal/settings"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/promotion"
	"github.com/pin-platform/pinworker/ports"
)

// worker is everything of one process, wired. It reads top to bottom, from what the world
// gives to what runs.
type worker struct {
	log       *slog.Logger
	metrics   *prometheus.Registry
	sinks     telemetry.Sinks
	outboxes  *telemetry.Outbox
	tracing   *sdktrace.TracerProvider
	publisher *kafka.Publisher // of all relays; nil where there are none

	grace  time.Duration // how long a stop may take
	stopBy time.Time     // zero until told to stop

	contexts []*boundedContext
	unasked  []unasked // contexts that were left out (withReachable)
	// The operations that race against the jobs, for the demo, the simulator and tests.
	calendar  appcalendar.Operations
	promotion apppromotion.Operations
	crm       appcrm.Operations
}

// boundedContext is all of one context. It shares nothing with the others but the process and the
// Kafka client.
type boundedContext struct {
	name       string
	db         *postgres.DB
	migrator   *postgres.Migrator
	table      outbox.Table
	relay      *outbox.Relay // nil until addRelays
	writer     *outbox.Writer
	quarantine ports.Quarantine
	history    ports.History
	waiting    poller.Progress // for the database, at the start
	gauges     *poller.Poller  // of the outbox
	slots      standing        // as the gauges saw them last
	jobs       []*job          // those that are enabled
	backlogs   []backlog       // of all its jobs, enabled here or not
	foresight  []foresight
	// verify checks each kind of aggregate.
	verify []func(context.Context, time.Time, func(verify.Finding)) (verify.Report, error)
}

// job is one job, as commands and serve see it.
type job struct {
	name     ports.Job
	interval time.Duration
	catchUp  bool
	run      func(context.Context, cycle.Tick) (jobResult, error) // one cycle
	poller   *poller.Poller
}

// backlog tells what waits for a job.
type backlog struct {
	job  ports.Job
	tell func(context.Context, time.Time, ports.Cursor) (ports.Backlog, error)
}

// foresight foresees a job's cycles, enabled here or not.
type foresight struct {
	plan.Foreseer
	job      ports.Job
	interval time.Duration
	most     int // items that a cycle takes at most
}

// newWorker wires a worker of some contexts; where none is named, of those that have a job enabled.
// It has no relays, and connects to nothing yet.
func newWorker(s settings.Settings, logs io.Writer, contexts ...string) (*worker, error) {
	log, err := telemetry.NewLogger(logs, s.Log.Level, s.Log.Format)
	if err != nil {
		return nil, err
	}
	w := &worker{log: log, metrics: prometheus.NewRegistry(), grace: s.Relay.ShutdownGrace}
	w.tracing, err = telemetry.NewTracerProvider(telemetry.Tracing{
		Endpoint: s.Tracing.Endpoint, SampleRatio: s.Tracing.SampleRatio, Version: version(),
		Batch: max(s.ReminderDispatch.BatchSize, s.ExpirePromotions.BatchSize, s.LeadExpiration.BatchSize, s.AppointmentTimeout.ItemsPerTransaction),
	}, log)
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	w.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	w.sinks = telemetry.Sinks{
		Log: log, Tracer: w.tracing.Tracer("pinworker"), Registry: w.metrics, Jobs: telemetry.NewJobs(w.metrics),
	}
	w.outboxes = telemetry.NewOutbox(w.metrics, outbox.Other)
	if len(contexts) == 0 {
		contexts = s.Served()
	}
	for _, name := range contexts {
		c, err := w.addContext(name, s)
		if err != nil {
			return nil, errors.Join(err, w.close())
		}
		switch name {
		case "calendar":
			w.addCalendar(c, s)
		case "promotion":
			w.addPromotion(c, s)
		case "crm":
			w.addCRM(c, s)
		}
	}
	return w, nil
}

// addRelays wires a relay for each context, and the way to Kafka that they share.
func (w *worker) addRelays(s settings.Settings) error {
	config, err := kafkaConfig(s)
	if err == nil {
		config.Log = outbox.NewWatermillLogger(w.log)
		w.publisher, err = kafka.NewPublisher(config)
	}
	if err != nil {
		return &exitError{exitUsage, err}
	}
	for _, c := range w.contexts {
		w.outboxes.Carries(published.TopicsOf[c.name]...)
		c.relay = outbox.NewRelay(c.db.Pool, c.table, w.publisher, outbox.RelayConfig{
			BatchSize: s.Relay.BatchSize, PollInterval: s.Relay.PollInterval,
			ShutdownGrace: s.Relay.ShutdownGrace, Refused: kafka.Refused,
		}, w.outboxes, w.log)
	}
	return nil
}

// kafkaConfig is how the settings say to reach Kafka. The error is about the password's file.
func kafkaConfig(s settings.Settings) (kafka.Config, error) {
	k := s.Kafka
	config := kafka.Config{
		Brokers: k.Brokers, ClientID: k.ClientID, KeyHeader: outbox.HeaderPartitionKey,
		Security: kafka.Security{
			TLS:  kafka.TLS{Enabled: k.TLS.Enabled, CA: k.TLS.CA, Cert: k.TLS.Cert, Key: k.TLS.Key},
			SASL: kafka.SASL{Mechanism: k.SASL.Mechanism, User: k.SASL.User},
		},
	}
	if k.SASL.PasswordFile != "" {
		var err error
		if config.Security.SASL.Password, err = kafka.ReadPassword(k.SASL.PasswordFile); err != nil {
			return config, err
		}
	}
	return config, nil
}

func (w *worker) addCalendar(c *boundedContext, s settings.Settings) {
	store := postgres.NewCalendar(c.db, c.writer)
	w.calendar = appcalendar.Operations{
		Slots: store.Slots, Bookable: store.Bookable, Bookings: store.Bookings, Schedules: store.Schedules, Clock: time.Now,
	}
	c.verify = append(c.verify,
		verifying[calendar.AvailabilitySlot, calendar.SlotSnapshot](store.SlotLedger),
		verifying[calendar.Appointment, calendar.AppointmentSnapshot](store.AppointmentLedger),
		verifying[calendar.CalendarEvent, calendar.EventSnapshot](store.EventLedger),
		verifying[calendar.EventReminder, calendar.ReminderSnapshot](store.ReminderLedger))
	c.backlogs = append(c.backlogs,
		backlog{ports.ReminderDispatch, store.DueReminders.Backlog}, backlog{ports.AppointmentTimeout, store.Overdue.Backlog})
	c.foresight = append(c.foresight,
		foresight{appcalendar.ForeseeReminders(store.ReminderPreview), ports.ReminderDispatch, s.ReminderDispatch.Interval, s.ReminderDispatch.BatchSize},
		foresight{appcalendar.ForeseeAppointments(store.AppointmentPreview), ports.AppointmentTimeout, s.AppointmentTimeout.Interval, s.AppointmentTimeout.BatchSize})
	if j := s.ReminderDispatch; j.Enabled {
		run := telemetry.ReminderDispatch(w.sinks, appcalendar.DispatchReminders{
			Reminders: store.DueReminders, Clock: time.Now,
			Limits: cycle.Limits{BatchSize: j.BatchSize, MaxBatches: 1, Interval: j.Interval},
		})
		addJob(w, c, ports.ReminderDispatch, j, run, remindersDispatched)
	}
	if j := s.AppointmentTimeout; j.Enabled {
		together := min(j.ItemsPerTransaction, j.BatchSize)
		run := telemetry.AppointmentTimeout(w.sinks, appcalendar.TimeOutAppointments{
			Appointments: store.Overdue, Clock: time.Now,
			Limits: cycle.Limits{BatchSize: together, MaxBatches: (j.BatchSize + together - 1) / together, MaxItems: j.BatchSize, Interval: j.Interval},
		})
		addJob(w, c, ports.AppointmentTimeout, j, run, appointmentsTimedOut)
	}
}

func (w *worker) addPromotion(c *boundedContext, s settings.Settings) {
	store := postgres.NewPromotion(c.db, c.writer)
	w.promotion = apppromotion.Operations{Purchases: store.Purchases, Clock: time.Now}
	c.verify = append(c.verify, verifying[promotion.PromotionPurchase, promotion.Snapshot](store.Ledger))
	c.backlogs = append(c.backlogs, backlog{ports.ExpirePromotions, store.Due.Backlog})
	c.foresight = append(c.foresight,
		foresight{apppromotion.Foresee(store.Preview), ports.ExpirePromotions, s.ExpirePromotions.Interval, s.ExpirePromotions.BatchSize})
	if j := s.ExpirePromotions; j.Enabled {
		run := telemetry.ExpirePromotions(w.sinks, apppromotion.ExpirePromotions{
			Purchases: store.Due, Clock: time.Now,
			Limits: cycle.Limits{BatchSize: j.BatchSize, MaxBatches: 1, Interval: j.Interval},
		})
		addJob(w, c, ports.ExpirePromotions, j, run, promotionsExpired)
	}
}

func (w *worker) addCRM(c *boundedContext, s settings.Settings) {
	store := postgres.NewCRM(c.db, c.writer)
	w.crm = appcrm.Operations{Leads: store.Leads, Clock: time.Now}
	c.verify = append(c.verify, verifying[crm.Lead, crm.Snapshot](store.Ledger))
	c.backlogs = append(c.backlogs, backlog{ports.LeadExpiration, store.Due.Backlog})
	c.foresight = append(c.foresight, foresight{
		appcrm.Foresee(store.Preview), ports.LeadExpiration, s.LeadExpiration.Interval, s.LeadExpiration.BatchSize * s.LeadExpiration.MaxBatchesPerCycle,
	})
	if j := s.LeadExpiration; j.Enabled {
		run := telemetry.LeadExpiration(w.sinks, appcrm.ExpireLeads{
			Leads: store.Due, Clock: time.Now,
			Limits: cycle.Limits{BatchSize: j.BatchSize, MaxBatches: j.MaxBatchesPerCycle, Interval: j.Interval},
		})
		addJob(w, c, ports.LeadExpiration, j, run, leadsExpired)
	}
}

// addContext wires what every context has.
func (w *worker) addContext(name string, s settings.Settings) (*boundedContext, error) {
	db, err := openDatabase(s, s.DatabaseURL(name))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	c := &boundedContext{
		name: name, db: db, migrator: postgres.NewMigrator(db, name), table: outbox.Table{Schema: name},
		quarantine: postgres.NewQuarantine(db, name), history: postgres.NewHistory(db, name),
	}
	c.writer = outbox.NewWriter(c.table, "pin/"+name, c.wakeRelay)
	c.gauges = &poller.Poller{
		Loop: "gauges of " + name + "'s outbox", Interval: 15 * time.Second, Deadline: 5 * time.Minute, Log: w.log,
		Cycle: func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, time.Minute) // a server that has fallen silent keeps no timeouts
			defer cancel()
			w.gauge(ctx, c)
		},
	}
	w.contexts = append(w.contexts, c)
	return c, nil
}

// wakeRelay says that messages were committed: to whoever serves here, if anybody does.
func (c *boundedContext) wakeRelay() {
	if c.relay != nil {
		c.relay.Wake()
	}
}

// cycleDeadline is when a cycle counts as hanging. Leads have no target of their own:
// MaxBatchesPerCycle bounds their cycle.
const cycleDeadline = 10 * time.Minute

// catchUpFor is how long cycles may follow each other at once in one tick (spec: departures).
const catchUpFor = 30 * time.Second

// addJob wires what every job has. told turns its result into what people and programs see.
func addJob[R any](
	w *worker, c *boundedContext, name ports.Job, s settings.Job,
	run func(context.Context, cycle.Tick) (R, error), told func(R) jobResult,
) {
	j := &job{
		name: name, interval: s.Interval, catchUp: s.CatchUp,
		run: func(ctx context.Context, tick cycle.Tick) (jobResult, error) {
			result, err := run(ctx, tick)
			return told(result), err
		},
	}
	j.poller = &poller.Poller{
		Loop: "job " + string(name), Interval: s.Interval, Deadline: cycleDeadline, Log: w.log,
		Cycle: func(ctx context.Context) {
			cycle.CatchUp(ctx, time.Now, catchUpFor, func(ctx context.Context, tick cycle.Tick) cycle.Followed {
				result, _ := j.run(ctx, tick) // its telemetry told the error, with the run
				result.followed.Full = result.followed.Full && j.catchUp
				return result.followed
			})
		},
	}
	w.sinks.Jobs.Interval(name, s.Interval)
	c.jobs = append(c.jobs, j)
}

// gauge sets a context's gauges.
func (w *worker) gauge(ctx context.Context, c *boundedContext) {
	backlogs, oldest, err := outbox.Depth(ctx, c.db.Pool, c.table, published.TopicsOf[c.name], c.relay)
	if err != nil { // the relay tells of an outage
		return
	}
	for _, b := range backlogs {
		w.outboxes.Depth(c.name, b.Topic, b.Waiting, b.Parked)
	}
	w.outboxes.Oldest(c.name, oldest)
	if holders, err := c.db.Holders(ctx); err == nil {
		var age time.Duration
		age, c.slots = c.slots.oldest(holders, time.Now())
		w.outboxes.Snapshot(c.name, age)
	}
}

// standing says since when replication slots have been seen where they stand: a database does not tell it.
type standing map[postgres.Holder]time.Time

// oldest returns for how long vacuum has been kept from cleaning up, and the slots as they stand now.
func (s standing) oldest(holders []postgres.Holder, now time.Time) (age time.Duration, seen standing) {
	seen = make(standing)
	for _, h := range holders {
		if h.Xmin != "" {
			at := postgres.Holder{Name: h.Name, Xmin: h.Xmin}
			seen[at] = now
			if since, known := s[at]; known {
				seen[at] = since
			}
			h.Age = now.Sub(seen[at])
		}
		age = max(age, h.Age)
	}
	return age, seen
}

func verifying[A verify.Aggregate[A, S, E], S, E any](
	ledger ports.Ledger[A, E],
) func(context.Context, time.Time, func(verify.Finding)) (verify.Report, error) {
	return func(ctx context.Context, since time.Time, found func(verify.Finding)) (verify.Report, error) {
		return verify.Run(ctx, ledger, since, found)
	}
}

func openDatabase(s settings.Settings, url string) (*postgres.DB, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return postgres.Open(postgres.Config{
		URL: url, MaxConnections: s.Database.MaxConnections,
		StatementTimeout: s.Database.StatementTimeout, LockTimeout: s.Database.LockTimeout,
		ApplicationName: fmt.Sprintf("pinworker@%s/%d", host, os.Getpid()),
	})
}

// flushFor is how long the last spans may take to be sent, of what a stop's grace has left.
const flushFor = 5 * time.Second

// close gives back what the worker took, Kafka's client last.
func (w *worker) close() error {
	by := time.Now().Add(min(w.grace, flushFor))
	if !w.stopBy.IsZero() && w.stopBy.Before(by) {
		by = w.stopBy
	}
	flushing, cancel := context.WithDeadline(context.Background(), by)
	defer cancel()
	w.tracing.Shutdown(flushing) //nolint:errcheck // what is not sent by then is lost, and nothing else
	var err error
	for _, c := range w.contexts {
		err = errors.Join(err, c.close())
	}
	if w.publisher != nil {
		err = errors.Join(err, w.publisher.Close())
	}
	return err
}

func (c *boundedContext) close() error {
	defer c.db.Close()
	return c.migrator.Close()
}

// current returns an error where the context's schema cannot be worked with.
func (c *boundedContext) current(ctx context.Context) error {
	if err := c.migrator.Current(ctx); err != nil {
		return fmt.Errorf("context %s: %w", c.name, err)
	}
	return nil
}

// names are those of the contexts.
func (w *worker) names() []string {
	names := make([]string, len(w.contexts))
	for i, c := range w.contexts {
		names[i] = c.name
	}
	return names
}

// job returns a job that is enabled by its name, with its context.
func (w *worker) job(name string) (*boundedContext, *job) {
	for _, c := range w.contexts {
		for _, j := range c.jobs {
			if string(j.name) == name {
				return c, j
			}
		}
	}
	return nil, nil
}

// contextOf returns the context that knows an aggregate, with its events.
func (w *worker) contextOf(ctx context.Context, id uuid.UUID) (*boundedContext, []ports.Happened, error) {
	for _, c := range w.contexts {
		events, err := c.history.Events(ctx, id)
		if err != nil || len(events) > 0 {
			return c, events, err
		}
	}
	return nil, nil, nil
}
