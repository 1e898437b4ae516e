package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
)

// round locks a lane, sends its first messages, deletes those that were acked, and answers
// how many it read and how many of them are gone. The error is an outage; what was acked before
// it is deleted all the same.
//
// It goes on after ctx has ended for as long as the grace allows, with what is in flight.
func (r *Relay) round(ctx context.Context, l lane, state *laneState) (read, gone int, err error) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(r.config.ShutdownGrace, cancel) })()

	tx, err := r.lanes.begin(work)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, r.lanes.end(tx)) }()
	locked, err := r.lanes.lock(work, tx, l)
	if err != nil || !locked {
		return 0, 0, err
	}
	held, let := state.heldKeys(time.Now())
	rows, err := r.lanes.read(work, tx, l, held, r.config.BatchSize)
	if err != nil {
		return 0, 0, err
	}
	if len(rows) < r.config.BatchSize {
		state.forget(let, rows)
	}
	if len(rows) == 0 {
		return 0, 0, nil
	}
	sent, outage := r.send(ctx, work, rows, state)
	state.hold(sent, time.Now(), r.config.HoldFor, func(row row, why error) {
		r.log.Error("outbox message is refused: it waits and is tried again", "topic", l.topic,
			"message", uuid.UUID(row.uuid), "key", row.key, "error", why)
	})
	if len(sent.acked) == 0 {
		return len(rows), 0, outage
	}
	if err := r.lanes.remove(work, tx, l, sent.acked); err != nil {
		return len(rows), 0, errors.Join(outage, err)
	}
	return len(rows), len(sent.acked), outage
}

// sent is what became of a round's messages.
type sent struct {
	acked   []int64
	keys    map[string]bool // of the acked
	refused map[*row]error  // refused even when sent alone
}

// send emits messages, one in flight a key, and waits for all that it emitted. Kafka refuses
// whole batches of records, so what was refused in company is sent once more alone. The
// error is the outage that ended it early.
func (r *Relay) send(ctx, work context.Context, rows []row, state *laneState) (sent, error) {
	result := sent{keys: make(map[string]bool), refused: make(map[*row]error)}
	queues := make(map[string][]*row, len(rows))
	heads := make([]*row, 0, len(rows))
	for i := range rows {
		key := rows[i].key
		if queues[key] == nil {
			heads = append(heads, &rows[i])
		}
		queues[key] = append(queues[key], &rows[i])
	}

	f := flight{
		outgoing: r.outgoing, answers: make(chan answer, len(rows)), flying: make(map[*row]bool),
		progress: state.progressed,
	}
	var suspects []*row
	var outage error
	ack := func(w *row) {
		result.acked = append(result.acked, w.id)
		result.keys[w.key] = true
	}
	state.alive(r.company.RLock)
	leave := sync.OnceFunc(r.company.RUnlock)
	defer leave()
	for _, head := range heads {
		f.emit(work, head)
	}
	for len(f.flying) > 0 {
		w, err := f.wait(work)
		switch {
		case w == nil:
			return result, err
		case err == nil:
			ack(w)
			queues[w.key] = queues[w.key][1:]
			if next := queues[w.key]; len(next) > 0 && outage == nil && ctx.Err() == nil {
				f.emit(work, next[0])
			}
		case r.refused(err):
			suspects = append(suspects, w)
		default:
			outage = err
		}
	}
	leave()
	for _, suspect := range suspects {
		if outage != nil || ctx.Err() != nil {
			break
		}
		state.alive(r.company.Lock)
		f.emit(work, suspect)
		w, err := f.wait(work)
		r.company.Unlock()
		switch {
		case w == nil:
			return result, err
		case err == nil:
			ack(w)
		case r.refused(err):
			result.refused[w] = err
		default:
			outage = err
		}
	}
	return result, outage
}

// refused reports whether an answer is about the message itself. What never got an answer is not.
func (r *Relay) refused(err error) bool {
	return !errors.Is(err, errNoAnswer) && !errors.Is(err, context.Canceled) && r.config.Refused(err)
}

// alive shows signs of life while a lane waits for the others: who holds them up is to be found
// stalled, not who waits.
func (s *laneState) alive(wait func()) {
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(statementTimeout):
				s.progressed()
			}
		}
	}()
	wait()
	close(done)
	s.progressed()
}

// retries is how many of the keys that were refused are tried again in one round. More would
// keep the sound ones behind them waiting.
const retries = 10

// heldKeys returns the keys to pass over: those that are held, and those whose time is up but for
// a few, which are let through.
func (s *laneState) heldKeys(now time.Time) (held, let []string) {
	held = make([]string, 0, len(s.held)) // not nil, which would be null in SQL
	for key, hold := range s.held {
		if !now.Before(hold.until) && len(let) < retries {
			let = append(let, key)
		} else {
			held = append(held, key)
		}
	}
	return held, let
}

// forget drops the holds of keys that were let through and have no message any more: another
// relay has delivered it.
func (s *laneState) forget(let []string, rows []row) {
	for _, key := range let {
		if !slices.ContainsFunc(rows, func(w row) bool { return w.key == key }) {
			delete(s.held, key)
		}
	}
}

// hold makes the keys of refused messages wait, each with its own backoff, and forgets the
// waits of keys that went on.
func (s *laneState) hold(result sent, now time.Time, first time.Duration, refused func(row, error)) {
	for key := range result.keys {
		delete(s.held, key)
	}
	for w, err := range result.refused {
		h := s.held[w.key]
		if h == nil {
			h = &hold{backoff: newBackoff(first, 60*first)}
			s.held[w.key] = h
			refused(*w, err)
		}
		h.until = now.Add(h.backoff.NextBackOff())
	}
}

// flight is what is under way between a round and the forwarder's handler.
type flight struct {
	outgoing *subscriber
	answers  chan answer
	flying   map[*row]bool
	progress func()
}

type answer struct {
	row *row
	err error
}

// ackDeadline is how long a round waits for the next answer. Kafka's client may take longer to
// give up in a network that swallows packets; what it delivers after all is then a repetition.
const ackDeadline = time.Minute

var errNoAnswer = fmt.Errorf("no answer from Kafka's client within %s", ackDeadline)

func (f *flight) emit(work context.Context, w *row) {
	m := message.NewMessageWithContext(
		context.WithValue(work, answerKey{}, func(err error) { f.answers <- answer{w, err} }),
		uuid.UUID(w.uuid).String(), w.payload,
	)
	f.flying[w] = true
	select {
	case f.outgoing.messages <- m:
	case <-work.Done():
		f.answers <- answer{w, work.Err()}
	case <-time.After(ackDeadline):
		f.answers <- answer{w, errNoAnswer}
	}
}

// wait returns the next answer, or no row and why there will be none.
func (f *flight) wait(work context.Context) (*row, error) {
	select {
	case a := <-f.answers:
		f.progress()
		delete(f.flying, a.row)
		return a.row, a.err
	case <-work.Done():
		return nil, work.Err()
	case <-time.After(ackDeadline):
		return nil, errNoAnswer
	}
}

type answerKey struct{}

// answerBack brings a message's error back to its round. Watermill's ack and nack carry none, but
// a middleware sees the error and the outer message, whose context the round made.
func answerBack(next message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) (_ []*message.Message, _ error) {
		answer, ok := m.Context().Value(answerKey{}).(func(error))
		if !ok {
			return nil, errors.New("a message came past the relay")
		}
		err := fmt.Errorf("the forwarder panicked on message %s", m.UUID)
		defer func() { answer(err) }()
		_, err = next(m)
		return nil, nil // the round decides
	}
}

// subscriber hands the rounds' messages to the forwarder's router.
type subscriber struct{ messages chan *message.Message }

var _ message.Subscriber = (*subscriber)(nil)

// Subscribe implements message.Subscriber.
func (s *subscriber) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	return s.messages, nil
}

// Close is called once by the router, after the last round.
func (s *subscriber) Close() error {
	close(s.messages)
	return nil
}
