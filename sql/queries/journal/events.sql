-- name: AppendEvents :execrows
INSERT INTO any_context.domain_events (
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
FROM any_context.domain_events
WHERE stream_id = ANY (@stream_ids::uuid[])
ORDER BY stream_id, version;

-- name: Heads :many
-- Where each stream stands. Read after the rows are locked, by a statement of its own: in the
-- claiming statement the heads would come from an older snapshot than the rows.
SELECT s.id::uuid AS id,
       coalesce((SELECT max(e.version) FROM any_context.domain_events AS e WHERE e.stream_id = s.id), 0)::integer AS head
FROM unnest(@ids::uuid[]) AS s (id);

-- name: StreamPage :many
-- The next streams of one kind, after one id.
SELECT DISTINCT stream_id
FROM any_context.domain_events
WHERE stream_id > @after_id AND stream_type = @stream_type AND occurred_at >= @since
ORDER BY stream_id
LIMIT @max_items;
