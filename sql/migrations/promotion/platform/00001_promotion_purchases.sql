-- The promotion tables that the platform's services own (spec: domain, tables). The worker applies
-- this set only when it is asked to: for a new system, the demo and the tests.

-- +goose Up
CREATE TABLE promotion.promotion_purchases (
    id             uuid PRIMARY KEY,
    tenant_id      uuid NOT NULL,
    package_kind   text NOT NULL,
    status         text NOT NULL CHECK (status IN ('Pending', 'Active', 'Expired', 'Cancelled')),
    payment_status text NOT NULL,
    starts_at      timestamptz NOT NULL,
    ends_at        timestamptz NOT NULL,
    version        integer NOT NULL CHECK (version >= 1),
    created_at     timestamptz NOT NULL,
    updated_at     timestamptz NOT NULL
);

CREATE TABLE promotion.promotion_targets (
    purchase_id uuid NOT NULL REFERENCES promotion.promotion_purchases (id),
    target_type text NOT NULL,
    target_id   uuid NOT NULL,
    PRIMARY KEY (purchase_id, target_type, target_id)
);

-- +goose Down
DROP TABLE promotion.promotion_targets;
DROP TABLE promotion.promotion_purchases;
