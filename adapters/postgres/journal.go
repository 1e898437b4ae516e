package postgres

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/adapters/postgres/internal/journaldb"
	"github.com/pin-platform/pinworker/ports"
)

// origin says who writes events, and in which run.
type origin struct {
	actor ports.Actor
	run   ports.RunID
}

// journalled is one event as it is stored. Every context's table has these columns.
type journalled struct {
	stream     uuid.UUID
	streamType string
	version    int
	eventType  string
	data       []byte
	occurredAt time.Time
}

// digest is the SHA-256 of an event as it was recorded. It finds what a fold cannot: a
// change to data that a later event overrides, or to who did it and when.
func (e journalled) digest(from origin) []byte {
	var b bytes.Buffer
	field := func(value []byte) { // the length before the value keeps fields apart
		b.Write(binary.BigEndian.AppendUint32(nil, uint32(len(value))))
		b.Write(value)
	}
	field(e.stream[:])
	field([]byte(e.streamType))
	field(binary.BigEndian.AppendUint64(nil, uint64(e.version)))
	field([]byte(e.eventType))
	field(e.data)
	field([]byte(from.actor))
	field(from.run[:])
	field(binary.BigEndian.AppendUint64(nil, uint64(e.occurredAt.UnixMicro())))
	sum := sha256.Sum256(b.Bytes())
	return sum[:]
}

// columnsOf turns events into columns.
func columnsOf(events []journalled, from origin) journaldb.AppendEventsParams {
	c := journaldb.AppendEventsParams{Actor: string(from.actor), CorrelationID: asUUID(from.run)}
	for _, e := range events {
		c.StreamIds = append(c.StreamIds, asUUID(e.stream))
		c.StreamTypes = append(c.StreamTypes, e.streamType)
		c.Versions = append(c.Versions, int32(e.version))
		c.EventTypes = append(c.EventTypes, e.eventType)
		c.Data = append(c.Data, string(e.data))
		c.OccurredAt = append(c.OccurredAt, asTimestamptz(e.occurredAt))
		c.Digests = append(c.Digests, e.digest(from))
	}
	return c
}

// errAltered says that an event is not what was recorded.
var errAltered = errors.New("is not what was recorded: its digest differs")

// check compares an event read back with its digest.
func (e journalled) check(from origin, digest []byte) error {
	if !bytes.Equal(e.digest(from), digest) {
		return fmt.Errorf("event %d (%s) %w", e.version, e.eventType, errAltered)
	}
	return nil
}
