package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/ports"
)

// A fifth job, as CONTRIBUTING tells to add one: tasks of the crm context become overdue. It is here
// to show what a job costs (fifth_job_test.go counts it) and that the engine needs no change for it.
// Its statements stand here, where sqlc would have made them.

// 1. The domain: an aggregate, its events, a decision.

type TaskID = ids.ID[Task]

type Task struct{ is TaskSnapshot }

type TaskSnapshot struct {
	ID       TaskID
	TenantID ids.TenantID
	Status   string
	DueAt    time.Time
	Version  int
}

type TaskEvent interface {
	Stream() uuid.UUID
	OccurredAt() time.Time
}

type (
	TaskOpened struct {
		Task   TaskID
		Tenant ids.TenantID
		DueAt  time.Time
		At     time.Time
	}
	TaskClosed struct {
		Task TaskID
		At   time.Time
	}
	TaskFellDue struct {
		Task TaskID
		At   time.Time
	}
	TaskImported struct {
		Task TaskSnapshot
		At   time.Time
	}
)

func (e TaskOpened) Stream() uuid.UUID       { return uuid.UUID(e.Task) }
func (e TaskClosed) Stream() uuid.UUID       { return uuid.UUID(e.Task) }
func (e TaskFellDue) Stream() uuid.UUID      { return uuid.UUID(e.Task) }
func (e TaskImported) Stream() uuid.UUID     { return uuid.UUID(e.Task.ID) }
func (e TaskOpened) OccurredAt() time.Time   { return e.At }
func (e TaskClosed) OccurredAt() time.Time   { return e.At }
func (e TaskFellDue) OccurredAt() time.Time  { return e.At }
func (e TaskImported) OccurredAt() time.Time { return e.At }

func (t Task) Stream() uuid.UUID             { return uuid.UUID(t.is.ID) }
func (t Task) Version() int                  { return t.is.Version }
func (t Task) Snapshot() TaskSnapshot        { return t.is }
func (t Task) Import(at time.Time) TaskEvent { return TaskImported{t.is, at} }
func (t Task) Parts() []eventsourcing.Part[TaskEvent] {
	return []eventsourcing.Part[TaskEvent]{t}
}

func (t Task) Apply(event TaskEvent) Task {
	next := t.is
	next.Version++
	switch e := event.(type) {
	case TaskOpened:
		next.ID, next.TenantID, next.Status, next.DueAt = e.Task, e.Tenant, "Active", e.DueAt
	case TaskClosed:
		next.Status = "Closed"
	case TaskFellDue:
		next.Status = "Overdue"
	case TaskImported:
		next = e.Task
	}
	return Task{next}
}

func (t Task) FallDue(at time.Time) ([]TaskEvent, error) {
	if t.is.Status != "Active" {
		return nil, nil
	}
	return []TaskEvent{TaskFellDue{t.is.ID, at}}, nil
}

// 2. The rule, with its message.

var TasksFallDue = ports.Rule[Task, TaskEvent]{
	Decide: Task.FallDue,
	Announce: func(after Task, _ []TaskEvent) ([]ports.Message, error) {
		payload, err := json.Marshal(map[string]any{"ContractVersion": 1, "TaskId": after.is.ID})
		return []ports.Message{{
			ID: uuid.NewSHA1(after.Stream(), []byte{byte(after.is.Version)}), Topic: "pin.crm.task-overdue.v1", Key: after.is.ID.String(),
			Subject: after.Stream(), Tenant: after.is.TenantID, AggregateType: "Task", AggregateVersion: after.is.Version,
			ContractVersion: 1, OccurredAt: after.is.DueAt, Payload: payload,
		}}, err
	},
}

// 3. The polled table and what else the store must know of it.

const TaskTable = `CREATE TABLE crm.tasks (id uuid PRIMARY KEY, tenant_id uuid, status text, due_at timestamptz, version integer);
	CREATE INDEX ix_tasks_due_at ON crm.tasks (due_at, id) WHERE status = 'Active';
	GRANT SELECT, UPDATE ON crm.tasks TO pinworker`

const (
	taskColumns = "t.id, t.tenant_id, t.status, t.due_at, t.version"
	tasksDue    = ` FROM crm.tasks AS t LEFT JOIN any_context.quarantine AS q ON q.job = 'overdue-tasks' AND q.item = t.id
		WHERE t.status = 'Active' AND t.due_at < $1 AND (t.due_at, t.id) > ($2, $3) AND (t.due_at, t.id) <= ($4, $5)
		AND (q.next_attempt IS NULL OR q.next_attempt <= $1)`
)

type taskRow struct {
	ID, TenantID pgtype.UUID
	Status       pgtype.Text
	DueAt        pgtype.Timestamptz
	Version      pgtype.Int4
}

func (r taskRow) restore() (Task, error) {
	s := TaskSnapshot{TaskID(r.ID.Bytes), ids.TenantID(r.TenantID.Bytes), r.Status.String, fromTimestamptz(r.DueAt), int(r.Version.Int32)}
	return Task{s}, finite(moment{"due_at", r.DueAt})
}

var polledTasks = polled[Task]{
	job: "overdue-tasks",
	claim: func(ctx context.Context, db dbtx, p page) ([]claimed[Task], func(context.Context, dbtx) error, error) {
		rows, err := db.Query(ctx, "SELECT "+taskColumns+", coalesce(q.failures, 0)"+tasksDue+
			" ORDER BY t.due_at, t.id LIMIT $6 FOR NO KEY UPDATE OF t SKIP LOCKED", p.AsOf, p.AfterDue, p.AfterID, p.UntilDue, p.UntilID, p.MaxItems)
		if err != nil {
			return nil, nil, err
		}
		items, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c claimed[Task], err error) {
			var r taskRow
			err = row.Scan(&r.ID, &r.TenantID, &r.Status, &r.DueAt, &r.Version, &c.failures)
			c.id, c.tenant, c.due = r.ID, r.TenantID, r.DueAt
			c.item, c.err = r.restore()
			return c, err
		})
		return items, nil, err
	},
	count: func(ctx context.Context, db dbtx, s span) (n int64, err error) {
		err = db.QueryRow(ctx, "SELECT count(*)"+tasksDue, s.AsOf, s.AfterDue, s.AfterID, s.UntilDue, s.UntilID).Scan(&n)
		return n, err
	},
	release: func(ctx context.Context, db dbtx, asOf pgtype.Timestamptz) error {
		_, err := db.Exec(ctx, `DELETE FROM any_context.quarantine AS q WHERE q.job = 'overdue-tasks' AND NOT EXISTS (
			SELECT FROM crm.tasks AS t WHERE t.id = q.item AND t.status = 'Active' AND t.due_at < greatest($1, now()))`, asOf)
		return err
	},
	held: func(ctx context.Context, db dbtx, p page) ([]heldRow, error) {
		rows, err := db.Query(ctx, `SELECT t.id, t.tenant_id, t.due_at, q.failures, q.first_failed_at, q.last_failed_at, q.first_error, q.last_error, q.next_attempt
			FROM crm.tasks AS t JOIN any_context.quarantine AS q ON q.job = 'overdue-tasks' AND q.item = t.id AND q.next_attempt > $1
			WHERE t.status = 'Active' AND t.due_at < $1 AND (t.due_at, t.id) > ($2, $3) AND (t.due_at, t.id) <= ($4, $5) LIMIT $6`,
			p.AsOf, p.AfterDue, p.AfterID, p.UntilDue, p.UntilID, p.MaxItems)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, pgx.RowToStructByPos[heldRow])
	},
	tables: []string{"tasks"},
	backlog: func(ctx context.Context, db dbtx, h horizon) (w waiting, err error) {
		err = db.QueryRow(ctx, `SELECT count(*) FILTER (WHERE t.due_at < $1), min(t.due_at), count(*) FILTER (WHERE t.due_at >= $1),
			count(*) FILTER (WHERE t.due_at < $1 AND q.next_attempt > $1)
			FROM crm.tasks AS t LEFT JOIN any_context.quarantine AS q ON q.job = 'overdue-tasks' AND q.item = t.id
			WHERE t.status = 'Active' AND t.due_at < $2 AND (t.due_at, t.id) > ($3, $4)`,
			h.AsOf, h.Until, h.AfterDue, h.AfterID).Scan(&w.Due, &w.Oldest, &w.NextHour, &w.Held)
		return w, err
	},
}

func lockTask(ctx context.Context, db dbtx, id TaskID) (Task, error) {
	var r taskRow
	err := db.QueryRow(ctx, "SELECT "+taskColumns+" FROM crm.tasks AS t WHERE id = $1 FOR UPDATE", asUUID(id)).
		Scan(&r.ID, &r.TenantID, &r.Status, &r.DueAt, &r.Version)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Task{}, nil
	case err != nil:
		return Task{}, fmt.Errorf("lock the task: %w", err)
	}
	return r.restore()
}

func saveTasks(ctx context.Context, w *writes, parts []changedPart[TaskEvent]) {
	var ids []pgtype.UUID
	var seen, versions []int32
	var statuses []string
	for _, part := range parts {
		s := part.after.(Task).Snapshot()
		if part.before == nil {
			w.insert("tasks", 1, func(db dbtx) error {
				_, err := db.Exec(ctx, "INSERT INTO crm.tasks VALUES ($1, $2, $3, $4, $5)", asUUID(s.ID), asUUID(s.TenantID), s.Status, s.DueAt, s.Version)
				return err
			})
			continue
		}
		ids, seen = append(ids, asUUID(s.ID)), append(seen, int32(part.before.Version()))
		statuses, versions = append(statuses, s.Status), append(versions, int32(s.Version))
	}
	w.update("tasks", len(ids), func(db dbtx) error {
		_, err := db.Exec(ctx, `UPDATE crm.tasks AS t SET status = n.status, version = n.version
			FROM unnest($1::uuid[], $2::integer[], $3::text[], $4::integer[]) AS n (id, seen, status, version)
			WHERE t.id = n.id AND t.version = n.seen`, ids, seen, statuses, versions)
		return err
	})
}

// Tasks is the job's part of a database, put together.
type Tasks struct {
	Due    *Due[Task, TaskEvent]
	Store  *Store[TaskID, Task, TaskEvent]
	Ledger *Ledger[Task, TaskEvent]
}

func NewTasks(db *DB, outbox Outbox) Tasks {
	s := &schema[TaskEvent]{
		db: db, name: "crm", outbox: outbox, save: saveTasks,
		codec: newCodec(func(TaskEvent) string { return "Task" }, map[string]TaskEvent{
			"TaskOpened": TaskOpened{}, "TaskClosed": TaskClosed{}, "TaskFellDue": TaskFellDue{}, "TaskImported": TaskImported{},
		}),
	}
	return Tasks{
		&Due[Task, TaskEvent]{s, polledTasks},
		&Store[TaskID, Task, TaskEvent]{s, lockTask},
		&Ledger[Task, TaskEvent]{
			s, "Task",
			func(ctx context.Context, db dbtx, from idPage) ([]pgtype.UUID, error) {
				rows, err := db.Query(ctx, "SELECT id FROM crm.tasks WHERE id > $1 ORDER BY id LIMIT $2", from.AfterID, from.MaxItems)
				if err != nil {
					return nil, err
				}
				return pgx.CollectRows(rows, pgx.RowTo[pgtype.UUID])
			},
			func(ctx context.Context, db dbtx, wanted []pgtype.UUID) ([]restored[Task], error) {
				rows, err := db.Query(ctx, "SELECT "+taskColumns+" FROM crm.tasks AS t WHERE id = ANY ($1)", wanted)
				if err != nil {
					return nil, err
				}
				found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[taskRow])
				return restoreAll(found, func(r taskRow) pgtype.UUID { return r.ID }, taskRow.restore), err
			},
		},
	}
}
