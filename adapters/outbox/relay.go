package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
)

// RelayConfig bounds a relay.
type RelayConfig struct {
	BatchSize     int           // messages a round
	PollInterval  time.Duration // how often an idle relay looks, if nothing wakes it
	ShutdownGrace time.Duration // how long a stop waits for what is in flight
	// Refused reports whether an error is about the message itself, whatever it was sent with, so that
	// it is parked and others of its key go on. Any other error is an outage: the message is tried again.
	Refused func(error) bool
}

// Observer hears what becomes of messages.
type Observer interface {
	// Published says that Kafka acknowledged n messages of a topic; lags says for how long those of
	// them that came due had been so.
	Published(topic string, n int, lags []time.Duration)
	// Parked says that Kafka refuses a message for good.
	Parked(topic string)
	// HeldUp says that an outage stands in the way of a topic's messages; "" where the database is away.
	HeldUp(topic string)
}

// Relay moves one context's outbox to Kafka until it is stopped. Any number of relays, in any
// number of processes, share an outbox: a lane is worked on by one of them at a time, and a
// lost connection gives it up.
//
// It is a message.Subscriber of ours in front of Watermill's Forwarder, because watermill-sql's
// own subscriber sends one message at a time, lets one refused message block all behind it,
// and never cleans up (docs/adr/0004).
type Relay struct {
	lanes     lanes
	publisher message.Publisher
	config    RelayConfig
	observer  Observer
	log       *slog.Logger

	wake     chan struct{}
	outgoing *subscriber
	floors   *floors
	slots    *slots
	lastLook atomic.Int64 // UnixNano; 0 before the first

	mu      sync.Mutex
	state   map[lane]*laneState
	failing map[string]map[lane]bool // by topic, "" for the database: the lanes that an outage holds up
}

// NewRelay returns the relay of an outbox. The publisher stays the caller's to close, after
// Run has returned.
func NewRelay(
	pool *pgxpool.Pool, table Table, publisher message.Publisher, config RelayConfig, observer Observer, log *slog.Logger,
) *Relay {
	return &Relay{
		lanes:     lanes{pool: pool, table: table},
		publisher: publisher,
		config:    config,
		observer:  observer,
		log:       log.With("outbox", table.Schema),
		wake:      make(chan struct{}, 1),
		outgoing:  &subscriber{messages: make(chan *message.Message)},
		floors:    newFloors(),
		slots:     newSlots(),
		state:     make(map[lane]*laneState),
		failing:   make(map[string]map[lane]bool),
	}
}

// Wake says that messages were committed. It never blocks.
func (r *Relay) Wake() {
	select {
	case r.wake <- struct{}{}:
	default: // it is awake already
	}
}

// Stalled returns an error where the relay has not looked for messages, or a lane's worker has
// shown no sign of life, for longer than their deadlines allow. An outage, of the database or of
// Kafka, is no stall.
func (r *Relay) Stalled() error {
	last := r.lastLook.Load()
	if last == 0 { // it does not run yet
		return nil
	}
	silent := time.Since(time.Unix(0, last))
	if allowed := r.config.PollInterval + 2*statementTimeout; silent > allowed {
		return fmt.Errorf("outbox relay of %s: has not looked for messages for %s, %s are allowed", r.lanes.table.Schema, silent.Round(time.Second), allowed)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for l, state := range r.state {
		silent := time.Since(time.Unix(0, state.progress.Load()))
		if allowed := ackDeadline + 4*statementTimeout; state.running && silent > allowed {
			return fmt.Errorf("outbox relay of %s: lane %s has shown no sign of life for %s, %s are allowed", r.lanes.table.Schema, l, silent.Round(time.Second), allowed)
		}
	}
	return nil
}

// Run relays until ctx ends. Then it reads no more, lets what is in flight finish within the
// grace, deletes what was acked, and returns. Outages of the database or of Kafka do not end
// it; it returns an error only where Watermill cannot be set up.
func (r *Relay) Run(ctx context.Context) error {
	forward, err := forwarder.NewForwarder(r.outgoing, addressed{r.publisher}, NewWatermillLogger(r.log), forwarder.Config{
		ForwarderTopic: forwarderTopic,
		Middlewares:    []message.HandlerMiddleware{answerBack},
		CloseTimeout:   time.Second, // by then the rounds have ended, or used the grace up
	})
	if err != nil {
		return fmt.Errorf("set up the forwarder: %w", err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- forward.Run(context.WithoutCancel(ctx)) }()
	select {
	case err := <-stopped:
		return fmt.Errorf("run the forwarder: %w", err)
	case <-forward.Running():
	}

	var running sync.WaitGroup
	for ctx.Err() == nil {
		r.look(ctx, &running)
		select {
		case <-ctx.Done():
		case err := <-stopped: // nobody would hear what the rounds send
			return fmt.Errorf("run the forwarder: it ended: %w", err)
		case <-r.wake:
		case <-time.After(r.config.PollInterval):
		}
	}
	running.Wait()
	if err := forward.Close(); err != nil {
		r.log.Warn("outbox relay stopped with messages in flight: they will be sent again", "error", err.Error())
	}
	return nil
}

// look starts a worker for each lane that has messages and none yet.
func (r *Relay) look(ctx context.Context, running *sync.WaitGroup) {
	r.lastLook.Store(time.Now().UnixNano())
	look, beside := r.floors.next(time.Now())
	if beside != nil {
		running.Go(func() { r.find(ctx, *beside, running) })
	}
	r.find(ctx, look, running)
}

// find makes one look, and notes what it tells of the floors.
func (r *Relay) find(ctx context.Context, look look, running *sync.WaitGroup) {
	waiting, err := r.lanes.waiting(ctx, look.behind)
	r.floors.took(look, time.Since(look.began))
	if ctx.Err() == nil {
		r.report("", lane{}, err)
	}
	if err != nil {
		return
	}
	r.floors.found(look, waiting)
	r.forget(waiting)
	for _, first := range waiting {
		if state, ok := r.begin(first.lane); ok {
			running.Go(func() { r.work(ctx, first.lane, state) })
		}
	}
}

// begin claims a lane for a worker, unless it has one or is backing off.
func (r *Relay) begin(l lane) (*laneState, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := r.state[l]
	if state == nil {
		state = &laneState{backoff: newBackoff(200*time.Millisecond, 10*time.Second)}
		r.state[l] = state
	}
	if state.running || time.Now().Before(state.notBefore) {
		state.again = state.running
		return nil, false
	}
	state.running, state.again = true, false
	state.progressed()
	return state, true
}

func (r *Relay) end(state *laneState, pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	state.running = false
	state.notBefore = time.Now().Add(pause)
	if state.again && pause == 0 { // what came after its last look would wait for the next poll
		r.Wake()
	}
}

// work runs rounds of a lane until it is empty, an outage backs it off, or ctx ends. An outage may be
// one partition's: then the keys that it stopped are held, all others go on, and one of those is tried
// now and then for all of them.
func (r *Relay) work(ctx context.Context, l lane, state *laneState) {
	pause := time.Duration(0)
	defer func() { r.end(state, pause) }()
	for ctx.Err() == nil {
		tried, trying := state.try()
		done, floor, err := r.turn(ctx, l, state)
		if ctx.Err() != nil {
			r.part(l, done, err)
			return
		}
		r.report("", l, err)
		if err != nil {
			pause = state.backoff.NextBackOff()
			return
		}
		r.floors.raise(l, floor, done.through)
		state.settled.gone(done.through, done.xid)
		switch {
		case trying && slices.Contains(done.failed, tried):
		case trying || len(state.held) == 0: // nothing is known to be in their way any more
			state.release()
		}
		switch {
		case done.outage != nil:
			r.report(l.topic, l, done.outage)
			state.hold(done.failed)
			if done.gone() == 0 && len(done.failed) >= wholeLane || len(state.held) == mostHeld {
				pause = time.Until(state.retryAt)
				return
			}
		case done.gone() > 0 && len(state.held) == 0: // an empty lane says nothing of Kafka
			r.report(l.topic, l, nil)
		case done.read == 0 && !trying && !r.lookedAgain(state):
			return
		}
		state.progressed()
	}
}

// lookedAgain reports whether someone looked at a lane meanwhile: it reads once more for that, instead of
// waking all others.
func (r *Relay) lookedAgain(state *laneState) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	again := state.again
	state.again = false
	return again
}

// turn runs one round as soon as a slot is free. Slots go round, so that no lane keeps one.
func (r *Relay) turn(ctx context.Context, l lane, state *laneState) (done outcome, floor int64, err error) {
	state.waits()
	if !r.slots.acquire(ctx, l.topic) {
		return outcome{}, 0, nil
	}
	defer r.slots.release(l.topic)
	state.progressed()
	floor = r.floors.of(l)
	done, err = r.round(ctx, l, floor, state)
	return done, floor, err
}

// part tells of what a stop leaves behind that Kafka may have and the outbox has as well.
func (r *Relay) part(l lane, done outcome, err error) {
	again := done.unknown
	if err != nil {
		again += len(done.acked)
	}
	if again > 0 {
		r.log.Warn("outbox relay stops before all that it has sent is known to have arrived: that will be sent again",
			"lane", l.String(), "messages", again, "error", errors.Join(err, done.outage))
	}
}

// report logs an outage when it begins and when it is over: once for a topic, or for the database (""),
// however many lanes it holds up. To look for messages counts as a lane of its own, the zero one.
func (r *Relay) report(topic string, l lane, err error) {
	if err != nil {
		r.observer.HeldUp(topic)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	heldUp := r.failing[topic]
	if heldUp == nil {
		heldUp = make(map[lane]bool)
		r.failing[topic] = heldUp
	}
	before := len(heldUp)
	if err != nil {
		heldUp[l] = true
	} else {
		delete(heldUp, l)
	}
	switch {
	case before == 0 && len(heldUp) > 0:
		r.log.Warn("outbox relay is held up: messages wait and are tried again", "topic", topic, "error", err)
	case before > 0 && len(heldUp) == 0:
		r.log.Info("outbox relay goes on", "topic", topic)
	}
}

// forget takes lanes that are empty for sound: another relay may have had more luck with them.
func (r *Relay) forget(waiting []head) {
	r.mu.Lock()
	var empty []lane
	for _, heldUp := range r.failing {
		for l := range heldUp {
			if l != (lane{}) && !slices.ContainsFunc(waiting, func(h head) bool { return h.lane == l }) {
				empty = append(empty, l)
			}
		}
	}
	r.mu.Unlock()
	for _, l := range empty {
		r.report("", l, nil)
		r.report(l.topic, l, nil)
	}
}
