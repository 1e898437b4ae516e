package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	watermillkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/pin-platform/pinworker/adapters/kafka"
	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/app/published"
)

// raw is what could be had at best: what our relay does with a batch, and sends, without Watermill,
// without an order a key, and with no care for what fails. Eight lanes go side by side.
func (b *benchRelay) raw(ctx context.Context, config kafka.Config, n int) (time.Duration, error) {
	if err := b.fill(ctx, n); err != nil {
		return 0, err
	}
	safe, err := kafka.SafeConfig(config)
	if err != nil {
		return 0, err
	}
	producer, err := sarama.NewSyncProducer(config.Brokers, safe)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	lanes, laneCtx := errgroup.WithContext(ctx)
	for shard := range outbox.Shards {
		lanes.Go(func() (err error) {
			for last, more := int64(0), true; more && err == nil; {
				last, more, err = b.rawBatch(laneCtx, producer, shard, last)
			}
			return err
		})
	}
	err = lanes.Wait()
	return time.Since(began), errors.Join(err, producer.Close())
}

// rawBatch carries a lane's next messages behind an id, all in one transaction, and returns the last
// one's id.
func (b *benchRelay) rawBatch(ctx context.Context, producer sarama.SyncProducer, shard int, after int64) (last int64, more bool, err error) {
	const page, begin = 500, "begin isolation level read committed; set local enable_seqscan = off"
	err = pgx.BeginTxFunc(ctx, b.db.Pool, pgx.TxOptions{BeginQuery: begin}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext($1), $2)", published.TopicLeadExpired, shard); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `SELECT id, key, payload FROM crm.outbox
			WHERE topic = $1 AND shard = $2 AND id > $3 ORDER BY id LIMIT $4`, published.TopicLeadExpired, shard, after, page)
		if err != nil {
			return err
		}
		var taken []int64
		messages, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (*sarama.ProducerMessage, error) {
			var key string
			var envelope []byte
			if err := r.Scan(&last, &key, &envelope); err != nil {
				return nil, err
			}
			taken = append(taken, last)
			return unwrapped(key, envelope)
		})
		if err != nil || len(taken) == 0 {
			return err
		}
		if err := producer.SendMessages(messages); err != nil {
			return err
		}
		more = true
		_, err = tx.Exec(ctx, "DELETE FROM crm.outbox WHERE topic = $1 AND shard = $2 AND id = ANY ($3) AND id BETWEEN $4 AND $5",
			published.TopicLeadExpired, shard, taken, taken[0], last)
		return err
	})
	return last, more, err
}

// unwrapped takes Watermill's envelope apart, and makes of it the record that the forwarder and
// watermill-kafka make.
func unwrapped(key string, envelope []byte) (*sarama.ProducerMessage, error) {
	var e struct {
		Topic    string            `json:"destination_topic"`
		UUID     string            `json:"uuid"`
		Payload  []byte            `json:"payload"`
		Metadata map[string]string `json:"metadata"`
	}
	if err := json.Unmarshal(envelope, &e); err != nil {
		return nil, fmt.Errorf("unwrap a message: %w", err)
	}
	m := &sarama.ProducerMessage{
		Topic: e.Topic, Key: sarama.StringEncoder(key), Value: sarama.ByteEncoder(e.Payload),
		Headers: []sarama.RecordHeader{{Key: []byte(watermillkafka.UUIDHeaderKey), Value: []byte(e.UUID)}},
	}
	for name, value := range e.Metadata {
		m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(name), Value: []byte(value)})
	}
	return m, nil
}
