-- name: ClaimDueLeads :many
-- The status is a literal: with a parameter, a generic plan could not use the partial index.
-- The cursor keeps a page from paying for the dead rows of the pages before it.
SELECT l.id, l.tenant_id, l.executor_agent_user_id, l.primary_investor_user_id, l.status,
       l.expires_at, l.expired_at, l.version, l.created_at, l.updated_at
FROM crm.leads AS l
WHERE l.status = 'Active'
  AND l.expires_at < @as_of
  AND (l.expires_at, l.id) > (@after_due::timestamptz, @after_id::uuid)
  AND (l.expires_at, l.id) <= (@until_due::timestamptz, @until_id::uuid)
  AND NOT EXISTS (
    SELECT FROM crm.quarantine AS q
    WHERE q.job = 'lead-expiration' AND q.item = l.id AND q.next_attempt > @as_of
  )
ORDER BY l.expires_at, l.id
LIMIT @max_items
FOR NO KEY UPDATE OF l SKIP LOCKED;

-- name: CountDueLeads :one
-- What a claim's range would yield if nobody held a lead.
SELECT count(*)
FROM crm.leads AS l
WHERE l.status = 'Active'
  AND l.expires_at < @as_of
  AND (l.expires_at, l.id) > (@after_due::timestamptz, @after_id::uuid)
  AND (l.expires_at, l.id) <= (@until_due::timestamptz, @until_id::uuid)
  AND NOT EXISTS (
    SELECT FROM crm.quarantine AS q
    WHERE q.job = 'lead-expiration' AND q.item = l.id AND q.next_attempt > @as_of
  );

-- name: LeadPasts :many
-- Read after the rows are locked, by a statement of its own: in the claiming statement the heads
-- would come from an older snapshot than the rows.
SELECT s.id::uuid AS id,
       coalesce((SELECT max(e.version) FROM crm.domain_events AS e WHERE e.stream_id = s.id), 0)::integer AS head,
       coalesce((SELECT q.failures FROM crm.quarantine AS q WHERE q.job = 'lead-expiration' AND q.item = s.id), 0)::integer AS failures
FROM unnest(@ids::uuid[]) AS s (id);

-- name: LeadBacklog :one
-- The oldest is the oldest of a finite moment: -infinity is a fault, no age.
SELECT count(*) FILTER (WHERE l.expires_at < @as_of::timestamptz)                  AS due,
       min(l.expires_at) FILTER (WHERE l.expires_at > '-infinity')::timestamptz    AS oldest,
       count(*) FILTER (WHERE l.expires_at >= @as_of::timestamptz)                 AS next_hour,
       count(*) FILTER (WHERE l.expires_at < @as_of::timestamptz AND EXISTS (
           SELECT FROM crm.quarantine AS q
           WHERE q.job = 'lead-expiration' AND q.item = l.id AND q.next_attempt > @as_of::timestamptz
       ))                                                                          AS held
FROM crm.leads AS l
WHERE l.status = 'Active'
  AND l.expires_at < @until::timestamptz
  AND (l.expires_at, l.id) > (@after_due::timestamptz, @after_id::uuid);

-- name: LockLead :one
SELECT id, tenant_id, executor_agent_user_id, primary_investor_user_id, status,
       expires_at, expired_at, version, created_at, updated_at
FROM crm.leads
WHERE id = @id
FOR UPDATE;

-- name: InsertLead :exec
INSERT INTO crm.leads (
    id, tenant_id, executor_agent_user_id, primary_investor_user_id, status,
    expires_at, expired_at, version, created_at, updated_at
) VALUES (
    @id, @tenant_id, @executor_agent_user_id, @primary_investor_user_id, @status,
    @expires_at, @expired_at, @version, @created_at, @updated_at
);

-- name: UpdateLeads :execrows
-- One statement for a batch of any size. What it meets in another version, it leaves alone:
-- the caller compares the count.
UPDATE crm.leads AS l
SET status     = n.status,
    expires_at = n.expires_at,
    expired_at = n.expired_at,
    version    = n.version,
    updated_at = n.updated_at
FROM (
    SELECT unnest(@ids::uuid[])               AS id,
           unnest(@seen_versions::integer[])  AS seen_version,
           unnest(@statuses::text[])          AS status,
           unnest(@expires_at::timestamptz[]) AS expires_at,
           unnest(@expired_at::timestamptz[]) AS expired_at,
           unnest(@versions::integer[])       AS version,
           unnest(@updated_at::timestamptz[]) AS updated_at
) AS n
WHERE l.id = n.id
  AND l.version = n.seen_version;

-- name: LeadPage :many
-- The next ids, of rows and of streams, after one id.
(
    SELECT l.id FROM crm.leads AS l
    WHERE l.id > @after_id AND l.updated_at >= @since
    ORDER BY l.id LIMIT @max_items
) UNION (
    SELECT DISTINCT e.stream_id FROM crm.domain_events AS e
    WHERE e.stream_id > @after_id AND e.occurred_at >= @since
    ORDER BY e.stream_id LIMIT @max_items
)
ORDER BY 1 LIMIT @max_items;

-- name: LeadsByID :many
SELECT id, tenant_id, executor_agent_user_id, primary_investor_user_id, status,
       expires_at, expired_at, version, created_at, updated_at
FROM crm.leads
WHERE id = ANY (@ids::uuid[]);
