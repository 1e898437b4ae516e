-- One page of lead-expiration, all of it in the database: the same rows, events and envelopes as
-- the worker writes. $1 as of, $2 $3 cursor, $4 limit, $5 run id, $6 topic.
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
    SELECT c.*, gen_random_uuid() AS message_id,
           to_char($1::timestamptz AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS at_text
    FROM changed AS c
), events AS (
    INSERT INTO crm.domain_events
    SELECT t.id, 'Lead', t.version, 'LeadExpired', d.data::json, 'System', $5::uuid, $1,
           sha256(convert_to(t.id::text || t.version || d.data || $5::text, 'UTF8'))
    FROM told AS t
    CROSS JOIN LATERAL (SELECT format('{"Lead":"%s","At":"%s"}', t.id, t.at_text) AS data) AS d
), messages AS (
    INSERT INTO crm.outbox (topic, shard, key, uuid, payload)
    SELECT $6::text, abs(hashtext(t.id::text)) % 8, t.id::text, t.message_id,
           convert_to(format(
               '{"destination_topic":"%s","uuid":"%s","payload":"%s","metadata":{"ce_aggregatetype":"Lead","ce_aggregateversion":"%s","ce_contractversion":"1","ce_correlationid":"%s","ce_id":"%s","ce_partitionkey":"%s","ce_source":"pin/crm","ce_specversion":"1.0","ce_subject":"%s","ce_tenantid":"%s","ce_time":"%s","ce_type":"%s","content-type":"application/json"}}',
               $6, t.message_id,
               translate(encode(convert_to(format(
                   '{"ContractVersion":1,"LeadId":"%s","TenantId":"%s","AgentUserId":"%s","InvestorUserId":"%s","ExpiredAt":"%s"}',
                   t.id, t.tenant_id, t.executor_agent_user_id, t.primary_investor_user_id, t.at_text), 'UTF8'), 'base64'), E'\n', ''),
               t.version, $5, t.message_id, t.id, t.id, t.tenant_id, t.at_text, $6), 'UTF8')
    FROM told AS t
)
SELECT (SELECT count(*) FROM changed)::integer,
       coalesce((SELECT c.expires_at FROM claimed AS c ORDER BY c.expires_at DESC, c.id DESC LIMIT 1), $2),
       coalesce((SELECT c.id FROM claimed AS c ORDER BY c.expires_at DESC, c.id DESC LIMIT 1), $3::uuid)
