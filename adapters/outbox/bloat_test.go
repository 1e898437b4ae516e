package outbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/ports"
)

// Vacuum may not clean up while somebody holds a snapshot. What a message costs is told by how often its
// table's blocks were touched, whatever the machine does beside: reading each round from the head of the lane
// takes some 150 times a message here.
func TestRelay_RowsThatAHeldSnapshotKeepsAreNotPassedOverInEachRound(t *testing.T) {
	const dead, more = 20_000, 2_000
	w := newWorld(t)
	holder, err := w.owner.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Rollback(context.Background()) //nolint:errcheck // it only held its snapshot
	if _, err := holder.Exec(t.Context(), "SELECT"); err != nil {
		t.Fatal(err)
	}
	answering := &publisher{answer: func(*message.Message, int) error { return nil }}
	relay, _, stop := w.relayWith(answering, outbox.RelayConfig{BatchSize: 20, PollInterval: time.Hour, ShutdownGrace: time.Second})
	sent := 0
	send := func(n int) {
		for range n / 500 {
			messages := make([]ports.Message, 500)
			for i := range messages {
				sent++
				messages[i] = about(i, sent)
			}
			w.write(t.Context(), messages...)
		}
		relay.Wake()
		w.eventually("all are published", func() bool { published, _ := w.told(); return published == sent })
	}
	send(dead)
	before := w.touched()
	if _, _, err := outbox.Depth(t.Context(), w.pool, table, []string{topic}, relay); err != nil {
		t.Fatal(err)
	}
	if n := w.touched() - before; n > dead/20 {
		t.Errorf("to measure it touched blocks %d times", n)
	}
	before = w.touched()
	send(more)
	stop()
	if n := (w.touched() - before) / more; n > 50 {
		t.Errorf("a message touched blocks %d times", n)
	}
}

// touched returns how often a block of the outbox's table was looked at, once all who did have told.
func (w *world) touched() (n int) {
	w.Helper()
	w.eventually("nobody is connected", func() bool {
		w.pool.Reset() // time and again: a connection may have been on its way
		err := w.owner.QueryRow(w.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND usename = 'worker'`).Scan(&n)
		return err == nil && n == 0
	})
	if err := w.owner.QueryRow(w.Context(), `SELECT heap_blks_hit + heap_blks_read FROM pg_statio_user_tables
		WHERE relid = 'crm.outbox'::regclass`).Scan(&n); err != nil {
		w.Fatal(err)
	}
	return n
}

// Ids are drawn before the commit: who draws first may commit last, as with two reminders of one event.
func TestRelay_AMessageThatCommitsAfterOneWithAHigherIDIsSent(t *testing.T) {
	w := newWorld(t)
	answering := &publisher{answer: func(*message.Message, int) error { return nil }}
	relay, _, _ := w.relay(answering, time.Second)
	slow, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Rollback(context.Background()) //nolint:errcheck // it is committed below
	late := about(1, 1)
	statement, args, err := outbox.NewWriter(table, "pin/crm", func() {}).Compose(t.Context(), ports.RunID{0x0F}, []ports.Message{late})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := slow.Exec(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
	for v := range 50 {
		w.write(t.Context(), about(1, v+2))
	}
	relay.Wake()
	w.eventually("what came later is published", func() bool { published, _ := w.told(); return published == 50 })
	if err := slow.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.eventually("what came late is, too", func() bool { return answering.attempts(late) == 1 })
}
