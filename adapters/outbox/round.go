package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// outcome is what a round has done.
type outcome struct {
	read    int
	acked   []int64
	lags    []time.Duration // for how long what was acked had been due
	refused map[*row]error  // for good
	failed  []string        // the keys of what an outage stopped
	outage  error
	xid     int64 // of the round's transaction, where it deleted
	unknown int   // of those, how many got no answer
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

// round locks a lane, sends its first messages behind a floor, and deletes those that were acked, also where
// an outage stopped others. The error is the database's.
//
// After ctx has ended it goes on with what is in flight, for as long as the grace allows, and then has a
// few seconds to delete what was acked.
func (r *Relay) round(ctx context.Context, l lane, floor int64, state *laneState) (outcome, error) {
	work, cancel := outlive(ctx, r.config.ShutdownGrace)
	defer cancel()
	settle, cancel := outlive(ctx, r.config.ShutdownGrace+settleFor)
	defer cancel()

	tx, err := r.lanes.begin(work)
	if err != nil {
		return outcome{}, err
	}
	done, err := r.carry(ctx, work, settle, tx, l, floor, state)
	if err := errors.Join(err, r.lanes.end(settle, tx)); err != nil {
		return done, err
	}
	for row, why := range done.refused {
		r.observer.Parked(l.topic)
		r.log.Error("outbox message is parked: Kafka refuses it for good", "topic", l.topic,
			"message", uuid.UUID(row.uuid), "key", row.key, "error", why)
	}
	if len(done.acked) > 0 {
		r.observer.Published(l.topic, len(done.acked), done.lags)
	}
	return done, nil
}

const (
	// sendFor is how long a round begins to send messages. What it has sent by then it waits for.
	sendFor = 30 * time.Second
	// settleFor is what a stop adds to its grace, where the database is slow to take what was done.
	settleFor = 5 * time.Second
)

// outlive returns a context that ends some time after another one.
func outlive(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(by, cancel) })
	return late, func() {
		stop()
		cancel()
	}
}

// carry is what a round does within its transaction.
func (r *Relay) carry(ctx, work, settle context.Context, tx pgx.Tx, l lane, floor int64, state *laneState) (done outcome, err error) {
	locked, xmin, err := r.lanes.lock(work, tx, l)
	if err != nil || !locked {
		return outcome{}, err
	}
	rows, through, err := r.take(work, tx, l, state.settled.from(xmin, floor), state)
	if err != nil || len(rows) == 0 || ctx.Err() != nil {
		return outcome{}, err
	}
	sending, cancel := context.WithTimeout(ctx, sendFor)
	defer cancel()
	done = r.send(sending, work, l, rows, state)
	if len(done.acked) > 0 {
		if done.lags, done.xid, err = r.lanes.remove(settle, tx, l, done.acked); err != nil {
			return done, err
		}
	}
	busy := false // outbox_parked is: it is not waited for again
	for row, why := range done.refused {
		state.progressed()
		if !busy {
			err = r.lanes.park(settle, tx, l, row.id, why)
		}
		switch {
		case err != nil && (tx.Conn().IsClosed() || tx.Conn().PgConn().TxStatus() != 'T'):
			return done, err
		case err != nil: // it stays, and its key with it
			delete(done.refused, row)
			done.failed = append(done.failed, row.key)
			if !busy { // else it is told already
				done.outage = errors.Join(done.outage, err)
			}
			var refused *pgconn.PgError
			busy = errors.As(err, &refused) && (refused.Code == "55P03" || refused.Code == "57014")
		}
	}
	done.through = min(through, done.before(rows))
	return done, nil
}

const (
	// keyShare is how many messages of one key a round sends at most: one after the other, while those
	// of other keys go side by side. A key that was found to be alone in its lane has more.
	keyShare, aloneShare = 20, 100
	// aloneFor is how long it is not looked for others again, which would cost as much as the key has messages.
	aloneFor = time.Second
)

// take reads what a round sends, behind a floor, and without the keys that are held; and up to which id that
// is all there is. A key that has more than its share does not fill the round: the lane is read again without
// it. All of a key's messages are of one page, and so of one snapshot: a later page may have one that came
// after another which the earlier one did not see.
func (r *Relay) take(ctx context.Context, tx pgx.Tx, l lane, floor int64, state *laneState) (rows []row, through int64, err error) {
	p := portion{share: keyShare, shares: make(map[string]int), full: append([]string{}, state.held...), left: math.MaxInt64}
	alone := time.Since(state.alone) < aloneFor
	if alone {
		p.share = aloneShare
	}
	for {
		page, err := r.lanes.read(ctx, tx, l, floor, p.full, r.config.BatchSize-len(p.rows))
		if err != nil {
			return nil, 0, err
		}
		crowded := p.add(page)
		if len(page) == 0 && p.left < math.MaxInt64 {
			state.alone = time.Now()
		}
		if room := r.config.BatchSize - len(p.rows) + p.others(); !crowded || alone || room < r.config.BatchSize/2 {
			if len(page) > 0 { // more may be behind it
				p.left = min(p.left, page[len(page)-1].id+1)
			}
			break
		}
		p.forgetOthers()
	}
	slices.SortFunc(p.rows, func(a, b row) int { return cmp.Compare(a.id, b.id) })
	if len(state.held) > 0 || p.left == math.MaxInt64 { // theirs may lie anywhere; or there is nothing
		return p.rows, 0, nil
	}
	return p.rows, p.left - 1, nil
}

// portion is what a round takes of a lane.
type portion struct {
	rows   []row
	share  int            // of one key at most
	shares map[string]int // by key
	full   []string       // keys that are not read any more; not nil: to SQL that is unknown
	left   int64          // the first that is not taken
}

// add takes of a page what is within its keys' shares, and reports whether one has more.
func (p *portion) add(page []row) (crowded bool) {
	for _, row := range page {
		switch p.shares[row.key]++; {
		case p.shares[row.key] <= p.share:
			p.rows = append(p.rows, row)
			continue
		case p.shares[row.key] == p.share+1:
			p.full, crowded = append(p.full, row.key), true
		}
		p.left = min(p.left, row.id)
	}
	return crowded
}

// others counts what was taken of keys that are not full.
func (p *portion) others() (n int) {
	for _, row := range p.rows {
		if !slices.Contains(p.full, row.key) {
			n++
		}
	}
	return n
}

// forgetOthers gives back what others counts: it will be read again.
func (p *portion) forgetOthers() {
	p.rows = slices.DeleteFunc(p.rows, func(row row) bool {
		if slices.Contains(p.full, row.key) {
			return false
		}
		delete(p.shares, row.key)
		return true
	})
}

// send emits messages, one in flight a key, and waits for all that it emitted. Once ctx has ended it emits no
// more; an outage ends the key that it stops.
func (r *Relay) send(ctx, work context.Context, l lane, rows []row, state *laneState) outcome {
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
		lane: l, outgoing: r.outgoing, answers: make(chan answer, len(rows)), flying: make(map[*row]bool),
		progress: state.progressed,
	}
	for _, head := range heads {
		f.emit(work, head)
	}
	answering, cancel := context.WithTimeout(work, sendFor+ackDeadline)
	defer cancel()
	for len(f.flying) > 0 {
		w, err := f.wait(answering)
		switch {
		case w == nil:
			done.outage, done.unknown = err, len(f.flying)
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

// refused reports whether an answer is about the message itself. What never got an answer is not, nor is
// what a fault of ours says.
func (r *Relay) refused(err error) bool {
	return !errors.Is(err, errNoAnswer) && !errors.Is(err, errPanicked) && !errors.Is(err, context.Canceled) && r.config.Refused(err)
}

// flight is what is under way between a round and the forwarder's handler.
type flight struct {
	lane     lane
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
		context.WithValue(work, deliveryKey{}, delivery{f.lane.topic, w, f.answers}),
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

// wait returns the next answer, or no row and why there will be none. Answers that are there already come
// first.
func (f *flight) wait(work context.Context) (*row, error) {
	var err error
	select {
	case a := <-f.answers:
		return f.landed(a)
	case <-work.Done():
		err = work.Err()
	case <-time.After(ackDeadline):
		err = errNoAnswer
	}
	select {
	case a := <-f.answers:
		return f.landed(a)
	default:
		return nil, err
	}
}

func (f *flight) landed(a answer) (*row, error) {
	f.progress()
	delete(f.flying, a.row)
	return a.row, a.err
}

// delivery goes with a message, in its context.
type delivery struct {
	topic   string
	row     *row
	answers chan<- answer
}

type deliveryKey struct{}

var errPanicked = errors.New("the forwarder panicked")

// answerBack brings a message's error back to its round. Watermill's ack and nack carry none, but
// a middleware sees the error and the outer message, whose context the round made.
func answerBack(next message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) (_ []*message.Message, _ error) {
		d, ok := m.Context().Value(deliveryKey{}).(delivery)
		if !ok {
			return nil, errors.New("a message came past the relay")
		}
		err := fmt.Errorf("%w on message %s", errPanicked, m.UUID)
		defer func() { d.answers <- answer{d.row, err} }()
		_, err = next(m)
		return nil, nil // the round decides
	}
}

// addressed publishes what the forwarder took out of an envelope, if it is the row's message: an envelope that
// somebody else wrote may lead to another topic, or hold a message that no consumer could tell from others.
type addressed struct{ message.Publisher }

// Publish implements message.Publisher.
func (p addressed) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		if d, ok := m.Context().Value(deliveryKey{}).(delivery); ok {
			id := uuid.UUID(d.row.uuid).String()
			if topic != d.topic || m.Metadata.Get(HeaderID) != id || m.Metadata.Get(HeaderPartitionKey) != d.row.key {
				return fmt.Errorf("the envelope is not its row's: it holds message %q with key %q for topic %q",
					m.Metadata.Get(HeaderID), m.Metadata.Get(HeaderPartitionKey), topic)
			}
		}
	}
	return p.Publisher.Publish(topic, messages...) //nolint:wrapcheck // it stands for the publisher
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
