-- name: ClaimDueReminders :many
-- The status is a literal: with a parameter, a generic plan could not use the partial index.
-- The cursor keeps a page from paying for the dead rows of the pages before it.
-- The event is locked as well, and first: a reminder whose event is being cancelled is passed over,
-- and one whose event was cancelled a moment ago is seen as it is now.
SELECT sqlc.embed(r), sqlc.embed(e), coalesce(q.failures, 0)::integer AS failures
FROM calendar.event_reminders AS r
JOIN calendar.calendar_events AS e ON e.id = r.event_id
LEFT JOIN any_context.quarantine AS q ON q.job = 'reminder-dispatch' AND q.item = r.id
WHERE r.status = 'Pending'
  AND r.due_at < @as_of
  AND (r.due_at, r.id) > (@after_due::timestamptz, @after_id::uuid)
  AND (r.due_at, r.id) <= (@until_due::timestamptz, @until_id::uuid)
  AND (q.next_attempt IS NULL OR q.next_attempt <= @as_of)
ORDER BY r.due_at, r.id
LIMIT @max_items
FOR SHARE OF e SKIP LOCKED
FOR NO KEY UPDATE OF r SKIP LOCKED;

-- name: CountDueReminders :one
-- What a claim's range would yield if nobody held anything.
SELECT count(*)
FROM calendar.event_reminders AS r
LEFT JOIN any_context.quarantine AS q ON q.job = 'reminder-dispatch' AND q.item = r.id
WHERE r.status = 'Pending'
  AND r.due_at < @as_of
  AND (r.due_at, r.id) > (@after_due::timestamptz, @after_id::uuid)
  AND (r.due_at, r.id) <= (@until_due::timestamptz, @until_id::uuid)
  AND (q.next_attempt IS NULL OR q.next_attempt <= @as_of);

-- name: ReminderBacklog :one
-- The oldest is the oldest of a finite moment: -infinity is a fault, no age.
SELECT count(*) FILTER (WHERE r.due_at < @as_of::timestamptz) AS due,
       min(r.due_at) FILTER (WHERE r.due_at > '-infinity' AND r.due_at < @as_of::timestamptz)::timestamptz AS oldest,
       count(*) FILTER (WHERE r.due_at >= @as_of::timestamptz) AS next_hour,
       count(*) FILTER (WHERE r.due_at < @as_of::timestamptz AND q.next_attempt > @as_of::timestamptz) AS held
FROM calendar.event_reminders AS r
LEFT JOIN any_context.quarantine AS q ON q.job = 'reminder-dispatch' AND q.item = r.id
WHERE r.status = 'Pending'
  AND r.due_at < @until::timestamptz
  AND (r.due_at, r.id) > (@after_due::timestamptz, @after_id::uuid);

-- name: HeldReminders :many
-- What a claim leaves out because it is held back, from the record's side: few are.
SELECT r.id, r.tenant_id, r.due_at AS due, q.failures, q.first_failed_at, q.last_failed_at, q.first_error, q.last_error, q.next_attempt
FROM calendar.event_reminders AS r
JOIN any_context.quarantine AS q ON q.job = 'reminder-dispatch' AND q.item = r.id AND q.next_attempt > @as_of
WHERE r.id = ANY (ARRAY(SELECT h.item FROM any_context.quarantine AS h WHERE h.job = 'reminder-dispatch' AND h.next_attempt > @as_of))
  AND r.status = 'Pending'
  AND r.due_at < @as_of
  AND (r.due_at, r.id) > (@after_due::timestamptz, @after_id::uuid)
  AND (r.due_at, r.id) <= (@until_due::timestamptz, @until_id::uuid)
ORDER BY r.due_at, r.id
LIMIT @max_items;

-- name: ReleaseSettledReminders :exec
-- What others have settled since is no failure any more. It waits for nobody: what is locked is
-- taken off another time.
DELETE FROM any_context.quarantine
WHERE (job, item) IN (
    SELECT q.job, q.item FROM any_context.quarantine AS q
    WHERE q.job = 'reminder-dispatch'
      AND NOT EXISTS (
        SELECT FROM calendar.event_reminders AS r
        WHERE r.id = q.item AND r.status = 'Pending' AND r.due_at < greatest(@as_of::timestamptz, now())
      )
    FOR UPDATE SKIP LOCKED
);

-- name: ClaimReminderOrphans :many
-- What is due and lacks a partner: the inner join of the claim hides it. Looked up row by row, for
-- the few rows of the range: a NOT EXISTS would be planned as a hash of the partners' whole table.
SELECT sqlc.embed(r), coalesce(q.failures, 0)::integer AS failures
FROM calendar.event_reminders AS r
LEFT JOIN any_context.quarantine AS q ON q.job = 'reminder-dispatch' AND q.item = r.id
WHERE r.status = 'Pending'
  AND r.due_at < @as_of
  AND (r.due_at, r.id) > (@after_due::timestamptz, @after_id::uuid)
  AND (r.due_at, r.id) <= (@until_due::timestamptz, @until_id::uuid)
  AND (q.next_attempt IS NULL OR q.next_attempt <= @as_of)
  AND (SELECT e.id FROM calendar.calendar_events AS e WHERE e.id = r.event_id) IS NULL
ORDER BY r.due_at, r.id
LIMIT @max_items
FOR NO KEY UPDATE OF r SKIP LOCKED;

-- name: InsertReminder :exec
INSERT INTO calendar.event_reminders (
    id, event_id, tenant_id, offset_minutes, due_at, status, sent_at, version, created_at,
    updated_at
) VALUES (
    @id, @event_id, @tenant_id, @offset_minutes, @due_at, @status, @sent_at, @version,
    @created_at, @updated_at
);

-- name: UpdateReminders :execrows
-- One statement for a batch of any size. What it meets in another version, it leaves alone:
-- the caller compares the count.
UPDATE calendar.event_reminders AS r
SET status = n.status,
    sent_at = n.sent_at,
    version = n.version,
    updated_at = n.updated_at
FROM (
    SELECT unnest(@ids::uuid[]) AS id,
           unnest(@seen_versions::integer[]) AS seen_version,
           unnest(@statuses::text[]) AS status,
           unnest(@sent_at::timestamptz[]) AS sent_at,
           unnest(@versions::integer[]) AS version,
           unnest(@updated_at::timestamptz[]) AS updated_at
) AS n
WHERE r.id = n.id
  AND r.version = n.seen_version;

-- name: ReminderPage :many
SELECT id FROM calendar.event_reminders
WHERE id > @after_id AND updated_at >= @since
ORDER BY id
LIMIT @max_items;

-- name: RemindersByID :many
SELECT id, event_id, tenant_id, offset_minutes, due_at, status, sent_at, version, created_at,
       updated_at
FROM calendar.event_reminders
WHERE id = ANY (@ids::uuid[]);

-- name: LockRemindersOf :many
-- It waits: whoever holds a reminder without its event's lock is about to let go of it.
SELECT id, event_id, tenant_id, offset_minutes, due_at, status, sent_at, version, created_at, updated_at
FROM calendar.event_reminders
WHERE event_id = ANY (@event_ids::uuid[]) AND status = 'Pending'
ORDER BY id
FOR UPDATE;

-- name: DeleteReminders :execrows
DELETE FROM calendar.event_reminders AS r
USING (
    SELECT unnest(@ids::uuid[]) AS id,
           unnest(@seen_versions::integer[]) AS seen_version
) AS n
WHERE r.id = n.id
  AND r.version = n.seen_version;
