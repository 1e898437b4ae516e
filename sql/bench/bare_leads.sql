-- As limit.sql, with constant bodies of the same length in place of events and envelopes: what it
-- takes to write the bytes alone. $1 as of, $2 $3 cursor, $4 limit, $5 run id, $6 topic.
WITH claimed AS MATERIALIZED (
    SELECT l.id, l.tenant_id, l.executor_agent_user_id, l.primary_investor_user_id, l.version, l.expires_at
    FROM crm.leads AS l
    WHERE l.status = 'Active' AND l.expires_at < $1::timestamptz
      AND (l.expires_at, l.id) > ($2::timestamptz, $3::uuid)
    ORDER BY l.expires_at, l.id
    LIMIT $4::integer
    FOR NO KEY UPDATE SKIP LOCKED
), changed AS (
    UPDATE crm.leads AS l
    SET status = 'Expired', expired_at = $1, updated_at = $1, version = l.version + 1
    FROM claimed AS c
    WHERE l.id = c.id
    RETURNING l.id, l.tenant_id, l.executor_agent_user_id, l.primary_investor_user_id, l.version
), told AS (
    SELECT c.*, gen_random_uuid() AS message_id
    FROM changed AS c
), events AS (
    INSERT INTO crm.domain_events
    SELECT t.id, 'Lead', t.version, 'LeadExpired',
           '{"Lead":"00000000-0000-0000-0000-000000000000","At":"2026-01-01T00:00:00Z"}'::json, 'System', $5::uuid, $1,
           '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea
    FROM told AS t
), messages AS (
    INSERT INTO crm.outbox (topic, shard, key, uuid, payload)
    SELECT $6::text, abs(hashtext(t.id::text)) % 8, t.id::text, t.message_id, convert_to(repeat('x', 980), 'UTF8')
    FROM told AS t
)
SELECT (SELECT count(*) FROM changed)::integer,
       coalesce((SELECT c.expires_at FROM claimed AS c ORDER BY c.expires_at DESC, c.id DESC LIMIT 1), $2),
       coalesce((SELECT c.id FROM claimed AS c ORDER BY c.expires_at DESC, c.id DESC LIMIT 1), $3::uuid)
