// Package kafka publishes to Kafka through Watermill, with settings that lose and reorder
// nothing.
package kafka

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	watermillkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"golang.org/x/sync/errgroup"
)

// Config says how to reach Kafka.
type Config struct {
	Brokers  []string
	ClientID string
	// KeyHeader names the metadata entry that holds a message's key.
	KeyHeader string
	Security  Security
	Log       watermill.LoggerAdapter // nil: none
	// Dial replaces the client's own way to a broker, where it is set: to measure.
	Dial func(network, address string) (net.Conn, error)
}

// PublishError says that Kafka did not take a message. Everything that Publish returns is one.
type PublishError struct {
	Topic string
	Err   error
	Sent  int // how often it was: in company, then alone
}

func (e *PublishError) Error() string {
	return fmt.Sprintf("publish to %s: %v", e.Topic, e.Err)
}

func (e *PublishError) Unwrap() error { return e.Err }

// Attempts is Sent, for who knows this error by what it tells alone.
func (e *PublishError) Attempts() int { return e.Sent }

// Publisher is a message.Publisher that connects when it is first needed, so that a worker
// may start while Kafka is away. It is safe for concurrent use.
//
// Each topic has clients of its own: one client's messages all pass through one place, where those of a topic
// that is missing, or slow, would keep the others waiting.
type Publisher struct {
	config         Config
	company, alone *sarama.Config

	mu     sync.Mutex
	topics map[string]topicClients
	closed bool
}

// topicClients publish to one topic. Kafka refuses a whole batch of records for one of them. So what is
// refused in company is sent once more alone, by a client of its own: no other message waits for that, and
// what is said to be refused was refused alone.
type topicClients struct{ company, alone *client }

var _ message.Publisher = (*Publisher)(nil)

// NewPublisher returns a publisher that is not connected yet. The error says what is wrong with the
// files that Security names.
func NewPublisher(config Config) (*Publisher, error) {
	secure, err := config.Security.TLS.load()
	if err != nil {
		return nil, err
	}
	return &Publisher{
		config: config, company: saramaConfig(config, secure), alone: aloneConfig(config, secure),
		topics: make(map[string]topicClients),
	}, nil
}

// Publish sends messages and returns once Kafka's in-sync replicas have all of them, or with
// a *PublishError.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	to, err := p.to(topic)
	if err != nil {
		return err
	}
	for _, m := range messages {
		err := to.company.publish(topic, m, 1)
		if err != nil && Refused(err) {
			err = to.alone.publish(topic, m, 2)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *Publisher) to(topic string) (topicClients, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	to, known := p.topics[topic]
	switch {
	case p.closed:
		return to, &PublishError{Topic: topic, Err: notConnectedError{errClosed}}
	case !known:
		to = topicClients{newClient(p.config, p.company), newClient(p.config, p.alone)}
		p.topics[topic] = to
	}
	return to, nil
}

// Close ends what waits for a connection and gives what is being sent a few seconds. It is
// called once, last, after whatever publishes.
func (p *Publisher) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	var all errgroup.Group
	for _, clients := range p.topics { // nobody adds to them any more
		all.Go(clients.company.close)
		all.Go(clients.alone.close)
	}
	return all.Wait()
}

// client is a connection to Kafka that is made when it is first needed.
type client struct {
	config Config
	sarama *sarama.Config
	closed chan struct{}

	mu        sync.Mutex
	connected message.Publisher
	attempt   *attempt // the one under way, or the last that failed
}

// attempt is one try to connect, shared by all who need it.
type attempt struct {
	done    chan struct{}
	err     error
	retryAt time.Time
}

func newClient(config Config, settings *sarama.Config) *client {
	return &client{config: config, sarama: settings, closed: make(chan struct{})}
}

func (c *client) publish(topic string, m *message.Message, sent int) error {
	connected, err := c.connection()
	if err != nil {
		return &PublishError{Topic: topic, Err: notConnectedError{err}}
	}
	select {
	case <-c.closed:
		return &PublishError{Topic: topic, Err: notConnectedError{errClosed}}
	default:
	}
	if err := connected.Publish(topic, m); err != nil {
		return &PublishError{Topic: topic, Err: err, Sent: sent}
	}
	return nil
}

// closeTimeout bounds close: Kafka's client would wait for an answer that may never come.
const closeTimeout = 5 * time.Second

func (c *client) close() error {
	close(c.closed)
	c.mu.Lock()
	connected := c.connected
	c.mu.Unlock()
	if connected == nil {
		return nil
	}
	ended := make(chan error, 1)
	go func() { ended <- connected.Close() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(closeTimeout):
		return fmt.Errorf("close the Kafka client: it has not ended within %s", closeTimeout)
	}
}

var errClosed = errors.New("the Kafka publisher is closed")

// connection returns the connection, or why there is none. Many callers share one attempt, and
// none waits for it longer than until close.
func (c *client) connection() (message.Publisher, error) {
	c.mu.Lock()
	if c.connected != nil {
		defer c.mu.Unlock()
		return c.connected, nil
	}
	a := c.attempt
	if a == nil || a.over() {
		a = &attempt{done: make(chan struct{})}
		c.attempt = a
		go c.connect(a)
	}
	c.mu.Unlock()
	select {
	case <-a.done:
	case <-c.closed:
		return nil, errClosed
	}
	if a.err != nil {
		return nil, a.err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.connected, nil
}

// over reports whether an attempt has failed long enough ago to try another one.
func (a *attempt) over() bool {
	select {
	case <-a.done:
		return time.Now().After(a.retryAt)
	default:
		return false
	}
}

// connect is an attempt. A connection that comes after close is given back.
func (c *client) connect(a *attempt) {
	defer close(a.done)
	connected, err := watermillkafka.NewPublisher(watermillkafka.PublisherConfig{
		Brokers:               c.config.Brokers,
		OverwriteSaramaConfig: c.sarama,
		Marshaler: marshaler{watermillkafka.NewWithPartitioningMarshaler(func(_ string, m *message.Message) (string, error) {
			return m.Metadata.Get(c.config.KeyHeader), nil
		})},
	}, c.config.Log)
	if err != nil {
		const pause = time.Second
		a.err, a.retryAt = err, time.Now().Add(pause)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.closed:
		a.err = errors.Join(errClosed, connected.Close())
	default:
		c.connected = connected
	}
}

// marshaler tells by type that no record can be made of a message.
type marshaler struct{ watermillkafka.Marshaler }

// Marshal implements watermillkafka.Marshaler.
func (m marshaler) Marshal(topic string, of *message.Message) (*sarama.ProducerMessage, error) {
	record, err := m.Marshaler.Marshal(topic, of)
	if err != nil {
		return nil, notARecordError{err}
	}
	return record, nil
}

type dialer func(network, address string) (net.Conn, error)

func (d dialer) Dial(network, address string) (net.Conn, error) { return d(network, address) }

// SafeConfig is the client's configuration, for whoever measures beside it.
func SafeConfig(config Config) (*sarama.Config, error) {
	secure, err := config.Security.TLS.load()
	if err != nil {
		return nil, err
	}
	return saramaConfig(config, secure), nil
}

// BatchLimit is how many bytes our client puts into a batch of records, or into one record, at most:
// Kafka's own limit less what is around them.
const BatchLimit = 1 << 20

// saramaConfig replaces defaults of sarama and watermill-kafka that may lose or reorder
// messages, or partition them otherwise than Java's clients do.
func saramaConfig(config Config, secure *tls.Config) *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = config.ClientID
	c.Version = sarama.V2_8_0_0
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Idempotent = true
	c.Net.MaxOpenRequests = 1
	c.Producer.Return.Successes = true
	c.Producer.Return.Errors = true
	c.Producer.Partitioner = sarama.NewMurmur2Partitioner
	c.Producer.Compression = sarama.CompressionLZ4
	c.Producer.MaxMessageBytes = BatchLimit
	c.Metadata.AllowAutoTopicCreation = false
	// An outage is the relay's to wait for, lane by lane; here it is only bridged.
	c.Net.DialTimeout = 5 * time.Second
	c.Net.ReadTimeout = 10 * time.Second
	c.Net.WriteTimeout = 10 * time.Second
	c.Producer.Timeout = 8 * time.Second
	c.Net.TLS.Enable, c.Net.TLS.Config = secure != nil, secure
	config.Security.SASL.apply(c)
	if config.Dial != nil {
		c.Net.Proxy.Enable, c.Net.Proxy.Dialer = true, dialer(config.Dial)
	}
	return c
}

// aloneConfig is for what is sent alone: a request holds one message.
func aloneConfig(config Config, secure *tls.Config) *sarama.Config {
	c := saramaConfig(config, secure)
	c.Producer.Flush.MaxMessages = 1
	return c
}
