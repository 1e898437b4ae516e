// Package consumer is an example: it reads LeadExpiredEvent as a message that comes at least once wants to be
// read (docs/outbox.md). The tests run it.
package consumer

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Schema is what it keeps: what it has read, what it tells agents, and when each lead expired last.
const Schema = `
	CREATE TABLE inbox (ce_id uuid PRIMARY KEY, read_at timestamptz NOT NULL DEFAULT now());
	CREATE TABLE feed (agent uuid NOT NULL, lead uuid NOT NULL, expired_at timestamptz NOT NULL);
	CREATE TABLE leads (lead uuid PRIMARY KEY, version integer NOT NULL, expired_at timestamptz NOT NULL)`

// Run reads a topic as one of a group until ctx ends.
func Run(ctx context.Context, brokers []string, topic, group string, pool *pgxpool.Pool) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll())
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			break
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			if err := handle(ctx, pool, record); err != nil {
				return fmt.Errorf("offset %d of partition %d: %w", record.Offset, record.Partition, err)
			}
		}
		// Only now: what was read and not done comes again, and handle knows it.
		if err := client.CommitUncommittedOffsets(ctx); err != nil {
			return err
		}
		client.AllowRebalance()
	}
	return nil
}

// leadExpired is what it needs of the payload: it ignores the rest, which may grow.
type leadExpired struct {
	LeadID    string `json:"LeadId"`
	AgentID   string `json:"AgentUserId"`
	ExpiredAt time.Time
}

// handle does what a message asks for, once: the note that it was read commits with that, or not at all.
func handle(ctx context.Context, pool *pgxpool.Pool, record *kgo.Record) error {
	headers := make(map[string]string)
	for _, h := range record.Headers {
		headers[h.Key] = string(h.Value)
	}
	version, err := strconv.Atoi(headers["ce_aggregateversion"])
	if err != nil {
		return fmt.Errorf("ce_aggregateversion: %w", err)
	}
	var event leadExpired
	if err := json.Unmarshal(record.Value, &event); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		first, err := tx.Exec(ctx, "INSERT INTO inbox (ce_id) VALUES ($1) ON CONFLICT DO NOTHING", headers["ce_id"])
		if err != nil || first.RowsAffected() == 0 { // a repetition
			return err
		}
		if _, err := tx.Exec(ctx, "INSERT INTO feed VALUES ($1, $2, $3)", event.AgentID, event.LeadID, event.ExpiredAt); err != nil {
			return err
		}
		// One that was parked and released comes late: what is newer stays.
		_, err = tx.Exec(ctx, `INSERT INTO leads VALUES ($1, $2, $3)
			ON CONFLICT (lead) DO UPDATE SET version = EXCLUDED.version, expired_at = EXCLUDED.expired_at
			WHERE leads.version < EXCLUDED.version`, event.LeadID, version, event.ExpiredAt)
		return err
	})
}
