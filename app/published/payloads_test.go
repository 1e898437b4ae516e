package published_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/domain/calendar"
)

// payloads are all that is published.
var payloads = []reflect.Type{
	reflect.TypeFor[published.ReminderDueEvent](),
	reflect.TypeFor[published.AppointmentCancelledEvent](),
	reflect.TypeFor[published.CalendarEventStatusChangedEvent](),
	reflect.TypeFor[published.PromotionPurchaseChangedKafkaEvent](),
	reflect.TypeFor[published.LeadExpiredEvent](),
}

// A payload can carry ids, moments, numbers and the domain's own words: a name or a phone number
// has no field to go to (spec: events, no personal data).
func TestPayloads_HaveNoFieldThatCouldHoldPersonalData(t *testing.T) {
	for _, payload := range payloads {
		for _, broken := range fieldsForAnything(payload) {
			t.Errorf("%s.%s could hold anything", payload.Name(), broken)
		}
	}
	type anything struct { // the test is tested
		ContractVersion int
		Name            string
		Phone           *string
		Note            any
		Extra           map[string]string
		Kinds           []calendar.EventKind
		Targets         []struct{ Address string }
		Rest            struct{}
		Amount          float64
		Own             localWord
	}
	want := []string{"Name", "Phone", "Note", "Extra", "Kinds", "Targets.Address", "Rest", "Amount", "Own"}
	if got := fieldsForAnything(reflect.TypeFor[anything]()); !slices.Equal(got, want) {
		t.Errorf("found %q; want %q", got, want)
	}
}

type localWord string

// fieldsForAnything returns the fields of a struct that are not bound to a meaning.
func fieldsForAnything(payload reflect.Type) []string {
	var found []string
	for f := range payload.Fields() {
		kind := f.Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		switch {
		case isID(kind), isWord(kind), f.Type == reflect.TypeFor[time.Time](), f.Type == reflect.TypeFor[int]():
		case kind.Kind() == reflect.Slice && kind.Elem().Kind() == reflect.Struct:
			for _, inner := range fieldsForAnything(kind.Elem()) {
				found = append(found, f.Name+"."+inner)
			}
		default:
			found = append(found, f.Name)
		}
	}
	return found
}

func isID(t reflect.Type) bool {
	return t == reflect.TypeFor[uuid.UUID]() || t.PkgPath() == "github.com/pin-platform/pinworker/domain/ids" &&
		t.Kind() == reflect.Array && t.Len() == 16 && t.Elem().Kind() == reflect.Uint8
}

// isWord reports whether a type is a vocabulary of the domain's.
func isWord(t reflect.Type) bool {
	return t.Kind() == reflect.String && strings.HasPrefix(t.PkgPath(), "github.com/pin-platform/pinworker/domain/")
}

// A payload that is missing above would go unseen.
func TestPayloads_AreAllThatTheSourceHas(t *testing.T) {
	var named, got []string
	for _, payload := range payloads {
		named = append(named, payload.Name())
		if first := payload.Field(0); first.Name != "ContractVersion" { // spec: events, payloads
			t.Errorf("%s begins with %s; want ContractVersion", payload.Name(), first.Name)
		}
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if spec, ok := node.(*ast.TypeSpec); ok && strings.HasSuffix(spec.Name.Name, "Event") {
				got = append(got, spec.Name.Name)
			}
			return true
		})
	}
	slices.Sort(named)
	slices.Sort(got)
	if !slices.Equal(got, named) {
		t.Errorf("the source has %q; tested are %q", got, named)
	}
}
