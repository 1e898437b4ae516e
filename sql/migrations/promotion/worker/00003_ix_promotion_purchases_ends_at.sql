-- The index that expire-promotions polls by. Built without blocking the platform's writes,
-- which a transaction cannot do. An index of this name that is there already was checked to be
-- this very one before the set began.

-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX CONCURRENTLY IF NOT EXISTS ix_promotion_purchases_ends_at ON promotion.promotion_purchases (ends_at, id) WHERE status = 'Active';

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS promotion.ix_promotion_purchases_ends_at;
