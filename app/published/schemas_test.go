package published_test

import (
	"encoding/json"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pin-platform/pinworker/docs/events"
	"github.com/pin-platform/pinworker/domain/calendar"
	"github.com/pin-platform/pinworker/domain/promotion"
)

// closed are the fields that take certain words only; expect new ones in any other.
var closed = map[string][]any{
	"AppointmentCancelledEvent.Reason": {
		calendar.AppointmentStatusExpired, calendar.AppointmentStatusDeclined, calendar.AppointmentStatusCancelled,
	},
	"CalendarEventStatusChangedEvent.Status": {
		calendar.EventStatusPlanned, calendar.EventStatusInProgress, calendar.EventStatusCompleted, calendar.EventStatusCancelled,
	},
	"CalendarEventStatusChangedEvent.CancelReason": {calendar.ReasonTimedOut, nil},
	"PromotionPurchaseChangedKafkaEvent.Status":    {promotion.Pending, promotion.Active, promotion.Expired, promotion.Cancelled},
}

// A field that is added, renamed, or of another type in one of the two and not in the other is told.
func TestSchemas_SayWhatTheGoTypesSay(t *testing.T) {
	for _, payload := range payloads {
		text := must(events.Files.ReadFile(payload.Name() + ".schema.json"))
		var s schema
		if err := json.Unmarshal(text, &s); err != nil {
			t.Fatal(err)
		}
		want, got := fieldsOf(payload, payload.Name()), s.fields(s.Defs, payload.Name())
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if got[name] != want[name] {
				t.Errorf("%s is %q in its schema; in Go %q", name, got[name], want[name])
			}
			delete(got, name)
		}
		for name := range got {
			t.Errorf("%s is in its schema alone", name)
		}
	}
}

// fieldsOf describes what encoding/json makes of a struct. A field that comes later must be optional
// ("omitempty"): older messages lack it.
func fieldsOf(payload reflect.Type, prefix string) map[string]string {
	found := make(map[string]string)
	for f := range payload.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name = f.Name
		}
		name = prefix + "." + name
		elem, null := f.Type, ""
		if elem.Kind() == reflect.Pointer {
			elem, null = elem.Elem(), "OrNull"
		}
		words, isClosed := closed[name]
		var is string
		switch {
		case f.Name == "ContractVersion":
			is = "1"
		case isClosed:
			is = string(must(json.Marshal(words)))
		case elem == reflect.TypeFor[calendar.TimeZone]():
			is = "timeZone" + null
		case isID(elem):
			is = "id" + null
		case isWord(elem):
			is = "word" + null
		case f.Type == reflect.TypeFor[time.Time]():
			is = "moment"
		case f.Type == reflect.TypeFor[int]():
			is = "number"
		case elem.Kind() == reflect.Slice:
			is = "list"
			maps.Copy(found, fieldsOf(elem.Elem(), name))
		default:
			is = f.Type.String()
		}
		if strings.HasPrefix(options, "omit") {
			is += ", optional"
		}
		found[name] = is
	}
	return found
}

// schema is as much of JSON Schema as the events' own use.
type schema struct {
	Ref        string `json:"$ref"`
	Const      json.RawMessage
	Enum       []any
	Items      *schema
	Required   []string
	Properties map[string]schema
	Defs       map[string]schema `json:"$defs"`
}

func (s schema) fields(defs map[string]schema, prefix string) map[string]string {
	if inner, own := defs[path.Base(s.Ref)]; own {
		s = inner
	}
	found := make(map[string]string)
	for name, property := range s.Properties {
		is := string(property.Const)
		switch {
		case property.Items != nil:
			is = "list"
			maps.Copy(found, property.Items.fields(defs, prefix+"."+name))
		case property.Enum != nil:
			is = string(must(json.Marshal(property.Enum)))
		case property.Ref != "":
			is = path.Base(property.Ref)
			if is == "count" || is == "version" {
				is = "number"
			}
		}
		if !slices.Contains(s.Required, name) {
			is += ", optional"
		}
		found[prefix+"."+name] = is
	}
	return found
}

// The test is tested: a Go type and a schema that differ in each way once.
func TestSchemas_ADifferenceIsSeen(t *testing.T) {
	type changed struct {
		ContractVersion int
		Renamed         calendar.EventID `json:"WasId"`
		MayBeNull       *calendar.EventID
		Retyped         time.Time
		Later           int `json:",omitempty"`
		Inner           []struct{ A, B int }
	}
	got := fieldsOf(reflect.TypeFor[changed](), "x")
	want := map[string]string{
		"x.ContractVersion": "1", "x.WasId": "id", "x.MayBeNull": "idOrNull", "x.Retyped": "moment", "x.Later": "number, optional",
		"x.Inner": "list", "x.Inner.A": "number", "x.Inner.B": "number",
	}
	if !maps.Equal(got, want) {
		t.Errorf("fields %v; want %v", got, want)
	}
	var s schema
	if err := json.Unmarshal([]byte(`{"required": ["Inner", "WasId"], "properties": {"WasId": {"$ref": "types.schema.json#/$defs/id"}, "Later": {"$ref": "x#/count"},
		"Inner": {"items": {"$ref": "#/$defs/inner"}}, "Own": {"enum": ["a", null]}, "ContractVersion": {"const": 1}},
		"$defs": {"inner": {"required": ["A"], "properties": {"A": {"$ref": "x#/moment"}}}}}`), &s); err != nil {
		t.Fatal(err)
	}
	want = map[string]string{
		"x.WasId": "id", "x.Later": "number, optional", "x.Inner": "list", "x.Inner.A": "moment", "x.Own": `["a",null], optional`, "x.ContractVersion": "1, optional",
	}
	if got := s.fields(s.Defs, "x"); !maps.Equal(got, want) {
		t.Errorf("fields %v; want %v", got, want)
	}
}
