package postgres_test

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/adapters/postgres"
	"github.com/pin-platform/pinworker/app/cycle"
	"github.com/pin-platform/pinworker/app/verify"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/ports"
)

func TestAddingAJob_TakesLessThan400LinesAndNoChangeToTheEngine(t *testing.T) {
	lines := 0
	for _, file := range []string{"fifth_job_internal_test.go", "fifth_job_test.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines += bytes.Count(text, []byte("\n"))
	}
	if lines >= 400 {
		t.Errorf("the fifth job takes %d lines, its test included", lines)
	}

	t.Run("it keeps the ports' promises", func(t *testing.T) {
		portstest.Promises(t, func(t *testing.T) portstest.Job[postgres.Task, postgres.TaskEvent] {
			url := embeddedtest.Database(t)
			db, workerDB := open(t, url), open(t, embeddedtest.AsWorker(t, url))
			execute(t, db, postgres.TaskTable)
			writer := outbox.NewWriter(outbox.Table{Schema: "crm"}, "pin/crm", func() {})
			tasks, operations := postgres.NewTasks(workerDB, writer), postgres.NewTasks(db, writer)
			operate := func(id postgres.TaskID, event postgres.TaskEvent) {
				command := ports.Command[postgres.TaskID]{ID: id, At: event.OccurredAt(), By: "agent", Run: ports.NewRunID()}
				rule := ports.Rule[postgres.Task, postgres.TaskEvent]{Decide: func(postgres.Task, time.Time) ([]postgres.TaskEvent, error) {
					return []postgres.TaskEvent{event}, nil
				}}
				if _, err := operations.Store.Change(t.Context(), command, rule); err != nil {
					t.Fatal(err)
				}
			}
			return portstest.Job[postgres.Task, postgres.TaskEvent]{
				Hooks: hooks(t, db, workerDB, "crm", "tasks"), Name: "overdue-tasks", Due: tasks.Due, Rule: postgres.TasksFallDue,
				Item: postgres.Task.Stream,
				Make: func(_ *testing.T, due time.Time) uuid.UUID {
					id := portstest.NewID[postgres.Task]()
					operate(id, postgres.TaskOpened{Task: id, Tenant: ids.TenantID(uuid.New()), DueAt: due, At: portstest.Noon.AddDate(0, -1, 0)})
					return uuid.UUID(id)
				},
				Settle: func(_ *testing.T, id uuid.UUID) {
					operate(postgres.TaskID(id), postgres.TaskClosed{Task: postgres.TaskID(id), At: portstest.Noon})
				},
				Done: func(t *testing.T, id uuid.UUID) bool {
					for entry, err := range tasks.Ledger.Entries(t.Context(), time.Time{}) {
						if err != nil {
							t.Fatal(err)
						}
						if entry.ID == id {
							return entry.Row.Snapshot().Status == "Overdue"
						}
					}
					return false
				},
				Verify: func(t *testing.T) int {
					report, err := verify.Run(t.Context(), ports.Ledger[postgres.Task, postgres.TaskEvent](tasks.Ledger), time.Time{},
						func(f verify.Finding) { t.Errorf("%s: %s", f.ID, f.What) })
					if err != nil {
						t.Error(err)
					}
					return report.Ahead
				},
			}
		})
	})
	t.Run("the engine drains it", func(t *testing.T) {
		db := open(t, embeddedtest.Database(t))
		execute(t, db, postgres.TaskTable)
		execute(t, db, "INSERT INTO crm.tasks SELECT gen_random_uuid(), gen_random_uuid(), 'Active', now() - interval '1 hour', 1 FROM generate_series(1, 25)")
		tasks := postgres.NewTasks(db, outbox.NewWriter(outbox.Table{Schema: "crm"}, "pin/crm", func() {}))
		summary, err := cycle.Drain(t.Context(), tasks.Due, postgres.TasksFallDue, cycle.Begin(time.Now()),
			cycle.Limits{BatchSize: 10, MaxBatches: 10, Interval: time.Hour}, nil)
		if err != nil || summary.Applied != 25 || summary.Batches != 3 {
			t.Errorf("summary %+v, %v; want 25 in 3 batches", summary, err)
		}
	})
}
