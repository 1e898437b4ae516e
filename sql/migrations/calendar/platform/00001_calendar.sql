-- The calendar tables that the platform's services own (spec: domain, tables). The worker applies
-- this set only when it is asked to: for a new system, the demo and the tests.

-- +goose Up
CREATE TABLE calendar.availability_slots (
    id                    uuid PRIMARY KEY,
    tenant_id             uuid NOT NULL,
    agent_user_id         uuid NOT NULL,
    start_at              timestamptz NOT NULL,
    end_at                timestamptz NOT NULL,
    min_lead_time_minutes integer NOT NULL CHECK (min_lead_time_minutes >= 0),
    auto_confirm          boolean NOT NULL,
    status                text NOT NULL CHECK (status IN ('Available', 'Booked', 'Expired', 'Withdrawn')),
    version               integer NOT NULL CHECK (version >= 1),
    created_at            timestamptz NOT NULL,
    updated_at            timestamptz NOT NULL
);

CREATE TABLE calendar.calendar_events (
    id             uuid PRIMARY KEY,
    tenant_id      uuid NOT NULL,
    owner_user_id  uuid NOT NULL,
    client_user_id uuid,
    kind           text NOT NULL,
    origin         text NOT NULL,
    status         text NOT NULL CHECK (status IN ('Planned', 'InProgress', 'Completed', 'Cancelled')),
    cancel_reason  text,
    start_at       timestamptz NOT NULL,
    end_at         timestamptz NOT NULL,
    time_zone      text NOT NULL,
    appointment_id uuid,
    version        integer NOT NULL CHECK (version >= 1),
    created_at     timestamptz NOT NULL,
    updated_at     timestamptz NOT NULL
);

CREATE TABLE calendar.event_reminders (
    id             uuid PRIMARY KEY,
    event_id       uuid NOT NULL REFERENCES calendar.calendar_events (id),
    tenant_id      uuid NOT NULL,
    offset_minutes integer NOT NULL CHECK (offset_minutes >= 0),
    due_at         timestamptz NOT NULL,
    status         text NOT NULL CHECK (status IN ('Pending', 'Sent', 'Skipped')),
    sent_at        timestamptz,
    version        integer NOT NULL CHECK (version >= 1),
    created_at     timestamptz NOT NULL,
    updated_at     timestamptz NOT NULL
);

CREATE INDEX ix_event_reminders_event_id ON calendar.event_reminders (event_id);

CREATE TABLE calendar.appointments (
    id                 uuid PRIMARY KEY,
    tenant_id          uuid NOT NULL,
    slot_id            uuid NOT NULL REFERENCES calendar.availability_slots (id),
    calendar_event_id  uuid NOT NULL REFERENCES calendar.calendar_events (id),
    lead_id            uuid,
    agent_user_id      uuid NOT NULL,
    investor_user_id   uuid NOT NULL,
    status             text NOT NULL CHECK (status IN ('Pending', 'Confirmed', 'Declined', 'Cancelled', 'Expired', 'Completed')),
    pending_expires_at timestamptz,
    cancelled_by       uuid,
    version            integer NOT NULL CHECK (version >= 1),
    created_at         timestamptz NOT NULL,
    updated_at         timestamptz NOT NULL
);

CREATE INDEX ix_appointments_slot_id ON calendar.appointments (slot_id);

-- +goose Down
DROP TABLE calendar.appointments;
DROP TABLE calendar.event_reminders;
DROP TABLE calendar.calendar_events;
DROP TABLE calendar.availability_slots;
