-- +goose Up

-- Messages on their way to Kafka. A lane is a topic's shard: Kafka keeps the order within a
-- topic and key only, so lanes are independent of each other. The primary key leads with the
-- lane, and the identity keeps the commit order of one key (its CACHE must stay 1).
CREATE TABLE any_context.outbox (
    topic      text        NOT NULL,
    shard      smallint    NOT NULL,
    id         bigint      GENERATED ALWAYS AS IDENTITY,
    key        text        NOT NULL,
    uuid       uuid        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    payload    bytea       NOT NULL,
    PRIMARY KEY (topic, shard, id)
) WITH (
    -- A queue's dead rows lie at its head, where the next read begins: clean up often.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 50000,
    autovacuum_vacuum_cost_delay = 0
);

-- Messages that Kafka refuses for good, taken out of their key's way.
CREATE TABLE any_context.outbox_parked (
    topic      text        NOT NULL,
    shard      smallint    NOT NULL,
    id         bigint      NOT NULL,
    key        text        NOT NULL,
    uuid       uuid        NOT NULL,
    created_at timestamptz NOT NULL,
    payload    bytea       NOT NULL,
    error      text        NOT NULL,
    attempts   integer     NOT NULL,
    parked_at  timestamptz NOT NULL,
    PRIMARY KEY (topic, shard, id)
);

-- +goose Down
DROP TABLE any_context.outbox_parked;
DROP TABLE any_context.outbox;
