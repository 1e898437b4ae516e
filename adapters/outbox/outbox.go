// Package outbox carries messages from a context's outbox table to Kafka, at least once, in
// order for each topic and key.
//
//	unit of work ── Writer ──▶ <schema>.outbox ──▶ Relay ──▶ Watermill's Forwarder ──▶ Kafka
//	             in its own                       a lane
//	             transaction                     at a time
//
// On the write side, watermill-sql's Publisher with a SchemaAdapter of ours composes the statement. The
// envelopes in it are those of Watermill's forwarder.Publisher byte for byte, written by hand for speed.
// On the read side Watermill's Forwarder, which takes them apart, hears of the messages through a
// message.Subscriber of ours: see Relay for why.
//
// A lane is a topic's shard, by the key's hash. Lanes share nothing: a topic that is missing,
// refused or flooded delays no other.
package outbox

import (
	"hash/fnv"

	"github.com/jackc/pgx/v5"
)

// Shards is how many lanes a topic has. It is part of the stored rows: changing it would let
// a key's new messages overtake its old ones.
const Shards = 8

// Table names a context's outbox.
type Table struct{ Schema string }

func (t Table) name() string { return pgx.Identifier{t.Schema, "outbox"}.Sanitize() }

func (t Table) parked() string { return pgx.Identifier{t.Schema, "outbox_parked"}.Sanitize() }

func shardOf(key string) int16 {
	h := fnv.New32a()
	h.Write([]byte(key))
	return int16(h.Sum32() % Shards)
}

// forwarderTopic is a name that Watermill asks for; the table is what separates contexts.
const forwarderTopic = "outbox"

// Header names of CloudEvents' Kafka binding, binary mode (spec: events, headers).
const (
	headerContentType      = "content-type"
	headerSpecVersion      = "ce_specversion"
	headerSource           = "ce_source"
	headerType             = "ce_type"
	headerSubject          = "ce_subject"
	headerTime             = "ce_time"
	headerCorrelationID    = "ce_correlationid"
	headerTenantID         = "ce_tenantid"
	headerAggregateType    = "ce_aggregatetype"
	headerAggregateVersion = "ce_aggregateversion"
	headerContractVersion  = "ce_contractversion"

	// HeaderID is the header of a message's id.
	HeaderID = "ce_id"
	// HeaderPartitionKey is CloudEvents' extension for the key of a record.
	HeaderPartitionKey = "ce_partitionkey"
)
