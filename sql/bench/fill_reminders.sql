-- $1 reminders that come due in the day before $2, each of a planned event of its own, both with
-- their streams.
WITH numbers AS MATERIALIZED (
    SELECT n, overlay(gen_random_uuid()::text PLACING lpad(to_hex(n), 8, '0') FROM 1)::uuid AS id, gen_random_uuid() AS event,
           gen_random_uuid() AS tenant, $2::timestamptz - (n % 86000 + 1) * interval '1 second' AS due, $2::timestamptz - interval '10 days' AS made
    FROM generate_series(1, $1::integer) AS n
), planned AS (
    INSERT INTO calendar.calendar_events
    SELECT event, tenant, gen_random_uuid(), gen_random_uuid(), 'Call', 'Manual', 'Planned', NULL,
           due + interval '1 hour', due + interval '2 hours', 'Europe/Moscow', NULL, 1, made, made
    FROM numbers
), made AS (
    INSERT INTO calendar.event_reminders
    SELECT id, event, tenant, 60, due, 'Pending', NULL, 1, made, made
    FROM numbers
)
INSERT INTO calendar.domain_events
SELECT s.stream, s.kind, 1, s.name, json_build_object('At', n.made), 'System', n.id, n.made, sha256(n.id::text::bytea)
FROM numbers AS n
CROSS JOIN LATERAL (VALUES (n.id, 'EventReminder', 'ReminderScheduled'), (n.event, 'CalendarEvent', 'CalendarEventPlanned')) AS s (stream, kind, name)
