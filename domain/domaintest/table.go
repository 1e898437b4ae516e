package domaintest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pin-platform/pinworker/domain/eventsourcing"
)

// Commands are the decisions that a table asks for, by the names of the methods that take them.
type Commands[A, E any] map[string]func(A) ([]E, error)

// Outcomes says of every state what comes of every command: the types of the events, or of the
// error, or "" where nothing changes.
type Outcomes[S ~string] map[S]map[string]string

// Table checks that what comes of every command in every state is what a table says. The table
// has to have an entry for every constant of the type S in the package that is tested, for the
// state "" of what has not happened yet, and for every method of A that is a decision.
func Table[S ~string, A eventsourcing.Aggregate[A, E], E any](t testing.TB, given func(S) A, commands Commands[A, E], want Outcomes[S]) {
	t.Helper()
	for _, decision := range decisions[A, E]() {
		if commands[decision] == nil {
			t.Errorf("the table has no command %s", decision)
		}
	}
	states := append(constants[S](t), "")
	for state := range maps.Keys(want) {
		if !slices.Contains(states, state) {
			t.Errorf("the table has %q, which is no state", state)
		}
	}
	for _, state := range states {
		got := make(map[string]string, len(commands))
		for name, decide := range commands {
			decision := Scenario[A, E]{t: t, state: given(state)}.When(decide)
			got[name] = outcome(decision.events, decision.err)
		}
		for _, name := range slices.Sorted(maps.Keys(got)) {
			if expected, ok := want[state][name]; !ok || got[name] != expected {
				t.Errorf("%q: %s yields %q; the table says %q (an entry: %v)", state, name, got[name], expected, ok)
			}
		}
		if len(want[state]) > len(got) {
			t.Errorf("%q: the table has entries for what is no command: %v", state, want[state])
		}
	}
}

func outcome[E any](events []E, err error) string {
	if err != nil {
		return reflect.TypeOf(err).Name()
	}
	names := make([]string, len(events))
	for i, event := range events {
		names[i] = reflect.TypeOf(event).Name()
	}
	return strings.Join(names, " ")
}

// decisions are the methods of A that return events or an error.
func decisions[A, E any]() []string {
	var names []string
	for method := range reflect.TypeFor[A]().Methods() {
		if m := method.Type; m.NumOut() == 2 && m.Out(0) == reflect.TypeFor[[]E]() && m.Out(1) == reflect.TypeFor[error]() {
			names = append(names, method.Name)
		}
	}
	return names
}

// constants are the values of S's constants, as the source of the package that is tested has them.
func constants[S ~string](t testing.TB) []S {
	t.Helper()
	of := reflect.TypeFor[S]().Name()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var values []S
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if spec, ok := node.(*ast.ValueSpec); ok && isOfType(spec, of) {
				for _, value := range spec.Values {
					values = append(values, S(literal(value)))
				}
			}
			return true
		})
	}
	if len(values) == 0 {
		t.Fatalf("no constants of the type %s", of)
	}
	return values
}

func isOfType(spec *ast.ValueSpec, name string) bool {
	of, ok := spec.Type.(*ast.Ident)
	return ok && of.Name == name
}

// literal is a string's value, or "" where the source has no literal.
func literal(value ast.Expr) string {
	if basic, ok := value.(*ast.BasicLit); ok {
		if text, err := strconv.Unquote(basic.Value); err == nil {
			return text
		}
	}
	return ""
}
