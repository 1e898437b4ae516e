-- +goose Up

-- Items that fail, shared by all instances. From its third failure in a row an item is held back
-- until next_attempt; a success removes it.
CREATE TABLE any_context.quarantine (
    job             text        NOT NULL,
    item            uuid        NOT NULL,
    tenant_id       uuid,
    failures        integer     NOT NULL CHECK (failures >= 1), -- in a row
    first_failed_at timestamptz NOT NULL,
    last_failed_at  timestamptz NOT NULL,
    first_error     text        NOT NULL,
    last_error      text        NOT NULL,
    next_attempt    timestamptz NOT NULL,
    PRIMARY KEY (job, item)
);

-- +goose Down
DROP TABLE any_context.quarantine;
