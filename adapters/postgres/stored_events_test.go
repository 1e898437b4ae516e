package postgres

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/domain/eventsourcing"
	"github.com/pin-platform/pinworker/domain/ids"
	"github.com/pin-platform/pinworker/domain/promotion"
)

var update = flag.Bool("update", false, "write the golden files anew")

var (
	leadID        = crm.LeadID{0xAA, 1}
	slotID        = calendar.SlotID{0xA2, 2}
	appointmentID = calendar.AppointmentID{0xA1, 1}
	eventID       = calendar.EventID{0xA3, 3}
	reminderID    = calendar.ReminderID{0xA4, 4}
	purchaseID    = promotion.PurchaseID{0xEE, 1}
	target        = promotion.Target{Type: "Complex", ID: uuid.UUID{0xAB, 6}}

	tenant   = ids.TenantID{0xBB, 2}
	agent    = ids.UserID{0xCC, 3}
	investor = ids.UserID{0xDD, 4}

	noon = time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)
	dusk = noon.Add(6 * time.Hour)
)

// stored is an event with its stored form.
type stored struct {
	event any
	journalled
	decode func(journalled) (any, error)
}

// pinned are a context's events.
type pinned struct {
	domain string // its package's folder
	known  []string
	events []stored // one of each
}

// pin takes one of each event of a context.
func pin[E eventsourcing.Event](domain string, codec codec[E], every []E) pinned {
	p := pinned{domain: "../../domain/" + domain}
	for event := range codec.names {
		p.known = append(p.known, event.Name())
	}
	for i, event := range every {
		encoded, err := codec.encode(eventsourcing.Recorded[E]{Version: i + 1, Event: event})
		if err != nil {
			panic(err)
		}
		p.events = append(p.events, stored{event, encoded, func(e journalled) (any, error) { return codec.decode(e) }})
	}
	return p
}

// contexts are all of them, by the name of their golden file.
var contexts = map[string]pinned{
	"lead": pin("crm", leadCodec, []crm.Event{
		crm.LeadRegistered{Lead: leadID, Tenant: tenant, Executor: agent, Investor: investor, ExpiresAt: dusk, At: noon},
		crm.LeadExtended{Lead: leadID, ExpiresAt: dusk.AddDate(0, 1, 0), At: noon},
		crm.LeadExpired{Lead: leadID, At: dusk},
		crm.LeadArchived{Lead: leadID, At: dusk},
		crm.LeadImported{At: dusk, Lead: crm.Snapshot{
			ID: leadID, TenantID: tenant, ExecutorAgentUserID: agent, PrimaryInvestorUserID: investor,
			Status: crm.Active, ExpiresAt: dusk, Version: 7, CreatedAt: noon, UpdatedAt: noon,
		}},
	}),
	"promotion": pin("promotion", purchaseCodec, []promotion.Event{
		promotion.Purchased{
			Purchase: purchaseID, Tenant: tenant, PackageKind: "Premium", PaymentStatus: "NotRequired",
			StartsAt: noon, EndsAt: dusk, Targets: []promotion.Target{target}, At: noon,
		},
		promotion.Activated{Purchase: purchaseID, At: noon},
		promotion.PurchaseExpired{Purchase: purchaseID, At: dusk},
		promotion.PurchaseCancelled{Purchase: purchaseID, At: dusk},
		promotion.Imported{At: dusk, Purchase: promotion.Snapshot{
			ID: purchaseID, TenantID: tenant, PackageKind: "Premium", Status: promotion.Active, PaymentStatus: "Paid",
			StartsAt: noon, EndsAt: dusk, Targets: []promotion.Target{target}, Version: 7, CreatedAt: noon, UpdatedAt: noon,
		}},
	}),
	"calendar": pin("calendar", calendarCodec, []calendar.Event{
		calendar.SlotPublished{
			OfSlot: ofSlot, Tenant: tenant, Agent: agent, StartAt: dusk, EndAt: dusk.Add(time.Hour), MinLeadTimeMinutes: 120, AutoConfirm: true,
		},
		calendar.SlotBooked{OfSlot: ofSlot},
		calendar.SlotReleased{OfSlot: ofSlot},
		calendar.SlotExpired{OfSlot: ofSlot},
		calendar.SlotImported{OfSlot: ofSlot, State: calendar.SlotSnapshot{
			ID: slotID, TenantID: tenant, AgentUserID: agent, StartAt: dusk, EndAt: dusk.Add(time.Hour), MinLeadTimeMinutes: 120,
			AutoConfirm: true, Status: calendar.SlotStatusBooked, Version: 7, CreatedAt: noon, UpdatedAt: noon,
		}},
		calendar.AppointmentBooked{
			OfAppointment: ofAppointment, Tenant: tenant, Slot: slotID, CalendarEvent: eventID, Lead: calendar.LeadID(leadID),
			Agent: agent, Investor: investor, PendingExpiresAt: dusk,
		},
		calendar.AppointmentConfirmed{OfAppointment: ofAppointment},
		calendar.AppointmentDeclined{OfAppointment: ofAppointment},
		calendar.AppointmentCancelled{OfAppointment: ofAppointment, By: investor},
		calendar.AppointmentExpired{OfAppointment: ofAppointment},
		calendar.AppointmentCompleted{OfAppointment: ofAppointment},
		calendar.AppointmentImported{OfAppointment: ofAppointment, State: calendar.AppointmentSnapshot{
			ID: appointmentID, TenantID: tenant, SlotID: slotID, CalendarEventID: eventID, LeadID: calendar.LeadID(leadID),
			AgentUserID: agent, InvestorUserID: investor, Status: calendar.AppointmentStatusCancelled, PendingExpiresAt: dusk,
			CancelledBy: investor, Version: 7, CreatedAt: noon, UpdatedAt: noon,
		}},
		calendar.EventScheduled{
			OfEvent: ofEvent, Tenant: tenant, Owner: agent, Client: investor, What: "Viewing", Origin: calendar.OriginAppointment,
			StartAt: dusk, EndAt: dusk.Add(time.Hour), TimeZone: "Asia/Almaty", Appointment: appointmentID,
		},
		calendar.EventRescheduled{OfEvent: ofEvent, StartAt: dusk, EndAt: dusk.Add(time.Hour)},
		calendar.EventStarted{OfEvent: ofEvent},
		calendar.EventCompleted{OfEvent: ofEvent},
		calendar.EventCancelled{OfEvent: ofEvent, Reason: calendar.ReasonTimedOut},
		calendar.EventImported{OfEvent: ofEvent, State: calendar.EventSnapshot{
			ID: eventID, TenantID: tenant, OwnerUserID: agent, ClientUserID: investor, Kind: "Viewing", Origin: calendar.OriginAppointment,
			Status: calendar.EventStatusCancelled, CancelReason: calendar.ReasonTimedOut, StartAt: dusk, EndAt: dusk.Add(time.Hour),
			TimeZone: "Asia/Almaty", AppointmentID: appointmentID, Version: 7, CreatedAt: noon, UpdatedAt: noon,
		}},
		calendar.ReminderScheduled{OfReminder: ofReminder, CalendarEvent: eventID, Tenant: tenant, OffsetMinutes: 30, DueAt: dusk},
		calendar.ReminderSent{OfReminder: ofReminder},
		calendar.ReminderSkipped{OfReminder: ofReminder},
		calendar.ReminderDropped{OfReminder: ofReminder},
		calendar.ReminderImported{OfReminder: ofReminder, State: calendar.ReminderSnapshot{
			ID: reminderID, EventID: eventID, TenantID: tenant, OffsetMinutes: 30, DueAt: noon, Status: calendar.ReminderStatusSent, SentAt: dusk,
			Version: 7, CreatedAt: noon, UpdatedAt: noon,
		}},
	}),
}

var (
	ofSlot        = calendar.OfSlot{Slot: slotID, At: noon}
	ofAppointment = calendar.OfAppointment{Appointment: appointmentID, At: noon}
	ofEvent       = calendar.OfEvent{CalendarEvent: eventID, At: noon}
	ofReminder    = calendar.OfReminder{Reminder: reminderID, At: noon}
)

// The names and the JSON of stored events outlive the code: a difference here means that
// streams written before can no longer be read.
func TestStoredEvents_KeepTheirNamesAndTheirJSON(t *testing.T) {
	for name, context := range contexts {
		t.Run(name, func(t *testing.T) {
			path := "testdata/" + name + "_events.jsonl"
			var got bytes.Buffer
			for _, e := range context.events {
				line, err := json.Marshal(map[string]any{"type": e.eventType, "data": json.RawMessage(e.data)})
				if err != nil {
					t.Fatal(err)
				}
				got.Write(append(line, '\n'))
			}
			if *update {
				if err := os.WriteFile(path, got.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("stored events are now\n%s\nand were\n%s", got.Bytes(), want)
			}
		})
	}
}

func TestStoredEvents_ReadBackAsTheyWere(t *testing.T) {
	for name, context := range contexts {
		t.Run(name, func(t *testing.T) {
			for _, e := range context.events {
				if back, err := e.decode(e.journalled); err != nil || !reflect.DeepEqual(back, e.event) {
					t.Errorf("read back %+v, %v; want %+v", back, err, e.event)
				}
			}
		})
	}
}

// An event that the domain has and the codec does not could not be stored; one that is not among
// those above would not be pinned.
func TestStoredEvents_AreAllThatTheDomainHas(t *testing.T) {
	for name, context := range contexts {
		t.Run(name, func(t *testing.T) {
			want := eventTypes(t, context.domain+"/events.go")
			if known := slices.Sorted(slices.Values(context.known)); !slices.Equal(known, want) {
				t.Errorf("the codec knows %q; the domain has %q", known, want)
			}
			var tested []string
			for _, e := range context.events {
				tested = append(tested, reflect.TypeOf(e.event).Name())
			}
			if slices.Sort(tested); !slices.Equal(tested, want) {
				t.Errorf("pinned are %q; the domain has %q", tested, want)
			}
		})
	}
}

// eventTypes are a file's structs, but for those that are only parts of others, in order.
func eventTypes(t *testing.T, path string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	embedded := make(map[string]bool)
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if body, ok := spec.Type.(*ast.StructType); ok {
			names = append(names, spec.Name.Name)
			for _, field := range body.Fields.List {
				if of, ok := field.Type.(*ast.Ident); ok && len(field.Names) == 0 {
					embedded[of.Name] = true
				}
			}
		}
		return false
	})
	names = slices.DeleteFunc(names, func(name string) bool { return embedded[name] })
	slices.Sort(names)
	return names
}

func TestStoredEvents_AnUnknownNameOrBrokenJSONIsAnError(t *testing.T) {
	for _, context := range contexts {
		for _, e := range context.events {
			unknown, broken := e.journalled, e.journalled
			unknown.eventType, broken.data = "LeadSold", []byte(`{"At": "yesterday"}`)
			for _, spoilt := range []journalled{unknown, broken} {
				if event, err := e.decode(spoilt); err == nil {
					t.Errorf("%s %s: read %+v; want an error", spoilt.eventType, spoilt.data, event)
				}
			}
		}
	}
}

func TestDigest_DiffersWithEveryFieldOfAnEvent(t *testing.T) {
	event := journalled{
		stream: [16]byte{1}, streamType: "Lead", version: 1, eventType: "LeadExpired",
		data: []byte(`{}`), occurredAt: noon,
	}
	from := origin{actor: "System", run: [16]byte{2}}
	digest := event.digest(from)
	for field, alter := range map[string]func(*journalled, *origin){
		"stream":         func(e *journalled, _ *origin) { e.stream[15]++ },
		"stream type":    func(e *journalled, _ *origin) { e.streamType = "Deal" },
		"version":        func(e *journalled, _ *origin) { e.version++ },
		"event type":     func(e *journalled, _ *origin) { e.eventType = "LeadArchived" },
		"data":           func(e *journalled, _ *origin) { e.data = []byte(`{ }`) },
		"actor":          func(_ *journalled, o *origin) { o.actor = "system" },
		"correlation id": func(_ *journalled, o *origin) { o.run[15]++ },
		"time":           func(e *journalled, _ *origin) { e.occurredAt = e.occurredAt.Add(time.Microsecond) },
	} {
		altered, alteredFrom := event, from
		alter(&altered, &alteredFrom)
		if err := altered.check(alteredFrom, digest); err == nil {
			t.Errorf("an altered %s keeps the digest", field)
		}
	}
	if err := event.check(from, digest); err != nil {
		t.Error(err)
	}
}
