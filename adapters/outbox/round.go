package outbox

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// outcome is what a round has done.
type outcome struct {
	read    int
	acked   []int64
	refused map[*row]error // for good
	failed  []string       // the keys of what an outage stopped
	outage  error
	through int64 // up to this id all of the lane is gone, from where the round began on; 0 where that is not known
}

// gone is how many messages wait no longer.
func (o outcome) gone() int { return len(o.acked) + len(o.refused) }

// before returns the id before the first row that waits still.
func (o outcome) before(rows []row) int64 {
	acked := make(map[int64]bool, len(o.acked))
	for _, id := range o.acked {
		acked[id] = true
	}
	for i := range rows {
		if _, refused := o.refused[&rows[i]]; !refused && !acked[rows[i].id] {
			return rows[i].id - 1
		}
	}
	return math.MaxInt64
}

// round locks a lane, sends its first messages behind a floor, and deletes those that were acked, also where an outage
// stopped others. The error is the database's.
//
// It goes on after ctx has ended for as long as the grace allows, with what is in flight.
func (r *Relay) round(ctx context.Context, l lane, floor int64, state *laneState) (done outcome, err error) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(r.config.ShutdownGrace, cancel) })()

	tx, err := r.lanes.begin(work)
	if err != nil {
		return outcome{}, err
	}
	defer func() { err = errors.Join(err, r.lanes.end(tx)) }()
	locked, err := r.lanes.lock(work, tx, l)
	if err != nil || !locked {
		return outcome{}, err
	}
	rows, through, err := r.take(work, tx, l, floor, state.held)
	if err != nil || len(rows) == 0 {
		return outcome{}, err
	}
	done = r.send(ctx, work, rows, state)
	done.through = min(through, done.before(rows))
	for row, why := range done.refused {
		if err := r.lanes.park(work, tx, l, row.id, why); err != nil {
			return done, err
		}
		r.observer.Parked(l.topic)
		r.log.Error("outbox message is parked: Kafka refuses it for good", "topic", l.topic,
			"message", uuid.UUID(row.uuid), "key", row.key, "error", why)
	}
	if len(done.acked) > 0 {
		lags, err := r.lanes.remove(work, tx, l, done.acked)
		if err != nil {
			return done, err
		}
		r.observer.Published(l.topic, len(done.acked), lags)
	}
	return done, nil
}

// keyShare is how many messages of one key a round sends at most: one after the other, while those
// of other keys go side by side.
const keyShare = 20

// take reads what a round sends, behind a floor, and without the keys that are held; and up to which id that
// is all there is. A key that has more than its share does
// not fill the round: what lies behind its messages is read on, without it.
func (r *Relay) take(ctx context.Context, tx pgx.Tx, l lane, floor int64, held []string) (rows []row, through int64, err error) {
	rows = make([]row, 0, r.config.BatchSize)
	shares, full := make(map[string]int), append([]string{}, held...) // not nil: to SQL that is unknown
	after, left := floor, int64(0)
	for len(rows) < r.config.BatchSize {
		limit := r.config.BatchSize - len(rows)
		page, err := r.lanes.read(ctx, tx, l, after, full, limit)
		if err != nil {
			return nil, 0, err
		}
		crowded := false
		for _, row := range page {
			after = row.id
			switch shares[row.key]++; {
			case shares[row.key] <= keyShare:
				rows = append(rows, row)
				continue
			case shares[row.key] == keyShare+1:
				full, crowded = append(full, row.key), true
			}
			if left == 0 {
				left = row.id
			}
		}
		if len(page) < limit || !crowded {
			break
		}
	}
	switch {
	case len(held) > 0: // theirs may lie anywhere
		return rows, 0, nil
	case left > 0:
		return rows, left - 1, nil
	}
	return rows, after, nil
}

// send emits messages, one in flight a key, and waits for all that it emitted. An outage ends the key
// that it stops.
func (r *Relay) send(ctx, work context.Context, rows []row, state *laneState) outcome {
	done := outcome{read: len(rows), refused: make(map[*row]error)}
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
	for _, head := range heads {
		f.emit(work, head)
	}
	for len(f.flying) > 0 {
		w, err := f.wait(work)
		switch {
		case w == nil:
			done.outage = err
			for w := range f.flying {
				done.failed = append(done.failed, w.key)
			}
			return done
		case err == nil:
			done.acked = append(done.acked, w.id)
			queues[w.key] = queues[w.key][1:]
			if next := queues[w.key]; len(next) > 0 && ctx.Err() == nil {
				f.emit(work, next[0])
			}
		case r.refused(err):
			done.refused[w] = err // its key goes on once it is parked
		default:
			done.failed, done.outage = append(done.failed, w.key), err
		}
	}
	return done
}

// refused reports whether an answer is about the message itself. What never got an answer is not.
func (r *Relay) refused(err error) bool {
	return !errors.Is(err, errNoAnswer) && !errors.Is(err, context.Canceled) && r.config.Refused(err)
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
