-- +goose Up

-- What was discarded is kept, and a message may come to have the id of one of those: where ids begin again,
-- after a failover to a logical replica or a restore without sequences. To park that one must not fail.
ALTER TABLE any_context.outbox_parked DROP CONSTRAINT outbox_parked_pkey;
ALTER TABLE any_context.outbox_parked ADD COLUMN place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY;

-- +goose Down
ALTER TABLE any_context.outbox_parked DROP COLUMN place;
ALTER TABLE any_context.outbox_parked ADD PRIMARY KEY (topic, shard, id);
