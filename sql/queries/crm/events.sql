-- name: StreamHeads :many
-- Read after the rows are locked, by a statement of its own: in the claiming statement it
-- would come from an older snapshot than the rows.
SELECT s.stream_id::uuid AS stream_id,
       coalesce((SELECT max(e.version) FROM crm.domain_events AS e WHERE e.stream_id = s.stream_id), 0)::integer AS version
FROM unnest(@stream_ids::uuid[]) AS s (stream_id);

-- name: AppendEvents :exec
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
