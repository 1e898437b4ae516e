package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/adapters/postgres"
)

func newBenchBloat(global *globals, std streams) *cobra.Command {
	b := benchBloat{benchRelay: benchRelay{std: std}}
	cmd := &cobra.Command{
		Use:   "bloat",
		Short: "Measure what dead rows that vacuum may not clean up do to the outbox relay",
		Long: `Sends messages through an outbox, round after round, and measures how fast the relay empties it:
before, while a transaction elsewhere holds a snapshot for as many messages as come in an hour, and after
that one has ended. Beside every fifth round as many go through an outbox that is truncated each time, and
so shows how fast the machine is at that moment. Then it waits for autovacuum and tells what is left of
the table. PostgreSQL is itself, fsync on; the messages are real, and what takes them is no Kafka.

In full: --messages 10000000 --rate 1000. It takes an hour or less, and 10 GB of disk.`,
		Example: "  pinworker bench bloat\n  pinworker bench bloat --messages 10000000 --rate 1000 --json",
		Args:    cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.IntVar(&b.messages, "messages", 500_000, "messages in all, 1000 to 100000000")
	flags.IntVar(&b.rate, "rate", 50, "messages a second: the snapshot is held for an hour of them")
	flags.DurationVar(&b.naptime, "naptime", time.Minute, "the server's autovacuum_naptime, 1s to 1h")
	cmd.RunE = command(func(cmd *cobra.Command, _ []string) error {
		switch {
		case b.messages < 1_000 || b.messages > 100_000_000:
			return usage("--messages %d: allowed is a whole number from 1000 to 100000000", b.messages)
		case b.rate < 1 || b.hour() > b.messages*4/5:
			return usage("--rate %d: with %d messages, allowed is a whole number from 1 to %d", b.rate, b.messages, b.messages*4/5/3600)
		case b.naptime < time.Second || b.naptime > time.Hour:
			return usage("--naptime %s: allowed is from 1s to 1h", b.naptime)
		}
		report, err := b.run(cmd.Context())
		return show(global, std, report, err)
	})
	return cmd
}

// bloatReport is the JSON document.
type bloatReport struct {
	Messages    int          `json:"messages"`
	HeldSeconds float64      `json:"held_seconds"`
	Phases      []bloatPhase `json:"phases"`
	// Ratio is how much slower the relay is at the end of the hour than the one beside it; RatioToBefore,
	// than itself at the start.
	Ratio         float64   `json:"ratio"`
	RatioToBefore float64   `json:"ratio_to_before"`
	Most          bloatSize `json:"most"`
	AfterVacuum   bloatSize `json:"after_vacuum"`
}

// bloatPhase has medians of its rounds; of the hour, of its second half.
type bloatPhase struct {
	Phase             string  `json:"phase"`
	Messages          int     `json:"messages"`
	MessagesPerSecond float64 `json:"messages_per_second"`
	Beside            float64 `json:"beside_messages_per_second"` // through the outbox that is truncated
	Ratio             float64 `json:"ratio"`                      // of the two
}

type bloatSize struct {
	TableMiB float64 `json:"table_mib"`
	IndexMiB float64 `json:"index_mib"`
}

type benchBloat struct {
	benchRelay

	rate    int
	naptime time.Duration

	measured, beside *gatedRelay
	report           bloatReport
}

func (b *benchBloat) hour() int { return b.rate * 3600 }

// round is how many messages are measured at once.
func (b *benchBloat) round() int { return min(max(b.messages/100, 500), 100_000) }

func (b *benchBloat) run(ctx context.Context) (_ bloatReport, err error) {
	database, err := startBench(ctx, "&pool_max_conns=24", "crm", "promotion")
	if err != nil {
		return b.report, err
	}
	defer func() { err = errors.Join(err, database.close()) }()
	b.db = database.DB
	for _, statement := range []string{
		fmt.Sprintf("ALTER SYSTEM SET autovacuum_naptime = %d", int(b.naptime.Seconds())), "SELECT pg_reload_conf()",
	} {
		if _, err := b.db.Pool.Exec(ctx, statement); err != nil {
			return b.report, err
		}
	}
	if err := b.fill(ctx, b.round()); err != nil {
		return b.report, err
	}
	if _, err := b.db.Pool.Exec(ctx, `CREATE TABLE public.messages AS SELECT topic, shard, key, uuid, payload FROM crm.outbox; TRUNCATE crm.outbox`); err != nil {
		return b.report, err
	}
	running, stop := context.WithCancel(ctx)
	b.measured, b.beside = startGated(running, b.db, "crm"), startGated(running, b.db, "promotion")
	err = b.phases(ctx)
	stop()
	return b.report, errors.Join(err, <-b.measured.ended, <-b.beside.ended)
}

func (b *benchBloat) phases(ctx context.Context) error {
	b.report.Messages = b.messages
	rest := (b.messages - b.hour()) / 2
	if err := b.phase(ctx, "before", rest); err != nil {
		return err
	}
	holder, err := b.db.Pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	began := time.Now()
	if _, err = holder.Exec(ctx, "SELECT"); err == nil {
		err = b.phase(ctx, "held", b.hour())
	}
	b.report.HeldSeconds = round3(time.Since(began).Seconds())
	if err := errors.Join(err, holder.Rollback(context.WithoutCancel(ctx))); err != nil {
		return err
	}
	if err := b.phase(ctx, "after", rest); err != nil {
		return err
	}
	b.report.Ratio = b.report.Phases[1].Ratio
	b.report.RatioToBefore = round3(b.report.Phases[0].MessagesPerSecond / b.report.Phases[1].MessagesPerSecond)
	return b.vacuumed(ctx)
}

// phase sends n messages, a round after the other.
func (b *benchBloat) phase(ctx context.Context, name string, n int) error {
	const every = 5 // a round beside
	var rates, beside, ratios []float64
	for sent, rounds := 0, 0; sent < n; rounds++ {
		round := min(b.round(), n-sent)
		rate, err := b.measured.carry(ctx, b.db, round)
		if err != nil {
			return err
		}
		sent += round
		line := fmt.Sprintf("%s, %d of %d: %.0f messages/s", name, sent, n, rate)
		if rounds%every == 0 {
			if _, err := b.db.Pool.Exec(ctx, "TRUNCATE promotion.outbox"); err != nil {
				return err
			}
			other, err := b.beside.carry(ctx, b.db, round)
			if err != nil {
				return err
			}
			beside, ratios = append(beside, other), append(ratios, other/rate)
			line += fmt.Sprintf(", beside it %.0f", other)
		}
		rates = append(rates, rate)
		size, err := b.size(ctx)
		if err != nil {
			return err
		}
		b.report.Most = bloatSize{max(b.report.Most.TableMiB, size.TableMiB), max(b.report.Most.IndexMiB, size.IndexMiB)}
		fmt.Fprintf(b.std.err, "%s; table %.0f MiB, index %.0f MiB\n", line, size.TableMiB, size.IndexMiB) //nolint:errcheck // progress is a courtesy
	}
	if name == "held" { // by then most is dead
		rates, beside, ratios = rates[len(rates)/2:], beside[len(beside)/2:], ratios[len(ratios)/2:]
	}
	b.report.Phases = append(b.report.Phases, bloatPhase{name, n, round3(median(rates)), round3(median(beside)), round3(median(ratios))})
	return nil
}

func (b *benchBloat) size(ctx context.Context) (s bloatSize, err error) {
	const mib = 1 << 20
	err = b.db.Pool.QueryRow(ctx, "SELECT pg_table_size('crm.outbox'), pg_indexes_size('crm.outbox')").Scan(&s.TableMiB, &s.IndexMiB)
	return bloatSize{round3(s.TableMiB / mib), round3(s.IndexMiB / mib)}, err
}

// vacuumed waits until autovacuum has come once more, and measures what is left of the table. The last dead
// rows are fewer than its threshold, maybe: that is lowered for them.
func (b *benchBloat) vacuumed(ctx context.Context) error {
	fmt.Fprintln(b.std.err, "Waiting for autovacuum ...") //nolint:errcheck // progress is a courtesy
	ctx, cancel := context.WithTimeoutCause(ctx, 5*b.naptime+time.Minute, errors.New("autovacuum did not clean up"))
	defer cancel()
	var since time.Time
	err := b.db.Pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&since)
	if err == nil {
		_, err = b.db.Pool.Exec(ctx, "ALTER TABLE crm.outbox SET (autovacuum_vacuum_threshold = 0)")
	}
	if err == nil {
		err = b.emptied(ctx, "SELECT coalesce(last_autovacuum < $1, true) FROM pg_stat_user_tables WHERE relid = 'crm.outbox'::regclass", since)
	}
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	b.report.AfterVacuum, err = b.size(ctx)
	return err
}

// gatedRelay is a relay whose messages wait at a gate while the outbox is filled.
type gatedRelay struct {
	schema string
	relay  *outbox.Relay
	gate   sync.RWMutex
	acks   ackCounter
	sent   int
	ended  chan error
}

var _ message.Publisher = (*gatedRelay)(nil)

func startGated(ctx context.Context, db *postgres.DB, schema string) *gatedRelay {
	g := &gatedRelay{schema: schema, acks: ackCounter{heard: make(chan struct{}, 1)}, ended: make(chan error, 1)}
	g.relay = outbox.NewRelay(db.Pool, outbox.Table{Schema: schema}, g, outbox.RelayConfig{
		BatchSize: 500, PollInterval: time.Second, ShutdownGrace: time.Second, Refused: func(error) bool { return false },
	}, &g.acks, slog.New(slog.DiscardHandler))
	go func() { g.ended <- g.relay.Run(ctx) }()
	return g
}

// Publish implements message.Publisher.
func (g *gatedRelay) Publish(string, ...*message.Message) error {
	g.gate.RLock()
	defer g.gate.RUnlock()
	return nil
}

// Close implements message.Publisher.
func (*gatedRelay) Close() error { return nil }

// carry fills the outbox, lets its messages go, and returns how many a second went.
func (g *gatedRelay) carry(ctx context.Context, db *postgres.DB, n int) (float64, error) {
	g.gate.Lock()
	_, err := db.Pool.Exec(ctx, "INSERT INTO "+g.schema+`.outbox (topic, shard, key, uuid, payload)
		SELECT topic, shard, key, uuid, payload FROM public.messages LIMIT $1`, n)
	began := time.Now()
	g.gate.Unlock()
	if err != nil {
		return 0, err
	}
	g.relay.Wake()
	g.sent += n
	err = g.acks.until(ctx, g.sent)
	return float64(n) / time.Since(began).Seconds(), err
}

// ackCounter is an outbox.Observer that counts.
type ackCounter struct {
	acked atomic.Int64
	heard chan struct{}
}

func (c *ackCounter) Published(_ string, n int, _ []time.Duration) {
	c.acked.Add(int64(n))
	select {
	case c.heard <- struct{}{}:
	default:
	}
}

func (*ackCounter) Parked(string) {}
func (*ackCounter) HeldUp(string) {}

// until waits for the n-th acknowledgement.
func (c *ackCounter) until(ctx context.Context, n int) error {
	for c.acked.Load() < int64(n) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.heard:
		}
	}
	return nil
}

func (r bloatReport) print(w io.Writer) error {
	g := newGrid(w, "SNAPSHOT", "MESSAGES", "MESSAGES/S", "BESIDE IT", "RATIO")
	for _, p := range r.Phases {
		g.row(p.Phase, p.Messages, int(p.MessagesPerSecond), int(p.Beside), fmt.Sprintf("%.2f", p.Ratio))
	}
	if err := g.flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nThe snapshot was held for %.0f s; the relay is %.2f times as slow as beside it, %.2f times as before.\n"+
		"Table and index had %.0f and %.0f MiB at most, and have %.0f and %.0f after autovacuum.\n",
		r.HeldSeconds, r.Ratio, r.RatioToBefore, r.Most.TableMiB, r.Most.IndexMiB, r.AfterVacuum.TableMiB, r.AfterVacuum.IndexMiB)
	return err
}
