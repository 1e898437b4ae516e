package postgres

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/pin-platform/pinworker/domain/eventsourcing"
)

// codec turns a context's events into what is stored and back. Names and JSON outlive the code:
// testdata/*_events.jsonl pin them. A stored event changes by adding fields only.
type codec[E eventsourcing.Event] struct {
	kind  func(E) string // whose event it is: the stream's type
	types map[string]reflect.Type
	names map[reflect.Type]string
}

// newCodec returns the codec of a closed set of events: each under the name it is stored by.
func newCodec[E eventsourcing.Event](kind func(E) string, events map[string]E) codec[E] {
	c := codec[E]{kind, make(map[string]reflect.Type, len(events)), make(map[reflect.Type]string, len(events))}
	for name, event := range events {
		c.types[name], c.names[reflect.TypeOf(event)] = reflect.TypeOf(event), name
	}
	return c
}

// encode returns what is stored of an event. A moment that JSON has no form for (a year beyond
// 9999) is a data fault.
func (c codec[E]) encode(r eventsourcing.Recorded[E]) (journalled, error) {
	name, known := c.names[reflect.TypeOf(r.Event)]
	if !known {
		return journalled{}, fmt.Errorf("event %d: %T has no stored form", r.Version, r.Event)
	}
	data, err := json.Marshal(r.Event)
	if err != nil {
		return journalled{}, fmt.Errorf("encode event %d (%s): %w", r.Version, name, err)
	}
	return journalled{
		stream: r.Event.Stream(), streamType: c.kind(r.Event), version: r.Version,
		eventType: name, data: data, occurredAt: r.Event.OccurredAt(),
	}, nil
}

// decode reads a stored event back.
func (c codec[E]) decode(e journalled) (event E, err error) {
	stored, known := c.types[e.eventType]
	if !known {
		return event, fmt.Errorf("event %d: there is no event %q", e.version, e.eventType)
	}
	value := reflect.New(stored)
	if err := json.Unmarshal(e.data, value.Interface()); err != nil {
		return event, fmt.Errorf("decode event %d (%s): %w", e.version, e.eventType, err)
	}
	return value.Elem().Interface().(E), nil //nolint:forcetypeassert // the type came from an E
}
