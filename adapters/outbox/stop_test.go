package outbox_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/ports"
)

func TestRelay_AStopFinishesWhatIsInFlightAndReadsNoMore(t *testing.T) {
	w := newWorld(t)
	arrived, release := make(chan struct{}, 100), make(chan struct{})
	p := &publisher{answer: func(*message.Message, int) error {
		arrived <- struct{}{}
		<-release
		return nil
	}}
	for key := range 10 {
		w.write(t.Context(), about(key, 1), about(key, 2))
	}
	_, halt, stop := w.relay(p, 30*time.Second)
	for range 10 {
		<-arrived
	}
	halt()
	w.write(t.Context(), about(50, 1)) // too late for this relay
	close(release)
	stop()
	want := map[string]int{about(50, 1).Key: 1}
	for key := range 10 {
		want[about(key, 2).Key] = 1
	}
	if waiting := w.waiting(); !maps.Equal(waiting, want) {
		t.Errorf("waiting %v; want the second of each key and the late one, %v", waiting, want)
	}
	for key := range 10 {
		if p.attempts(about(key, 2)) > 0 {
			t.Errorf("key %d: a message was begun after the stop", key)
		}
	}
}

func TestRelay_AStopDoesNotWaitLongerThanItsGrace(t *testing.T) {
	w := newWorld(t)
	arrived, never := make(chan struct{}, 100), make(chan struct{})
	t.Cleanup(func() { close(never) })
	p := &publisher{answer: func(*message.Message, int) error {
		arrived <- struct{}{}
		<-never
		return nil
	}}
	w.write(t.Context(), about(1, 1))
	_, _, stop := w.relay(p, time.Millisecond)
	<-arrived
	stop()
	if waiting := w.waiting(); len(waiting) != 1 {
		t.Errorf("waiting %v; want the message that was not acked", waiting)
	}
	if w.log.count("outbox relay stops before") != 1 || w.log.count("context canceled") != 1 {
		t.Errorf("log %s; want it told that the grace is over", w.log)
	}
}

// What was read before the stop is not begun after it.
func TestRelay_AStopBetweenReadingAndSendingSendsNothing(t *testing.T) {
	at := &afterStatement{part: "octet_length"}
	w := newTracedWorld(t, at)
	halted := make(chan func(), 1)
	at.do = func(*pgx.Conn) { (<-halted)() }
	w.write(t.Context(), about(1, 1), about(2, 1))
	p := &publisher{answer: func(*message.Message, int) error { return nil }}
	_, halt, stop := w.relay(p, time.Second)
	halted <- halt
	w.eventually("it was read", func() bool { return len(halted) == 0 })
	stop()
	if len(p.sent) > 0 {
		t.Errorf("sent %v", p.sent)
	}
}

func TestRelay_AStopTellsWhatIsAckedAndCannotBeDeleted(t *testing.T) {
	w := newWorld(t)
	arrived, open := make(chan struct{}), make(chan struct{})
	w.write(t.Context(), about(1, 1))
	_, halt, stop := w.relay(&publisher{answer: func(*message.Message, int) error {
		close(arrived)
		<-open
		return nil
	}}, time.Minute)
	<-arrived
	if _, err := w.owner.Exec(t.Context(), "REVOKE DELETE ON crm.outbox FROM pinworker"); err != nil {
		t.Fatal(err)
	}
	halt()
	close(open)
	stop()
	if w.log.count("outbox relay stops before") != 1 {
		t.Errorf("log %s; want it told that it will be sent again", w.log)
	}
}

// gate holds back what it is given until it is opened, and passes it on to Kafka then.
type gate struct {
	message.Publisher
	arrived chan struct{}
	open    chan struct{}
}

func (g *gate) Publish(topic string, messages ...*message.Message) error {
	g.arrived <- struct{}{}
	<-g.open
	return g.Publisher.Publish(topic, messages...)
}

func TestRelay_PublishesOnceWhatIsInFlightAtAStop(t *testing.T) {
	w := newWorld(t)
	broker := w.kafka(0)
	kafka := w.publisher(broker.Brokers())
	const keys = 1200
	var batch []ports.Message
	for version := range 2 {
		for key := range keys {
			batch = append(batch, about(key, version+1))
		}
	}
	w.write(t.Context(), batch...)
	g := &gate{Publisher: kafka, arrived: make(chan struct{}, keys), open: make(chan struct{})}
	_, halt, stop := w.relayWith(g, outbox.RelayConfig{BatchSize: 500, PollInterval: time.Second, ShutdownGrace: time.Minute})
	for range keys {
		<-g.arrived
	}
	halt()
	close(g.open)
	stop()
	if n, records := len(w.waiting()), w.read(broker); n != keys || len(records) != keys {
		t.Errorf("%d records, %d keys wait; want %d, what was in flight, and each key's second message", len(records), n, keys)
	}
	w.relay(kafka, time.Second)
	w.empty()
	if records := w.read(broker); len(records) != 2*keys {
		t.Errorf("%d records; want %d: nothing was sent again", len(records), 2*keys)
	}
}

func TestRelay_TheLanesOfOneThatIsKilledAreTakenOverWithinTwoPolls(t *testing.T) {
	victim := newWorld(t)
	arrived, never := make(chan struct{}, 1), make(chan struct{})
	t.Cleanup(func() { close(never) })
	victim.write(t.Context(), about(1, 1))
	kill := victim.killable()
	victim.relay(&publisher{answer: func(*message.Message, int) error {
		arrived <- struct{}{}
		<-never
		return nil
	}}, time.Millisecond)
	<-arrived

	statements := &statements{}
	w := &world{T: t, pool: connect(t, victim.pool.Config().ConnString(), statements), owner: victim.owner, log: &journal{}, heldUp: make(map[string]int)}
	var atPublish atomic.Int64
	w.relayWith(&publisher{answer: func(*message.Message, int) error {
		atPublish.Store(int64(statements.looks()))
		return nil
	}}, outbox.RelayConfig{BatchSize: 100, PollInterval: time.Second, ShutdownGrace: time.Second})
	w.eventually("the other finds the lane taken", func() bool { return statements.looks() >= 2 })
	atKill := statements.looks()
	kill()
	w.empty()
	if polls := int(atPublish.Load()) - atKill; polls > 2 {
		t.Errorf("taken over after %d polls; want 2 at most", polls)
	}
}

// killable makes the world's connections die at once, as a process's do that is killed; there are none after that.
func (w *world) killable() (kill func()) {
	w.Helper()
	config := w.pool.Config()
	var mu sync.Mutex
	var open []net.Conn
	dead := false
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		if dead {
			return nil, errors.New("killed")
		}
		conn, err := dial(ctx, network, address)
		if err == nil {
			open = append(open, conn)
		}
		return conn, err
	}
	var err error
	if w.pool, err = pgxpool.NewWithConfig(w.Context(), config); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(w.pool.Close)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		dead = true
		for _, conn := range open {
			conn.Close() //nolint:errcheck // that is the point
		}
	}
}
