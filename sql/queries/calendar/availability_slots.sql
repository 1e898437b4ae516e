-- name: LockSlot :one
-- It waits for whoever holds the row, as operations do.
SELECT id, tenant_id, agent_user_id, start_at, end_at, min_lead_time_minutes, auto_confirm,
       status, version, created_at, updated_at
FROM calendar.availability_slots
WHERE id = @id
FOR UPDATE;

-- name: InsertSlot :exec
INSERT INTO calendar.availability_slots (
    id, tenant_id, agent_user_id, start_at, end_at, min_lead_time_minutes, auto_confirm,
    status, version, created_at, updated_at
) VALUES (
    @id, @tenant_id, @agent_user_id, @start_at, @end_at, @min_lead_time_minutes, @auto_confirm,
    @status, @version, @created_at, @updated_at
);

-- name: UpdateSlots :execrows
-- One statement for a batch of any size. What it meets in another version, it leaves alone:
-- the caller compares the count.
UPDATE calendar.availability_slots AS s
SET status = n.status,
    version = n.version,
    updated_at = n.updated_at
FROM (
    SELECT unnest(@ids::uuid[]) AS id,
           unnest(@seen_versions::integer[]) AS seen_version,
           unnest(@statuses::text[]) AS status,
           unnest(@versions::integer[]) AS version,
           unnest(@updated_at::timestamptz[]) AS updated_at
) AS n
WHERE s.id = n.id
  AND s.version = n.seen_version;

-- name: SlotPage :many
SELECT id FROM calendar.availability_slots
WHERE id > @after_id AND updated_at >= @since
ORDER BY id
LIMIT @max_items;

-- name: SlotsByID :many
SELECT id, tenant_id, agent_user_id, start_at, end_at, min_lead_time_minutes, auto_confirm,
       status, version, created_at, updated_at
FROM calendar.availability_slots
WHERE id = ANY (@ids::uuid[]);
