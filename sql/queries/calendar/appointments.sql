-- name: ClaimDueAppointments :many
-- The status is a literal: with a parameter, a generic plan could not use the partial index.
-- The cursor keeps a page from paying for the dead rows of the pages before it.
-- Slot and event are locked with the appointment, in this order, as operations lock them.
SELECT sqlc.embed(a), sqlc.embed(s), sqlc.embed(e), coalesce(q.failures, 0)::integer AS failures
FROM calendar.appointments AS a
JOIN calendar.availability_slots AS s ON s.id = a.slot_id
JOIN calendar.calendar_events AS e ON e.id = a.calendar_event_id
LEFT JOIN any_context.quarantine AS q ON q.job = 'appointment-timeout' AND q.item = a.id
WHERE a.status = 'Pending'
  AND a.pending_expires_at < @as_of
  AND (a.pending_expires_at, a.id) > (@after_due::timestamptz, @after_id::uuid)
  AND (a.pending_expires_at, a.id) <= (@until_due::timestamptz, @until_id::uuid)
  AND (q.next_attempt IS NULL OR q.next_attempt <= @as_of)
ORDER BY a.pending_expires_at, a.id
LIMIT @max_items
FOR NO KEY UPDATE OF a SKIP LOCKED
FOR NO KEY UPDATE OF s SKIP LOCKED
FOR NO KEY UPDATE OF e SKIP LOCKED;

-- name: CountDueAppointments :one
-- What a claim's range would yield if nobody held anything.
SELECT count(*)
FROM calendar.appointments AS a
LEFT JOIN any_context.quarantine AS q ON q.job = 'appointment-timeout' AND q.item = a.id
WHERE a.status = 'Pending'
  AND a.pending_expires_at < @as_of
  AND (a.pending_expires_at, a.id) > (@after_due::timestamptz, @after_id::uuid)
  AND (a.pending_expires_at, a.id) <= (@until_due::timestamptz, @until_id::uuid)
  AND (q.next_attempt IS NULL OR q.next_attempt <= @as_of);

-- name: AppointmentBacklog :one
-- The oldest is the oldest of a finite moment: -infinity is a fault, no age.
SELECT count(*) FILTER (WHERE a.pending_expires_at < @as_of::timestamptz) AS due,
       min(a.pending_expires_at) FILTER (WHERE a.pending_expires_at > '-infinity' AND a.pending_expires_at < @as_of::timestamptz)::timestamptz AS oldest,
       count(*) FILTER (WHERE a.pending_expires_at >= @as_of::timestamptz) AS next_hour,
       count(*) FILTER (WHERE a.pending_expires_at < @as_of::timestamptz AND q.next_attempt > @as_of::timestamptz) AS held
FROM calendar.appointments AS a
LEFT JOIN any_context.quarantine AS q ON q.job = 'appointment-timeout' AND q.item = a.id
WHERE a.status = 'Pending'
  AND a.pending_expires_at < @until::timestamptz
  AND (a.pending_expires_at, a.id) > (@after_due::timestamptz, @after_id::uuid);

-- name: HeldAppointments :many
-- What a claim leaves out because it is held back, from the record's side: few are.
SELECT a.id, a.tenant_id, a.pending_expires_at AS due, q.failures, q.first_failed_at, q.last_failed_at, q.first_error, q.last_error, q.next_attempt
FROM calendar.appointments AS a
JOIN any_context.quarantine AS q ON q.job = 'appointment-timeout' AND q.item = a.id AND q.next_attempt > @as_of
WHERE a.id = ANY (ARRAY(SELECT h.item FROM any_context.quarantine AS h WHERE h.job = 'appointment-timeout' AND h.next_attempt > @as_of))
  AND a.status = 'Pending'
  AND a.pending_expires_at < @as_of
  AND (a.pending_expires_at, a.id) > (@after_due::timestamptz, @after_id::uuid)
  AND (a.pending_expires_at, a.id) <= (@until_due::timestamptz, @until_id::uuid)
ORDER BY a.pending_expires_at, a.id
LIMIT @max_items;

-- name: ReleaseSettledAppointments :exec
-- What others have settled since is no failure any more. It waits for nobody: what is locked is
-- taken off another time.
DELETE FROM any_context.quarantine
WHERE (job, item) IN (
    SELECT q.job, q.item FROM any_context.quarantine AS q
    WHERE q.job = 'appointment-timeout'
      AND NOT EXISTS (
        SELECT FROM calendar.appointments AS a
        WHERE a.id = q.item AND a.status = 'Pending' AND a.pending_expires_at < greatest(@as_of::timestamptz, now())
      )
    FOR UPDATE SKIP LOCKED
);

-- name: ClaimAppointmentOrphans :many
-- What is due and lacks a partner: the inner join of the claim hides it. Looked up row by row, for
-- the few rows of the range: a NOT EXISTS would be planned as a hash of the partners' whole table.
SELECT sqlc.embed(a), coalesce(q.failures, 0)::integer AS failures
FROM calendar.appointments AS a
LEFT JOIN any_context.quarantine AS q ON q.job = 'appointment-timeout' AND q.item = a.id
WHERE a.status = 'Pending'
  AND a.pending_expires_at < @as_of
  AND (a.pending_expires_at, a.id) > (@after_due::timestamptz, @after_id::uuid)
  AND (a.pending_expires_at, a.id) <= (@until_due::timestamptz, @until_id::uuid)
  AND (q.next_attempt IS NULL OR q.next_attempt <= @as_of)
  AND ((SELECT s.id FROM calendar.availability_slots AS s WHERE s.id = a.slot_id) IS NULL
       OR (SELECT e.id FROM calendar.calendar_events AS e WHERE e.id = a.calendar_event_id) IS NULL)
ORDER BY a.pending_expires_at, a.id
LIMIT @max_items
FOR NO KEY UPDATE OF a SKIP LOCKED;

-- name: LockAppointment :one
-- It waits for whoever holds the row, as operations do.
SELECT id, tenant_id, slot_id, calendar_event_id, lead_id, agent_user_id, investor_user_id,
       status, pending_expires_at, cancelled_by, version, created_at, updated_at
FROM calendar.appointments
WHERE id = @id
FOR UPDATE;

-- name: InsertAppointment :exec
INSERT INTO calendar.appointments (
    id, tenant_id, slot_id, calendar_event_id, lead_id, agent_user_id, investor_user_id,
    status, pending_expires_at, cancelled_by, version, created_at, updated_at
) VALUES (
    @id, @tenant_id, @slot_id, @calendar_event_id, @lead_id, @agent_user_id, @investor_user_id,
    @status, @pending_expires_at, @cancelled_by, @version, @created_at, @updated_at
);

-- name: UpdateAppointments :execrows
-- One statement for a batch of any size. What it meets in another version, it leaves alone:
-- the caller compares the count.
UPDATE calendar.appointments AS a
SET status = n.status,
    cancelled_by = n.cancelled_by,
    version = n.version,
    updated_at = n.updated_at
FROM (
    SELECT unnest(@ids::uuid[]) AS id,
           unnest(@seen_versions::integer[]) AS seen_version,
           unnest(@statuses::text[]) AS status,
           unnest(@cancelled_by::uuid[]) AS cancelled_by,
           unnest(@versions::integer[]) AS version,
           unnest(@updated_at::timestamptz[]) AS updated_at
) AS n
WHERE a.id = n.id
  AND a.version = n.seen_version;

-- name: AppointmentPage :many
SELECT id FROM calendar.appointments
WHERE id > @after_id AND updated_at >= @since
ORDER BY id
LIMIT @max_items;

-- name: AppointmentsByID :many
SELECT id, tenant_id, slot_id, calendar_event_id, lead_id, agent_user_id, investor_user_id,
       status, pending_expires_at, cancelled_by, version, created_at, updated_at
FROM calendar.appointments
WHERE id = ANY (@ids::uuid[]);

-- name: HeadsOfBookings :many
-- Where the streams stand of appointments, slots and events, and of the events' pending reminders,
-- which are locked by now.
SELECT s.id::uuid AS id,
       coalesce((SELECT max(e.version) FROM any_context.domain_events AS e WHERE e.stream_id = s.id), 0)::integer AS head
FROM (
    SELECT unnest(@ids::uuid[]) AS id
    UNION ALL
    SELECT r.id FROM calendar.event_reminders AS r WHERE r.event_id = ANY (@event_ids::uuid[]) AND r.status = 'Pending'
) AS s;
