-- name: LockEvent :one
-- It waits for whoever holds the row, as operations do.
SELECT id, tenant_id, owner_user_id, client_user_id, kind, origin, status, cancel_reason,
       start_at, end_at, time_zone, appointment_id, version, created_at, updated_at
FROM calendar.calendar_events
WHERE id = @id
FOR UPDATE;

-- name: InsertEvent :exec
INSERT INTO calendar.calendar_events (
    id, tenant_id, owner_user_id, client_user_id, kind, origin, status, cancel_reason,
    start_at, end_at, time_zone, appointment_id, version, created_at, updated_at
) VALUES (
    @id, @tenant_id, @owner_user_id, @client_user_id, @kind, @origin, @status, @cancel_reason,
    @start_at, @end_at, @time_zone, @appointment_id, @version, @created_at, @updated_at
);

-- name: UpdateEvents :execrows
-- One statement for a batch of any size. What it meets in another version, it leaves alone:
-- the caller compares the count.
UPDATE calendar.calendar_events AS e
SET status = n.status,
    cancel_reason = n.cancel_reason,
    start_at = n.start_at,
    end_at = n.end_at,
    version = n.version,
    updated_at = n.updated_at
FROM (
    SELECT unnest(@ids::uuid[]) AS id,
           unnest(@seen_versions::integer[]) AS seen_version,
           unnest(@statuses::text[]) AS status,
           unnest(@cancel_reasons::text[]) AS cancel_reason,
           unnest(@start_at::timestamptz[]) AS start_at,
           unnest(@end_at::timestamptz[]) AS end_at,
           unnest(@versions::integer[]) AS version,
           unnest(@updated_at::timestamptz[]) AS updated_at
) AS n
WHERE e.id = n.id
  AND e.version = n.seen_version;

-- name: EventPage :many
SELECT id FROM calendar.calendar_events
WHERE id > @after_id AND updated_at >= @since
ORDER BY id
LIMIT @max_items;

-- name: EventsByID :many
SELECT id, tenant_id, owner_user_id, client_user_id, kind, origin, status, cancel_reason,
       start_at, end_at, time_zone, appointment_id, version, created_at, updated_at
FROM calendar.calendar_events
WHERE id = ANY (@ids::uuid[]);
