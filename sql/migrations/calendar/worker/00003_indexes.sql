-- The indexes that reminder-dispatch and appointment-timeout poll by. Built without blocking the
-- platform's writes, which a transaction cannot do. An index of one of these names that is there
-- already was checked to be this very one before the set began.

-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX CONCURRENTLY IF NOT EXISTS ix_event_reminders_status_due_at ON calendar.event_reminders (due_at, id) WHERE status = 'Pending';
CREATE INDEX CONCURRENTLY IF NOT EXISTS ix_appointments_pending_expires_at ON calendar.appointments (pending_expires_at, id) WHERE status = 'Pending';

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS calendar.ix_appointments_pending_expires_at;
DROP INDEX CONCURRENTLY IF EXISTS calendar.ix_event_reminders_status_due_at;
