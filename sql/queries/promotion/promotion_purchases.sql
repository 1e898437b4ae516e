-- name: ClaimDuePurchases :many
-- The status is a literal: with a parameter, a generic plan could not use the partial index.
-- The cursor keeps a page from paying for the dead rows of the pages before it.
SELECT sqlc.embed(p), coalesce(q.failures, 0)::integer AS failures
FROM promotion.promotion_purchases AS p
LEFT JOIN any_context.quarantine AS q ON q.job = 'expire-promotions' AND q.item = p.id
WHERE p.status = 'Active'
  AND p.ends_at <= @as_of
  AND (p.ends_at, p.id) > (@after_due::timestamptz, @after_id::uuid)
  AND (p.ends_at, p.id) <= (@until_due::timestamptz, @until_id::uuid)
  AND (q.next_attempt IS NULL OR q.next_attempt <= @as_of)
ORDER BY p.ends_at, p.id
LIMIT @max_items
FOR NO KEY UPDATE OF p SKIP LOCKED;

-- name: CountDuePurchases :one
-- What a claim's range would yield if nobody held anything.
SELECT count(*)
FROM promotion.promotion_purchases AS p
LEFT JOIN any_context.quarantine AS q ON q.job = 'expire-promotions' AND q.item = p.id
WHERE p.status = 'Active'
  AND p.ends_at <= @as_of
  AND (p.ends_at, p.id) > (@after_due::timestamptz, @after_id::uuid)
  AND (p.ends_at, p.id) <= (@until_due::timestamptz, @until_id::uuid)
  AND (q.next_attempt IS NULL OR q.next_attempt <= @as_of);

-- name: PurchaseBacklog :one
-- The oldest is the oldest of a finite moment: -infinity is a fault, no age.
SELECT count(*) FILTER (WHERE p.ends_at <= @as_of::timestamptz) AS due,
       min(p.ends_at) FILTER (WHERE p.ends_at > '-infinity' AND p.ends_at <= @as_of::timestamptz)::timestamptz AS oldest,
       count(*) FILTER (WHERE p.ends_at > @as_of::timestamptz) AS next_hour,
       count(*) FILTER (WHERE p.ends_at <= @as_of::timestamptz AND q.next_attempt > @as_of::timestamptz) AS held
FROM promotion.promotion_purchases AS p
LEFT JOIN any_context.quarantine AS q ON q.job = 'expire-promotions' AND q.item = p.id
WHERE p.status = 'Active'
  AND p.ends_at <= @until::timestamptz
  AND (p.ends_at, p.id) > (@after_due::timestamptz, @after_id::uuid);

-- name: HeldPurchases :many
-- What a claim leaves out because it is held back, from the record's side: few are.
SELECT p.id, p.tenant_id, p.ends_at AS due, q.failures, q.first_failed_at, q.last_failed_at, q.first_error, q.last_error, q.next_attempt
FROM promotion.promotion_purchases AS p
JOIN any_context.quarantine AS q ON q.job = 'expire-promotions' AND q.item = p.id AND q.next_attempt > @as_of
WHERE p.id = ANY (ARRAY(SELECT h.item FROM any_context.quarantine AS h WHERE h.job = 'expire-promotions' AND h.next_attempt > @as_of))
  AND p.status = 'Active'
  AND p.ends_at <= @as_of
  AND (p.ends_at, p.id) > (@after_due::timestamptz, @after_id::uuid)
  AND (p.ends_at, p.id) <= (@until_due::timestamptz, @until_id::uuid)
ORDER BY p.ends_at, p.id
LIMIT @max_items;

-- name: ReleaseSettledPurchases :exec
-- What others have settled since is no failure any more. It waits for nobody: what is locked is
-- taken off another time.
DELETE FROM any_context.quarantine
WHERE (job, item) IN (
    SELECT q.job, q.item FROM any_context.quarantine AS q
    WHERE q.job = 'expire-promotions'
      AND NOT EXISTS (
        SELECT FROM promotion.promotion_purchases AS p
        WHERE p.id = q.item AND p.status = 'Active' AND p.ends_at <= greatest(@as_of::timestamptz, now())
      )
    FOR UPDATE SKIP LOCKED
);

-- name: LockPurchase :one
-- It waits for whoever holds the row, as operations do.
SELECT id, tenant_id, package_kind, status, payment_status, starts_at, ends_at, version,
       created_at, updated_at
FROM promotion.promotion_purchases
WHERE id = @id
FOR UPDATE;

-- name: InsertPurchase :exec
INSERT INTO promotion.promotion_purchases (
    id, tenant_id, package_kind, status, payment_status, starts_at, ends_at, version,
    created_at, updated_at
) VALUES (
    @id, @tenant_id, @package_kind, @status, @payment_status, @starts_at, @ends_at, @version,
    @created_at, @updated_at
);

-- name: UpdatePurchases :execrows
-- One statement for a batch of any size. What it meets in another version, it leaves alone:
-- the caller compares the count.
UPDATE promotion.promotion_purchases AS p
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
WHERE p.id = n.id
  AND p.version = n.seen_version;

-- name: PurchasePage :many
SELECT id FROM promotion.promotion_purchases
WHERE id > @after_id AND updated_at >= @since
ORDER BY id
LIMIT @max_items;

-- name: PurchasesByID :many
SELECT id, tenant_id, package_kind, status, payment_status, starts_at, ends_at, version,
       created_at, updated_at
FROM promotion.promotion_purchases
WHERE id = ANY (@ids::uuid[]);

-- name: TargetsOf :many
-- Read after the purchases are locked, by a statement of its own.
SELECT purchase_id, target_type, target_id
FROM promotion.promotion_targets
WHERE purchase_id = ANY (@ids::uuid[])
ORDER BY purchase_id, target_type, target_id;

-- name: InsertTargets :exec
INSERT INTO promotion.promotion_targets (purchase_id, target_type, target_id)
SELECT @purchase_id, unnest(@target_types::text[]), unnest(@target_ids::uuid[]);
