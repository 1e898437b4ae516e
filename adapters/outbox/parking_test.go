package outbox_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/ports"
)

func TestRelay_WhatKafkaRefusesForGoodIsParkedAndAllElseGoesOn(t *testing.T) {
	attempts := map[string]int{"too large for Kafka": 2, "no envelope": 1} // it did not come as far as Kafka's client
	for what, poison := range map[string]func(*world){
		"too large for Kafka": func(w *world) {
			m := about(0, 1)
			m.Payload = make([]byte, 2<<20)
			w.write(w.Context(), m)
		},
		"no envelope": func(w *world) {
			w.write(w.Context(), about(0, 1))
			if _, err := w.owner.Exec(w.Context(), `UPDATE crm.outbox SET payload = 'rubbish'`); err != nil {
				w.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			broker := w.kafka(0)
			poison(w)
			w.write(t.Context(), about(0, 2)) // of the same key
			const others = 64                 // enough for every lane to have some
			for key := range others {
				w.write(t.Context(), about(key+1, 1), about(key+1, 2))
			}
			w.relay(w.publisher(broker.Brokers()), time.Second)
			w.empty()
			if records := w.read(broker); len(records) != others*2+1 {
				t.Errorf("%d records; want %d: all but the poison", len(records), others*2+1)
			}
			if got, want := w.onList(), []uuid.UUID{about(0, 1).ID}; !slices.Equal(got, want) {
				t.Errorf("parked %v; want %v", got, want)
			}
			if n := w.attempts(); n != attempts[what] {
				t.Errorf("parked after %d attempts; want %d", n, attempts[what])
			}
			if n := w.log.count("is parked"); n != 1 {
				t.Errorf("it was told %d times; want once", n)
			}
			if published, parked := w.told(); published != others*2+1 || parked != 1 {
				t.Errorf("told of %d published and %d parked", published, parked)
			}
		})
	}
}

func TestRelay_TellsWhatWatermillTellsAndNothingOfAPayload(t *testing.T) {
	w := newWorld(t)
	w.write(t.Context(), about(1, 1))
	const rubbish = "rubbish of somebody's"
	if _, err := w.owner.Exec(t.Context(), "UPDATE crm.outbox SET payload = $1", []byte(rubbish)); err != nil {
		t.Fatal(err)
	}
	w.relay(&publisher{}, time.Second)
	w.eventually("it is parked", func() bool { return len(w.onList()) == 1 })
	if w.log.count("Could not unwrap a message") != 1 || w.log.count(rubbish)+w.log.count(fmt.Sprintf("%d", []byte(rubbish))) > 0 {
		t.Errorf("log:\n%s", w.log)
	}
}

// Kafka refuses a whole batch of records for one of them.
func TestRelay_OneOversizeAmong999SoundOnesIsParkedAlone(t *testing.T) {
	w := newWorld(t)
	broker := w.kafka(0)
	embeddedtest.LimitBatches(t, broker, topic, 10_000)
	batch := make([]ports.Message, 1000)
	for key := range batch {
		batch[key] = about(key, 1)
	}
	batch[500].Payload = make([]byte, 20_000)
	rand.Read(batch[500].Payload) // which cannot be compressed
	w.write(t.Context(), batch...)
	w.relay(w.publisher(broker.Brokers()), time.Second)
	w.empty()
	if got := w.onList(); len(got) != 1 || got[0] != batch[500].ID {
		t.Errorf("parked %v; want the oversize alone", got)
	}
	if records := w.read(broker); len(records) != 999 {
		t.Errorf("%d records; want 999", len(records))
	}
}

// The row is in the outbox or is parked, and never both: one statement's end is no commit.
func TestRelay_AParkedMessageLeavesTheOutboxInOneTransaction(t *testing.T) {
	at := &afterStatement{part: `INSERT INTO "crm"."outbox_parked"`}
	w := newTracedWorld(t, at)
	kept := make(chan int, 1)
	at.do = func(conn *pgx.Conn) {
		w.kill(conn)
		kept <- len(w.onList())
	}
	w.write(t.Context(), about(1, 1))
	w.relay(&publisher{answer: func(*message.Message, int) error { return errRefused }}, time.Second)
	if n := <-kept; n != 0 {
		t.Error("it is parked, and its transaction was not committed")
	}
	w.eventually("it is parked by another round", func() bool { return len(w.onList()) == 1 })
	w.empty()
	if _, parked := w.told(); parked != 1 {
		t.Errorf("told %d times that it is parked; want once", parked)
	}
}

// What cannot be parked holds up its key; what was sent beside it is not sent again.
func TestRelay_WhatCannotBeParkedWaitsAndNothingElseDoes(t *testing.T) {
	w := newWorld(t)
	change := func(statement string) {
		t.Helper()
		if _, err := w.owner.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	refused, later, sound := about(1, 1), about(1, 2), about(2, 1)
	w.inOneLane(refused, later, sound)
	change("ALTER TABLE crm.outbox_parked ADD CONSTRAINT no_more CHECK (false)")
	p := &publisher{answer: func(m *message.Message, _ int) error {
		if m.UUID == refused.ID.String() {
			return errRefused
		}
		return nil
	}}
	w.relay(p, time.Second)
	w.eventually("it was tried twice", func() bool { return p.attempts(refused) > 1 })
	if n, m := p.attempts(sound), p.attempts(later); n != 1 || m != 0 {
		t.Errorf("the sound one was sent %d times, the key's next one %d; want once, and not before the first is parked", n, m)
	}
	change("ALTER TABLE crm.outbox_parked DROP CONSTRAINT no_more")
	w.empty()
	if got := w.onList(); !slices.Equal(got, []uuid.UUID{refused.ID}) {
		t.Errorf("parked %v; want %s", got, refused.ID)
	}
}

// What was discarded is kept, and ids begin again after some restores.
func TestRelay_ParksWhatHasTheIdOfADiscardedOne(t *testing.T) {
	w := newWorld(t)
	w.relay(&publisher{answer: func(*message.Message, int) error { return errRefused }}, time.Second)
	for i := range 2 {
		m := about(1, i+1)
		w.write(t.Context(), m)
		w.eventually("it is parked", func() bool { return slices.Equal(w.onList(), []uuid.UUID{m.ID}) })
		if err := outbox.Discard(t.Context(), w.pool, table, m.ID, "superseded"); err != nil {
			t.Fatal(err)
		}
		if _, err := w.owner.Exec(t.Context(), "ALTER TABLE crm.outbox ALTER COLUMN id RESTART"); err != nil {
			t.Fatal(err)
		}
	}
}

// An envelope of somebody else's may hold a message for another topic, or one without an id of its own.
func TestRelay_ParksAnEnvelopeThatIsNotItsRows(t *testing.T) {
	for name, change := range map[string][2]string{
		"another topic":   {topic, "pin.crm.lead-won.v1"},
		"another message": {about(1, 1).ID.String(), about(1, 2).ID.String()},
		"another key":     {`"` + outbox.HeaderPartitionKey + `":"`, `"` + outbox.HeaderPartitionKey + `":"another`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.write(t.Context(), about(1, 1))
			if _, err := w.owner.Exec(t.Context(), "UPDATE crm.outbox SET payload = convert_to(replace(convert_from(payload, 'UTF8'), $1, $2), 'UTF8')", change[0], change[1]); err != nil {
				t.Fatal(err)
			}
			p := &publisher{answer: func(*message.Message, int) error { return nil }}
			w.relay(p, time.Second)
			w.eventually("it is parked", func() bool { return len(w.onList()) == 1 })
			if len(p.sent) > 0 {
				t.Errorf("sent %v", p.sent)
			}
		})
	}
}

func TestRelay_ARefusedMessageWaitsForNoOtherAndNoOtherForIt(t *testing.T) {
	w := newWorld(t)
	hanging, never := make(chan struct{}, 1), make(chan struct{})
	t.Cleanup(func() { close(never) })
	w.relay(&publisher{answer: func(m *message.Message, _ int) error {
		switch m.Metadata.Get("ce_type") {
		case "hangs":
			hanging <- struct{}{}
			<-never
		case "refused":
			return errRefused
		}
		return nil
	}}, time.Millisecond)
	to := func(topic string, m ports.Message) ports.Message {
		m.Topic = topic
		return m
	}
	hung, refused, sound := to("hangs", about(1, 1)), to("refused", about(2, 1)), to("sound", about(3, 1))
	w.write(t.Context(), hung)
	<-hanging
	w.write(t.Context(), refused, sound)
	w.eventually("the refused one is parked, the sound one published, the other in flight", func() bool {
		return slices.Equal(w.onList(), []uuid.UUID{refused.ID}) && maps.Equal(w.waiting(), map[string]int{hung.Key: 1})
	})
}

func TestParked_IsReleasedOrDiscardedWithAReasonThatIsKept(t *testing.T) {
	w := newWorld(t)
	bad := true
	var mu sync.Mutex
	w.relay(&publisher{answer: func(*message.Message, int) error {
		mu.Lock()
		defer mu.Unlock()
		if bad {
			return errRefused
		}
		return nil
	}}, time.Second)
	w.write(t.Context(), about(1, 1), about(2, 1))
	w.eventually("both are parked", func() bool { return len(w.onList()) == 2 })
	mu.Lock()
	bad = false
	mu.Unlock()
	if err := outbox.Release(t.Context(), w.pool, table, about(1, 1).ID); err != nil {
		t.Error(err)
	}
	if err := outbox.Discard(t.Context(), w.pool, table, about(2, 1).ID, "superseded"); err != nil {
		t.Error(err)
	}
	w.eventually("the released one is published", func() bool { published, _ := w.told(); return published == 1 })
	if got := w.onList(); len(got) > 0 {
		t.Errorf("still on the list: %v", got)
	}
	var reason string
	if err := w.owner.QueryRow(t.Context(), "SELECT discard_reason FROM crm.outbox_parked").Scan(&reason); err != nil || reason != "superseded" {
		t.Errorf("kept %q, %v; want the discarded one with its reason", reason, err)
	}
	for _, decide := range []func() error{
		func() error { return outbox.Release(t.Context(), w.pool, table, about(2, 1).ID) },
		func() error { return outbox.Discard(t.Context(), w.pool, table, about(9, 1).ID, "never was") },
	} {
		if err := decide(); !errors.Is(err, outbox.ErrNotParked) {
			t.Errorf("error %v; want ErrNotParked", err)
		}
	}
}
