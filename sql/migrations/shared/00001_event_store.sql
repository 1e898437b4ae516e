-- +goose Up
CREATE TABLE any_context.domain_events (
    stream_id      uuid        NOT NULL,
    stream_type    text        NOT NULL,
    version        integer     NOT NULL CHECK (version >= 1),
    event_type     text        NOT NULL,
    -- json, not jsonb: the text is kept to the letter, and so its digest stays true.
    data           json        NOT NULL,
    actor          text        NOT NULL,
    correlation_id uuid        NOT NULL,
    occurred_at    timestamptz NOT NULL,
    digest         bytea       NOT NULL,
    -- The optimistic lock of last resort.
    PRIMARY KEY (stream_id, version)
);

COMMENT ON TABLE any_context.domain_events IS
    'Append-only. What happened to each aggregate, in order; digest is the SHA-256 of the row as it was recorded.';

-- +goose Down
DROP TABLE any_context.domain_events;
