package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"golang.org/x/sync/errgroup"
)

// Position is where topics stand: the offset of the next record of each partition.
type Position map[string]map[int32]int64

// Record is one message as Kafka holds it.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	Key       string
	Value     []byte
	Headers   map[string]string
}

// End returns where topics end now. It is an error where one of them is not there.
func End(ctx context.Context, config Config, topics ...string) (Position, error) {
	return reading(ctx, config, func(client sarama.Client) (Position, error) { return ends(ctx, client, topics) })
}

// Since returns what came to the topics of a position from it until now, each partition in order.
// It is an error where the retention has taken some of it already.
func Since(ctx context.Context, config Config, from Position) ([]Record, error) {
	return reading(ctx, config, func(client sarama.Client) ([]Record, error) {
		consumer, err := sarama.NewConsumerFromClient(client)
		if err != nil {
			return nil, err
		}
		defer consumer.Close() //nolint:errcheck // it has only read
		until, err := ends(ctx, client, slices.Sorted(maps.Keys(from)))
		if err != nil {
			return nil, err
		}
		var mu sync.Mutex
		var records []Record
		partitions, ctx := errgroup.WithContext(ctx)
		for topic, ends := range until {
			for partition, end := range ends {
				partitions.Go(func() error {
					found, err := readPartition(ctx, client, consumer, topic, partition, from[topic][partition], end)
					if err != nil {
						return fmt.Errorf("partition %d of %s: %w", partition, topic, err)
					}
					mu.Lock()
					defer mu.Unlock()
					records = append(records, found...)
					return nil
				})
			}
		}
		err = partitions.Wait()
		return records, err
	})
}

// reading connects for one piece of work, which ends with ctx.
func reading[T any](ctx context.Context, config Config, work func(sarama.Client) (T, error)) (result T, err error) {
	secure, err := config.Security.TLS.load()
	if err != nil {
		return result, err
	}
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	config.Dial = dialWithin(within, config.Dial)
	client, err := sarama.NewClient(config.Brokers, saramaConfig(config, secure))
	if err == nil {
		defer client.Close() //nolint:errcheck // it has only read
		result, err = work(client)
	}
	if ctx.Err() != nil { // whatever the client makes of it
		err = context.Cause(ctx)
	}
	if err != nil {
		return result, fmt.Errorf("read from Kafka: %w", err)
	}
	return result, nil
}

// dialWithin returns a way to a broker that ends with ctx, and the connections with it. Kafka's client
// knows no context: it would wait for a silent broker, for some time, and then for the next one.
func dialWithin(ctx context.Context, dial func(network, address string) (net.Conn, error)) func(network, address string) (net.Conn, error) {
	if dial == nil {
		dial = func(network, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}
	}
	return func(network, address string) (net.Conn, error) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		conn, err := dial(network, address)
		if err == nil {
			context.AfterFunc(ctx, func() { conn.Close() }) //nolint:errcheck // that is the point
		}
		return conn, err
	}
}

func ends(ctx context.Context, client sarama.Client, topics []string) (Position, error) {
	position := make(Position, len(topics))
	for _, topic := range topics {
		partitions, err := client.Partitions(topic)
		if err != nil {
			return nil, fmt.Errorf("topic %s: %w", topic, err)
		}
		position[topic] = make(map[int32]int64, len(partitions))
		for _, partition := range partitions {
			if position[topic][partition], err = endOf(ctx, client, topic, partition); err != nil {
				return nil, fmt.Errorf("partition %d of %s: %w", partition, topic, err)
			}
		}
	}
	return position, nil
}

// endOf asks again where a partition has no leader: one that was just made, or whose broker went.
func endOf(ctx context.Context, client sarama.Client, topic string, partition int32) (int64, error) {
	const times, pause = 20, 250 * time.Millisecond
	for try := 1; ; try++ {
		end, err := client.GetOffset(topic, partition, sarama.OffsetNewest)
		if err == nil || try == times || !errors.Is(err, sarama.ErrNotLeaderForPartition) && !errors.Is(err, sarama.ErrLeaderNotAvailable) {
			return end, err
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(pause):
		}
		if err := client.RefreshMetadata(topic); err != nil {
			return 0, err
		}
	}
}

// silence is how long a partition may take to give its next record.
const silence = 30 * time.Second

var errSilent = errors.New("it holds more, and gives nothing")

// readPartition returns the records from one offset to another, exclusive.
func readPartition(
	ctx context.Context, client sarama.Client, consumer sarama.Consumer, topic string, partition int32, from, end int64,
) ([]Record, error) {
	if from >= end {
		return nil, nil
	}
	oldest, err := client.GetOffset(topic, partition, sarama.OffsetOldest)
	switch {
	case err != nil:
		return nil, err
	case oldest > from:
		return nil, fmt.Errorf("the records from offset %d to %d are gone: its retention has taken them", from, oldest)
	}
	stream, err := consumer.ConsumePartition(topic, partition, from)
	if err != nil {
		return nil, err
	}
	defer stream.Close() //nolint:errcheck // it has only read
	records := make([]Record, 0, end-from)
	for {
		select {
		case m, open := <-stream.Messages():
			if !open { // its retention has taken what was there
				return nil, errSilent
			}
			record := Record{
				Topic: topic, Partition: partition, Offset: m.Offset, Key: string(m.Key), Value: m.Value,
				Headers: make(map[string]string, len(m.Headers)),
			}
			for _, h := range m.Headers {
				record.Headers[string(h.Key)] = string(h.Value)
			}
			records = append(records, record)
			if m.Offset >= end-1 {
				return records, nil
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(silence):
			return nil, errSilent
		}
	}
}
