package embedded

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Partitions is how many partitions an embedded topic has.
const Partitions = 8

// Kafka is one broker in this process that speaks the Kafka protocol. No figure measured
// against it says anything about Kafka.
type Kafka struct{ cluster *kfake.Cluster }

// StartKafka starts a broker with the given topics. A port other than 0 is taken as it is.
func StartKafka(port int, topics ...string) (*Kafka, error) {
	options := []kfake.Opt{
		kfake.NumBrokers(1),
		kfake.SeedTopics(Partitions, topics...),
		kfake.BrokerConfigs(map[string]string{"log.retention.ms": "-1"}),
	}
	if port != 0 {
		options = append(options, kfake.Ports(port))
	}
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		return nil, fmt.Errorf("start an embedded Kafka: %w", err)
	}
	return &Kafka{cluster: cluster}, nil
}

// Brokers returns the addresses to connect to.
func (k *Kafka) Brokers() []string { return k.cluster.ListenAddrs() }

// Close stops the broker and forgets its records.
func (k *Kafka) Close() { k.cluster.Close() }

// Record is one message as Kafka holds it.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	Key       string
	Value     []byte
	Headers   map[string]string
}

// ReadAll returns what topics hold now, each partition in order, from a Kafka of any kind.
func ReadAll(ctx context.Context, brokers []string, topics ...string) ([]Record, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, fmt.Errorf("read topics: %w", err)
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topics...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("read topics: %w", err)
	}
	var missing int64
	ends.Each(func(o kadm.ListedOffset) { missing += o.Offset })
	records := make([]Record, 0, missing)
	for missing > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("read topics: %w", err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if end, _ := ends.Lookup(r.Topic, r.Partition); r.Offset >= end.Offset {
				return // it came later
			}
			missing--
			record := Record{
				Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: string(r.Key), Value: r.Value,
				Headers: make(map[string]string, len(r.Headers)),
			}
			for _, h := range r.Headers {
				record.Headers[h.Key] = string(h.Value)
			}
			records = append(records, record)
		})
	}
	return records, nil
}
