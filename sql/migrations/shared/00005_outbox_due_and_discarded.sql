-- +goose Up

-- When what a message tells of came due, where it has such a moment: for the time from there to
-- Kafka's acknowledgement.
ALTER TABLE any_context.outbox ADD COLUMN due_at timestamptz;
ALTER TABLE any_context.outbox_parked ADD COLUMN due_at timestamptz;

-- What an operator decided not to send after all, and why. It is kept.
ALTER TABLE any_context.outbox_parked
    ADD COLUMN discarded_at   timestamptz,
    ADD COLUMN discard_reason text;

CREATE INDEX ix_outbox_parked_uuid ON any_context.outbox_parked (uuid);

-- +goose Down
DROP INDEX any_context.ix_outbox_parked_uuid;
ALTER TABLE any_context.outbox_parked DROP COLUMN discard_reason, DROP COLUMN discarded_at, DROP COLUMN due_at;
ALTER TABLE any_context.outbox DROP COLUMN due_at;
