-- $1 purchases of two targets each that end in the day before $2, each with its stream.
WITH made AS (
    INSERT INTO promotion.promotion_purchases
    SELECT overlay(gen_random_uuid()::text PLACING lpad(to_hex(n), 8, '0') FROM 1)::uuid, -- in order, as v7 ids are
           gen_random_uuid(), 'Premium', 'Active', 'NotRequired', $2::timestamptz - interval '10 days',
           $2::timestamptz - (n % 86000 + 1) * interval '1 second', 2,
           $2::timestamptz - interval '10 days', $2::timestamptz - interval '10 days'
    FROM generate_series(1, $1::integer) AS n
    RETURNING *
), targeted AS (
    INSERT INTO promotion.promotion_targets
    SELECT id, 'Property', gen_random_uuid() FROM made CROSS JOIN generate_series(1, 2)
)
INSERT INTO promotion.domain_events
SELECT id, 'PromotionPurchase', v, CASE v WHEN 1 THEN 'PromotionPurchased' ELSE 'PromotionActivated' END,
       json_build_object('Purchase', id, 'At', created_at), 'System', id, created_at, sha256(id::text::bytea)
FROM made CROSS JOIN generate_series(1, 2) AS v
