-- The index that lead-expiration polls by. Built without blocking the platform's writes,
-- which a transaction cannot do.

-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX CONCURRENTLY ix_leads_expires_at ON crm.leads (expires_at, id) WHERE status = 'Active';

-- +goose Down
DROP INDEX CONCURRENTLY crm.ix_leads_expires_at;
