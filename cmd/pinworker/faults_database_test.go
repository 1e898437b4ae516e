package main

import (
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// terminateConnection ends one of the relay's connections, one that holds a lane if there is any.
func terminateConnection(r *trial) {
	r.write(20)
	r.moment(50 * time.Millisecond) // in which some get through
	eventually(r.T, "a connection is ended", func() bool {
		victims, lanes := r.connections()
		if len(lanes) > 0 {
			victims = lanes
		}
		if len(victims) == 0 {
			return false
		}
		victim := victims[r.choice.IntN(len(victims))]
		if r.count("SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND usename = 'worker'", victim) == 0 ||
			r.count("SELECT pg_terminate_backend($1)::integer", victim) == 0 {
			return false
		}
		if len(lanes) > 0 {
			r.see("of them in a round", 1)
		}
		return true
	})
	r.see("connections ended", 1)
}

// restartPostgres crashes the server while messages are on their way.
func restartPostgres(r *trial) {
	started := func() (at time.Time) {
		if err := r.owner.QueryRow(r.Context(), "SELECT pg_postmaster_start_time()").Scan(&at); err != nil {
			r.Fatal(err)
		}
		return at
	}
	before, told := started(), r.worker.heldUp()
	r.write(300)
	r.moment(50 * time.Millisecond)
	if err := r.postgres.Restart(); err != nil {
		r.Fatal(err)
	}
	r.owner.Reset()
	if started().After(before) {
		r.see("starts of the server", 1)
	}
	eventually(r.T, "the worker has met it", func() bool { return r.worker.heldUp() > told })
	r.see("outages that the worker told of", r.worker.heldUp()-told)
	r.write(50)
	r.settled()
}

// makeReadOnly has the server refuse what writes, as a primary that is being failed over does.
func makeReadOnly(r *trial) {
	const why = "the database is read-only"
	told := r.worker.heldUpBy(why)
	r.write(200)
	r.moment(50 * time.Millisecond)
	r.setReadOnly("on")
	r.write(100)
	eventually(r.T, "the worker has met it", func() bool { return r.worker.heldUpBy(why) > told })
	waiting, before := r.waiting(), len(r.records())
	if waiting < 100 {
		r.Errorf("%d messages wait; want all that were written meanwhile, 100", waiting)
	}
	r.see("messages that waited", waiting)
	r.moment(r.atMost(time.Second, 5*time.Second))
	if sent := len(r.records()) - before; sent > 0 {
		r.Errorf("%d messages were sent meanwhile, and could not be deleted", sent)
	}
	r.see("outages that the worker told of", r.worker.heldUpBy(why)-told)
	r.setReadOnly("off")
	r.settled()
}

// setReadOnly has transactions be read-only, or not, from now on, and waits for the end of those from before.
// The test's own are never.
func (r *trial) setReadOnly(value string) {
	r.Helper()
	for _, statement := range []string{"ALTER SYSTEM SET default_transaction_read_only = " + value, "SELECT pg_reload_conf()"} {
		if _, err := r.owner.Exec(r.Context(), statement); err != nil {
			r.Fatal(err)
		}
	}
	eventually(r.T, "the server has taken it up", func() bool {
		conn, err := pgx.Connect(r.Context(), r.database)
		if err != nil {
			r.Fatal(err)
		}
		defer conn.Close(r.Context()) //nolint:errcheck // a connection of a moment
		_, err = conn.Exec(r.Context(), "DELETE FROM crm.outbox WHERE false")
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code == "25006" && value == "on" {
			r.see("writes refused with 25006", 1)
			return true
		}
		return err == nil && value == "off"
	})
	var since time.Time
	if err := r.owner.QueryRow(r.Context(), "SELECT clock_timestamp()").Scan(&since); err != nil {
		r.Fatal(err)
	}
	eventually(r.T, "transactions from before have ended", func() bool {
		return r.count("SELECT count(*) FROM pg_stat_activity WHERE usename = 'worker' AND xact_start < $1", since) == 0
	})
}
