-- The least that a worker needs, as the group role pinworker: run this as the databases' owner
-- after every `pinworker migrate up`, in each database (`pinworker migrate up --with-role` does
-- both), then GRANT pinworker TO the login that serves. A context that is not in this database is
-- passed over. An owner that may create no roles finds it made by somebody who may.
--
-- It reads the columns listed here and no others (no names, no notes), changes of a row what its
-- jobs change, and can neither alter nor delete an event.

DO $role$
DECLARE
    context text;
BEGIN
    IF to_regrole('pinworker') IS NULL THEN
        BEGIN
            CREATE ROLE pinworker NOLOGIN;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; -- roles belong to the whole server
        END;
    END IF;

    FOREACH context IN ARRAY ARRAY['calendar', 'promotion', 'crm'] LOOP
        CONTINUE WHEN to_regclass(context || '.goose_worker') IS NULL;
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO pinworker', context);
        EXECUTE format('GRANT SELECT, INSERT ON %I.domain_events TO pinworker', context);
        EXECUTE format('GRANT SELECT, INSERT, DELETE ON %1$I.outbox, %1$I.outbox_parked TO pinworker', context);
        EXECUTE format('GRANT UPDATE (discarded_at, discard_reason) ON %I.outbox_parked TO pinworker', context);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I.quarantine TO pinworker', context);
        EXECUTE format('GRANT SELECT ON %I.goose_worker TO pinworker', context); -- whether the schema is up to date
    END LOOP;

    IF to_regclass('calendar.goose_worker') IS NOT NULL THEN
        GRANT SELECT (id, tenant_id, agent_user_id, start_at, end_at, min_lead_time_minutes, auto_confirm,
                      status, version, created_at, updated_at),
              UPDATE (status, version, updated_at)
            ON calendar.availability_slots TO pinworker;
        GRANT SELECT (id, tenant_id, owner_user_id, client_user_id, kind, origin, status, cancel_reason,
                      start_at, end_at, time_zone, appointment_id, version, created_at, updated_at),
              UPDATE (status, cancel_reason, start_at, end_at, version, updated_at)
            ON calendar.calendar_events TO pinworker;
        GRANT SELECT (id, event_id, tenant_id, offset_minutes, due_at, status, sent_at, version, created_at, updated_at),
              UPDATE (status, sent_at, version, updated_at)
            ON calendar.event_reminders TO pinworker;
        GRANT SELECT (id, tenant_id, slot_id, calendar_event_id, lead_id, agent_user_id, investor_user_id,
                      status, pending_expires_at, cancelled_by, version, created_at, updated_at),
              UPDATE (status, cancelled_by, version, updated_at)
            ON calendar.appointments TO pinworker;
    END IF;

    IF to_regclass('promotion.goose_worker') IS NOT NULL THEN
        GRANT SELECT (id, tenant_id, package_kind, status, payment_status, starts_at, ends_at, version, created_at, updated_at),
              UPDATE (status, version, updated_at)
            ON promotion.promotion_purchases TO pinworker;
        GRANT SELECT (purchase_id, target_type, target_id) ON promotion.promotion_targets TO pinworker;
    END IF;

    IF to_regclass('crm.goose_worker') IS NOT NULL THEN
        GRANT SELECT (id, tenant_id, executor_agent_user_id, primary_investor_user_id, status,
                      expires_at, expired_at, version, created_at, updated_at),
              UPDATE (status, expires_at, expired_at, version, updated_at)
            ON crm.leads TO pinworker;
    END IF;
END $role$;
