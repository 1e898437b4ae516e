-- name: ClaimDueLeads :many
-- The status is a literal: with a parameter, a generic plan could not use the partial index.
-- The cursor keeps a page from paying for the dead rows of the pages before it.
SELECT sqlc.embed(l), coalesce(q.failures, 0)::integer AS failures
FROM crm.leads AS l
LEFT JOIN any_context.quarantine AS q ON q.job = 'lead-expiration' AND q.item = l.id
WHERE l.status = 'Active'
  AND l.expires_at < @as_of
  AND (l.expires_at, l.id) > (@after_due::timestamptz, @after_id::uuid)
  AND (l.expires_at, l.id) <= (@until_due::timestamptz, @until_id::uuid)
  AND (q.next_attempt IS NULL OR q.next_attempt <= @as_of)
ORDER BY l.expires_at, l.id
LIMIT @max_items
FOR NO KEY UPDATE OF l SKIP LOCKED;

-- name: CountDueLeads :one
-- What a claim's range would yield if nobody held anything.
SELECT count(*)
FROM crm.leads AS l
LEFT JOIN any_context.quarantine AS q ON q.job = 'lead-expiration' AND q.item = l.id
WHERE l.status = 'Active'
  AND l.expires_at < @as_of
  AND (l.expires_at, l.id) > (@after_due::timestamptz, @after_id::uuid)
  AND (l.expires_at, l.id) <= (@until_due::timestamptz, @until_id::uuid)
  AND (q.next_attempt IS NULL OR q.next_attempt <= @as_of);

-- name: LeadBacklog :one
-- The oldest is the oldest of a finite moment: -infinity is a fault, no age.
SELECT count(*) FILTER (WHERE l.expires_at < @as_of::timestamptz) AS due,
       min(l.expires_at) FILTER (WHERE l.expires_at > '-infinity' AND l.expires_at < @as_of::timestamptz)::timestamptz AS oldest,
       count(*) FILTER (WHERE l.expires_at >= @as_of::timestamptz) AS next_hour,
       count(*) FILTER (WHERE l.expires_at < @as_of::timestamptz AND q.next_attempt > @as_of::timestamptz) AS held
FROM crm.leads AS l
LEFT JOIN any_context.quarantine AS q ON q.job = 'lead-expiration' AND q.item = l.id
WHERE l.status = 'Active'
  AND l.expires_at < @until::timestamptz
  AND (l.expires_at, l.id) > (@after_due::timestamptz, @after_id::uuid);

-- name: HeldLeads :many
-- What a claim leaves out because it is held back, from the record's side: few are.
SELECT l.id, l.tenant_id, l.expires_at AS due, q.failures, q.first_failed_at, q.last_failed_at, q.first_error, q.last_error, q.next_attempt
FROM crm.leads AS l
JOIN any_context.quarantine AS q ON q.job = 'lead-expiration' AND q.item = l.id AND q.next_attempt > @as_of
WHERE l.id = ANY (ARRAY(SELECT h.item FROM any_context.quarantine AS h WHERE h.job = 'lead-expiration' AND h.next_attempt > @as_of))
  AND l.status = 'Active'
  AND l.expires_at < @as_of
  AND (l.expires_at, l.id) > (@after_due::timestamptz, @after_id::uuid)
  AND (l.expires_at, l.id) <= (@until_due::timestamptz, @until_id::uuid)
ORDER BY l.expires_at, l.id
LIMIT @max_items;

-- name: ReleaseSettledLeads :exec
-- What others have settled since is no failure any more. It waits for nobody: what is locked is
-- taken off another time.
DELETE FROM any_context.quarantine
WHERE (job, item) IN (
    SELECT q.job, q.item FROM any_context.quarantine AS q
    WHERE q.job = 'lead-expiration'
      AND NOT EXISTS (
        SELECT FROM crm.leads AS l
        WHERE l.id = q.item AND l.status = 'Active' AND l.expires_at < greatest(@as_of::timestamptz, now())
      )
    FOR UPDATE SKIP LOCKED
);

-- name: LockLead :one
-- It waits for whoever holds the row, as operations do.
SELECT id, tenant_id, executor_agent_user_id, primary_investor_user_id, status, expires_at,
       expired_at, version, created_at, updated_at
FROM crm.leads
WHERE id = @id
FOR UPDATE;

-- name: InsertLead :exec
INSERT INTO crm.leads (
    id, tenant_id, executor_agent_user_id, primary_investor_user_id, status, expires_at,
    expired_at, version, created_at, updated_at
) VALUES (
    @id, @tenant_id, @executor_agent_user_id, @primary_investor_user_id, @status, @expires_at,
    @expired_at, @version, @created_at, @updated_at
);

-- name: UpdateLeads :execrows
-- One statement for a batch of any size. What it meets in another version, it leaves alone:
-- the caller compares the count.
UPDATE crm.leads AS l
SET status = n.status,
    expires_at = n.expires_at,
    expired_at = n.expired_at,
    version = n.version,
    updated_at = n.updated_at
FROM (
    SELECT unnest(@ids::uuid[]) AS id,
           unnest(@seen_versions::integer[]) AS seen_version,
           unnest(@statuses::text[]) AS status,
           unnest(@expires_at::timestamptz[]) AS expires_at,
           unnest(@expired_at::timestamptz[]) AS expired_at,
           unnest(@versions::integer[]) AS version,
           unnest(@updated_at::timestamptz[]) AS updated_at
) AS n
WHERE l.id = n.id
  AND l.version = n.seen_version;

-- name: LeadPage :many
SELECT id FROM crm.leads
WHERE id > @after_id AND updated_at >= @since
ORDER BY id
LIMIT @max_items;

-- name: LeadsByID :many
SELECT id, tenant_id, executor_agent_user_id, primary_investor_user_id, status, expires_at,
       expired_at, version, created_at, updated_at
FROM crm.leads
WHERE id = ANY (@ids::uuid[]);
