-- name: HoldItems :exec
-- In the order of their ids, so that two workers cannot deadlock.
INSERT INTO crm.quarantine AS q (
    job, item, tenant_id, failures, first_failed_at, last_failed_at, first_error, last_error, next_attempt
)
SELECT @job, n.item, n.tenant_id, n.failures, @failed_at, @failed_at, n.error, n.error, n.next_attempt
FROM (
    SELECT unnest(@items::uuid[])                AS item,
           unnest(@tenant_ids::uuid[])           AS tenant_id,
           unnest(@failures::integer[])          AS failures,
           unnest(@errors::text[])               AS error,
           unnest(@next_attempts::timestamptz[]) AS next_attempt
) AS n
ORDER BY n.item
ON CONFLICT (job, item) DO UPDATE
SET failures       = excluded.failures,
    last_failed_at = excluded.last_failed_at,
    last_error     = excluded.last_error,
    next_attempt   = excluded.next_attempt;

-- name: ReleaseItems :exec
-- What succeeded has a clean record. Locked in the order of the ids, as HoldItems does.
DELETE FROM crm.quarantine
WHERE (job, item) IN (
    SELECT q.job, q.item FROM crm.quarantine AS q
    WHERE q.job = @job AND q.item = ANY (@items::uuid[])
    ORDER BY q.item
    FOR UPDATE
);

-- name: ReleaseSettledLeads :exec
-- What others have settled since (an agent extended or archived it) is no failure any more. It
-- waits for nobody: what is locked is taken off another time.
DELETE FROM crm.quarantine
WHERE (job, item) IN (
    SELECT q.job, q.item FROM crm.quarantine AS q
    WHERE q.job = @job
      AND NOT EXISTS (
        SELECT FROM crm.leads AS l
        WHERE l.id = q.item AND l.status = 'Active' AND l.expires_at < greatest(@as_of::timestamptz, now())
      )
    FOR UPDATE SKIP LOCKED
);

-- name: ListQuarantine :many
SELECT job, item, tenant_id, failures, first_failed_at, last_failed_at, first_error, last_error, next_attempt
FROM crm.quarantine
ORDER BY next_attempt, job, item;

-- name: RetryItem :execrows
UPDATE crm.quarantine SET next_attempt = @at WHERE item = @item;
