-- One page of expire-promotions, all of it in the database: the same rows, events and envelopes as
-- the worker writes. $1 as of, $2 $3 cursor, $4 limit, $5 run id, $6 topic.
WITH claimed AS MATERIALIZED (
    SELECT p.*
    FROM promotion.promotion_purchases AS p
    WHERE p.status = 'Active' AND p.ends_at <= $1::timestamptz
      AND (p.ends_at, p.id) > ($2::timestamptz, $3::uuid)
    ORDER BY p.ends_at, p.id
    LIMIT $4::integer
    FOR NO KEY UPDATE SKIP LOCKED
), targets AS (
    SELECT t.purchase_id,
           string_agg(format('{"TargetType":"%s","TargetId":"%s"}', t.target_type, t.target_id), ',' ORDER BY t.target_type, t.target_id) AS list
    FROM promotion.promotion_targets AS t
    WHERE t.purchase_id IN (SELECT id FROM claimed)
    GROUP BY t.purchase_id
), changed AS (
    UPDATE promotion.promotion_purchases AS p
    SET status = 'Expired', updated_at = $1, version = p.version + 1
    FROM claimed AS c
    WHERE p.id = c.id
    RETURNING p.*
), told AS (
    SELECT c.*, t.list, gen_random_uuid() AS message_id,
           to_char($1::timestamptz AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS at_text
    FROM changed AS c JOIN targets AS t ON t.purchase_id = c.id
), events AS (
    INSERT INTO promotion.domain_events
    SELECT t.id, 'PromotionPurchase', t.version, 'PromotionPurchaseExpired', d.data::json, 'System', $5::uuid, $1,
           sha256(convert_to(t.id::text || t.version || d.data || $5::text, 'UTF8'))
    FROM told AS t
    CROSS JOIN LATERAL (SELECT format('{"Purchase":"%s","At":"%s"}', t.id, t.at_text) AS data) AS d
), messages AS (
    INSERT INTO promotion.outbox (topic, shard, key, uuid, payload)
    SELECT $6::text, abs(hashtext(t.id::text)) % 8, t.id::text, t.message_id,
           convert_to(format(
               '{"destination_topic":"%s","uuid":"%s","payload":"%s","metadata":{"ce_aggregatetype":"PromotionPurchase","ce_aggregateversion":"%s","ce_contractversion":"1","ce_correlationid":"%s","ce_id":"%s","ce_partitionkey":"%s","ce_source":"pin/promotion","ce_specversion":"1.0","ce_subject":"%s","ce_tenantid":"%s","ce_time":"%s","ce_type":"%s","content-type":"application/json"}}',
               $6, t.message_id,
               translate(encode(convert_to(format(
                   '{"ContractVersion":1,"PurchaseId":"%s","TenantId":"%s","PackageKind":"%s","Status":"%s","PaymentStatus":"%s","StartsAt":"%s","EndsAt":"%s","Targets":[%s],"Version":%s,"OccurredAt":"%s"}',
                   t.id, t.tenant_id, t.package_kind, t.status, t.payment_status,
                   to_char(t.starts_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), to_char(t.ends_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
                   t.list, t.version, t.at_text), 'UTF8'), 'base64'), E'\n', ''),
               t.version, $5, t.message_id, t.id, t.id, t.tenant_id, t.at_text, $6), 'UTF8')
    FROM told AS t
)
SELECT (SELECT count(*) FROM changed)::integer,
       coalesce((SELECT c.ends_at FROM claimed AS c ORDER BY c.ends_at DESC, c.id DESC LIMIT 1), $2),
       coalesce((SELECT c.id FROM claimed AS c ORDER BY c.ends_at DESC, c.id DESC LIMIT 1), $3::uuid)
