-- $1 leads that come due in the day before $2, each with the stream of its registration.
WITH made AS (
    INSERT INTO crm.leads
    SELECT overlay(gen_random_uuid()::text PLACING lpad(to_hex(n), 8, '0') FROM 1)::uuid, -- in order, as v7 ids are
           gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'Active',
           $2::timestamptz - (n % 86000 + 1) * interval '1 second', NULL, 1,
           $2::timestamptz - interval '30 days', $2::timestamptz - interval '30 days'
    FROM generate_series(1, $1::integer) AS n
    RETURNING *
)
INSERT INTO crm.domain_events
SELECT id, 'Lead', 1, 'LeadRegistered',
       json_build_object('Lead', id, 'Tenant', tenant_id, 'Executor', executor_agent_user_id,
                         'Investor', primary_investor_user_id, 'ExpiresAt', expires_at, 'At', created_at),
       'System', id, created_at, sha256(id::text::bytea)
FROM made
