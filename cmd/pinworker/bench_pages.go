package main

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/pin-platform/pinworker/adapters/postgres"
	appcalendar "github.com/pin-platform/pinworker/app/calendar"
	appcrm "github.com/pin-platform/pinworker/app/crm"
	apppromotion "github.com/pin-platform/pinworker/app/promotion"
	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/ports"
	"github.com/pin-platform/pinworker/sql/bench"
)

// benchHeld is a drain while a snapshot is held elsewhere.
type benchHeld struct {
	Pages      int     `json:"pages"`
	FirstPages float64 `json:"first_pages_ms"` // median of the first tenth
	LastPages  float64 `json:"last_pages_ms"`  // median of the last tenth
	Ratio      float64 `json:"ratio"`
	HeapMiB    float64 `json:"heap_mib"` // most in use
}

// benchPages measures a job that takes pages.
type benchPages struct {
	*benchJobs
	job       ports.Job
	what      string // names its statements: fill_, limit_, bare_
	schema    string
	table     string
	topic     string
	due       int // a round
	batch     int
	variants  []string
	transit   func(context.Context, ports.Claim) (int, ports.Cursor, error)
	round     int
	moreRound bool // one more, for the held snapshot
}

// transition adapts a job's store and rule.
func transition[A, E any](due ports.Due[A, E], rule ports.Rule[A, E]) func(context.Context, ports.Claim) (int, ports.Cursor, error) {
	return func(ctx context.Context, claim ports.Claim) (int, ports.Cursor, error) {
		outcome, err := due.Transition(ctx, claim, rule)
		return len(outcome.Applied), outcome.Next, err
	}
}

func (b *benchJobs) pages(ctx context.Context, name ports.Job, report *benchReport) error {
	p := &benchPages{benchJobs: b, job: name, due: b.due / 5, batch: 200, variants: []string{"pinworker", "limit"}}
	workers := []int{1}
	switch name {
	case ports.ReminderDispatch:
		p.what, p.schema, p.table, p.topic = "reminders", "calendar", "event_reminders", published.TopicReminderDue
		p.transit = transition(postgres.NewCalendar(b.db, benchWriter(p.schema)).DueReminders, appcalendar.Dispatch)
	case ports.ExpirePromotions:
		p.what, p.schema, p.table, p.topic = "promotions", "promotion", "promotion_purchases", published.TopicPurchaseChanged
		p.transit = transition(postgres.NewPromotion(b.db, benchWriter(p.schema)).Due, apppromotion.Expire)
	case ports.LeadExpiration:
		p.what, p.schema, p.table, p.topic = "leads", "crm", "leads", published.TopicLeadExpired
		p.transit = transition(postgres.NewCRM(b.db, benchWriter(p.schema)).Due, appcrm.Expire)
		p.due, p.batch, p.variants, workers, p.moreRound = b.due, b.batch, append(p.variants, "bare"), []int{1, 2}, true
	}
	if err := p.prepare(ctx, len(workers)*b.rounds); err != nil {
		return err
	}
	for _, n := range workers {
		results, err := p.measure(ctx, n)
		if err != nil {
			return err
		}
		report.Results = append(report.Results, results...)
	}
	one := report.of(name, "pinworker", 1, 0)
	report.Ratios[string(name)] = round3(report.of(name, "limit", 1, 0) / one)
	if name != ports.LeadExpiration {
		return nil
	}
	report.AgainstBare = round3(report.of(name, "bare", 1, 0) / one)
	report.Workers2 = round3(report.of(name, "pinworker", 2, 0) / one)
	held, err := p.held(ctx)
	report.Held = &held
	return err
}

// prepare fills the tables: the items of each round come due a day after those of the one before.
func (p *benchPages) prepare(ctx context.Context, rounds int) error {
	if p.moreRound {
		rounds++
	}
	fill := bench.Statement("fill_" + p.what)
	p.say("Writing %d %s with their streams ...", rounds*p.due, p.what)
	for round := range rounds {
		if err := p.exec(ctx, fill, p.due, benchDay(round)); err != nil {
			return err
		}
	}
	if p.job == ports.LeadExpiration && p.others > 0 {
		if err := p.exec(ctx, fill, p.others, benchDay(10*rounds)); err != nil {
			return err
		}
	}
	for _, statement := range []string{"VACUUM ANALYZE", "CHECKPOINT"} {
		if err := p.exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// tally is what a variant took.
type tally struct {
	rows int
	wal  int64
	took time.Duration
}

func (p *benchPages) measure(ctx context.Context, workers int) ([]benchResult, error) {
	perRow, wal := make(map[string][]float64), make(map[string][]float64)
	for range p.rounds {
		tallies, err := p.oneRound(ctx, workers)
		if err != nil {
			return nil, err
		}
		line := []string{fmt.Sprintf("%s, workers %d, round %d:", p.job, workers, p.round)}
		for _, v := range p.variants {
			t := tallies[v]
			perRow[v] = append(perRow[v], t.took.Seconds()/float64(t.rows))
			wal[v] = append(wal[v], float64(t.wal)/float64(t.rows))
			line = append(line, fmt.Sprintf("%s %.0f rows/s", v, float64(t.rows)/t.took.Seconds()))
		}
		p.say("%s", strings.Join(line, "  "))
	}
	var results []benchResult
	for _, v := range p.variants {
		results = append(results, benchResult{
			Job: string(p.job), Variant: v, Workers: workers,
			RowsPerSecond: math.Round(1 / median(perRow[v])), WALPerRow: math.Round(median(wal[v])),
		})
	}
	return results, nil
}

// oneRound takes a round's items, the variants taking turns page by page.
func (p *benchPages) oneRound(ctx context.Context, workers int) (map[string]*tally, error) {
	asOf := benchDay(p.round)
	p.round++
	if err := p.settle(ctx); err != nil {
		return nil, err
	}
	tallies := make(map[string]*tally)
	for _, v := range p.variants {
		tallies[v] = &tally{}
	}
	cursors := make([]ports.Cursor, workers)
	for turn := 0; ; turn++ {
		v := p.variants[turn%len(p.variants)]
		t := tallies[v]
		before, err := p.walPosition(ctx)
		if err != nil {
			return nil, err
		}
		began := time.Now()
		rows, err := p.turn(ctx, v, asOf, cursors)
		if err != nil {
			return nil, err
		}
		took := time.Since(began)
		after, err := p.walPosition(ctx)
		if err != nil {
			return nil, err
		}
		if rows < workers*turnPages(workers)*p.batch { // the last, short pages are not measured
			return tallies, nil
		}
		t.rows += rows
		t.took += took
		t.wal += after - before
	}
}

// settle begins each round from the same state: an outbox that the relay has emptied, and no
// vacuum or checkpoint left over from the round before.
func (p *benchPages) settle(ctx context.Context) error {
	for _, statement := range []string{"TRUNCATE " + p.schema + ".outbox", "VACUUM " + p.schema + "." + p.table, "CHECKPOINT"} {
		if err := p.exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// turnPages is how many pages a worker takes in a turn: one by itself; several beside others,
// who would otherwise stand waiting for the slowest after each page.
func turnPages(workers int) int {
	if workers == 1 {
		return 1
	}
	return 5
}

// turn has each worker take its pages by a variant.
func (p *benchPages) turn(ctx context.Context, variant string, asOf time.Time, cursors []ports.Cursor) (int, error) {
	var rows atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for i := range cursors {
		group.Go(func() error {
			for range turnPages(len(cursors)) {
				n, next, err := p.page(ctx, variant, asOf, cursors[i])
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

func (p *benchPages) page(ctx context.Context, variant string, asOf time.Time, after ports.Cursor) (int, ports.Cursor, error) {
	run := ports.NewRunID()
	if variant == "pinworker" {
		return p.transit(ctx, ports.Claim{AsOf: asOf, After: after, Limit: p.batch, Run: run})
	}
	afterDue := after.Due
	if after.IsZero() {
		afterDue = benchDay(-1)
	}
	var rows int
	next := after
	err := p.db.Pool.QueryRow(ctx, bench.Statement(variant+"_"+p.what), asOf, afterDue, after.ID.String(), p.batch, run.String(), p.topic).
		Scan(&rows, &next.Due, (*[16]byte)(&next.ID))
	return rows, next, err
}

func (p *benchPages) walPosition(ctx context.Context) (position int64, err error) {
	err = p.db.Pool.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").Scan(&position)
	return position, err
}

// held drains a round while a transaction elsewhere holds a snapshot and an xid: what the drain
// leaves dead cannot be cleaned up.
func (p *benchPages) held(ctx context.Context) (result benchHeld, err error) {
	if err := p.settle(ctx); err != nil {
		return result, err
	}
	holder, err := p.hold(ctx)
	if err != nil {
		return result, err
	}
	defer holder.Release()
	asOf := benchDay(p.round)
	var cursor ports.Cursor
	var pages []float64
	for {
		began := time.Now()
		rows, next, err := p.page(ctx, "pinworker", asOf, cursor)
		if err != nil {
			return result, err
		}
		if rows < p.batch {
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

func (p *benchPages) hold(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := p.db.Pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id()"); err != nil {
		conn.Release()
		return nil, err
	}
	return conn, nil
}
