-- The crm tables that the platform's services own (spec: domain, tables). The worker applies
-- this set only when it is asked to: for a new system, the demo and the tests.

-- +goose Up
CREATE TABLE crm.leads (
    id                       uuid PRIMARY KEY,
    tenant_id                uuid NOT NULL,
    executor_agent_user_id   uuid NOT NULL,
    primary_investor_user_id uuid NOT NULL,
    status                   text NOT NULL CHECK (status IN ('Active', 'Expired', 'Archived')),
    expires_at               timestamptz NOT NULL,
    expired_at               timestamptz,
    version                  integer NOT NULL CHECK (version >= 1),
    created_at               timestamptz NOT NULL,
    updated_at               timestamptz NOT NULL
);

CREATE TABLE crm.deals (
    id             uuid PRIMARY KEY,
    lead_id        uuid NOT NULL REFERENCES crm.leads (id),
    status         text NOT NULL,
    fixation_until timestamptz,
    version        integer NOT NULL CHECK (version >= 1),
    created_at     timestamptz NOT NULL,
    updated_at     timestamptz NOT NULL
);

CREATE INDEX ix_deals_lead_id ON crm.deals (lead_id);

-- +goose Down
DROP TABLE crm.deals;
DROP TABLE crm.leads;
