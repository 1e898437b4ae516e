package portstest

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/google/uuid"

	appcrm "github.com/pin-platform/pinworker/app/crm"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/ports"
)

// LeadStore is an adapter under test, empty, with its hooks. The job's side and the operations' may
// run under different roles.
type LeadStore struct {
	Hooks
	Due    ports.DueLeads
	Leads  ports.Leads
	Ledger ports.LeadLedger
}

// Registration returns a lead to register that expires at a moment.
func Registration(expiresAt time.Time) crm.Registration {
	return crm.Registration{
		Lead:      NewID[crm.Lead](),
		Tenant:    ids.TenantID(uuid.New()),
		Executor:  ids.UserID(uuid.New()),
		Investor:  ids.UserID(uuid.New()),
		ExpiresAt: expiresAt,
	}
}

// Leads runs the suite of lead-expiration, and what leads' operations promise; open returns a store
// of the test's own.
func Leads(t *testing.T, open func(t *testing.T) LeadStore) {
	Promises(t, func(t *testing.T) Job[crm.Lead, crm.Event] {
		s := leadSuite{t, open(t)}
		return Job[crm.Lead, crm.Event]{
			Hooks: s.Hooks, Name: ports.LeadExpiration, Due: s.Due, Rule: appcrm.Expire,
			Item: crm.Lead.Stream,
			Make: func(_ *testing.T, due time.Time) uuid.UUID { return uuid.UUID(s.register(due)) },
			Settle: func(t *testing.T, id uuid.UUID) {
				if err := s.operate(Noon).Archive(t.Context(), "agent", crm.LeadID(id)); err != nil {
					t.Fatal(err)
				}
			},
			Done: func(t *testing.T, id uuid.UUID) bool {
				return entry(t, s.Ledger, id).Row.Snapshot().Status == crm.Expired
			},
			Verify: func(t *testing.T) int { return check[crm.Lead, crm.Snapshot](t, s.Ledger) },
		}
	})
	for name, test := range map[string]func(leadSuite){
		"an operation waits for a locked lead":               (leadSuite).operationWaits,
		"a moment finer than a microsecond is stored as one": (leadSuite).microseconds,
		"an operation that is refused changes nothing":       (leadSuite).operationRefused,
	} {
		t.Run(name, func(t *testing.T) { test(leadSuite{t, open(t)}) })
	}
}

type leadSuite struct {
	*testing.T
	LeadStore
}

func (s leadSuite) register(expiresAt time.Time) crm.LeadID {
	s.Helper()
	r := Registration(expiresAt)
	if err := s.operate(Noon.AddDate(0, -1, 0)).Register(s.Context(), ports.System, r); err != nil {
		s.Fatal(err)
	}
	return r.Lead
}

func (s leadSuite) operate(at time.Time) appcrm.Operations {
	return appcrm.Operations{Leads: s.Leads, Clock: func() time.Time { return at }}
}

func (s leadSuite) entry(id crm.LeadID) ports.Entry[crm.Lead, crm.Event] {
	s.Helper()
	return entry(s.T, s.Ledger, uuid.UUID(id))
}

func (s leadSuite) operationWaits() {
	id := s.register(Noon.Add(-time.Minute))
	release := s.Lock(uuid.UUID(id))
	ctx, cancel := context.WithCancel(s.Context())
	begun, extended := make(chan struct{}), make(chan error, 1)
	operation := s.operate(Noon)
	operation.Clock = func() time.Time { close(begun); return Noon }
	go func() { extended <- operation.Extend(ctx, "agent", id, Noon.AddDate(0, 1, 0)) }()
	<-begun
	claim := ports.Claim{AsOf: Noon, Limit: 10, Run: ports.NewRunID()}
	for tries, end := 0, time.Now().Add(50*time.Millisecond); tries < 50 || time.Now().Before(end); tries++ { // time enough not to wait
		outcome, err := s.Due.Transition(ctx, claim, appcrm.Expire)
		if err != nil || len(outcome.Applied) > 0 { // the job passes over what the operation waits for
			s.Fatalf("outcome %+v, %v", outcome, err)
		}
		if s.entry(id).Row.Version() != 1 {
			s.Fatal("the operation did not wait")
		}
		runtime.Gosched()
	}
	select {
	case err := <-extended:
		s.Fatalf("the operation did not wait: %v", err)
	default:
	}
	release()
	if err := <-extended; err != nil {
		s.Error(err)
	}
	cancel()
	if outcome, err := s.Due.Transition(s.Context(), claim, appcrm.Expire); err != nil || outcome.Claimed > 0 {
		s.Errorf("outcome %+v, %v; want nothing due", outcome, err)
	}
	if got := s.entry(id).Row.Snapshot(); got.Status != crm.Active || !got.ExpiresAt.Equal(Noon.AddDate(0, 1, 0)) {
		s.Errorf("row %+v; want it extended", got)
	}
	check[crm.Lead, crm.Snapshot](s.T, s.Ledger)
}

func (s leadSuite) microseconds() {
	r := Registration(Noon.Add(time.Hour + 123*time.Nanosecond))
	for range 2 { // the second time it has happened
		if err := s.operate(Noon).Register(s.Context(), "agent", r); err != nil {
			s.Error(err)
		}
		if err := s.operate(Noon).Extend(s.Context(), "agent", r.Lead, Noon.Add(2*time.Hour+123*time.Nanosecond)); err != nil {
			s.Error(err)
		}
		r.ExpiresAt = Noon.Add(2*time.Hour + 123*time.Nanosecond)
	}
	if stream := s.entry(r.Lead).Stream; len(stream) != 2 {
		s.Errorf("stream %+v; want one registration and one extension", stream)
	}
	check[crm.Lead, crm.Snapshot](s.T, s.Ledger)
}

func (s leadSuite) operationRefused() {
	id := s.register(Noon.Add(time.Hour))
	before := s.entry(id)
	err := s.operate(Noon).Extend(s.Context(), "agent", id, Noon)
	if refusal := (crm.NotLaterError{}); !errors.As(err, &refusal) {
		s.Errorf("error %v; want a NotLaterError", err)
	}
	if after := s.entry(id); after.Row != before.Row || len(after.Stream) != len(before.Stream) {
		s.Errorf("a refused extension changed %+v to %+v", before, after)
	}
	err = s.operate(Noon).Archive(s.Context(), "agent", NewID[crm.Lead]())
	if refusal := (crm.NotRegisteredError{}); !errors.As(err, &refusal) {
		s.Errorf("error %v; want a NotRegisteredError", err)
	}
}
