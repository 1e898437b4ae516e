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
)

// Config says how to reach Kafka.
type Config struct {
	Brokers  []string
	ClientID string
	// KeyHeader names the metadata entry that holds a message's key.
	KeyHeader string
	Security  Security
	// Dial replaces the client's own way to a broker, where it is set: to measure.
	Dial func(network, address string) (net.Conn, error)
}

// PublishError says that Kafka did not take a message. Everything that Publish returns is one.
type PublishError struct {
	Topic string
	Err   error
}

func (e *PublishError) Error() string {
	return fmt.Sprintf("publish to %s: %v", e.Topic, e.Err)
}

func (e *PublishError) Unwrap() error { return e.Err }

// Publisher is a message.Publisher that connects when it is first needed, so that a worker
// may start while Kafka is away. It is safe for concurrent use.
type Publisher struct {
	config Config
	tls    *tls.Config // nil: plain
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

var _ message.Publisher = (*Publisher)(nil)

// NewPublisher returns a publisher that is not connected yet. The error says what is wrong with the
// files that Security names.
func NewPublisher(config Config) (*Publisher, error) {
	secure, err := config.Security.TLS.load()
	if err != nil {
		return nil, err
	}
	return &Publisher{config: config, tls: secure, closed: make(chan struct{})}, nil
}

// Publish sends messages and returns once Kafka's in-sync replicas have all of them, or with
// a *PublishError.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	connected, err := p.connection()
	if err != nil {
		return &PublishError{Topic: topic, Err: notConnectedError{err}}
	}
	if err := connected.Publish(topic, messages...); err != nil {
		return &PublishError{Topic: topic, Err: err}
	}
	return nil
}

// closeTimeout bounds Close: Kafka's client would wait for an answer that may never come.
const closeTimeout = 5 * time.Second

// Close ends what waits for a connection and gives what is being sent a few seconds. It is
// called once, last, after whatever publishes.
func (p *Publisher) Close() error {
	close(p.closed)
	p.mu.Lock()
	connected := p.connected
	p.mu.Unlock()
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
// none waits for it longer than until Close.
func (p *Publisher) connection() (message.Publisher, error) {
	p.mu.Lock()
	if p.connected != nil {
		defer p.mu.Unlock()
		return p.connected, nil
	}
	a := p.attempt
	if a == nil || a.over() {
		a = &attempt{done: make(chan struct{})}
		p.attempt = a
		go p.connect(a)
	}
	p.mu.Unlock()
	select {
	case <-a.done:
	case <-p.closed:
		return nil, errClosed
	}
	if a.err != nil {
		return nil, a.err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.connected, nil
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

// connect is an attempt. A connection that comes after Close is given back.
func (p *Publisher) connect(a *attempt) {
	defer close(a.done)
	connected, err := watermillkafka.NewPublisher(watermillkafka.PublisherConfig{
		Brokers:               p.config.Brokers,
		OverwriteSaramaConfig: saramaConfig(p.config, p.tls),
		Marshaler: watermillkafka.NewWithPartitioningMarshaler(func(_ string, m *message.Message) (string, error) {
			return m.Metadata.Get(p.config.KeyHeader), nil
		}),
	}, watermill.NopLogger{})
	if err != nil {
		const pause = time.Second
		a.err, a.retryAt = err, time.Now().Add(pause)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.closed:
		a.err = errors.Join(errClosed, connected.Close())
	default:
		p.connected = connected
	}
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
