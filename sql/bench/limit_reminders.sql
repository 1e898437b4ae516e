-- One page of reminder-dispatch, all of it in the database: the same rows, events and envelopes as
-- the worker writes. $1 as of, $2 $3 cursor, $4 limit, $5 run id, $6 topic.
WITH claimed AS MATERIALIZED (
    SELECT r.id, r.event_id, r.tenant_id, r.offset_minutes, r.due_at,
           e.owner_user_id, e.client_user_id, e.kind, e.start_at, e.time_zone, e.appointment_id
    FROM calendar.event_reminders AS r
    JOIN calendar.calendar_events AS e ON e.id = r.event_id
    WHERE r.status = 'Pending' AND r.due_at < $1::timestamptz
      AND (r.due_at, r.id) > ($2::timestamptz, $3::uuid)
    ORDER BY r.due_at, r.id
    LIMIT $4::integer
    FOR SHARE OF e SKIP LOCKED
    FOR NO KEY UPDATE OF r SKIP LOCKED
), changed AS (
    UPDATE calendar.event_reminders AS r
    SET status = 'Sent', sent_at = $1, updated_at = $1, version = r.version + 1
    FROM claimed AS c
    WHERE r.id = c.id
    RETURNING r.version, c.*
), told AS (
    SELECT c.*, gen_random_uuid() AS message_id,
           to_char($1::timestamptz AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS at_text
    FROM changed AS c
), events AS (
    INSERT INTO calendar.domain_events
    SELECT t.id, 'EventReminder', t.version, 'ReminderSent', d.data::json, 'System', $5::uuid, $1,
           sha256(convert_to(t.id::text || t.version || d.data || $5::text, 'UTF8'))
    FROM told AS t
    CROSS JOIN LATERAL (SELECT format('{"Reminder":"%s","At":"%s"}', t.id, t.at_text) AS data) AS d
), messages AS (
    INSERT INTO calendar.outbox (topic, shard, key, uuid, payload)
    SELECT $6::text, abs(hashtext(t.event_id::text)) % 8, t.event_id::text, t.message_id,
           convert_to(format(
               '{"destination_topic":"%s","uuid":"%s","payload":"%s","metadata":{"ce_aggregatetype":"EventReminder","ce_aggregateversion":"%s","ce_contractversion":"1","ce_correlationid":"%s","ce_id":"%s","ce_partitionkey":"%s","ce_source":"pin/calendar","ce_specversion":"1.0","ce_subject":"%s","ce_tenantid":"%s","ce_time":"%s","ce_type":"%s","content-type":"application/json"}}',
               $6, t.message_id,
               translate(encode(convert_to(format(
                   '{"ContractVersion":1,"ReminderId":"%s","EventId":"%s","TenantId":"%s","OwnerUserId":"%s","ClientUserId":"%s","Kind":"%s","StartAt":"%s","TimeZone":"%s","OffsetMinutes":%s,"AppointmentId":%s}',
                   t.id, t.event_id, t.tenant_id, t.owner_user_id, t.client_user_id, t.kind,
                   to_char(t.start_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), t.time_zone, t.offset_minutes,
                   coalesce('"' || t.appointment_id || '"', 'null')), 'UTF8'), 'base64'), E'\n', ''),
               t.version, $5, t.message_id, t.event_id, t.id, t.tenant_id, t.at_text, $6), 'UTF8')
    FROM told AS t
)
SELECT (SELECT count(*) FROM changed)::integer,
       coalesce((SELECT c.due_at FROM claimed AS c ORDER BY c.due_at DESC, c.id DESC LIMIT 1), $2),
       coalesce((SELECT c.id FROM claimed AS c ORDER BY c.due_at DESC, c.id DESC LIMIT 1), $3::uuid)
