package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
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
	kafka     kafka.Config
	publisher *kafka.Publisher
	sinks     telemetry.Sinks
	outboxes  *telemetry.Outbox
	company   outbox.Company // of all that share the publisher

	contexts []*boundedContext // those that have a job
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
	relay      *outbox.Relay
	writer     *outbox.Writer
	quarantine ports.Quarantine
	history    ports.History
	jobs       []*job // those that are enabled
	// verify checks each kind of aggregate.
	verify []func(context.Context, time.Time, func(verify.Finding)) (verify.Report, error)
}

// job is one job, as commands and serve see it.
type job struct {
	name     ports.Job
	interval time.Duration
	catchUp  bool
	run      func(context.Context, cycle.Tick) (jobResult, error) // one cycle
	backlog  func(context.Context, time.Time) (ports.Backlog, error)
	poller   *poller.Poller
}

// newWorker wires a worker. It connects to nothing yet.
func newWorker(s settings.Settings, logs io.Writer) (*worker, error) {
	log, err := telemetry.NewLogger(logs, s.Log.Level, s.Log.Format)
	if err != nil {
		return nil, err
	}
	w := &worker{log: log, metrics: prometheus.NewRegistry()}
	w.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	w.sinks = telemetry.Sinks{
		Log: log, Tracer: sdktrace.NewTracerProvider().Tracer("pinworker"), Registry: w.metrics, Jobs: telemetry.NewJobs(w.metrics),
	}
	w.outboxes = telemetry.NewOutbox(w.metrics)
	if w.kafka, err = kafkaConfig(s); err == nil {
		w.publisher, err = kafka.NewPublisher(w.kafka)
	}
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	for _, add := range []func(settings.Settings) error{w.addCalendar, w.addPromotion, w.addCRM} {
		if err := add(s); err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	return w, nil
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

func (w *worker) addCalendar(s settings.Settings) error {
	if !s.Calendar() {
		return nil
	}
	c, err := w.addContext("calendar", s.CalendarDatabaseURL, s)
	if err != nil {
		return err
	}
	store := postgres.NewCalendar(c.db, c.writer)
	w.calendar = appcalendar.Operations{
		Slots: store.Slots, Bookable: store.Bookable, Bookings: store.Bookings, Schedules: store.Schedules, Clock: time.Now,
	}
	c.verify = append(c.verify,
		verifying[calendar.AvailabilitySlot, calendar.SlotSnapshot](store.SlotLedger),
		verifying[calendar.Appointment, calendar.AppointmentSnapshot](store.AppointmentLedger),
		verifying[calendar.CalendarEvent, calendar.EventSnapshot](store.EventLedger),
		verifying[calendar.EventReminder, calendar.ReminderSnapshot](store.ReminderLedger))
	if j := s.ReminderDispatch; j.Enabled {
		run := telemetry.ReminderDispatch(w.sinks, appcalendar.DispatchReminders{
			Reminders: store.DueReminders, Clock: time.Now,
			Limits: cycle.Limits{BatchSize: j.BatchSize, MaxBatches: 1, Interval: j.Interval},
		})
		addJob(w, c, ports.ReminderDispatch, j, store.DueReminders, run, remindersDispatched)
	}
	if j := s.AppointmentTimeout; j.Enabled {
		together := min(j.ItemsPerTransaction, j.BatchSize)
		run := telemetry.AppointmentTimeout(w.sinks, appcalendar.TimeOutAppointments{
			Appointments: store.Overdue, Clock: time.Now,
			Limits: cycle.Limits{BatchSize: together, MaxBatches: (j.BatchSize + together - 1) / together, MaxItems: j.BatchSize, Interval: j.Interval},
		})
		addJob(w, c, ports.AppointmentTimeout, j, store.Overdue, run, appointmentsTimedOut)
	}
	return nil
}

func (w *worker) addPromotion(s settings.Settings) error {
	j := s.ExpirePromotions
	if !j.Enabled {
		return nil
	}
	c, err := w.addContext("promotion", s.PromotionDatabaseURL, s)
	if err != nil {
		return err
	}
	store := postgres.NewPromotion(c.db, c.writer)
	w.promotion = apppromotion.Operations{Purchases: store.Purchases, Clock: time.Now}
	c.verify = append(c.verify, verifying[promotion.PromotionPurchase, promotion.Snapshot](store.Ledger))
	run := telemetry.ExpirePromotions(w.sinks, apppromotion.ExpirePromotions{
		Purchases: store.Due, Clock: time.Now,
		Limits: cycle.Limits{BatchSize: j.BatchSize, MaxBatches: 1, Interval: j.Interval},
	})
	addJob(w, c, ports.ExpirePromotions, j, store.Due, run, promotionsExpired)
	return nil
}

func (w *worker) addCRM(s settings.Settings) error {
	j := s.LeadExpiration
	if !j.Enabled {
		return nil
	}
	c, err := w.addContext("crm", s.CRMDatabaseURL, s)
	if err != nil {
		return err
	}
	store := postgres.NewCRM(c.db, c.writer)
	w.crm = appcrm.Operations{Leads: store.Leads, Clock: time.Now}
	c.verify = append(c.verify, verifying[crm.Lead, crm.Snapshot](store.Ledger))
	run := telemetry.LeadExpiration(w.sinks, appcrm.ExpireLeads{
		Leads: store.Due, Clock: time.Now,
		Limits: cycle.Limits{BatchSize: j.BatchSize, MaxBatches: j.MaxBatchesPerCycle, Interval: j.Interval},
	})
	addJob(w, c, ports.LeadExpiration, j, store.Due, run, leadsExpired)
	return nil
}

// addContext wires what every context has.
func (w *worker) addContext(name, databaseURL string, s settings.Settings) (*boundedContext, error) {
	db, err := openDatabase(s, databaseURL)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	c := &boundedContext{
		name: name, db: db, migrator: postgres.NewMigrator(db, name), table: outbox.Table{Schema: name},
		quarantine: postgres.NewQuarantine(db, name), history: postgres.NewHistory(db, name),
	}
	c.relay = outbox.NewRelay(db.Pool, c.table, w.publisher, outbox.RelayConfig{
		BatchSize: s.Relay.BatchSize, PollInterval: s.Relay.PollInterval,
		ShutdownGrace: s.Relay.ShutdownGrace, Refused: kafka.Refused, Company: &w.company,
	}, w.outboxes, w.log)
	c.writer = outbox.NewWriter(c.table, "pin/"+name, c.relay.Wake)
	w.contexts = append(w.contexts, c)
	return c, nil
}

// cycleDeadline is when a cycle counts as hanging. Leads have no target of their own:
// MaxBatchesPerCycle bounds their cycle.
const cycleDeadline = 10 * time.Minute

// catchUpFor is how long cycles may follow each other at once in one tick (spec: departures).
const catchUpFor = 30 * time.Second

// addJob wires what every job has. told turns its result into what people and programs see.
func addJob[A, E, R any](
	w *worker, c *boundedContext, name ports.Job, s settings.Job, due ports.Due[A, E],
	run func(context.Context, cycle.Tick) (R, error), told func(R) jobResult,
) {
	j := &job{
		name: name, interval: s.Interval, catchUp: s.CatchUp,
		run: func(ctx context.Context, tick cycle.Tick) (jobResult, error) {
			result, err := run(ctx, tick)
			return told(result), err
		},
		backlog: func(ctx context.Context, asOf time.Time) (ports.Backlog, error) {
			return due.Backlog(ctx, asOf, ports.Cursor{})
		},
	}
	j.poller = &poller.Poller{
		Job: string(name), Interval: s.Interval, Deadline: cycleDeadline, Log: w.log,
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

// watchOutboxes sets the outboxes' gauges now and then, until ctx ends.
func (w *worker) watchOutboxes(ctx context.Context) {
	const pause = 15 * time.Second
	for {
		for _, c := range w.contexts {
			backlogs, oldest, err := outbox.Depth(ctx, c.db.Pool, c.table, published.TopicsOf[c.name])
			if err != nil { // the relay tells of an outage
				continue
			}
			for _, b := range backlogs {
				w.outboxes.Depth(c.name, b.Topic, b.Waiting, b.Parked)
			}
			w.outboxes.Oldest(c.name, oldest)
			if holders, err := c.db.Holders(ctx); err == nil {
				age := time.Duration(0)
				for _, h := range holders {
					age = max(age, h.Age)
				}
				w.outboxes.Snapshot(c.name, age)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
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

// close gives back what newWorker took, Kafka's client last.
func (w *worker) close() error {
	var err error
	for _, c := range w.contexts {
		err = errors.Join(err, c.migrator.Close())
		c.db.Close()
	}
	return errors.Join(err, w.publisher.Close())
}

// current returns an error where a context's schema cannot be worked with.
func (w *worker) current(ctx context.Context) error {
	for _, c := range w.contexts {
		if err := c.migrator.Current(ctx); err != nil {
			return fmt.Errorf("context %s: %w", c.name, err)
		}
	}
	return nil
}

// job returns a job by its name, with its context.
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

// withWorker wires a worker for one command that needs databases with current schemas. Its log
// is for whoever typed the command: what went wrong, unless log.level asks for more.
func withWorker(ctx context.Context, global *globals, std streams, work func(*worker) error) error {
	return withSettings(ctx, global, std, nil, func(_ settings.Settings, w *worker) error { return work(w) })
}

// withSettings is withWorker for a command that needs settings beside the databases', and looks at
// them itself.
func withSettings(
	ctx context.Context, global *globals, std streams, required []string, work func(settings.Settings, *worker) error,
) error {
	s, values, err := global.load(os.Environ(), append([]string{settings.EveryDatabase}, required...)...)
	if err != nil {
		return err
	}
	if at := slices.IndexFunc(values, func(v settings.Value) bool { return v.Key == "log.level" }); values[at].Origin == "default" {
		s.Log.Level = slog.LevelWarn
	}
	w, err := newWorker(s, std.err)
	if err != nil {
		return err
	}
	if err := w.current(ctx); err != nil {
		return errors.Join(unready(err), w.close())
	}
	return errors.Join(work(s, w), w.close())
}

// unready gives a schema that cannot be worked with its exit code: nothing was touched.
func unready(err error) error {
	var lacks *postgres.PlatformError
	if errors.Is(err, postgres.ErrSchemaBehind) || errors.As(err, &lacks) {
		return &exitError{exitUsage, err}
	}
	return err
}
