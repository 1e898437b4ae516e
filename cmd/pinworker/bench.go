package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/pin-platform/pinworker/adapters/embedded"
	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/adapters/postgres"
	appcrm "github.com/pin-platform/pinworker/app/crm"
	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/ports"
	"github.com/pin-platform/pinworker/sql/bench"
)

func newBench(global *globals, std streams) *cobra.Command {
	b := benchJobs{std: std}
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "Measure a job's pages beside what PostgreSQL alone can do",
		Long: `Starts a PostgreSQL of its own, fsync on, and expires leads page by page, in turn with two
statements that do all of a page in the database: "limit" writes the same rows, events and
envelopes; "bare" the same bytes with constant bodies. One and two workers; medians of the
rounds. Then it drains one round's leads while a transaction elsewhere holds a snapshot.

With the default sizes it needs 2 GB of disk and a few minutes.`,
		Example: "  pinworker bench jobs\n  pinworker bench jobs --due 20000 --rounds 3 --json",
		Args:    cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.IntVar(&b.due, "due", 100_000, "leads that are due in a round, 20000 to 1000000")
	flags.IntVar(&b.rounds, "rounds", 5, "rounds for each number of workers, 1 to 20")
	flags.IntVar(&b.others, "others", 0, "leads that are never due, beside those of the rounds")
	flags.IntVar(&b.batch, "batch", 500, "leads a page, 1 to 10000")
	cmd.RunE = command(func(cmd *cobra.Command, _ []string) error {
		switch {
		case b.due < 20_000 || b.due > 1_000_000:
			return usage("--due %d: allowed is a whole number from 20000 to 1000000", b.due)
		case b.due < 30*b.batch:
			return usage("--due %d: with pages of %d, allowed is a whole number from %d", b.due, b.batch, 30*b.batch)
		case b.rounds < 1 || b.rounds > 20:
			return usage("--rounds %d: allowed is a whole number from 1 to 20", b.rounds)
		case b.batch < 1 || b.batch > 10_000:
			return usage("--batch %d: allowed is a whole number from 1 to 10000", b.batch)
		case b.others < 0:
			return usage("--others %d: allowed is a whole number from 0", b.others)
		}
		report, err := b.run(cmd.Context())
		if err != nil {
			return err
		}
		if global.json {
			return writeJSON(std.out, report)
		}
		return report.print(std.out)
	})
	return parent(&cobra.Command{Use: "bench", Short: "Measure, side by side with the limit"}, cmd)
}

// benchReport is the JSON document.
type benchReport struct {
	Results []benchResult      `json:"results"`
	Ratios  map[string]float64 `json:"ratios"` // pinworker's time against limit's, one worker
	// AgainstBare is the same against constant bodies, Workers2 the rows a second of two workers
	// against one.
	AgainstBare float64   `json:"against_bare"`
	Workers2    float64   `json:"workers_2"`
	Held        benchHeld `json:"held_snapshot"`
}

type benchResult struct {
	Job           string  `json:"job"`
	Variant       string  `json:"variant"`
	Workers       int     `json:"workers"`
	RowsPerSecond float64 `json:"rows_per_second"`
	WALPerRow     float64 `json:"wal_bytes_per_row"`
}

// benchHeld is a drain while a snapshot is held elsewhere.
type benchHeld struct {
	Pages      int     `json:"pages"`
	FirstPages float64 `json:"first_pages_ms"` // median of the first tenth
	LastPages  float64 `json:"last_pages_ms"`  // median of the last tenth
	Ratio      float64 `json:"ratio"`
	HeapMiB    float64 `json:"heap_mib"` // most in use
}

var benchVariants = []string{"pinworker", "limit", "bare"}

// benchJobs is one run.
type benchJobs struct {
	std                        streams
	due, rounds, others, batch int

	db    *postgres.DB
	leads ports.DueLeads
	round int
}

func (b *benchJobs) say(format string, args ...any) {
	fmt.Fprintf(b.std.err, format+"\n", args...) //nolint:errcheck // progress is a courtesy
}

func (b *benchJobs) run(ctx context.Context) (report benchReport, err error) {
	server, err := embedded.StartPostgres(ctx, embedded.PostgresConfig{Durable: true})
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	b.db, err = postgres.Open(postgres.Config{
		URL: server.URL(), MaxConnections: 8, ApplicationName: "bench", StatementTimeout: 10 * time.Minute, LockTimeout: time.Minute,
	})
	if err != nil {
		return report, err
	}
	defer b.db.Close()
	b.leads = postgres.NewCRM(b.db, outbox.NewWriter(outbox.Table{Schema: "crm"}, "pin/crm", func() {})).Due
	if err := b.prepare(ctx); err != nil {
		return report, err
	}
	medians := make(map[int]map[string]float64) // seconds a row
	for _, workers := range []int{1, 2} {
		results, err := b.measure(ctx, workers)
		if err != nil {
			return report, err
		}
		medians[workers] = make(map[string]float64)
		for _, r := range results {
			medians[workers][r.Variant] = 1 / r.RowsPerSecond
		}
		report.Results = append(report.Results, results...)
	}
	one := medians[1]
	report.Ratios = map[string]float64{string(ports.LeadExpiration): round3(one["pinworker"] / one["limit"])}
	report.AgainstBare = round3(one["pinworker"] / one["bare"])
	report.Workers2 = round3(one["pinworker"] / medians[2]["pinworker"])
	report.Held, err = b.held(ctx)
	return report, err
}

// prepare fills the tables: the leads of each round come due a day after those of the one before.
func (b *benchJobs) prepare(ctx context.Context) error {
	migrator := postgres.NewMigrator(b.db, "crm")
	defer migrator.Close() //nolint:errcheck // what it did is known by then
	if err := migrator.UpAll(ctx); err != nil {
		return err
	}
	rounds := 2*b.rounds + 1
	b.say("Writing %d leads with their streams ...", rounds*b.due+b.others)
	for round := range rounds {
		if _, err := b.db.Pool.Exec(ctx, bench.FillLeads, b.due, benchDay(round)); err != nil {
			return err
		}
	}
	if _, err := b.db.Pool.Exec(ctx, bench.FillLeads, b.others, benchDay(10*rounds)); err != nil {
		return err
	}
	for _, statement := range []string{"VACUUM ANALYZE crm.leads", "VACUUM ANALYZE crm.domain_events", "CHECKPOINT"} {
		if _, err := b.db.Pool.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// benchDay is when the leads of a round are all due.
func benchDay(round int) time.Time {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, round)
}

// tally is what a variant took.
type tally struct {
	rows int
	wal  int64
	took time.Duration
}

func (b *benchJobs) measure(ctx context.Context, workers int) ([]benchResult, error) {
	perRow, wal := make(map[string][]float64), make(map[string][]float64)
	for range b.rounds {
		tallies, err := b.oneRound(ctx, workers)
		if err != nil {
			return nil, err
		}
		line := []string{fmt.Sprintf("Round %d, workers %d:", b.round, workers)}
		for _, v := range benchVariants {
			t := tallies[v]
			perRow[v] = append(perRow[v], t.took.Seconds()/float64(t.rows))
			wal[v] = append(wal[v], float64(t.wal)/float64(t.rows))
			line = append(line, fmt.Sprintf("%s %.0f rows/s", v, float64(t.rows)/t.took.Seconds()))
		}
		b.say("%s", strings.Join(line, "  "))
	}
	var results []benchResult
	for _, v := range benchVariants {
		results = append(results, benchResult{
			Job: string(ports.LeadExpiration), Variant: v, Workers: workers,
			RowsPerSecond: math.Round(1 / median(perRow[v])), WALPerRow: math.Round(median(wal[v])),
		})
	}
	return results, nil
}

// oneRound expires a round's leads, the variants taking turns page by page.
func (b *benchJobs) oneRound(ctx context.Context, workers int) (map[string]*tally, error) {
	asOf := benchDay(b.round)
	b.round++
	if err := b.settle(ctx); err != nil {
		return nil, err
	}
	tallies := map[string]*tally{"pinworker": {}, "limit": {}, "bare": {}}
	cursors := make([]ports.Cursor, workers)
	for turn := 0; ; turn++ {
		v := benchVariants[turn%len(benchVariants)]
		t := tallies[v]
		before, err := b.walPosition(ctx)
		if err != nil {
			return nil, err
		}
		began := time.Now()
		rows, err := b.turn(ctx, v, asOf, cursors)
		if err != nil {
			return nil, err
		}
		took := time.Since(began)
		after, err := b.walPosition(ctx)
		if err != nil {
			return nil, err
		}
		if rows < workers*turnPages(workers)*b.batch { // the last, short pages are not measured
			return tallies, nil
		}
		t.rows += rows
		t.took += took
		t.wal += after - before
	}
}

// settle begins each round from the same state: an outbox that the relay has emptied, and no
// vacuum or checkpoint left over from the round before.
func (b *benchJobs) settle(ctx context.Context) error {
	for _, statement := range []string{"TRUNCATE crm.outbox", "VACUUM crm.leads", "CHECKPOINT"} {
		if _, err := b.db.Pool.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// turnPages is how many pages a worker expires in a turn: one by itself; several beside others,
// who would otherwise stand waiting for the slowest after each page.
func turnPages(workers int) int {
	if workers == 1 {
		return 1
	}
	return 5
}

// turn has each worker expire its pages by a variant.
func (b *benchJobs) turn(ctx context.Context, variant string, asOf time.Time, cursors []ports.Cursor) (int, error) {
	var rows atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for i := range cursors {
		group.Go(func() error {
			for range turnPages(len(cursors)) {
				n, next, err := b.page(ctx, variant, asOf, cursors[i])
				if err != nil {
					return err
				}
				rows.Add(int64(n))
				cursors[i] = next
			}
			return nil
		})
	}
	err := group.Wait()
	return int(rows.Load()), err
}

func (b *benchJobs) page(ctx context.Context, variant string, asOf time.Time, after ports.Cursor) (int, ports.Cursor, error) {
	run := ports.NewRunID()
	if variant == "pinworker" {
		outcome, err := b.leads.Transition(ctx, ports.Claim{AsOf: asOf, After: after, Limit: b.batch, Run: run}, appcrm.Expire)
		return len(outcome.Applied), outcome.Next, err
	}
	statement := bench.Limit
	if variant == "bare" {
		statement = bench.Bare
	}
	afterDue := after.Due
	if after.IsZero() {
		afterDue = benchDay(-1)
	}
	var rows int
	next := after
	err := b.db.Pool.QueryRow(ctx, statement, asOf, afterDue, after.ID.String(), b.batch, run.String(), published.TopicLeadExpired).
		Scan(&rows, &next.Due, (*[16]byte)(&next.ID))
	return rows, next, err
}

func (b *benchJobs) walPosition(ctx context.Context) (position int64, err error) {
	err = b.db.Pool.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").Scan(&position)
	return position, err
}

// held drains a round while a transaction elsewhere holds a snapshot and an xid: what the drain
// leaves dead cannot be cleaned up.
func (b *benchJobs) held(ctx context.Context) (result benchHeld, err error) {
	if err := b.settle(ctx); err != nil {
		return result, err
	}
	holder, err := b.hold(ctx)
	if err != nil {
		return result, err
	}
	defer holder.Release()
	asOf := benchDay(b.round)
	var cursor ports.Cursor
	var pages []float64
	for {
		began := time.Now()
		rows, next, err := b.page(ctx, "pinworker", asOf, cursor)
		if err != nil {
			return result, err
		}
		if rows < b.batch {
			break
		}
		pages = append(pages, time.Since(began).Seconds()*1000)
		cursor = next
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		result.HeapMiB = max(result.HeapMiB, round3(float64(memory.HeapInuse)/(1<<20)))
	}
	tenth := max(1, len(pages)/10)
	result.Pages = len(pages)
	result.FirstPages, result.LastPages = round3(median(pages[:tenth])), round3(median(pages[len(pages)-tenth:]))
	result.Ratio = round3(result.LastPages / result.FirstPages)
	_, err = holder.Exec(ctx, "ROLLBACK")
	return result, err
}

func (b *benchJobs) hold(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := b.db.Pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id()"); err != nil {
		conn.Release()
		return nil, err
	}
	return conn, nil
}

func (r benchReport) print(w io.Writer) error {
	g := newGrid(w, "VARIANT", "WORKERS", "ROWS/S", "WAL BYTES/ROW")
	for _, result := range r.Results {
		g.row(result.Variant, result.Workers, int(result.RowsPerSecond), int(result.WALPerRow))
	}
	if err := g.flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nTime against the statement that builds the same envelopes (limit): %.2f\n"+
		"Time against the one with constant bodies (bare): %.2f\n"+
		"Two workers, rows a second against one: %.2f\n"+
		"Under a held snapshot: page %d costs %.2f of the first ones; at most %.0f MiB of heap in use\n",
		r.Ratios[string(ports.LeadExpiration)], r.AgainstBare, r.Workers2, r.Held.Pages, r.Held.Ratio, r.Held.HeapMiB)
	return err
}

func median[N cmp.Ordered](values []N) N {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return sorted[len(sorted)/2]
}

func round3(x float64) float64 { return math.Round(x*1000) / 1000 }
