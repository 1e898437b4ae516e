-- The least that a worker needs, as the group role pinworker: run this as the database's owner
-- after every `pinworker migrate up`, then GRANT pinworker TO the login that serves.
--
-- It reads the columns listed here and no others (no names, no notes), changes of a lead what an
-- expiration changes, and can neither alter nor delete an event.

DO $$ BEGIN
    CREATE ROLE pinworker NOLOGIN;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; -- roles belong to the whole server
END $$;

GRANT USAGE ON SCHEMA crm TO pinworker;

GRANT SELECT (id, tenant_id, executor_agent_user_id, primary_investor_user_id, status,
              expires_at, expired_at, version, created_at, updated_at),
      UPDATE (status, expires_at, expired_at, version, updated_at)
    ON crm.leads TO pinworker;

GRANT SELECT, INSERT ON crm.domain_events TO pinworker;
GRANT SELECT, INSERT, DELETE ON crm.outbox, crm.outbox_parked TO pinworker;
GRANT SELECT, INSERT, UPDATE, DELETE ON crm.quarantine TO pinworker;

-- Whether the schema is up to date.
GRANT SELECT ON crm.goose_worker TO pinworker;
