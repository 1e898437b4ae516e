package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pin-platform/pinworker/adapters/embedded"
	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/kafka"
	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/ports"
)

func TestMain(m *testing.M) { embeddedtest.Main(m) }

const topic = "pin.crm.lead-expired.v1"

var table = outbox.Table{Schema: "crm"}

// world is an outbox in a fresh database, and what its relays log.
type world struct {
	*testing.T
	pool  *pgxpool.Pool // under the worker's role
	owner *pgxpool.Pool
	log   *journal

	mu                sync.Mutex // what its relays tell
	published, parked int
	most              int // of a round
	lags              []time.Duration
	heldUp            map[string]int // by topic
}

func (w *world) Published(_ string, n int, lags []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.published += n
	w.most = max(w.most, n)
	w.lags = append(w.lags, lags...)
}

func (w *world) Parked(string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.parked++
}

func (w *world) HeldUp(topic string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heldUp[topic]++
}

// timesHeldUp returns how often a topic, or "" for the database, was said to be held up.
func (w *world) timesHeldUp(topic string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heldUp[topic]
}

// told returns how many messages were said to be published, and to be parked.
func (w *world) told() (published, parked int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.published, w.parked
}

// onList returns the ids of what is parked.
func (w *world) onList() (ids []uuid.UUID) {
	w.Helper()
	list, err := outbox.ListParked(w.Context(), w.pool, table)
	if err != nil {
		w.Fatal(err)
	}
	for _, p := range list {
		ids = append(ids, p.Message)
	}
	return ids
}

// attempts returns after how many the message that is parked was.
func (w *world) attempts() int {
	w.Helper()
	list, err := outbox.ListParked(w.Context(), w.pool, table)
	if err != nil || len(list) != 1 {
		w.Fatalf("parked %v, %v; want one", list, err)
	}
	return list[0].Attempts
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newTracedWorld(t, nil)
}

func newTracedWorld(t *testing.T, tracer pgx.QueryTracer) *world {
	t.Helper()
	url := embeddedtest.Database(t)
	return &world{T: t, pool: connect(t, embeddedtest.AsWorker(t, url), tracer), owner: connect(t, url, nil), log: &journal{}, heldUp: make(map[string]int)}
}

func connect(t *testing.T, url string, tracer pgx.QueryTracer) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 24
	config.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// write commits messages, one for each (key, version), through the real write side.
func (w *world) write(ctx context.Context, messages ...ports.Message) {
	w.Helper()
	statement, args, err := outbox.NewWriter(table, "pin/crm", func() {}).Compose(ctx, ports.RunID{0x0F}, messages)
	if err != nil {
		w.Fatal(err)
	}
	if _, err := w.pool.Exec(ctx, statement, args...); err != nil {
		w.Fatal(err)
	}
}

func about(key, version int) ports.Message {
	subject := uuid.UUID{0: 0xAA, 15: byte(key), 14: byte(key >> 8)}
	return ports.Message{
		ID:    uuid.NewSHA1(subject, []byte(strconv.Itoa(version))),
		Topic: topic, Key: subject.String(), Subject: subject, Tenant: ids.TenantID{0xBB},
		AggregateType: "Lead", AggregateVersion: version, ContractVersion: 1,
		OccurredAt: time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC),
		Payload:    []byte(`{"ContractVersion":1}`),
	}
}

// relay starts a relay; halt tells it to stop, stop waits for it as well.
func (w *world) relay(publisher message.Publisher, grace time.Duration) (relay *outbox.Relay, halt, stop func()) {
	w.Helper()
	return w.relayWith(publisher, outbox.RelayConfig{BatchSize: 100, PollInterval: 50 * time.Millisecond, ShutdownGrace: grace})
}

func (w *world) relayWith(publisher message.Publisher, config outbox.RelayConfig) (relay *outbox.Relay, halt, stop func()) {
	w.Helper()
	config.Refused = kafka.Refused
	relay = outbox.NewRelay(w.pool, table, publisher, config, w, slog.New(w.log))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.Error(err)
		}
	})
	w.Cleanup(stop)
	return relay, cancel, stop
}

func (w *world) publisher(brokers []string) *kafka.Publisher {
	publisher, err := kafka.NewPublisher(kafka.Config{Brokers: brokers, ClientID: "test", KeyHeader: outbox.HeaderPartitionKey})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := publisher.Close(); err != nil {
			w.Error(err)
		}
	})
	return publisher
}

func (w *world) kafka(port int) embeddedtest.Broker {
	w.Helper()
	return embeddedtest.Kafka(w, port, topic)
}

// waiting returns the versions that wait, by key.
func (w *world) waiting() map[string]int {
	w.Helper()
	rows, err := w.pool.Query(context.Background(), "SELECT key, count(*) FROM crm.outbox GROUP BY key")
	if err != nil {
		w.Fatal(err)
	}
	waiting := make(map[string]int)
	var key string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&key, &n}, func() error { waiting[key] = n; return nil }); err != nil {
		w.Fatal(err)
	}
	return waiting
}

// eventually waits until a condition holds; the test's own deadline bounds it.
func (w *world) eventually(what string, holds func() bool) {
	w.Helper()
	deadline := time.After(30 * time.Second)
	for !holds() {
		select {
		case <-deadline:
			w.Fatalf("never: %s; log:\n%s", what, w.log)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (w *world) empty() {
	w.eventually("the outbox is empty", func() bool { return len(w.waiting()) == 0 })
}

// read returns what Kafka holds, and checks that each subject's versions are in order.
func (w *world) read(broker embeddedtest.Broker) []embedded.Record {
	w.Helper()
	records, err := embedded.ReadAll(w.Context(), broker.Brokers(), topic)
	if err != nil {
		w.Fatal(err)
	}
	last := make(map[string]int)
	for _, r := range records {
		version, err := strconv.Atoi(r.Headers["ce_aggregateversion"])
		if err != nil {
			w.Fatal(err)
		}
		if subject := r.Headers["ce_subject"]; version <= last[subject] {
			w.Errorf("subject %s: version %d after %d", subject, version, last[subject])
		} else {
			last[subject] = version
		}
	}
	return records
}

// looks counts how often a relay looked for waiting messages.
func (s *statements) looks() (n int) {
	for _, sql := range s.all() {
		if strings.Contains(sql, "lane") {
			n++
		}
	}
	return n
}

func (w *world) walPosition() (position string) {
	w.Helper()
	if err := w.owner.QueryRow(context.Background(), "SELECT pg_current_wal_insert_lsn()::text").Scan(&position); err != nil {
		w.Fatal(err)
	}
	return position
}

var (
	errRefused = errors.New("refused") // no kafka.PublishError: about the message itself
	errOutage  = &kafka.PublishError{Topic: topic, Err: errors.New("broker away")}
)

// publisher stands for Kafka where a test needs it to answer at will.
type publisher struct {
	answer func(m *message.Message, attempt int) error

	mu   sync.Mutex
	sent map[string]int
}

func (p *publisher) Publish(_ string, messages ...*message.Message) error {
	for _, m := range messages {
		p.mu.Lock()
		if p.sent == nil {
			p.sent = make(map[string]int)
		}
		p.sent[m.UUID]++
		attempt := p.sent[m.UUID]
		p.mu.Unlock()
		if err := p.answer(m, attempt); err != nil {
			return err
		}
	}
	return nil
}

func (p *publisher) Close() error { return nil }

func (p *publisher) attempts(m ports.Message) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent[m.ID.String()]
}

func version(m *message.Message) int {
	n, _ := strconv.Atoi(m.Metadata.Get("ce_aggregateversion"))
	return n
}

// statements records what a pool runs.
type statements struct {
	mu  sync.Mutex
	sql []string
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sql = append(s.sql, strings.TrimSpace(data.SQL))
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *statements) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sql)
}

// afterStatement does something once, after the first statement that has a part.
type afterStatement struct {
	part string
	do   func(conn *pgx.Conn)
	once sync.Once
}

type statementKey struct{}

func (a *afterStatement) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, statementKey{}, data.SQL)
}

func (a *afterStatement) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, _ pgx.TraceQueryEndData) {
	if sql, _ := ctx.Value(statementKey{}).(string); strings.Contains(sql, a.part) {
		a.once.Do(func() { a.do(conn) })
	}
}

// kill ends a connection, from the database's side.
func (w *world) kill(conn *pgx.Conn) {
	if _, err := w.owner.Exec(context.Background(), "SELECT pg_terminate_backend($1, 10000)", conn.PgConn().PID()); err != nil {
		w.Error(err)
	}
}

// journal keeps what was logged.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) Enabled(context.Context, slog.Level) bool { return true }

func (j *journal) WithAttrs([]slog.Attr) slog.Handler { return j }

func (j *journal) WithGroup(string) slog.Handler { return j }

func (j *journal) Handle(_ context.Context, r slog.Record) error {
	fields := make(map[string]string)
	r.Attrs(func(a slog.Attr) bool { fields[a.Key] = a.Value.String(); return true })
	line, err := json.Marshal(fields)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, r.Message+" "+string(line))
	return err
}

func (j *journal) count(part string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for _, line := range j.lines {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "\n")
}
