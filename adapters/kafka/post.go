package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/ports"
)

// Post looks for messages in Kafka: each in the partition of its key, among the records from its
// time on.
type Post struct {
	Config   Config
	IDHeader string        // names the header that holds a message's id
	Records  int           // how many records are looked at for one message, at most
	Patience time.Duration // for how long all of them are looked for
}

var _ ports.Post = Post{}

// skew is how far a broker's clock may lag behind ours.
const skew = time.Minute

// Find implements ports.Post. The error says that Kafka does not answer, or not in time; what was
// found until then is good.
func (p Post) Find(ctx context.Context, messages []ports.Announced) (map[uuid.UUID]ports.Whereabouts, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.Patience, fmt.Errorf("no answer within %s", p.Patience))
	defer cancel()
	found := make(map[uuid.UUID]ports.Whereabouts)
	_, err := reading(ctx, p.Config, func(client sarama.Client) (struct{}, error) {
		consumer, err := sarama.NewConsumerFromClient(client)
		if err != nil {
			return struct{}{}, err
		}
		defer consumer.Close() //nolint:errcheck // it has only read
		for _, m := range messages {
			if found[m.ID], err = p.find(ctx, client, consumer, m); err != nil {
				delete(found, m.ID)
				return struct{}{}, fmt.Errorf("look for message %s in %s: %w", m.ID, m.Topic, err)
			}
		}
		return struct{}{}, nil
	})
	return found, err
}

func (p Post) find(ctx context.Context, client sarama.Client, consumer sarama.Consumer, m ports.Announced) (ports.Whereabouts, error) {
	partitions, err := client.Partitions(m.Topic)
	if err != nil {
		return ports.Whereabouts{}, err
	}
	partition, err := sarama.NewMurmur2Partitioner(m.Topic).Partition(&sarama.ProducerMessage{Key: sarama.StringEncoder(m.Key)}, int32(len(partitions)))
	if err != nil {
		return ports.Whereabouts{}, err
	}
	first, err := client.GetOffset(m.Topic, partition, m.Written.Add(-skew).UnixMilli())
	if err != nil {
		return ports.Whereabouts{}, err
	}
	oldest, err := client.GetOffset(m.Topic, partition, sarama.OffsetOldest)
	if err != nil {
		return ports.Whereabouts{}, err
	}
	end, err := endOf(ctx, client, m.Topic, partition)
	if err != nil {
		return ports.Whereabouts{}, err
	}
	if first < 0 { // no record is as young as that
		first = end
	}
	last := min(end, first+int64(p.Records))
	where, err := p.scan(ctx, consumer, m, partition, first, last)
	switch {
	case err != nil || where.State == ports.Published:
	case last < end:
		where = ports.Whereabouts{State: ports.NotFound, Looked: int(last - first)}
	case first == oldest && oldest > 0: // what lay there before, the retention has taken
		where = ports.Whereabouts{State: ports.Expired}
	default:
		where = ports.Whereabouts{State: ports.NotFound, Looked: int(last - first)}
	}
	return where, err
}

// scan looks at the records from one offset to another, exclusive.
func (p Post) scan(
	ctx context.Context, consumer sarama.Consumer, m ports.Announced, partition int32, first, end int64,
) (where ports.Whereabouts, err error) {
	if first >= end {
		return where, nil
	}
	stream, err := consumer.ConsumePartition(m.Topic, partition, first)
	if err != nil {
		return where, err
	}
	defer stream.Close() //nolint:errcheck // it has only read
	for {
		select {
		case record, open := <-stream.Messages():
			if !open { // its retention has taken what was there
				return where, errSilent
			}
			for _, h := range record.Headers {
				if string(h.Key) == p.IDHeader && string(h.Value) == m.ID.String() {
					return ports.Whereabouts{State: ports.Published, Since: record.Timestamp.UTC(), Partition: partition, Offset: record.Offset}, nil
				}
			}
			if record.Offset >= end-1 {
				return where, nil
			}
		case <-ctx.Done():
			return where, context.Cause(ctx)
		}
	}
}
