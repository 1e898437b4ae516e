package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pin-platform/pinworker/adapters/postgres"
	appcalendar "github.com/pin-platform/pinworker/app/calendar"
	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/ports"
	"github.com/pin-platform/pinworker/sql/bench"
)

// appointments measures the cascade (4 aggregates, 3 reminders, 6 events, 2 messages an item), here
// and with a millisecond of round trip.
func (b *benchJobs) appointments(ctx context.Context, databaseURL string, report *benchReport) error {
	variants := []string{"pinworker", "pinworker-20", "statement"}
	perRound := b.due / 100
	trips := []float64{0, 1}
	rounds := len(trips) * b.rounds * len(variants)
	b.say("Writing %d appointments with their slots, events and reminders ...", rounds*perRound)
	for round := range rounds {
		if err := b.exec(ctx, bench.Statement("fill_appointments"), perRound, benchDay(round)); err != nil {
			return err
		}
	}
	for _, statement := range []string{"VACUUM ANALYZE", "CHECKPOINT"} {
		if err := b.exec(ctx, statement); err != nil {
			return err
		}
	}
	day := 0
	for _, trip := range trips {
		perItem, err := b.appointmentsAt(ctx, databaseURL, trip, variants, perRound, &day)
		if err != nil {
			return err
		}
		for _, v := range variants {
			report.Results = append(report.Results, benchResult{
				Job: string(ports.AppointmentTimeout), Variant: v, Workers: 1, RoundTripMs: trip,
				RowsPerSecond: math.Round(1 / median(perItem[v])),
			})
		}
	}
	report.Ratios[string(ports.AppointmentTimeout)] = round3(
		report.of(ports.AppointmentTimeout, "statement", 1, 0) / report.of(ports.AppointmentTimeout, "pinworker", 1, 0))
	return nil
}

// appointmentsAt measures the variants in turn, with so many milliseconds of added round trip, and
// returns the seconds an item of each round.
func (b *benchJobs) appointmentsAt(
	ctx context.Context, databaseURL string, trip float64, variants []string, perRound int, day *int,
) (map[string][]float64, error) {
	through, stop, err := delayed(databaseURL, time.Duration(trip*float64(time.Millisecond)))
	if err != nil {
		return nil, err
	}
	defer stop()
	db, err := openBench(through)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	perItem := make(map[string][]float64)
	for range b.rounds {
		line := []string{fmt.Sprintf("%s, %g ms of round trip:", ports.AppointmentTimeout, trip)}
		for _, v := range variants {
			began := time.Now()
			n, err := timeOutAll(ctx, db, v, benchDay(*day))
			if err == nil && n != perRound {
				err = fmt.Errorf("%s timed out %d of %d appointments", v, n, perRound)
			}
			if err != nil {
				return nil, err
			}
			*day++
			perItem[v] = append(perItem[v], time.Since(began).Seconds()/float64(n))
			line = append(line, fmt.Sprintf("%s %.0f items/s", v, float64(n)/time.Since(began).Seconds()))
		}
		b.say("%s", strings.Join(line, "  "))
	}
	return perItem, nil
}

// timeOutAll times out all appointments that are due, and returns how many there were.
func timeOutAll(ctx context.Context, db *postgres.DB, variant string, asOf time.Time) (int, error) {
	if variant == "statement" {
		return statementByStatement(ctx, db, asOf)
	}
	limits := cycle.Limits{BatchSize: 1, MaxBatches: 1_000_000, Interval: time.Minute}
	if variant == "pinworker-20" {
		limits.BatchSize = 20
	}
	job := appcalendar.TimeOutAppointments{
		Appointments: postgres.NewCalendar(db, benchWriter("calendar")).Overdue, Limits: limits, Clock: time.Now,
	}
	result, err := job.Run(ctx, cycle.Tick{Run: ports.NewRunID(), AsOf: asOf})
	return result.ExpiredCount, err
}

// statementByStatement does the same as one would at first: a statement for each row, an answer
// awaited for each statement, a transaction for each appointment. Its bodies are constant, and as
// long as the real ones.
func statementByStatement(ctx context.Context, db *postgres.DB, asOf time.Time) (items int, err error) {
	run := ports.NewRunID().String()
	for {
		found := false
		err := pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) (err error) {
			found, err = oneByStatements(ctx, tx, asOf, run)
			return err
		})
		if err != nil || !found {
			return items, err
		}
		items++
	}
}

func oneByStatements(ctx context.Context, tx pgx.Tx, asOf time.Time, run string) (found bool, err error) {
	var id, slot, planned string
	err = tx.QueryRow(ctx, `SELECT id::text, slot_id::text, calendar_event_id::text FROM calendar.appointments
		WHERE status = 'Pending' AND pending_expires_at < $1 ORDER BY pending_expires_at, id LIMIT 1
		FOR NO KEY UPDATE SKIP LOCKED`, asOf).Scan(&id, &slot, &planned)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err != nil:
		return false, err
	}
	var reminders []string
	rows, err := tx.Query(ctx, "SELECT id::text FROM calendar.event_reminders WHERE event_id = $1 AND status = 'Pending' ORDER BY id FOR UPDATE", planned)
	if err == nil {
		reminders, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		return false, err
	}
	do := func(statement string, args ...any) {
		if err == nil {
			_, err = tx.Exec(ctx, statement, args...)
		}
	}
	do("SELECT * FROM calendar.availability_slots WHERE id = $1 FOR NO KEY UPDATE", slot)
	do("SELECT * FROM calendar.calendar_events WHERE id = $1 FOR NO KEY UPDATE", planned)
	do("UPDATE calendar.appointments SET status = 'Expired', version = version + 1, updated_at = $2 WHERE id = $1", id, asOf)
	do("UPDATE calendar.availability_slots SET status = 'Available', version = version + 1, updated_at = $2 WHERE id = $1", slot, asOf)
	do("UPDATE calendar.calendar_events SET status = 'Cancelled', version = version + 1, updated_at = $2 WHERE id = $1", planned, asOf)
	for _, r := range reminders {
		do("UPDATE calendar.event_reminders SET status = 'Skipped', version = version + 1, updated_at = $2 WHERE id = $1", r, asOf)
	}
	const body = `{"Appointment":"00000000-0000-0000-0000-000000000000","At":"2026-01-01T00:00:00Z"}`
	for _, stream := range append([]string{id, slot, planned}, reminders...) {
		do("SELECT max(version) FROM calendar.domain_events WHERE stream_id = $1", stream)
		do(`INSERT INTO calendar.domain_events SELECT $1::uuid, 'Appointment', max(version) + 1, 'AppointmentExpired', $2::json, 'System', $3, $4, sha256($2::text::bytea)
			FROM calendar.domain_events WHERE stream_id = $1::uuid`, stream, body, run, asOf)
	}
	for _, topic := range []string{published.TopicAppointmentCancelled, published.TopicEventStatusChanged} {
		do("INSERT INTO calendar.outbox (topic, shard, key, uuid, payload) VALUES ($1, 0, $2::uuid::text, $2::uuid, $3)", topic, id, make([]byte, envelopeBytes))
	}
	return true, err
}

// envelopeBytes is about how long a message is in its envelope.
const envelopeBytes = 1100

// delayed puts a server farther away by a round trip, and returns its URL.
func delayed(databaseURL string, roundTrip time.Duration) (throughURL string, stop func(), err error) {
	u, err := url.Parse(databaseURL)
	if err != nil || roundTrip == 0 {
		return databaseURL, func() {}, err
	}
	target := u.Host
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				client.Close() //nolint:errcheck // nothing was said yet
				continue
			}
			go later(server, client, roundTrip/2)
			go later(client, server, roundTrip/2)
		}
	}()
	u.Host = listener.Addr().String()
	return u.String(), func() { listener.Close() }, nil //nolint:errcheck // it was only for a while
}

// later passes on what it reads after a while, in order, and goes on reading meanwhile.
func later(to io.WriteCloser, from io.Reader, delay time.Duration) {
	type piece struct {
		bytes []byte
		due   time.Time
	}
	pieces := make(chan piece, 1024)
	go func() {
		defer close(pieces)
		for {
			buffer := make([]byte, 64<<10)
			n, err := from.Read(buffer)
			if n > 0 {
				pieces <- piece{buffer[:n], time.Now().Add(delay)}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range pieces {
		time.Sleep(time.Until(p.due))
		if _, err := to.Write(p.bytes); err != nil {
			break
		}
	}
	to.Close() //nolint:errcheck // the other end has gone
}
