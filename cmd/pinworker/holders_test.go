package main

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/pin-platform/pinworker/adapters/postgres"
)

// Each of them keeps vacuum from cleaning up behind the outbox, and ends with the test.
func TestDoctor_SeesWhatHoldsVacuumBack(t *testing.T) {
	p := newPlatform(t)
	db := p.context("crm").db
	sees := func(what, name string, left bool) {
		t.Helper()
		eventually(t, what+" is seen", func() bool {
			holders, err := db.Holders(t.Context())
			p.must(err)
			return slices.ContainsFunc(holders, func(h postgres.Holder) bool {
				return h.What == what && strings.Contains(h.Name, name) && h.Left == left && (h.Age > 0) == (h.Xmin == "")
			})
		})
	}
	reader, err := db.Pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	p.must(err)
	defer reader.Rollback(context.Background()) //nolint:errcheck // the test is over
	_, err = reader.Exec(t.Context(), "SELECT FROM crm.outbox")
	p.must(err)
	sees("transaction", "user postgres", false)

	p.execute("BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'forgotten'")
	defer p.execute("ROLLBACK PREPARED 'forgotten'")
	sees("prepared transaction", "forgotten", false)

	p.execute("SELECT pg_create_physical_replication_slot('standby', true)")
	defer p.execute("SELECT pg_drop_replication_slot('standby')")
	standby := p.standby("SLOT standby")
	sees("replication slot", "standby", false)
	p.must(standby.Close(t.Context()))
	sees("replication slot", "standby", true)

	p.standby("")
	sees("standby", "user postgres", false)
}

// standby does what a standby does whose queries want to keep what they see: to a slot, or without one ("").
func (p *platform) standby(slot string) *pgconn.PgConn {
	p.Helper()
	db := p.context("crm").db
	conn, err := pgconn.Connect(p.Context(), db.Pool.Config().ConnString()+"&replication=true")
	p.must(err)
	p.Cleanup(func() { conn.Close(context.Background()) }) //nolint:errcheck // it may have been closed
	var lsn string
	var xmin uint32
	p.must(db.Pool.QueryRow(p.Context(), "SELECT pg_current_wal_lsn()::text, pg_snapshot_xmin(pg_current_snapshot())::text::bigint").Scan(&lsn, &xmin))
	conn.Frontend().Send(&pgproto3.Query{String: "START_REPLICATION " + slot + " PHYSICAL " + lsn})
	p.must(conn.Frontend().Flush())
	for started := false; !started; {
		m, err := conn.ReceiveMessage(p.Context())
		p.must(err)
		_, started = m.(*pgproto3.CopyBothResponse)
	}
	feedback := binary.BigEndian.AppendUint64([]byte{'h'}, 0) // the moment
	for _, n := range []uint32{xmin, 0, 0, 0} {               // xmin, its epoch, and the catalog's
		feedback = binary.BigEndian.AppendUint32(feedback, n)
	}
	conn.Frontend().Send(&pgproto3.CopyData{Data: feedback})
	p.must(conn.Frontend().Flush())
	return conn
}

func TestDoctor_TellsWhatHoldsVacuumBackAndWhatToDo(t *testing.T) {
	for name, test := range map[string]struct {
		seen          postgres.Examination
		state, advice string
	}{
		"nothing":                      {postgres.Examination{SeesOthers: true}, isOK, ""},
		"nothing that we may see":      {postgres.Examination{}, isWarning, "GRANT pg_read_all_stats"},
		"a young transaction":          {postgres.Examination{SeesOthers: true, Holders: []postgres.Holder{{What: "transaction", Age: old}}}, isOK, ""},
		"an old one":                   {postgres.Examination{Holders: []postgres.Holder{{What: "transaction", Age: old + 1}}}, isWarning, "pg_terminate_backend"},
		"a prepared one":               {postgres.Examination{Holders: []postgres.Holder{{What: "prepared transaction", Age: old + 1}}}, isWarning, "ROLLBACK PREPARED"},
		"a slot that is used":          {postgres.Examination{SeesOthers: true, Holders: []postgres.Holder{{What: "replication slot", Xmin: "7"}}}, isOK, ""},
		"a standby that is far behind": {postgres.Examination{Holders: []postgres.Holder{{What: "standby", Xmin: "7", Behind: manyBehind + 1}}}, isWarning, "hot_standby_feedback"},
		"a slot that is left":          {postgres.Examination{Holders: []postgres.Holder{{What: "replication slot", Xmin: "7", Left: true}}}, isWarning, "pg_drop_replication_slot"},
	} {
		var d doctor
		d.holders(&boundedContext{name: "crm"}, test.seen)
		if got := d.lines[0]; len(d.lines) != 1 || got.State != test.state || !strings.Contains(got.Advice, test.advice) {
			t.Errorf("%s: %+v; want %s, %q", name, d.lines, test.state, test.advice)
		}
	}
}

func TestGauges_ASlotsAgeIsForHowLongItHasStood(t *testing.T) {
	at := func(xmin string) postgres.Holder {
		return postgres.Holder{What: "replication slot", Name: "standby", Xmin: xmin}
	}
	var slots standing
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, step := range []struct {
		holders []postgres.Holder
		want    time.Duration
	}{
		{[]postgres.Holder{at("7")}, 0},
		{[]postgres.Holder{at("7")}, time.Minute},
		{[]postgres.Holder{at("7"), {What: "transaction", Age: time.Hour}}, time.Hour},
		{[]postgres.Holder{at("7")}, 3 * time.Minute},
		{[]postgres.Holder{at("8")}, 0}, // it has moved
		{nil, 0},
		{[]postgres.Holder{at("8")}, 0}, // another of the name
	} {
		var got time.Duration
		if got, slots = slots.oldest(step.holders, now); got != step.want {
			t.Errorf("at %s: %s; want %s", now.Format(time.TimeOnly), got, step.want)
		}
		now = now.Add(time.Minute)
	}
}
