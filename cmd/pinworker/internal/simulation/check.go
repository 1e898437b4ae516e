package simulation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/domain/promotion"
	"github.com/pin-platform/pinworker/ports"
)

// Evidence is all that the check goes by.
type Evidence struct {
	Log     []Operation
	Streams map[uuid.UUID][]ports.Happened // of Subjects(Log), as the databases hold them
	Records []Record                       // what came to Kafka, each partition in order
	Tenant  ids.TenantID                   // whose messages are the simulation's
	Until   time.Time                      // what came due before had to be taken
}

// Report is what happened, and what is not as it should be.
type Report struct {
	Operations map[Kind]Answers    `json:"operations"`
	Outcomes   map[string]int      `json:"outcomes"`
	Messages   map[string]Messages `json:"messages"` // by topic
	Findings   []Finding           `json:"findings"`
}

// Answers count what operations of one kind were told.
type Answers struct {
	Accepted  int `json:"accepted"` // and it happened then
	Already   int `json:"already"`  // accepted, and had happened before
	Refused   int `json:"refused"`
	Conflicts int `json:"conflicts"`
	Unknown   int `json:"unknown"`
}

// Finding is one thing that is not as it should be.
type Finding struct {
	Of   string    `json:"of"` // the kind of aggregate, or what else it is about
	ID   uuid.UUID `json:"id,omitzero"`
	What string    `json:"what"`
}

func (f Finding) String() string {
	if f.ID == uuid.Nil {
		return f.Of + ": " + f.What
	}
	return f.Of + " " + f.ID.String() + ": " + f.What
}

// contextOf is whose schema holds an aggregate.
var contextOf = map[string]string{
	lead: "crm", purchase: "promotion", slot: "calendar", appointment: "calendar", event: "calendar", reminder: "calendar",
}

// Subjects are the aggregates of a log, refused ones included, by context.
func Subjects(log []Operation) map[string][]uuid.UUID {
	subjects := make(map[string][]uuid.UUID)
	for id, l := range livesOf(log, nil) {
		subjects[contextOf[l.kind]] = append(subjects[contextOf[l.kind]], id)
	}
	return subjects
}

// Overdue are the aggregates that a job had to take before a moment and has not, by job.
func Overdue(log []Operation, streams map[uuid.UUID][]ports.Happened, until time.Time) map[ports.Job][]uuid.UUID {
	c := newChecker(Evidence{Log: log, Streams: streams})
	overdue := make(map[ports.Job][]uuid.UUID)
	for id, l := range c.lives {
		l.fold(c.byActor, func(string, ...any) {})
		if job := l.waitsFor(until); job != "" {
			overdue[job] = append(overdue[job], id)
		}
	}
	return overdue
}

// waitsFor is the job that had to take the aggregate before a moment; "" is none.
func (l *life) waitsFor(until time.Time) ports.Job {
	switch s := l.now(); {
	case s.due.IsZero() || s.due.After(until) || s.due.Equal(until) && l.kind != purchase:
	case l.kind == lead && s.status == "Active":
		return ports.LeadExpiration
	case l.kind == purchase && s.status == "Active":
		return ports.ExpirePromotions
	case l.kind == appointment && s.status == "Pending":
		return ports.AppointmentTimeout
	case l.kind == reminder && s.status == "Pending":
		return ports.ReminderDispatch
	}
	return ""
}

// Check recomputes from the log what must have happened, and compares it with the streams and with
// what Kafka holds.
func Check(e Evidence) Report {
	c := newChecker(e)
	for _, l := range c.inOrder() {
		l.fold(c.byActor, func(format string, args ...any) { c.find(l, format, args...) })
		for i, happened := range l.events {
			p := place{l, i + 1}
			if happened.Actor == ports.System {
				c.system[happened.Run] = append(c.system[happened.Run], p)
			} else {
				c.written[happened.Actor] = append(c.written[happened.Actor], p)
			}
		}
	}
	for i := range c.Log {
		c.operation(&c.Log[i])
	}
	c.worker()
	c.waiting()
	c.messages()
	return c.report
}

// checker is one check.
type checker struct {
	Evidence
	lives   lives
	byActor map[ports.Actor]*Operation
	written map[ports.Actor][]place // by each operation
	system  map[ports.RunID][]place // by each cycle
	report  Report
}

// place is an event in a life: the one that led to a version.
type place struct {
	life    *life
	version int
}

func (p place) happened() ports.Happened { return p.life.events[p.version-1] }
func (p place) before() state            { return p.life.states[p.version-1] }
func (p place) lifeBefore() *life        { return &life{kind: p.life.kind, states: p.life.states[:p.version]} }

func newChecker(e Evidence) *checker {
	c := &checker{
		Evidence: e, lives: livesOf(e.Log, e.Streams), byActor: make(map[ports.Actor]*Operation, len(e.Log)),
		written: make(map[ports.Actor][]place), system: make(map[ports.RunID][]place),
		report: Report{
			Operations: make(map[Kind]Answers), Outcomes: make(map[string]int), Messages: make(map[string]Messages), Findings: []Finding{},
		},
	}
	for i := range c.Log {
		c.byActor[c.Log[i].Actor] = &c.Log[i]
	}
	return c
}

// inOrder are the lives, in the order in which they began: a report reads the same each time.
func (c *checker) inOrder() []*life {
	return slices.SortedFunc(maps.Values(c.lives), func(a, b *life) int {
		return cmp.Or(a.made.Began.Compare(b.made.Began), cmp.Compare(a.kind, b.kind), cmp.Compare(a.id.String(), b.id.String()))
	})
}

func (c *checker) find(l *life, format string, args ...any) {
	c.report.Findings = append(c.report.Findings, Finding{l.kind, l.id, fmt.Sprintf(format, args...)})
}

// subject is what an operation is about.
func (c *checker) subject(op *Operation) *life { return c.lives[op.ID] }

// operation checks that what an operation was told is what its streams tell.
func (c *checker) operation(op *Operation) {
	l, root := c.subject(op), operationRules[op.Kind].root
	answers := c.report.Operations[op.Kind]
	defer func() { c.report.Operations[op.Kind] = answers }()
	var roots, rest []place
	for _, p := range c.written[op.Actor] {
		if p.life == l && p.happened().Event == root {
			roots = append(roots, p)
		} else {
			rest = append(rest, p)
		}
	}
	switch op.Outcome {
	case Accepted:
		answers.Accepted++
		switch {
		case len(roots) > 0:
		case c.already(op):
			answers.Accepted--
			answers.Already++
		default:
			c.find(l, "%s was accepted at %s, and its stream has no %s of it", op.Kind, spell(op.At), root)
		}
	case Refused:
		answers.Refused++
		c.refused(op)
	case Conflict:
		answers.Conflicts++
	case Unknown:
		answers.Unknown++
	}
	if op.Outcome != Accepted && op.Outcome != Unknown && len(roots) > 0 {
		c.find(l, "%s was refused (%v), and %s stands in its stream all the same", op.Kind, op.Err, root)
	}
	if len(roots) > 1 {
		c.find(l, "%s was asked for once, and %s stands %d times in its stream", op.Kind, root, len(roots))
	}
	if len(roots) > 0 {
		c.comesInTurn(op, roots[0])
		if roots[0].lifeBefore().waitsFor(op.At) != "" {
			c.report.Outcomes["races with the worker that people won"]++
		}
		rest = c.whole(roots[0], rest)
	}
	for _, p := range rest {
		c.find(p.life, "version %d, %s, was done by %s of %s, which does not lead to it", p.version, p.happened().Event, op.Kind, l.name())
	}
}

// already reports whether an operation that did nothing had nothing to do.
func (c *checker) already(op *Operation) bool {
	return c.saw(op, c.subject(op), func(s state) bool {
		if to, extends := op.Asked.(time.Time); extends && !s.due.Equal(to) {
			return false
		}
		return s.status != "" && s.status == operationRules[op.Kind].already
	})
}

// saw reports whether a life was, while an operation was under way, as it must have been. What was
// answered before the operation was asked for came before it; what was asked for after its answer
// came after it.
func (c *checker) saw(op *Operation, l *life, holds func(state) bool) bool {
	first, last := 0, len(l.events)
	for v := 1; v <= len(l.events); v++ {
		other := c.byActor[l.events[v-1].Actor]
		switch {
		case other == nil || other == op:
		case other.Outcome == Accepted && other.Ended.Before(op.Began):
			first = v
		case other.Began.After(op.Ended):
			last = min(last, v-1)
		}
	}
	for v := first; v <= last; v++ {
		if holds(l.states[v]) {
			return true
		}
	}
	return false
}

// comesInTurn checks that an event stands where its operation belongs among those that were over
// before it, or began after it.
func (c *checker) comesInTurn(op *Operation, at place) {
	for v := 1; v < at.version; v++ {
		other := c.byActor[at.life.events[v-1].Actor]
		if other != nil && op.Outcome == Accepted && other.Began.After(op.Ended) {
			c.find(at.life, "%s was accepted before %s was asked for, and stands behind it, at version %d", op.Kind, other.Kind, at.version)
		}
	}
	for v := at.version + 1; v <= len(at.life.events); v++ {
		other := c.byActor[at.life.events[v-1].Actor]
		if other != nil && other.Outcome == Accepted && other.Ended.Before(op.Began) {
			c.find(at.life, "%s was asked for after %s was accepted, and stands before it, at version %d", op.Kind, other.Kind, at.version)
		}
	}
}

// refused checks that an operation was refused for a reason that there was.
func (c *checker) refused(op *Operation) {
	l, sound := c.subject(op), false
	switch why := op.Err.(type) { //nolint:errorlint // AnswerOf took it out
	case calendar.StateError:
		about := c.lives[why.ID]
		sound = about != nil && !c.permits(op.Kind, about, why.Status) && c.saw(op, about, func(s state) bool { return s.status == why.Status })
		if sound && about.kind == appointment && why.Status == "Expired" {
			c.report.Outcomes["races with the worker that people lost"]++
		}
	case calendar.TooLateError:
		about := c.lives[uuid.UUID(why.Slot)]
		sound = op.Kind == BookSlot && about != nil && op.At.After(soldUntil(about.publication()))
	case crm.ArchivedError:
		sound = op.Kind == ExtendLead && c.saw(op, l, func(s state) bool { return s.status == "Archived" })
	case crm.NotLaterError:
		to, _ := op.Asked.(time.Time)
		sound = op.Kind == ExtendLead && c.saw(op, l, func(s state) bool { return s.due.Equal(why.ExpiresAt) && !to.After(s.due) })
	case promotion.TerminalError:
		sound = op.Kind == CancelPurchase && c.saw(op, l, func(s state) bool { return s.status == "Expired" })
		if sound {
			c.report.Outcomes["races with the worker that people lost"]++
		}
	}
	if !sound {
		c.find(l, "%s was refused at %s (%v), and its streams give no reason for it", op.Kind, spell(op.At), op.Err)
	}
}

// permits reports whether a state lets an operation happen, or be done with.
func (c *checker) permits(kind Kind, l *life, status string) bool {
	if l.kind == event && l.booked != nil { // INV-CAL-3: with its appointment only
		switch kind {
		case CancelEvent, CompleteEvent:
			return status == operationRules[kind].already
		case RescheduleEvent:
			return false
		}
	}
	states, concerns := operationRules[kind].permits[l.kind]
	return !concerns || slices.Contains(states, status)
}

// want is an event that must, or may, come with another one: one of some names.
type want struct {
	life  *life
	names []string
}

// follows is what must, and what may, come with an event in one transaction.
func (c *checker) follows(root place) (must, may []want) {
	l, e := root.life, root.happened()
	skipped := func(of *life) {
		for _, r := range of.reminders {
			may = append(may, want{r, []string{"ReminderSkipped"}})
		}
	}
	reminded := func(of *life) {
		for _, r := range of.reminders {
			if r.made == c.byActor[e.Actor] && r.due.After(e.At) {
				must = append(must, want{r, []string{"ReminderScheduled"}})
			}
		}
	}
	switch e.Event {
	case "PromotionPurchased":
		if order, ok := l.made.Asked.(promotion.Order); ok && !order.PaymentRequired {
			must = append(must, want{l, []string{"PromotionActivated"}})
		}
	case "AppointmentBooked":
		must = append(must, want{l.slot, []string{"SlotBooked"}}, want{l.event, []string{"CalendarEventPlanned"}})
		reminded(l.event)
	case "AppointmentDeclined", "AppointmentCancelled", "AppointmentExpired": // INV-APT-6
		must = append(must, want{l.slot, []string{"SlotReleased", "SlotExpired"}}, want{l.event, []string{"CalendarEventCalledOff"}})
		skipped(l.event)
	case "AppointmentCompleted":
		must = append(must, want{l.event, []string{"CalendarEventEnded"}})
		skipped(l.event)
	case "CalendarEventPlanned":
		reminded(l)
	case "CalendarEventMoved":
		reminded(l)
		for _, r := range l.reminders {
			may = append(may, want{r, []string{"ReminderDropped"}})
		}
	case "CalendarEventEnded", "CalendarEventCalledOff":
		skipped(l)
	}
	return must, may
}

// whole checks that all that must come with an event has come, and returns what came beside it.
func (c *checker) whole(root place, with []place) (rest []place) {
	must, may := c.follows(root)
	rest = slices.Clone(with)
	take := func(w want) bool {
		i := slices.IndexFunc(rest, func(p place) bool { return p.life == w.life && slices.Contains(w.names, p.happened().Event) })
		if i < 0 {
			return false
		}
		rest = slices.Delete(rest, i, i+1)
		return true
	}
	for _, w := range must {
		if !take(w) {
			c.find(w.life, "nothing of %s happened to it when %s happened to %s", w.names, root.happened().Event, root.life.name())
		}
	}
	for _, w := range may {
		take(w)
	}
	return rest
}

// worker checks what the jobs did: by their rules, and each with all that belongs to it.
func (c *checker) worker() {
	for _, run := range slices.SortedFunc(maps.Keys(c.system), func(a, b ports.RunID) int { return cmp.Compare(a.String(), b.String()) }) {
		rest := c.system[run]
		for _, p := range c.system[run] {
			switch p.happened().Event {
			case "LeadExpired":
				c.report.Outcomes["leads expired"]++
			case "PromotionPurchaseExpired":
				c.report.Outcomes["promotions expired"]++
			case "ReminderSent":
				c.report.Outcomes["reminders sent"]++
				c.sent(p)
			case "SlotReleased":
				c.report.Outcomes["slots released by timeouts"]++
			case "SlotExpired":
				c.report.Outcomes["slots expired by timeouts"]++
			case "ReminderSkipped":
				c.report.Outcomes["reminders skipped by the worker"]++
			case "AppointmentExpired":
				c.report.Outcomes["appointments timed out"]++
				rest = c.whole(p, rest)
			}
		}
		for _, p := range rest {
			c.alone(p)
		}
	}
}

// alone checks an event of the worker's that comes with no other one.
func (c *checker) alone(p place) {
	switch p.happened().Event {
	case "SlotReleased", "SlotExpired", "CalendarEventCalledOff":
		c.find(p.life, "version %d, %s, was done by the worker without an appointment that timed out", p.version, p.happened().Event)
	case "ReminderSkipped":
		if !p.life.event.over() || !after.holds(p.before().due, p.happened().At) {
			c.find(p.life, "version %d: the worker skipped it, and its event, which is %s, goes on", p.version, p.life.event.now().status)
		}
	}
}

// over reports whether an event has ended or been cancelled.
func (l *life) over() bool { s := l.now().status; return s == "Completed" || s == "Cancelled" }

// A cycle's moment is read before it takes an item, by another clock than ours: what it did may seem
// to have happened this much later than it did.
const (
	clocksApart = time.Second // beside an answer of ours
	cyclesTake  = time.Minute // beside another cycle
)

// sent checks that a reminder did not go out after its event was over, or was moved.
func (c *checker) sent(p place) {
	of, at := p.life.event, p.happened().At
	for _, e := range of.events {
		if e.Event != "CalendarEventEnded" && e.Event != "CalendarEventCalledOff" && e.Event != "CalendarEventMoved" {
			continue
		}
		latest := e.At.Add(cyclesTake)
		if op := c.byActor[e.Actor]; op != nil {
			if op == p.life.made || op.Outcome != Accepted { // moved to have it, or nobody knows when
				continue
			}
			if latest = op.Ended.Add(clocksApart); e.Event == "CalendarEventMoved" && p.life.made.Began.After(op.Ended) {
				continue
			}
		}
		if at.After(latest) {
			c.find(p.life, "it was sent at %s, and %s happened to its event at %s", spell(at), e.Event, spell(e.At))
		}
	}
}

// waiting reports what had to be taken by a job and was not, and what nobody will take any more.
func (c *checker) waiting() {
	missed := make(map[ports.Job][]*life)
	for _, l := range c.inOrder() {
		if job := l.waitsFor(c.Until); job != "" {
			missed[job] = append(missed[job], l)
		}
		if l.kind != reminder || l.now().status != "Pending" {
			continue
		}
		if l.event.over() {
			c.find(l, "it is pending, and its event is %s", l.event.now().status)
		}
		for v, e := range l.event.events {
			if op := c.byActor[e.Actor]; e.Event == "CalendarEventMoved" && op != l.made && c.madeAt(l) < v+1 {
				c.find(l, "it is pending, and its event was moved away from it")
			}
		}
	}
	took := map[ports.Job]int{
		ports.LeadExpiration: c.report.Outcomes["leads expired"], ports.ExpirePromotions: c.report.Outcomes["promotions expired"],
		ports.AppointmentTimeout: c.report.Outcomes["appointments timed out"], ports.ReminderDispatch: c.report.Outcomes["reminders sent"],
	}
	for _, job := range slices.Sorted(maps.Keys(missed)) {
		if took[job] == 0 {
			c.report.Findings = append(c.report.Findings, Finding{Of: string(job), What: fmt.Sprintf(
				"it took none of the %d items that came due by %s: does anybody serve it?", len(missed[job]), spell(c.Until),
			)})
			continue
		}
		for _, l := range missed[job] {
			c.find(l, "it came due at %s, and %s has not taken it by %s", spell(l.now().due), job, spell(c.Until))
		}
	}
}

// madeAt is the version of its event that a reminder came with.
func (c *checker) madeAt(r *life) int {
	return 1 + slices.IndexFunc(r.event.events, func(e ports.Happened) bool { return c.byActor[e.Actor] == r.made })
}
