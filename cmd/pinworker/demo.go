package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/pin-platform/pinworker/adapters/embedded"
	"github.com/pin-platform/pinworker/adapters/outbox"
	appcalendar "github.com/pin-platform/pinworker/app/calendar"
	appcrm "github.com/pin-platform/pinworker/app/crm"
	"github.com/pin-platform/pinworker/app/cycle"
	apppromotion "github.com/pin-platform/pinworker/app/promotion"
	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/cmd/pinworker/internal/settings"
	"github.com/pin-platform/pinworker/ports"
)

// demoOptions are the demo's flags.
type demoOptions struct {
	sizes storySizes
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
in this process, and lives through a working day of a small platform: agents publish slots,
investors book them, appointments are confirmed, declined or forgotten, calls are planned,
moved and held, promotions end, leads expire or are extended. The four jobs tick every
quarter of an hour of that day. Then it reads Kafka back, verifies every row against its
events, shows what happened as tables, and leaves nothing behind.

It needs no settings and touches no database but its own.`,
		Example: `  pinworker demo
  pinworker demo --leads 20000 --json
  pinworker demo --keep      # leaves PostgreSQL and Kafka running until Ctrl-C
  pinworker demo --serve     # and a worker with its HTTP endpoints`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	sizes := map[string]*int{
		"leads": &options.sizes.leads, "bookings": &options.sizes.bookings, "events": &options.sizes.events, "promotions": &options.sizes.promotions,
	}
	flags.IntVar(sizes["leads"], "leads", 2000, "how many leads there are, 1 to 1000000")
	flags.IntVar(sizes["bookings"], "bookings", 300, "how many slots are published and booked, 1 to 1000000")
	flags.IntVar(sizes["events"], "events", 400, "how many calls are planned, 1 to 1000000")
	flags.IntVar(sizes["promotions"], "promotions", 200, "how many promotions are bought, 1 to 1000000")
	flags.Uint64Var(&options.seed, "seed", 1, "the same seed tells the same story")
	flags.BoolVar(&options.keep, "keep", false, "keep PostgreSQL and Kafka running afterwards, with their addresses printed")
	flags.BoolVar(&options.serve, "serve", false, "keep a worker running afterwards as well")
	cmd.RunE = command(func(cmd *cobra.Command, _ []string) error {
		if len(global.set) > 0 || cmd.Flags().Changed("config") {
			return usage("the demo takes no settings: leave --set and --config out")
		}
		for _, name := range slices.Sorted(maps.Keys(sizes)) {
			if n := *sizes[name]; n < 1 || n > 1_000_000 {
				return usage("--%s %d: allowed is a whole number from 1 to 1000000", name, n)
			}
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
	broker, err := embedded.StartKafka(0, published.Topics...)
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
	if err := w.addRelays(s); err != nil {
		return err
	}
	for _, c := range w.contexts {
		if err := c.migrator.UpAll(ctx); err != nil {
			return err
		}
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

// operations are what people do, as of a moment.
type operations struct {
	calendar  appcalendar.Operations
	promotion apppromotion.Operations
	crm       appcrm.Operations
}

// at returns the worker's operations as of a moment.
func (w *worker) at(moment time.Time) operations {
	o := operations{w.calendar, w.promotion, w.crm}
	clock := func() time.Time { return moment }
	o.calendar.Clock, o.promotion.Clock, o.crm.Clock = clock, clock, clock
	return o
}

// demo is one run of a story.
type demo struct {
	options  demoOptions
	progress io.Writer
	out      io.Writer
	told     io.Writer // out, or nothing with --json
	worker   *worker
	database string
	brokers  []string

	story    *story
	results  map[ports.Job]jobResult
	expected map[string]int // messages by topic
	report   demoReport
}

// demoReport is the JSON document.
type demoReport struct {
	Jobs     map[string]map[string]any `json:"jobs"`
	Messages map[string]int            `json:"messages"`
	Distinct map[string]int            `json:"distinct_ce_ids"`
	Acts     map[string]int            `json:"operations"`
	Due      int                       `json:"leads_due"` // within the day, less those extended or archived in time
	Verify   struct {
		Streams     int `json:"streams"`
		Differences int `json:"differences"`
	} `json:"verify"`
	Seconds float64 `json:"seconds"`
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
	day := time.Now().UTC().Truncate(time.Hour).Add(-storyTicks * storyTick)
	d.story = newStory(d.options.seed, day, d.options.sizes)
	d.results, d.expected = make(map[ports.Job]jobResult), make(map[string]int)
	d.report.Acts = make(map[string]int)
	if err := d.before(ctx); err != nil {
		return err
	}
	relayCtx, stop := context.WithCancel(ctx)
	relays, relayCtx := errgroup.WithContext(relayCtx)
	for _, c := range d.worker.contexts {
		relays.Go(func() error { return c.relay.Run(relayCtx) })
	}
	err := d.live(ctx)
	if err == nil {
		err = d.drain(ctx, relayCtx)
	}
	stop()
	if err := errors.Join(err, relays.Wait()); err != nil {
		return err
	}
	return d.check(ctx)
}

// before does what people did before the day.
func (d *demo) before(ctx context.Context) error {
	acts := d.due(d.story.day)
	bar := progressbar.NewOptions(len(acts), progressbar.OptionSetWriter(d.terminal()),
		progressbar.OptionSetDescription("The weeks before"), progressbar.OptionShowCount(),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetRenderBlankState(true))
	if err := d.perform(ctx, acts, func() { bar.Add(1) }); err != nil { //nolint:errcheck // progress is a courtesy
		return err
	}
	d.say("In the weeks before: %d leads, %d slots, %d calls, %d promotions. The working day begins:",
		d.report.Acts["leads registered"], d.report.Acts["slots published"], d.report.Acts["calls planned"], d.report.Acts["promotions bought"])
	d.tell("\n")
	return nil
}

// due takes the acts before a moment.
func (d *demo) due(until time.Time) []act {
	n := slices.IndexFunc(d.story.acts, func(a act) bool { return a.at.After(until) })
	if n < 0 {
		n = len(d.story.acts)
	}
	acts := d.story.acts[:n]
	d.story.acts = d.story.acts[n:]
	return acts
}

// perform does many acts, several subjects at a time, as a platform would.
func (d *demo) perform(ctx context.Context, acts []act, done func()) error {
	const atOnce = 8
	bySubject := make(map[int][]act)
	for _, a := range acts {
		bySubject[a.subject] = append(bySubject[a.subject], a)
		d.report.Acts[a.name]++
		for _, topic := range a.topics {
			d.expected[topic]++
		}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, subject := range slices.Sorted(maps.Keys(bySubject)) {
		if groupCtx.Err() != nil {
			break
		}
		group.Go(func() error {
			for _, a := range bySubject[subject] {
				if err := a.do(groupCtx, d.worker.at(a.at)); err != nil {
					return err
				}
				done()
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// dayRow is a line of the day's table.
const dayRow = "%-6v %10v %8v %8v %10v %12v %12v %10v\n"

// live runs the day: people act, and at each tick the jobs take what has come due.
func (d *demo) live(ctx context.Context) error {
	d.tell(dayRow, "HOUR", "OPERATIONS", "SENT", "SKIPPED", "TIMED OUT", "SLOTS FREED", "PROMOTIONS", "LEADS")
	hour, acted := make(map[ports.Job]jobResult), 0
	for tick := 1; tick <= storyTicks; tick++ {
		now := d.story.day.Add(time.Duration(tick) * storyTick)
		acts := d.due(now)
		acted += len(acts)
		if err := d.perform(ctx, acts, func() {}); err != nil {
			return err
		}
		for _, c := range d.worker.contexts {
			for _, j := range c.jobs {
				result, err := d.tick(ctx, j, now)
				if err != nil {
					return err
				}
				hour[j.name] = hour[j.name].plus(result)
				d.results[j.name] = d.results[j.name].plus(result)
			}
		}
		if now.Equal(now.Truncate(time.Hour)) {
			d.hour(now.Format("15:04"), acted, hour)
			hour, acted = make(map[ports.Job]jobResult), 0
		}
	}
	total := 0
	d.report.Jobs = make(map[string]map[string]any)
	for _, n := range d.report.Acts {
		total += n
	}
	for name, result := range d.results {
		d.report.Jobs[string(name)] = result.json()
	}
	d.hour("day", total, d.results)
	return nil
}

// tick runs a job's cycles of one tick, as serve does.
func (d *demo) tick(ctx context.Context, j *job, now time.Time) (sum jobResult, err error) {
	still := func() time.Time { return now }
	cycle.CatchUp(ctx, still, catchUpFor, func(ctx context.Context, tick cycle.Tick) cycle.Followed {
		result, failed := j.run(ctx, tick)
		sum, err = sum.plus(result), errors.Join(err, failed)
		return result.followed
	})
	return sum, err
}

// hour tells of an hour as soon as it is over.
func (d *demo) hour(name string, acted int, r map[ports.Job]jobResult) {
	d.tell(dayRow, name, acted, r[ports.ReminderDispatch].count("SentCount"), r[ports.ReminderDispatch].count("SkippedCount"),
		r[ports.AppointmentTimeout].count("ExpiredCount"), r[ports.AppointmentTimeout].count("SlotsReleasedCount"),
		r[ports.ExpirePromotions].count("ExpiredCount"), r[ports.LeadExpiration].count("ExpiredCount"))
}

// drain waits until the relays have emptied the outboxes.
func (d *demo) drain(ctx, relays context.Context) error {
	for _, c := range d.worker.contexts {
		for {
			lag, err := outbox.Measure(ctx, c.db.Pool, c.table)
			if err != nil {
				return err
			}
			if lag.Unpublished == 0 {
				break
			}
			select {
			case <-relays.Done(): // nobody would empty it
				return errors.Join(ctx.Err(), errors.New("a relay ended before the outbox was empty"))
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

// check reads Kafka back and verifies every row.
func (d *demo) check(ctx context.Context) error {
	d.tell("\n")
	d.say("Reading Kafka back and verifying every row against its events ...")
	records, err := readBack(ctx, d.brokers, published.Topics...)
	if err != nil {
		return err
	}
	d.report.Messages, d.report.Distinct = make(map[string]int), make(map[string]int)
	seen := make(map[string]bool)
	for _, topic := range published.Topics {
		d.report.Messages[topic], d.report.Distinct[topic] = 0, 0
	}
	for _, record := range records {
		d.report.Messages[record.Topic]++
		if id := record.Headers["ce_id"]; !seen[id] {
			seen[id] = true
			d.report.Distinct[record.Topic]++
		}
	}
	for _, item := range d.story.follow {
		if err := d.follow(ctx, item, records); err != nil {
			return err
		}
	}
	result, err := d.worker.verify(ctx, time.Time{})
	d.report.Verify.Streams, d.report.Verify.Differences = result.Streams, result.Differences
	d.report.Due = d.story.leads
	for job, topics := range map[ports.Job][]string{
		ports.AppointmentTimeout: {published.TopicAppointmentCancelled, published.TopicEventStatusChanged},
		ports.ExpirePromotions:   {published.TopicPurchaseChanged},
		ports.LeadExpiration:     {published.TopicLeadExpired},
	} {
		for _, topic := range topics {
			d.expected[topic] += d.results[job].count("ExpiredCount")
		}
	}
	d.expected[published.TopicReminderDue] += d.results[ports.ReminderDispatch].count("SentCount")
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
	var wrong []error
	for _, topic := range published.Topics {
		if n := d.expected[topic]; r.Messages[topic] != n || r.Distinct[topic] != n {
			wrong = append(wrong, fmt.Errorf("%s: %d messages, %d distinct ce_ids, and %d were committed", topic, r.Messages[topic], r.Distinct[topic], n))
		}
	}
	for name, result := range d.results {
		if result.failed+result.faults > 0 {
			wrong = append(wrong, fmt.Errorf("%s: %d items and %d units failed", name, result.failed, result.faults))
		}
	}
	if expired := d.results[ports.LeadExpiration].count("ExpiredCount"); expired != r.Due {
		wrong = append(wrong, fmt.Errorf("%d leads expired, and %d were due and nobody's concern", expired, r.Due))
	}
	if r.Verify.Differences > 0 {
		wrong = append(wrong, fmt.Errorf("verify: %d differences", r.Verify.Differences))
	}
	if len(wrong) > 0 {
		return fmt.Errorf("the demo does not add up: %w", errors.Join(wrong...))
	}
	return nil
}

func (d *demo) tables() error {
	r := d.report
	acts := newGrid(d.out, "WHAT PEOPLE DID", "TIMES")
	for _, name := range slices.Sorted(maps.Keys(r.Acts)) {
		acts.row(name, r.Acts[name])
	}
	acts.row()
	jobs := newGrid(d.out, "WHAT THE JOBS DID", "")
	for _, name := range jobNames {
		for _, f := range d.results[ports.Job(name)].fields {
			jobs.row(name, f.name, f.value)
		}
	}
	jobs.row()
	topics := newGrid(d.out, "TOPIC", "MESSAGES", "DISTINCT CE_ID")
	for _, topic := range published.Topics {
		topics.row(topic, r.Messages[topic], r.Distinct[topic])
	}
	topics.row()
	if err := errors.Join(acts.flush(), jobs.flush(), topics.flush()); err != nil {
		return err
	}
	_, err := fmt.Fprintf(d.out, "Every committed message was read back from Kafka, each once and as its contract (docs/events) has it.\n"+
		"verify: %d streams, %d differences. It took %.1f s.\n", r.Verify.Streams, r.Verify.Differences, r.Seconds)
	return err
}

// follow tells of one item from its birth to Kafka.
func (d *demo) follow(ctx context.Context, item storyItem, records []embedded.Record) error {
	_, events, err := d.worker.contextOf(ctx, item.id)
	if err != nil {
		return err
	}
	d.tell("From its birth to Kafka: %s, %s\n", item.what, item.id)
	for _, e := range events {
		d.tell("  %s   version %d   %s, by %s\n", e.At.Format("2006-01-02 15:04"), e.Version, e.Event, e.Actor)
	}
	for _, record := range records {
		if record.Headers["ce_subject"] == item.id.String() {
			d.tell("  %s, partition %d, ce_id %s\n  %s\n", record.Topic, record.Partition, record.Headers["ce_id"], record.Value)
		}
	}
	d.tell("\n")
	return nil
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
