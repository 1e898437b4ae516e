-- The index that lead-expiration polls by. Built without blocking the platform's writes,
-- which a transaction cannot do. An index of this name that is there already was checked to be
-- this very one before the set began.

-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX CONCURRENTLY IF NOT EXISTS ix_leads_expires_at ON crm.leads (expires_at, id) WHERE status = 'Active';

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS crm.ix_leads_expires_at;
