// Package explain answers, from one id, why nothing has happened yet, or what has: where an item
// stands before its job, and where its messages are. It only reads.
package explain

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/app/plan"
	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/ports"
)

// Context is what one context knows.
type Context struct {
	Name       string
	Rows       ports.Rows
	History    ports.History
	Quarantine ports.Quarantine
	Outbox     ports.Post
	Jobs       map[ports.Job]Job
}

// Job is what is known of a job.
type Job struct {
	plan.Foreseer
	Interval time.Duration
	Disabled bool // in these settings
}

// Facts are all that is known of an aggregate. Explain gathers them, and Why decides from them.
type Facts struct {
	ID      uuid.UUID
	At      time.Time // when they were asked for
	Context string
	HasRow  bool
	Row     ports.Row
	Events  []ports.Happened

	Interval time.Duration // of the job that polls it
	Disabled bool          // so is that job, in these settings
	Item     *plan.Item    // what the job would make of it; nil where it would not look at it
	Record   *ports.Quarantined

	// CalendarEvent is a reminder's or an appointment's; not HasRow where it is not there.
	CalendarEvent *Facts

	Messages []Message
}

// Kind is what kind of aggregate it is.
func (f Facts) Kind() string {
	if f.HasRow || len(f.Events) == 0 {
		return f.Row.Aggregate
	}
	return f.Events[0].Aggregate
}

// Message is one that the aggregate's events were announced with, and where it is.
type Message struct {
	ports.Announced
	ports.Whereabouts
}

// Explain gathers what a context knows of an id; false where it knows nothing. kafka is asked for
// messages that have left the outbox; why it could not tell of one is unanswered.
func (c Context) Explain(ctx context.Context, id uuid.UUID, at time.Time, kafka ports.Post) (facts Facts, known bool, unanswered, err error) {
	f := Facts{ID: id, At: ports.Stored(at), Context: c.Name}
	if f.Row, f.HasRow, err = c.Rows.Row(ctx, id); err != nil {
		return f, false, nil, err
	}
	if f.Events, err = c.History.Events(ctx, id); err != nil || !f.HasRow && len(f.Events) == 0 {
		return f, false, nil, err
	}
	if err := c.beforeItsJob(ctx, &f); err != nil {
		return f, true, nil, err
	}
	if f.Row.Event != uuid.Nil {
		of := Facts{ID: f.Row.Event, At: f.At, Context: c.Name}
		if of.Row, of.HasRow, err = c.Rows.Row(ctx, of.ID); err == nil {
			of.Events, err = c.History.Events(ctx, of.ID)
		}
		if err != nil {
			return f, true, nil, err
		}
		f.CalendarEvent = &of
	}
	f.Messages, unanswered, err = c.messages(ctx, f, kafka)
	return f, true, unanswered, err
}

// beforeItsJob looks at what the job would make of an item.
func (c Context) beforeItsJob(ctx context.Context, f *Facts) error {
	job, polls := c.Jobs[f.Row.Job]
	if !polls {
		return nil
	}
	f.Interval, f.Disabled = job.Interval, job.Disabled
	records, err := c.Quarantine.List(ctx)
	if err != nil {
		return err
	}
	for _, q := range records {
		if q.Job == f.Row.Job && q.Item == f.ID {
			f.Record = &q
		}
	}
	if f.Row.Polled && !f.Row.Place.IsZero() {
		f.Item, err = job.One(ctx, f.At, f.Row.Place)
	}
	return err
}

// messages finds an aggregate's messages: in the outbox, else in Kafka.
func (c Context) messages(ctx context.Context, f Facts, kafka ports.Post) (messages []Message, unanswered, err error) {
	key := f.ID
	if f.Row.Event != uuid.Nil && f.Row.Job == ports.ReminderDispatch {
		key = f.Row.Event
	}
	announced := published.Announced(f.ID, key, f.Events)
	if len(announced) == 0 {
		return nil, nil, nil
	}
	found, err := c.Outbox.Find(ctx, announced)
	if err != nil {
		return nil, nil, err
	}
	var gone []ports.Announced
	for _, m := range announced {
		if where, here := found[m.ID]; !here || where.State == ports.Beyond {
			gone = append(gone, m)
		}
	}
	if len(gone) > 0 {
		var there map[uuid.UUID]ports.Whereabouts
		there, unanswered = kafka.Find(ctx, gone)
		for id, where := range there {
			if _, beyond := found[id]; !beyond || where.State == ports.Published {
				found[id] = where
			}
		}
	}
	for _, m := range announced {
		where, known := found[m.ID]
		if !known {
			where.State = ports.Unknown
		}
		messages = append(messages, Message{m, where})
	}
	return messages, unanswered, nil
}
