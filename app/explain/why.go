package explain

import (
	"fmt"
	"slices"
	"time"

	"github.com/pin-platform/pinworker/app/plan"
	"github.com/pin-platform/pinworker/ports"
)

// Verdict is where an aggregate stands.
type Verdict string

// The verdicts.
const (
	NotDue      Verdict = "not due"
	NeverDue    Verdict = "never due"   // it has no moment
	Due         Verdict = "due"         // the job's next tick takes it
	Fails       Verdict = "fails"       // as above, and its own data keep it from being processed
	Locked      Verdict = "locked"      // somebody holds it: passed over
	Quarantined Verdict = "quarantined" // held back, after it failed again and again
	Skipped     Verdict = "skipped"     // a reminder that was not sent, on purpose
	Settled     Verdict = "settled"     // in another state than the one that its job takes
	NoJob       Verdict = "no job"      // no job takes its kind
	NoRow       Verdict = "no row"      // it has events, and no row any more
)

// Answer is why nothing has happened yet, or what has.
type Answer struct {
	Verdict Verdict
	Why     string    // a sentence
	Since   time.Time // it is so since; zero: not known, or nothing to say
	Next    time.Time // when something will happen by itself at the earliest; zero: nothing will
}

// Why decides from the facts alone.
func (f Facts) Why() Answer {
	a := f.why()
	if f.Disabled && !a.Next.IsZero() {
		a.Why += fmt.Sprintf("; %s is disabled in these settings", f.Row.Job)
		a.Next = time.Time{}
	}
	return a
}

func (f Facts) why() Answer {
	switch {
	case !f.HasRow:
		return f.withoutRow()
	case f.Row.Job == "":
		return Answer{NoJob, fmt.Sprintf("no job takes what is of the kind %s; it is %s", f.Row.Aggregate, f.Row.Status), f.Row.UpdatedAt, time.Time{}}
	case !f.Row.Polled:
		return f.settled()
	case f.Row.Place.IsZero():
		return Answer{Verdict: NeverDue, Why: fmt.Sprintf("it is %s and has no moment at which it would come due", f.Row.Status)}
	case f.Item == nil && f.Row.Place.Due.Before(f.At):
		return Answer{Due, "it was being changed while it was looked at: ask again", f.Row.Place.Due, f.At}
	case f.Item == nil:
		due := f.Row.Place.Due
		why := fmt.Sprintf("it comes due at %s, in %s", text(due), due.Sub(f.At).Round(time.Second))
		if !f.Disabled {
			why += fmt.Sprintf("; a tick of %s within %s takes it", f.Row.Job, f.Interval)
		}
		return Answer{NotDue, why, time.Time{}, due}
	}
	return f.due(*f.Item)
}

// due is of what a claim would look at.
func (f Facts) due(item plan.Item) Answer {
	soon := f.At.Add(f.Interval)
	switch item.Verdict {
	case plan.Locked:
		return Answer{Locked, fmt.Sprintf("it is due, and somebody holds it; %s passes over it until it is let go of", f.Row.Job), item.Due, time.Time{}}
	case plan.Quarantined:
		q := item.Record
		return Answer{Quarantined, fmt.Sprintf("it failed %d times in a row since %s, the last time with: %s; it is held back until %s", q.Streak, text(q.FirstFailedAt), q.LastError, text(q.NextAttempt)), q.FirstFailedAt, q.NextAttempt}
	case plan.Failed:
		return Answer{Fails, fmt.Sprintf("it is due, and its own data keep it from being processed: %v", item.Err), item.Due, soon}
	case plan.Unchanged:
		return Answer{Due, "it is due, and nothing would happen to it", item.Due, soon}
	}
	why := fmt.Sprintf("it is due; the next tick of %s takes it, within %s, and it becomes %s: %s", f.Row.Job, f.Interval, item.Becomes, item.Why)
	if f.Disabled {
		why = fmt.Sprintf("it is due, and would become %s: %s", item.Becomes, item.Why)
	}
	if f.Record != nil {
		why += fmt.Sprintf(" (it failed %d times in a row, the last time at %s with: %s)", f.Record.Streak, text(f.Record.LastFailedAt), f.Record.LastError)
	}
	return Answer{Due, why, item.Due, soon}
}

// withoutRow is of what has events, and no row.
func (f Facts) withoutRow() Answer {
	last := f.Events[len(f.Events)-1]
	if last.Event == "ReminderDropped" {
		return Answer{NoRow, fmt.Sprintf("it gave way to another reminder when its event was rescheduled, at %s by %s", text(last.At), last.Actor), last.At, time.Time{}}
	}
	return Answer{NoRow, fmt.Sprintf("its row is gone; the last that happened to it was %s, at %s by %s", last.Event, text(last.At), last.Actor), last.At, time.Time{}}
}

// settled is of what its job does not take any more.
func (f Facts) settled() Answer {
	a := Answer{Verdict: Settled, Since: f.Row.UpdatedAt}
	if last, journalled := f.last(); journalled {
		a.Since = last.At
		a.Why = fmt.Sprintf("it is %s since %s, by %s (%s)", f.Row.Status, text(last.At), last.Actor, last.Event)
	} else {
		a.Why = fmt.Sprintf("it is %s since %s; its service keeps no journal of it", f.Row.Status, text(f.Row.UpdatedAt))
	}
	if f.Row.Status == "Skipped" && f.CalendarEvent != nil {
		a.Verdict = Skipped
		a.Why += ", because " + f.CalendarEvent.ended(a.Since)
	}
	return a
}

// last is the event that brought the row to its version.
func (f Facts) last() (ports.Happened, bool) {
	at := slices.IndexFunc(f.Events, func(e ports.Happened) bool { return e.Version == f.Row.Version })
	if at < 0 {
		return ports.Happened{}, false
	}
	return f.Events[at], true
}

// ended says when a calendar event had ended, or was cancelled, at a moment.
func (f Facts) ended(by time.Time) string {
	words := map[string]string{"CalendarEventCalledOff": "was cancelled", "CalendarEventEnded": "ended"}
	for _, e := range slices.Backward(f.Events) {
		if word, does := words[e.Event]; does && !e.At.After(by) {
			return fmt.Sprintf("its event %s %s then: at %s, by %s", f.ID, word, text(e.At), e.Actor)
		}
	}
	if !f.HasRow {
		return fmt.Sprintf("its event %s was not going on; it is not there any more", f.ID)
	}
	return fmt.Sprintf("its event %s was not going on; it is %s since %s, and its service keeps no journal of that", f.ID, f.Row.Status, text(f.Row.UpdatedAt))
}

// Says tells where a message is, in a sentence.
func (m Message) Says() string {
	switch m.State {
	case ports.Waiting:
		ahead := "first in its lane"
		switch {
		case m.AheadMore:
			ahead = fmt.Sprintf("behind more than %d others of its lane", m.Ahead)
		case m.Ahead > 0:
			ahead = fmt.Sprintf("behind %d others of its lane", m.Ahead)
		}
		return fmt.Sprintf("waits in the outbox since %s, %s", text(m.Since), ahead)
	case ports.Beyond:
		return fmt.Sprintf("not among the first %d of its lane from %s on, behind which it may wait", m.Looked, text(m.Written))
	case ports.Parked:
		return fmt.Sprintf("parked since %s: Kafka refused it (%s); see `pinworker outbox release %s`", text(m.Since), m.Error, m.ID)
	case ports.Discarded:
		return fmt.Sprintf("discarded at %s: %s; Kafka had refused it (%s)", text(m.Since), m.Reason, m.Error)
	case ports.Published:
		return fmt.Sprintf("published: partition %d, offset %d, at %s", m.Partition, m.Offset, text(m.Since))
	case ports.Expired:
		return "no longer in Kafka: its retention has taken what was there at " + text(m.At)
	case ports.NotFound:
		return fmt.Sprintf("not in the outbox, and not among the %d records that Kafka has from %s on", m.Looked, text(m.At))
	}
	return "not in the outbox any more; what became of it, only Kafka could tell"
}

func text(t time.Time) string { return t.UTC().Format(time.RFC3339) }
