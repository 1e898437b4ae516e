package crm_test

import (
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/eventsourcing"
)

// history drives a lead through random commands at moments that never go back, and calls
// check after each of them.
func history(t *rapid.T, check func(before, after crm.Lead, at time.Time, command string, events []crm.Event, err error)) {
	var lead crm.Lead
	at := dawn
	moment := rapid.Custom(func(t *rapid.T) time.Time {
		return dawn.Add(time.Duration(rapid.IntRange(-3, 40).Draw(t, "minutes")) * time.Minute)
	})
	for range rapid.IntRange(1, 30).Draw(t, "commands") {
		at = at.Add(time.Duration(rapid.IntRange(0, 4).Draw(t, "later")) * time.Minute)
		command := rapid.SampledFrom([]string{"register", "extend", "archive", "expire"}).Draw(t, "command")
		decide := func(l crm.Lead) ([]crm.Event, error) { return l.Expire(at) }
		switch command {
		case "register":
			r := registration(func(r *crm.Registration) { r.ExpiresAt = moment.Draw(t, "expires at") })
			decide = func(l crm.Lead) ([]crm.Event, error) { return l.Register(r, at) }
		case "extend":
			to := moment.Draw(t, "to")
			decide = func(l crm.Lead) ([]crm.Event, error) { return l.Extend(to, at) }
		case "archive":
			decide = func(l crm.Lead) ([]crm.Event, error) { return l.Archive(at) }
		}
		before := lead
		events, err := decide(lead)
		lead = eventsourcing.Fold(lead, events...)
		check(before, lead, at, command, events, err)
		if again, againErr := decide(lead); err == nil && (len(again) > 0 || againErr != nil) {
			t.Fatalf("%s repeated at once: %v, %v; want a no-op", command, again, againErr)
		}
	}
}

func TestLead_AStreamFoldsToTheStateThatTheDecisionsReturned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stream []crm.Event
		history(t, func(_, after crm.Lead, _ time.Time, _ string, events []crm.Event, _ error) {
			stream = append(stream, events...)
			if folded := eventsourcing.Fold(crm.Lead{}, stream...); folded != after {
				t.Fatalf("folded %+v; want %+v", folded, after)
			}
			if after.Version() != len(stream) {
				t.Fatalf("version %d after %d events", after.Version(), len(stream))
			}
			if after.Version() == 0 {
				return
			}
			restored, err := crm.Restore(after.Snapshot())
			if err != nil || restored != after {
				t.Fatalf("restored %+v, %v; want %+v", restored, err, after)
			}
		})
	})
}

func TestLead_ARefusedDecisionChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history(t, func(before, after crm.Lead, _ time.Time, command string, events []crm.Event, err error) {
			if err != nil && (before != after || len(events) > 0) {
				t.Fatalf("%s was refused (%v) and changed %+v to %+v", command, err, before, after)
			}
		})
	})
}

func TestLead_ExpiresOnlyFromActiveAndOnlyStrictlyAfterItsMoment_INV_LEAD_4(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history(t, func(before, after crm.Lead, at time.Time, command string, _ []crm.Event, err error) {
			was, is := before.Snapshot(), after.Snapshot()
			due := was.Status == crm.Active && was.ExpiresAt.Before(at)
			became := was.Status != crm.Expired && is.Status == crm.Expired
			if became != (command == "expire" && due) {
				t.Fatalf("%s at %s took %+v to %+v (%v)", command, at, was, is, err)
			}
			if became && (!is.ExpiredAt.Equal(at) || !is.UpdatedAt.Equal(at) || is.Version != was.Version+1) {
				t.Fatalf("expired at %s as %+v", at, is)
			}
		})
	})
}

func TestLead_DecisionsArePure(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history(t, func(before, _ crm.Lead, at time.Time, command string, events []crm.Event, err error) {
			if command != "expire" {
				return
			}
			again, againErr := before.Expire(at)
			if !reflect.DeepEqual(events, again) || !reflect.DeepEqual(err, againErr) {
				t.Fatalf("expire twice at %s: %v, %v; then %v, %v", at, events, err, again, againErr)
			}
		})
	})
}
