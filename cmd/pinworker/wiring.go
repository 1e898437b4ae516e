package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/pin-platform/pinworker/adapters/kafka"
	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/adapters/poller"
	"github.com/pin-platform/pinworker/adapters/postgres"
	"github.com/pin-platform/pinworker/adapters/telemetry"
	appcrm "github.com/pin-platform/pinworker/app/crm"
	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/cmd/pinworker/internal/settings"
	"github.com/pin-platform/pinworker/ports"
)

// worker is everything of one process, wired. It reads top to bottom, from what the world
// gives to what runs.
type worker struct {
	log       *slog.Logger
	metrics   *prometheus.Registry
	publisher *kafka.Publisher
	crm       crmContext
}

// crmContext is all of the crm context. It shares nothing with the other contexts but the
// process and the Kafka client.
type crmContext struct {
	db          *postgres.DB
	migrator    *postgres.Migrator
	table       outbox.Table
	relay       *outbox.Relay
	due         ports.DueLeads
	ledger      ports.LeadLedger
	quarantine  ports.Quarantine
	operations  appcrm.Operations
	expireLeads func(context.Context, cycle.Tick) (appcrm.LeadsExpired, error)
	poller      *poller.Poller
}

// newWorker wires a worker. It connects to nothing yet.
func newWorker(s settings.Settings, logs io.Writer) (*worker, error) {
	log, err := telemetry.NewLogger(logs, s.Log.Level, s.Log.Format)
	if err != nil {
		return nil, err
	}
	w := &worker{log: log, metrics: prometheus.NewRegistry()}
	w.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	tracer := sdktrace.NewTracerProvider().Tracer("pinworker")
	jobs := telemetry.NewJobs(w.metrics)
	w.publisher = kafka.NewPublisher(kafka.Config{
		Brokers: s.Kafka.Brokers, ClientID: s.Kafka.ClientID, KeyHeader: outbox.HeaderPartitionKey,
	})

	c := &w.crm
	c.table = outbox.Table{Schema: "crm"}
	if c.db, err = openDatabase(s, s.CRMDatabaseURL); err != nil {
		return nil, err
	}
	c.migrator = postgres.NewMigrator(c.db, "crm")
	c.relay = outbox.NewRelay(c.db.Pool, c.table, w.publisher, outbox.RelayConfig{
		BatchSize: s.Relay.BatchSize, PollInterval: s.Relay.PollInterval,
		ShutdownGrace: s.Relay.ShutdownGrace, HoldFor: 5 * time.Second, Refused: kafka.Refused,
	}, log)
	leads := postgres.NewLeads(c.db, outbox.NewWriter(c.table, "pin/crm", c.relay.Wake))
	c.due, c.ledger, c.quarantine = leads, postgres.NewLeadLedger(c.db), leads
	c.operations = appcrm.Operations{Leads: leads, Clock: time.Now}
	c.expireLeads = telemetry.NewLeadExpiration(log, tracer, w.metrics, jobs).Cycle(appcrm.ExpireLeads{
		Leads: leads,
		Limits: cycle.Limits{
			BatchSize: s.LeadExpiration.BatchSize, MaxBatches: s.LeadExpiration.MaxBatchesPerCycle,
			Interval: s.LeadExpiration.Interval,
		},
		Clock: time.Now,
	})
	c.poller = &poller.Poller{
		Job: string(ports.LeadExpiration), Interval: s.LeadExpiration.Interval, Deadline: leadCycleDeadline, Log: log,
		Cycle: func(ctx context.Context) error {
			_, err := c.expireLeads(ctx, cycle.Begin(time.Now()))
			return err
		},
	}
	jobs.Interval(ports.LeadExpiration, s.LeadExpiration.Interval)
	return w, nil
}

// leadCycleDeadline is when a cycle of leads counts as hanging. It has no target of its own:
// MaxBatchesPerCycle bounds it.
const leadCycleDeadline = 10 * time.Minute

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
	err := w.crm.migrator.Close()
	w.crm.db.Close()
	return errors.Join(err, w.publisher.Close())
}

// databaseURL is what every command but the demo needs.
const databaseURL = "database.url|contexts.crm.database.url"

// withWorker wires a worker for one command that needs a database with a current schema. Its log
// is for whoever typed the command: what went wrong, unless log.level asks for more.
func withWorker(ctx context.Context, global *globals, std streams, work func(*worker) error) error {
	s, values, err := global.load(os.Environ(), databaseURL)
	if err != nil {
		return err
	}
	for _, v := range values {
		if v.Key == "log.level" && v.Origin == "default" {
			s.Log.Level = slog.LevelWarn
		}
	}
	w, err := newWorker(s, std.err)
	if err != nil {
		return err
	}
	if err := w.crm.migrator.Current(ctx); err != nil {
		return errors.Join(unready(err), w.close())
	}
	return errors.Join(work(w), w.close())
}

// unready gives a schema that cannot be worked with its exit code: nothing was touched.
func unready(err error) error {
	var lacks *postgres.PlatformError
	if errors.Is(err, postgres.ErrSchemaBehind) || errors.As(err, &lacks) {
		return &exitError{exitUsage, err}
	}
	return err
}
