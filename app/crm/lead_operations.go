package crm

import (
	"context"
	"fmt"
	"time"

	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/ports"
)

// Operations are what the platform's APIs do to leads while the worker runs. They wait for
// a lead that is held, and publish nothing (spec: domain, operations in flight).
type Operations struct {
	Leads ports.Leads
	Clock func() time.Time
}

// Register begins a lead. Errors: crm.AlreadyRegisteredError, crm.InvalidError,
// ports.ErrConflict, an infrastructure fault.
func (o Operations) Register(ctx context.Context, by ports.Actor, r crm.Registration) error {
	r.ExpiresAt = ports.Stored(r.ExpiresAt)
	return o.change(ctx, "register", r.Lead, by, func(l crm.Lead, at time.Time) ([]crm.Event, error) {
		return l.Register(r, at)
	})
}

// Extend moves a lead's ExpiresAt to a later moment; an expired lead becomes active again.
// Errors: crm.NotLaterError, crm.ArchivedError, crm.NotRegisteredError, ports.ErrConflict,
// an infrastructure fault.
func (o Operations) Extend(ctx context.Context, by ports.Actor, id crm.LeadID, to time.Time) error {
	return o.change(ctx, "extend", id, by, func(l crm.Lead, at time.Time) ([]crm.Event, error) {
		return l.Extend(ports.Stored(to), at)
	})
}

// Archive puts a lead away for good. Errors: crm.NotRegisteredError, ports.ErrConflict, an
// infrastructure fault.
func (o Operations) Archive(ctx context.Context, by ports.Actor, id crm.LeadID) error {
	return o.change(ctx, "archive", id, by, crm.Lead.Archive)
}

func (o Operations) change(
	ctx context.Context, act string, id crm.LeadID, by ports.Actor,
	decide func(crm.Lead, time.Time) ([]crm.Event, error),
) error {
	command := ports.Command[crm.LeadID]{
		ID: id, At: ports.Stored(o.Clock()), By: by, Run: ports.NewRunID(),
	}
	if _, err := o.Leads.Change(ctx, command, ports.Rule[crm.Lead, crm.Event]{Decide: decide}); err != nil {
		return fmt.Errorf("%s lead %s: %w", act, id, err)
	}
	return nil
}
