-- name: HoldItems :exec
-- In the order of their ids, so that two workers that do so cannot deadlock.
INSERT INTO any_context.quarantine AS q (
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
-- What succeeded has a clean record. A claim has locked records of what is settled by now, so it
-- waits for nobody: one that is locked is taken off as settled by a later claim.
DELETE FROM any_context.quarantine
WHERE (job, item) IN (
    SELECT q.job, q.item FROM any_context.quarantine AS q
    WHERE q.job = @job AND q.item = ANY (@items::uuid[])
    FOR UPDATE SKIP LOCKED
);

-- name: ListQuarantine :many
SELECT job, item, tenant_id, failures, first_failed_at, last_failed_at, first_error, last_error, next_attempt
FROM any_context.quarantine
ORDER BY next_attempt, job, item;

-- name: RetryItem :execrows
UPDATE any_context.quarantine SET next_attempt = @at WHERE item = @item;
