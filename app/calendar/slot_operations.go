package calendar

import (
	"context"
	"fmt"
	"time"

	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/ports"
)

// Operations are what the platform's APIs do to the calendar while the worker runs. They wait for
// what is held, check versions, and publish what others must hear of (spec: domain, operations in
// flight). All may return ports.ErrConflict or an infrastructure fault beside the errors they name.
type Operations struct {
	Slots     ports.Slots
	Bookable  ports.BookableSlots
	Bookings  ports.Bookings
	Schedules ports.Schedules
	Clock     func() time.Time
}

// Publish offers a slot. Errors: calendar.ExistsError, calendar.InvalidError.
func (o Operations) Publish(ctx context.Context, by ports.Actor, p calendar.Publication) error {
	p.StartAt, p.EndAt = ports.Stored(p.StartAt), ports.Stored(p.EndAt)
	return change(ctx, o, o.Slots, "publish slot", p.Slot, by, ports.Rule[calendar.AvailabilitySlot, calendar.Event]{
		Decide: func(s calendar.AvailabilitySlot, at time.Time) ([]calendar.Event, error) { return s.Publish(p, at) },
	})
}

// Book takes a slot for an investor. Errors: calendar.StateError (INV-SLT-3), calendar.TooLateError,
// calendar.InvalidError, calendar.MissingError.
func (o Operations) Book(ctx context.Context, by ports.Actor, slot calendar.SlotID, r calendar.Request) error {
	return change(ctx, o, o.Bookable, "book slot", slot, by, ports.Rule[calendar.Booking, calendar.Event]{
		Decide:   func(b calendar.Booking, at time.Time) ([]calendar.Event, error) { return b.Book(r, at) },
		Announce: published.BookingEvent,
	})
}

// Confirm has the agent take an appointment. Errors: calendar.StateError, calendar.MissingError.
func (o Operations) Confirm(ctx context.Context, by ports.Actor, id calendar.AppointmentID) error {
	return change(ctx, o, o.Bookings, "confirm appointment", id, by,
		ports.Rule[calendar.Booking, calendar.Event]{Decide: calendar.Booking.Confirm})
}

// Decline has the agent refuse an appointment; the slot is free again. Errors: calendar.StateError,
// calendar.MismatchError, calendar.MissingError.
func (o Operations) Decline(ctx context.Context, by ports.Actor, id calendar.AppointmentID) error {
	return change(ctx, o, o.Bookings, "decline appointment", id, by,
		ports.Rule[calendar.Booking, calendar.Event]{Decide: calendar.Booking.Decline, Announce: published.BookingEnded})
}

// CancelAppointment calls an appointment off; the slot is free again. Errors: calendar.StateError,
// calendar.MismatchError, calendar.MissingError.
func (o Operations) CancelAppointment(ctx context.Context, by ports.Actor, id calendar.AppointmentID, user ids.UserID) error {
	return change(ctx, o, o.Bookings, "cancel appointment", id, by, ports.Rule[calendar.Booking, calendar.Event]{
		Decide:   func(b calendar.Booking, at time.Time) ([]calendar.Event, error) { return b.Cancel(user, at) },
		Announce: published.BookingEnded,
	})
}

// CompleteAppointment says that a confirmed appointment took place. Errors: calendar.StateError,
// calendar.MismatchError, calendar.MissingError.
func (o Operations) CompleteAppointment(ctx context.Context, by ports.Actor, id calendar.AppointmentID) error {
	return change(ctx, o, o.Bookings, "complete appointment", id, by,
		ports.Rule[calendar.Booking, calendar.Event]{Decide: calendar.Booking.Complete, Announce: published.BookingEvent})
}

// change has a store decide on one item, and names the act where it fails.
func change[ID interface {
	~[16]byte
	fmt.Stringer
}, A any](
	ctx context.Context, o Operations, store ports.Store[ID, A, calendar.Event], act string, id ID, by ports.Actor, rule ports.Rule[A, calendar.Event],
) error {
	command := ports.Command[ID]{ID: id, At: ports.Stored(o.Clock()), By: by, Run: ports.NewRunID()}
	if _, err := store.Change(ctx, command, rule); err != nil {
		return fmt.Errorf("%s %s: %w", act, id, err)
	}
	return nil
}
