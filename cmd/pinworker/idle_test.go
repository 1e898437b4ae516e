package main

import (
	"context"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/app/published"
)

// What an idle worker costs is read from another database of the server, so that whoever reads
// does not count, and beside it from the wire: the server counts a connection's transactions some
// time after they ended. It is looked at for some looks of the relay, however long they take: on a
// slow machine the worker asks no more often.
func TestServe_AnIdleWorkerAsksSeldomAndWritesNothing(t *testing.T) {
	p := newPlatform(t)
	broker := embeddedtest.Kafka(t, 0, published.TopicLeadExpired)
	leads := p.register(5)
	proxy, through := embeddedtest.NewProxy(t, p.url)
	var asked atomic.Int64
	proxy.Before(func(m embeddedtest.Message) bool {
		if m.Asks() {
			asked.Add(1)
		}
		return true
	})
	s := serveWorkerUntil(context.Background(), t, "--set", "database.url="+through, "--set", "kafka.brokers="+broker.Brokers()[0])
	eventually(t, "it has nothing to do any more", func() bool { return p.everythingDone(len(leads)) })
	database := p.context("crm").db.Pool.Config().ConnConfig.Database
	elsewhere := p.elsewhere()
	p.context("crm").db.Pool.Reset() // what the test itself has asked is counted now, and not later

	// What was before may still be counted in the first seconds, and others of the server may
	// write some WAL.
	eventually(t, "less than 5 transactions a second, and no WAL", func() bool {
		begin, before := observe(t, elsewhere, database), asked.Load()
		end := begin
		for range 5 {
			last := end.at
			eventually(t, "each of the three relays looks", func() bool {
				end = observe(t, elsewhere, database)
				return end.look.After(last)
			})
		}
		seconds := end.at.Sub(begin.at).Seconds()
		transactions, queries := end.transactions-begin.transactions, int(asked.Load()-before)
		t.Logf("5 looks in %.1f s: %d transactions, %d queries, WAL from %s to %s", seconds, transactions, queries, begin.wal, end.wal)
		return transactions > 0 && float64(max(transactions, queries)) < 5*seconds && end.wal == begin.wal
	})
	if code := s.stop(); code != exitDone {
		t.Errorf("exit %d: %s", code, &s.log)
	}
}

// elsewhere is a connection to the server's own database.
func (p *platform) elsewhere() *pgx.Conn {
	p.Helper()
	u, err := url.Parse(p.context("crm").db.Pool.Config().ConnString())
	if err != nil {
		p.Fatal(err)
	}
	u.Path = "/postgres"
	conn, err := pgx.Connect(p.Context(), u.String())
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { conn.Close(context.Background()) }) //nolint:errcheck // the test is over
	return conn
}

type observation struct {
	at           time.Time
	transactions int // each query of an idle worker is one
	wal          string
	look         time.Time // since when each of the three relays has looked
}

func observe(t *testing.T, conn *pgx.Conn, database string) (o observation) {
	t.Helper()
	err := conn.QueryRow(t.Context(), `SELECT clock_timestamp(), d.xact_commit + d.xact_rollback, pg_current_wal_insert_lsn()::text,
			(SELECT CASE count(*) WHEN 3 THEN min(looks.last) ELSE 'epoch' END FROM (
				SELECT max(a.query_start) AS last FROM pg_stat_activity AS a
				WHERE a.datname = d.datname AND a.query LIKE '%lane%'
				GROUP BY substring(a.query FROM '"(\w+)"."outbox"')) AS looks)
		FROM pg_stat_database AS d WHERE d.datname = $1`, database).Scan(&o.at, &o.transactions, &o.wal, &o.look)
	if err != nil {
		t.Fatal(err)
	}
	return o
}
