package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/pin-platform/pinworker/adapters/embedded"
	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/cmd/pinworker/internal/settings"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/ports"
)

// The demo's clock runs through one working day, an hour a tick, in the past: the worker never
// expires what is not due.
const demoHours = 8

// demoOptions are the demo's flags.
type demoOptions struct {
	leads int
	seed  uint64
	keep  bool
	serve bool
}

func newDemo(global *globals, std streams) *cobra.Command {
	var options demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See it work: everything in one process, on an embedded PostgreSQL and Kafka",
		Long: `Starts a real PostgreSQL (from installed programs, or fetched once) and the Kafka protocol
in this process, registers leads, lets agents extend and archive some, and runs the job
through a working day, an hour a tick. Then it reads Kafka back, verifies every row against
its events, shows what happened as tables, and leaves nothing behind.

It needs no settings and touches no database but its own.`,
		Example: `  pinworker demo
  pinworker demo --leads 20000 --json
  pinworker demo --keep      # leaves PostgreSQL and Kafka running until Ctrl-C
  pinworker demo --serve     # and a worker with its HTTP endpoints`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.IntVar(&options.leads, "leads", 2000, "how many leads to register, 1 to 1000000")
	flags.Uint64Var(&options.seed, "seed", 1, "the same seed tells the same story")
	flags.BoolVar(&options.keep, "keep", false, "keep PostgreSQL and Kafka running afterwards, with their addresses printed")
	flags.BoolVar(&options.serve, "serve", false, "keep a worker running afterwards as well")
	cmd.RunE = command(func(cmd *cobra.Command, _ []string) error {
		if len(global.set) > 0 || cmd.Flags().Changed("config") {
			return usage("the demo takes no settings: leave --set and --config out")
		}
		if options.leads < 1 || options.leads > 1_000_000 {
			return usage("--leads %d: allowed is a whole number from 1 to 1000000", options.leads)
		}
		return runDemo(cmd.Context(), options, global.json, std)
	})
	return cmd
}

func runDemo(ctx context.Context, options demoOptions, asJSON bool, std streams) (err error) {
	began := time.Now()
	d := demo{options: options, progress: std.err, out: std.out, told: std.out}
	if asJSON {
		d.told = io.Discard
	}
	d.say("Starting PostgreSQL and Kafka ...")
	database, err := embedded.StartPostgres(ctx, embedded.PostgresConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, database.Close()) }()
	broker, err := embedded.StartKafka(0, published.TopicLeadExpired)
	if err != nil {
		return err
	}
	defer broker.Close()

	s, _, err := settings.Load(settings.Sources{Flags: []string{
		"database.url=" + database.URL(), "kafka.brokers=" + broker.Brokers()[0],
		"http.listen=127.0.0.1:0", "log.level=warn", "log.format=text", "relay.poll_interval=200ms",
	}})
	if err != nil {
		return err
	}
	w, err := newWorker(s, std.err)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.crm.migrator.UpAll(ctx); err != nil {
		return err
	}
	d.worker, d.database, d.brokers = w, database.URL(), broker.Brokers()
	if err := d.play(ctx); err != nil {
		return err
	}
	d.report.Seconds = time.Since(began).Seconds()
	if err := d.show(asJSON); err != nil {
		return err
	}
	if options.keep || options.serve {
		return d.stay(ctx, s)
	}
	return nil
}

// demo is one run of the story.
type demo struct {
	options  demoOptions
	progress io.Writer
	out      io.Writer
	told     io.Writer // out, or nothing with --json
	worker   *worker
	database string
	brokers  []string

	leads  []demoLead
	report demoReport
}

// demoLead is a lead and what will happen to it.
type demoLead struct {
	registration crm.Registration
	hour         int // of the working day in which it comes due; demoHours: later
	fate         fate
}

type fate int

const (
	forgotten fate = iota // nobody cares for it: it expires when it is due
	extended              // its agent extends it in time
	revived               // it expires, and its agent extends it then
	archived              // its agent archives it in time
)

// demoHour is what happened in one hour.
type demoHour struct {
	asOf                        time.Time
	extended, archived, revived int
	result                      leadsExpired
}

// demoReport is the JSON document.
type demoReport struct {
	Jobs     map[string]leadsExpired `json:"jobs"`
	Messages map[string]int          `json:"messages"`
	Distinct map[string]int          `json:"distinct_ce_ids"`
	Leads    demoCounts              `json:"leads"`
	Verify   struct {
		Streams     int `json:"streams"`
		Differences int `json:"differences"`
	} `json:"verify"`
	Seconds float64 `json:"seconds"`
}

type demoCounts struct {
	Registered int `json:"registered"`
	Due        int `json:"due"`      // came due within the day, less those extended or archived in time
	Extended   int `json:"extended"` // in time
	Archived   int `json:"archived"` // in time
	Revived    int `json:"revived"`  // extended after they had expired
}

// terminal is where a line that redraws itself may go: nowhere, unless someone watches.
func (d *demo) terminal() io.Writer {
	if file, ok := d.progress.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return file
		}
	}
	return io.Discard
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.progress, format+"\n", args...) //nolint:errcheck // progress is a courtesy
}

// tell is part of the result for people; with --json there is another.
func (d *demo) tell(format string, args ...any) {
	fmt.Fprintf(d.told, format, args...) //nolint:errcheck // the last line is checked
}

// play tells the story, from the first lead to the last message read back.
func (d *demo) play(ctx context.Context) error {
	day := time.Now().UTC().Truncate(time.Hour).Add(-demoHours * time.Hour)
	d.cast(day)
	if err := d.register(ctx, day); err != nil {
		return err
	}
	relayCtx, stop := context.WithCancel(ctx)
	relay := make(chan error, 1)
	go func() { relay <- d.worker.crm.relay.Run(relayCtx) }()
	err := d.live(ctx, day)
	if err == nil {
		err = d.drain(ctx, relay)
	}
	stop()
	if err := errors.Join(err, <-relay); err != nil {
		return err
	}
	return d.check(ctx)
}

// cast decides each lead's moment and fate, from the seed alone.
func (d *demo) cast(day time.Time) {
	random := rand.New(rand.NewPCG(d.options.seed, 0)) //nolint:gosec // a story, no secret
	newUUID := func() (id uuid.UUID) {
		for i := range id {
			id[i] = byte(random.UintN(256))
		}
		id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // version 4
		return id
	}
	agents := make([]ids.UserID, 40)
	for i := range agents {
		agents[i] = ids.UserID(newUUID())
	}
	tenants := []ids.TenantID{ids.TenantID(newUUID()), ids.TenantID(newUUID()), ids.TenantID(newUUID())}
	for range d.options.leads {
		lead := demoLead{hour: random.IntN(demoHours + 2)}
		switch luck := random.IntN(100); {
		case lead.hour >= demoHours: // comes due after the day
			lead.hour = demoHours
		case luck < 15:
			lead.fate = extended
		case luck < 20:
			lead.fate = archived
		case luck < 30:
			lead.fate = revived
		}
		agent := random.IntN(len(agents))
		lead.registration = crm.Registration{
			Lead: crm.LeadID(newUUID()), Tenant: tenants[agent%len(tenants)], Executor: agents[agent],
			Investor:  ids.UserID(newUUID()),
			ExpiresAt: day.Add(time.Duration(lead.hour)*time.Hour + time.Duration(1+random.IntN(59))*time.Minute),
		}
		d.leads = append(d.leads, lead)
	}
	d.report.Leads.Registered = len(d.leads)
	for _, l := range d.leads {
		if l.hour < demoHours && (l.fate == forgotten || l.fate == revived) {
			d.report.Leads.Due++
		}
	}
}

// at returns the lead operations as of a moment of the story.
func (d *demo) at(moment time.Time) func(context.Context, *demoLead, fate) error {
	operations := d.worker.crm.operations
	operations.Clock = func() time.Time { return moment }
	return func(ctx context.Context, l *demoLead, what fate) error {
		r := l.registration
		actor := ports.Actor(r.Executor.String())
		switch what {
		case extended, revived:
			return operations.Extend(ctx, actor, r.Lead, r.ExpiresAt.AddDate(0, 1, 0))
		case archived:
			return operations.Archive(ctx, actor, r.Lead)
		}
		return operations.Register(ctx, actor, r)
	}
}

// each does something to many leads, several at a time, as a platform would.
func (d *demo) each(ctx context.Context, leads []*demoLead, do func(context.Context, *demoLead) error) error {
	const atOnce = 8
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, lead := range leads {
		if groupCtx.Err() != nil {
			break
		}
		group.Go(func() error { return do(groupCtx, lead) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

func (d *demo) register(ctx context.Context, day time.Time) error {
	bar := progressbar.NewOptions(len(d.leads), progressbar.OptionSetWriter(d.terminal()),
		progressbar.OptionSetDescription("Registering leads"), progressbar.OptionShowCount(),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetRenderBlankState(true))
	register := d.at(day.AddDate(0, -1, 0))
	all := make([]*demoLead, len(d.leads))
	for i := range d.leads {
		all[i] = &d.leads[i]
	}
	err := d.each(ctx, all, func(ctx context.Context, l *demoLead) error {
		defer bar.Add(1) //nolint:errcheck // progress is a courtesy
		return register(ctx, l, forgotten)
	})
	if err != nil {
		return err
	}
	d.say("Registered %d leads, a month ago. The working day begins:", len(d.leads))
	d.tell("\n")
	return nil
}

// live runs the day: in each hour agents act, leads come due, and at its end the job ticks.
func (d *demo) live(ctx context.Context, day time.Time) error {
	total := &leadsExpired{}
	d.tell(hourFormat, "HOUR", "EXPIRED", "BATCHES", "TOOK", "EXTENDED", "ARCHIVED", "REVIVED")
	for hour := range demoHours {
		now := demoHour{asOf: day.Add(time.Duration(hour+1) * time.Hour)}
		acts := d.acts(hour)
		for what, leads := range acts {
			act := d.at(day.Add(time.Duration(hour) * time.Hour))
			if err := d.each(ctx, leads, func(ctx context.Context, l *demoLead) error { return act(ctx, l, what) }); err != nil {
				return err
			}
		}
		now.extended, now.archived, now.revived = len(acts[extended]), len(acts[archived]), len(acts[revived])
		result, err := d.worker.crm.expireLeads(ctx, cycle.Begin(now.asOf))
		if err != nil {
			return err
		}
		now.result = leadsExpiredOf(result)
		d.hour(now.asOf.Format("15:04"), now)
		d.report.Leads.Extended += now.extended
		d.report.Leads.Archived += now.archived
		d.report.Leads.Revived += now.revived
		total.ExpiredCount += now.result.ExpiredCount
		total.BatchesProcessed += now.result.BatchesProcessed
		total.Elapsed += now.result.Elapsed
		total.CappedByMaxBatches = total.CappedByMaxBatches || now.result.CappedByMaxBatches
		total.FailedCount += now.result.FailedCount
		total.SkippedLockedCount += now.result.SkippedLockedCount
		total.FaultCount += now.result.FaultCount
	}
	d.report.Jobs = map[string]leadsExpired{string(ports.LeadExpiration): *total}
	d.hour("day", demoHour{result: *total, extended: d.report.Leads.Extended,
		archived: d.report.Leads.Archived, revived: d.report.Leads.Revived})
	return nil
}

const hourFormat = "%-6v %8v %8v %8v %9v %9v %8v\n"

// hour tells of an hour as soon as it is over.
func (d *demo) hour(name string, h demoHour) {
	d.tell(hourFormat, name, h.result.ExpiredCount, h.result.BatchesProcessed,
		time.Duration(h.result.Elapsed).Round(time.Millisecond), h.extended, h.archived, h.revived)
}

// acts are what agents do in an hour: they look after leads that are about to come due, and
// revive those that expired in the hour before.
func (d *demo) acts(hour int) map[fate][]*demoLead {
	acts := make(map[fate][]*demoLead)
	for i := range d.leads {
		l := &d.leads[i]
		if l.hour == hour && (l.fate == extended || l.fate == archived) || l.hour == hour-1 && l.fate == revived {
			acts[l.fate] = append(acts[l.fate], l)
		}
	}
	return acts
}

// drain waits until the relay has emptied the outbox.
func (d *demo) drain(ctx context.Context, relay chan error) error {
	for {
		lag, err := outbox.Measure(ctx, d.worker.crm.db.Pool, d.worker.crm.table)
		if err != nil {
			return err
		}
		if lag.Unpublished == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-relay: // nobody would empty it
			relay <- err
			return errors.New("the relay ended before the outbox was empty")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// check reads Kafka back and verifies every row.
func (d *demo) check(ctx context.Context) error {
	d.tell("\n")
	d.say("Reading Kafka back and verifying every row against its events ...")
	records, err := embedded.ReadAll(ctx, d.brokers, published.TopicLeadExpired)
	if err != nil {
		return err
	}
	distinct := make(map[string]bool)
	for _, record := range records {
		distinct[record.Headers["ce_id"]] = true
	}
	d.report.Messages = map[string]int{published.TopicLeadExpired: len(records)}
	d.report.Distinct = map[string]int{published.TopicLeadExpired: len(distinct)}
	for entry, err := range d.worker.crm.ledger.Entries(ctx, time.Time{}) {
		if err != nil {
			return err
		}
		if len(entry.Stream) == 3 { // registered, expired, extended
			d.follow(entry, records)
			break
		}
	}
	result, err := verifyLeads(ctx, d.worker.crm.ledger, time.Time{})
	d.report.Verify.Streams, d.report.Verify.Differences = result.Streams, result.Differences
	return err
}

// show prints what happened. It is an error where it does not add up.
func (d *demo) show(asJSON bool) error {
	r := d.report
	if asJSON {
		if err := writeJSON(d.out, r); err != nil {
			return err
		}
	} else if err := d.tables(); err != nil {
		return err
	}
	expired := r.Jobs[string(ports.LeadExpiration)].ExpiredCount
	counts := []int{expired, r.Messages[published.TopicLeadExpired], r.Distinct[published.TopicLeadExpired]}
	if slices.ContainsFunc(counts, func(n int) bool { return n != r.Leads.Due }) || r.Verify.Differences > 0 {
		return fmt.Errorf("the demo does not add up: %d leads were due and nobody's concern; expired, messages, distinct ce_ids: %v; differences: %d",
			r.Leads.Due, counts, r.Verify.Differences)
	}
	return nil
}

func (d *demo) tables() error {
	r := d.report
	g := newGrid(d.out, "TOPIC", "MESSAGES", "DISTINCT CE_ID")
	for topic, n := range r.Messages {
		g.row(topic, n, r.Distinct[topic])
	}
	g.row()
	if err := g.flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(d.out, "%d of %d leads came due with nobody to extend or archive them in time.\n"+
		"Each expired once and was published once.\n"+
		"verify: %d streams, %d differences. It took %.1f s.\n",
		r.Leads.Due, r.Leads.Registered, r.Verify.Streams, r.Verify.Differences, r.Seconds)
	return err
}

// follow tells of one lead from its birth to Kafka.
func (d *demo) follow(entry ports.Entry[crm.Lead, crm.Event], records []embedded.Record) {
	d.tell("One of them, from its birth to Kafka: lead %s\n", entry.ID)
	for _, recorded := range entry.Stream {
		name := strings.TrimPrefix(fmt.Sprintf("%T", recorded.Event), "crm.")
		d.tell("  %s   version %d   %s\n", recorded.Event.OccurredAt().Format("2006-01-02 15:04"), recorded.Version, name)
	}
	for _, record := range records {
		if record.Key == entry.ID.String() {
			d.tell("  %s, partition %d, ce_id %s\n  %s\n\n", record.Topic, record.Partition, record.Headers["ce_id"], record.Value)
		}
	}
}

// stay keeps the services, and with --serve a worker, until ctx ends.
func (d *demo) stay(ctx context.Context, s settings.Settings) error {
	d.say("\nPostgreSQL   %s\nKafka        %s\n", d.database, d.brokers[0])
	d.say("Ask it:      PINWORKER_DATABASE_URL=%s pinworker backlog\n", d.database)
	if !d.options.serve {
		d.say("Running until Ctrl-C.")
		<-ctx.Done()
		return nil
	}
	d.say("A worker serves as well, until Ctrl-C; its log follows.")
	s.Log.Level = slog.LevelInfo
	w, err := newWorker(s, d.progress)
	if err != nil {
		return err
	}
	return errors.Join(serve(ctx, s, w), w.close())
}
