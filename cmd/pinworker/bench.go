package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/pin-platform/pinworker/adapters/embedded"
	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/adapters/postgres"
	"github.com/pin-platform/pinworker/ports"
)

func newBench(global *globals, std streams) *cobra.Command {
	b := benchJobs{std: std}
	var jobs []string
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "Measure the jobs beside what PostgreSQL alone can do",
		Long: `Starts a PostgreSQL of its own, fsync on, and takes due items page by page, in turn with
statements that do all of a page in the database: "limit" writes the same rows, events and
envelopes; for leads, "bare" the same bytes with constant bodies. Leads are measured with one
and two workers, and once more while a transaction elsewhere holds a snapshot. Appointments,
a transaction each, are measured beside a round trip a statement ("statement"), with 20 in a
transaction ("pinworker-20"), and with a millisecond of round trip. Medians of the rounds.

With the default sizes it needs 3 GB of disk and several minutes.`,
		Example: "  pinworker bench jobs\n  pinworker bench jobs --job lead-expiration --due 20000 --rounds 3 --json",
		Args:    cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&jobs, "job", jobNames, "the jobs to measure")
	flags.IntVar(&b.due, "due", 100_000, "leads that are due in a round, 3000 to 1000000; a fifth as many reminders and promotions, a hundredth as many appointments")
	flags.IntVar(&b.rounds, "rounds", 5, "rounds of each measurement, 1 to 20")
	flags.IntVar(&b.others, "others", 0, "leads that are never due, beside those of the rounds")
	flags.IntVar(&b.batch, "batch", 500, "leads a page, 1 to 10000")
	cmd.RunE = command(func(cmd *cobra.Command, _ []string) error {
		for _, name := range jobs {
			if !slices.Contains(jobNames, name) {
				return usage("--job %q: allowed are %v", name, jobNames)
			}
		}
		switch {
		case b.due < 3_000 || b.due > 1_000_000:
			return usage("--due %d: allowed is a whole number from 3000 to 1000000", b.due)
		case b.due < 30*b.batch:
			return usage("--due %d: with pages of %d, allowed is a whole number from %d", b.due, b.batch, 30*b.batch)
		case b.rounds < 1 || b.rounds > 20:
			return usage("--rounds %d: allowed is a whole number from 1 to 20", b.rounds)
		case b.batch < 1 || b.batch > 10_000:
			return usage("--batch %d: allowed is a whole number from 1 to 10000", b.batch)
		case b.others < 0:
			return usage("--others %d: allowed is a whole number from 0", b.others)
		}
		report, err := b.run(cmd.Context(), jobs)
		return show(global, std, report, err)
	})
	return parent(&cobra.Command{Use: "bench", Short: "Measure, side by side with the limit"}, cmd, newBenchRelay(global, std), newBenchEndToEnd(global, std), newBenchBloat(global, std))
}

// benchReport is the JSON document.
type benchReport struct {
	Results []benchResult      `json:"results"`
	Ratios  map[string]float64 `json:"ratios"` // time against limit's, one worker; of appointments, against a round trip a statement
	// AgainstBare is the leads' time against constant bodies, Workers2 the leads a second of two
	// workers against one.
	AgainstBare float64    `json:"against_bare,omitempty"`
	Workers2    float64    `json:"workers_2,omitempty"`
	Held        *benchHeld `json:"held_snapshot,omitempty"`
	// Beside is what a drain of leads does to a cycle of reminders.
	Beside *benchBeside `json:"reminders_beside_leads,omitempty"`
}

type benchResult struct {
	Job           string  `json:"job"`
	Variant       string  `json:"variant"`
	Workers       int     `json:"workers"`
	RoundTripMs   float64 `json:"round_trip_ms,omitempty"` // added
	RowsPerSecond float64 `json:"rows_per_second"`
	WALPerRow     float64 `json:"wal_bytes_per_row,omitempty"`
}

// of returns the rows a second of a result.
func (r benchReport) of(job ports.Job, variant string, workers int, roundTripMs float64) float64 {
	for _, result := range r.Results {
		if result.Job == string(job) && result.Variant == variant && result.Workers == workers && result.RoundTripMs == roundTripMs {
			return result.RowsPerSecond
		}
	}
	return math.NaN()
}

// benchJobs is one run.
type benchJobs struct {
	std                        streams
	due, rounds, others, batch int

	db *postgres.DB
}

func (b *benchJobs) say(format string, args ...any) {
	fmt.Fprintf(b.std.err, format+"\n", args...) //nolint:errcheck // progress is a courtesy
}

func (b *benchJobs) run(ctx context.Context, jobs []string) (report benchReport, err error) {
	// The statements beside the worker's are planned once as well, by their indexes, as its own are.
	database, err := startBench(ctx, "&plan_cache_mode=force_generic_plan&enable_seqscan=off&jit=off", postgres.Contexts...)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, database.close()) }()
	b.db = database.DB
	report.Ratios = make(map[string]float64)
	for _, name := range jobNames { // in their own order
		if !slices.Contains(jobs, name) {
			continue
		}
		if name == string(ports.AppointmentTimeout) {
			err = b.appointments(ctx, database.server.URL(), &report)
		} else {
			err = b.pages(ctx, ports.Job(name), &report)
		}
		if err != nil {
			return report, err
		}
	}
	if slices.Contains(jobs, string(ports.ReminderDispatch)) && slices.Contains(jobs, string(ports.LeadExpiration)) {
		b.say("Reminders alone, then beside a drain of leads ...")
		beside, err := b.beside(ctx, database.server.URL())
		if err != nil {
			return report, err
		}
		report.Beside = &beside
	}
	return report, nil
}

// benchDatabase is a PostgreSQL of a benchmark's own, fsync on.
type benchDatabase struct {
	*postgres.DB

	server *embedded.Postgres
}

// startBench starts one with the tables of some contexts. options are added to the URL of its connections.
func startBench(ctx context.Context, options string, contexts ...string) (d benchDatabase, err error) {
	if d.server, err = embedded.StartPostgres(ctx, embedded.PostgresConfig{Durable: true}); err != nil {
		return d, err
	}
	if d.DB, err = openBench(d.server.URL() + options); err != nil {
		return d, errors.Join(err, d.server.Close())
	}
	for _, name := range contexts {
		migrator := postgres.NewMigrator(d.DB, name)
		if err := errors.Join(migrator.UpAll(ctx), migrator.Close()); err != nil {
			return d, errors.Join(err, d.close())
		}
	}
	return d, nil
}

func (d benchDatabase) close() error {
	d.Close()
	return d.server.Close()
}

// show prints what a benchmark has reported.
func show[R interface{ print(to io.Writer) error }](global *globals, std streams, report R, err error) error {
	switch {
	case err != nil:
		return err
	case global.json:
		return writeJSON(std.out, report)
	}
	return report.print(std.out)
}

func openBench(url string) (*postgres.DB, error) {
	return postgres.Open(postgres.Config{
		URL: url, MaxConnections: 8, ApplicationName: "bench", StatementTimeout: 10 * time.Minute, LockTimeout: time.Minute,
	})
}

// benchWriter is the outbox of a context that nobody empties.
func benchWriter(schema string) *outbox.Writer {
	return outbox.NewWriter(outbox.Table{Schema: schema}, "pin/"+schema, func() {})
}

func (b *benchJobs) exec(ctx context.Context, statement string, args ...any) error {
	_, err := b.db.Pool.Exec(ctx, statement, args...)
	return err
}

// benchDay is when the items of a round are all due.
func benchDay(round int) time.Time {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, round)
}

func (r benchReport) print(w io.Writer) error {
	g := newGrid(w, "JOB", "VARIANT", "WORKERS", "ADDED RTT", "ROWS/S", "WAL BYTES/ROW")
	for _, result := range r.Results {
		g.row(result.Job, result.Variant, result.Workers, fmt.Sprintf("%g ms", result.RoundTripMs), int(result.RowsPerSecond), int(result.WALPerRow))
	}
	if err := g.flush(); err != nil {
		return err
	}
	lines := []string{""}
	for _, name := range jobNames {
		ratio, measured := r.Ratios[name]
		switch {
		case !measured:
		case name == string(ports.AppointmentTimeout):
			one, twenty := r.of(ports.AppointmentTimeout, "pinworker", 1, 0), r.of(ports.AppointmentTimeout, "pinworker-20", 1, 0)
			naive, slow := r.of(ports.AppointmentTimeout, "statement", 1, 0), r.of(ports.AppointmentTimeout, "statement", 1, 1)
			lines = append(lines, fmt.Sprintf("%s: %.1f times a round trip a statement; 20 in a transaction %.1f times; with 1 ms of round trip %.1f times",
				name, one/naive, twenty/naive, r.of(ports.AppointmentTimeout, "pinworker", 1, 1)/slow))
		default:
			lines = append(lines, fmt.Sprintf("%s: time against the statement that builds the same envelopes (limit): %.2f", name, ratio))
		}
	}
	if r.Held != nil {
		lines = append(lines,
			fmt.Sprintf("Leads: time against the statement with constant bodies (bare): %.2f", r.AgainstBare),
			fmt.Sprintf("Leads: two workers, rows a second against one: %.2f", r.Workers2),
			fmt.Sprintf("Leads under a held snapshot: page %d costs %.2f of the first ones; at most %.0f MiB of heap in use", r.Held.Pages, r.Held.Ratio, r.Held.HeapMiB))
	}
	if r.Beside != nil {
		lines = append(lines, fmt.Sprintf("A cycle of 20 reminders: p99 %.1f ms alone, %.1f ms beside a drain of leads (%.2f)", r.Beside.AloneP99, r.Beside.BesideP99, r.Beside.Ratio))
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

func median[N cmp.Ordered](values []N) N {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return sorted[len(sorted)/2]
}

func round3(x float64) float64 { return math.Round(x*1000) / 1000 }
