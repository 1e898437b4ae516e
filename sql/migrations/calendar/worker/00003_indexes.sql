-- The indexes that reminder-dispatch and appointment-timeout poll by, and the one by which an
-- appointment finds its event's reminders. Built without blocking the
-- platform's writes, which a transaction cannot do. An index of one of these names that is there
-- already was checked to be this very one before the set began.

-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX CONCURRENTLY IF NOT EXISTS ix_event_reminders_status_due_at ON calendar.event_reminders (due_at, id) WHERE status = 'Pending';
CREATE INDEX CONCURRENTLY IF NOT EXISTS ix_appointments_pending_expires_at ON calendar.appointments (pending_expires_at, id) WHERE status = 'Pending';
CREATE INDEX CONCURRENTLY IF NOT EXISTS ix_event_reminders_event_id ON calendar.event_reminders (event_id);

-- +goose Down
-- The last one is in the platform's set, too, and stays.
DROP INDEX CONCURRENTLY IF EXISTS calendar.ix_appointments_pending_expires_at;
DROP INDEX CONCURRENTLY IF EXISTS calendar.ix_event_reminders_status_due_at;
