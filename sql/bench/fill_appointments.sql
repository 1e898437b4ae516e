-- $1 appointments that time out in the day before $2, each with its slot, its event and three
-- reminders, all with their streams.
WITH numbers AS MATERIALIZED (
    SELECT n, overlay(gen_random_uuid()::text PLACING lpad(to_hex(n), 8, '0') FROM 1)::uuid AS id,
           gen_random_uuid() AS slot, gen_random_uuid() AS event, gen_random_uuid() AS tenant, gen_random_uuid() AS agent,
           gen_random_uuid() AS investor, ARRAY[gen_random_uuid(), gen_random_uuid(), gen_random_uuid()] AS reminders,
           $2::timestamptz - (n % 86000 + 1) * interval '1 second' AS due, $2::timestamptz - interval '10 days' AS made,
           $2::timestamptz + interval '10 days' AS start
    FROM generate_series(1, $1::integer) AS n
), slots AS (
    INSERT INTO calendar.availability_slots
    SELECT slot, tenant, agent, start, start + interval '1 hour', 120, false, 'Booked', 2, made, made
    FROM numbers
), planned AS (
    INSERT INTO calendar.calendar_events
    SELECT event, tenant, agent, investor, 'Viewing', 'Appointment', 'Planned', NULL, start, start + interval '1 hour', 'Europe/Moscow', id, 1, made, made
    FROM numbers
), booked AS (
    INSERT INTO calendar.appointments
    SELECT id, tenant, slot, event, NULL, agent, investor, 'Pending', due, NULL, 1, made, made
    FROM numbers
), reminding AS (
    INSERT INTO calendar.event_reminders
    SELECT r, event, tenant, 60, start - interval '1 hour', 'Pending', NULL, 1, made, made
    FROM numbers CROSS JOIN LATERAL unnest(reminders) AS r
)
INSERT INTO calendar.domain_events
SELECT s.stream, s.kind, s.version, s.name, json_build_object('At', n.made), 'System', n.id, n.made, sha256(n.id::text::bytea)
FROM numbers AS n
CROSS JOIN LATERAL (
    VALUES (n.slot, 'AvailabilitySlot', 1, 'SlotPublished'), (n.slot, 'AvailabilitySlot', 2, 'SlotBooked'),
           (n.id, 'Appointment', 1, 'AppointmentBooked'), (n.event, 'CalendarEvent', 1, 'CalendarEventPlanned'),
           (n.reminders[1], 'EventReminder', 1, 'ReminderScheduled'), (n.reminders[2], 'EventReminder', 1, 'ReminderScheduled'),
           (n.reminders[3], 'EventReminder', 1, 'ReminderScheduled')
) AS s (stream, kind, version, name)
