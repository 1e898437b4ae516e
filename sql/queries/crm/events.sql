-- name: AppendEvents :execrows
INSERT INTO crm.domain_events (
    stream_id, stream_type, version, event_type, data, actor, correlation_id, occurred_at, digest
)
SELECT unnest(@stream_ids::uuid[]),
       unnest(@stream_types::text[]),
       unnest(@versions::integer[]),
       unnest(@event_types::text[]),
       unnest(@data::text[])::json,
       @actor,
       @correlation_id,
       unnest(@occurred_at::timestamptz[]),
       unnest(@digests::bytea[]);

-- name: EventsOf :many
SELECT stream_id, stream_type, version, event_type, data, actor, correlation_id, occurred_at, digest
FROM crm.domain_events
WHERE stream_id = ANY (@stream_ids::uuid[])
ORDER BY stream_id, version;
