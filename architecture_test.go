// Package pinworker_test holds the tests that are about the whole tree: imports point inward, the
// domain stays pure, and what docs/tests.md names is there.
package pinworker_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/pin-platform/pinworker/"

// layer is one of the rings: what its non-test files may import, beside themselves.
type layer struct {
	folder string
	// allowed reports whether a package may be imported. An import of the module comes
	// without the module's name.
	allowed func(from string, imported importPath) bool
}

type importPath struct {
	path string
	ours bool // a package of this module; path is relative to its root
}

func (i importPath) std() bool { return !i.ours && !strings.Contains(firstOf(i.path), ".") }

// impure are the packages of the standard library that reach out of a pure computation.
var impure = []string{"context", "log", "os", "io", "net", "database", "math/rand", "crypto/rand", "sync", "runtime", "syscall", "flag"}

const uuid = "github.com/google/uuid"

var contexts = []string{"calendar", "promotion", "crm"}

// ofContext reports whether a package is a context's part of the application.
func ofContext(pkg string) bool {
	return slices.ContainsFunc(contexts, func(context string) bool { return within(pkg, "app/"+context) })
}

// layers go from the inside out.
var layers = []layer{
	{"domain", func(from string, i importPath) bool {
		switch {
		case i.ours: // a context's domain sees what all share, and no other context
			return slices.Contains([]string{"domain/ids", "domain/eventsourcing"}, i.path)
		case within(from, "domain/domaintest"):
			return i.std()
		}
		return i.path == uuid || i.std() && !slices.ContainsFunc(impure, func(p string) bool { return within(i.path, p) })
	}},
	{"ports", func(_ string, i importPath) bool {
		return i.std() || i.path == uuid || i.ours && within(i.path, "domain")
	}},
	{"app", func(from string, i importPath) bool {
		if !i.ours { // what it needs of the world, it asks of the ports
			return i.path == uuid || i.std() && !slices.ContainsFunc([]string{"database", "net", "os", "log", "syscall"},
				func(p string) bool { return within(i.path, p) })
		}
		for _, context := range contexts { // a context sees no other; what they share sees the domain of all
			foreign := !within(from, "app/"+context)
			if foreign && within(i.path, "app/"+context) || foreign && ofContext(from) && within(i.path, "domain/"+context) {
				return false
			}
		}
		return within(i.path, "domain") || within(i.path, "ports") || within(i.path, "app")
	}},
	{"adapters", func(from string, i importPath) bool {
		switch {
		case !i.ours:
			return true
		case within(i.path, "cmd"):
			return false
		case within(i.path, "adapters"): // an adapter is wired to another by cmd alone
			return within(i.path, adapterOf(from)) || within(from, "adapters/embedded/embeddedtest")
		}
		return true
	}},
	{"sql", func(_ string, i importPath) bool { return i.std() }},
	{"docs", func(_ string, i importPath) bool { return !i.ours }}, // the contracts, and what reads by them
	{"cmd", func(string, importPath) bool { return true }},
}

func within(pkg, folder string) bool { return pkg == folder || strings.HasPrefix(pkg, folder+"/") }

func firstOf(p string) string { first, _, _ := strings.Cut(p, "/"); return first }

// adapterOf returns adapters/x of adapters/x/y/z.
func adapterOf(pkg string) string { return strings.Join(strings.SplitN(pkg, "/", 3)[:2], "/") }

// violations returns what breaks the rules in a tree, each as "file: what".
func violations(tree fs.FS) ([]string, error) {
	var found []string
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "testdata" || strings.HasPrefix(entry.Name(), ".") && name != "."):
			return fs.SkipDir
		case path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") && !within(name, "domain"):
			return nil
		}
		source, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		what := inspect(path.Dir(name), file)
		if strings.HasSuffix(name, "_test.go") {
			what = inspectTest(file)
		}
		for _, what := range what {
			found = append(found, name+": "+what)
		}
		return nil
	})
	return found, err
}

// inspectTest returns what a test of the domain breaks: it needs no database either.
func inspectTest(file *ast.File) []string {
	var found []string
	for _, i := range imports(file) {
		if !i.std() && !i.ours && i.path != uuid && i.path != "pgregory.net/rapid" || i.ours && !within(i.path, "domain") {
			found = append(found, "a test of the domain must not import "+i.path)
		}
	}
	return found
}

func imports(file *ast.File) []importPath {
	var all []importPath
	for _, spec := range file.Imports {
		imported := importPath{path: must(strconv.Unquote(spec.Path.Value))}
		if rest, ok := strings.CutPrefix(imported.path, module); ok {
			imported = importPath{rest, true}
		}
		all = append(all, imported)
	}
	return all
}

// inspect returns what a file of a package breaks.
func inspect(pkg string, file *ast.File) []string {
	i := slices.IndexFunc(layers, func(l layer) bool { return within(pkg, l.folder) })
	if i < 0 {
		return []string{"Go code outside of domain, ports, app, adapters, sql, docs and cmd"}
	}
	var found []string
	for _, imported := range imports(file) {
		if !layers[i].allowed(pkg, imported) && imported != (importPath{pkg, true}) {
			found = append(found, fmt.Sprintf("%s must not import %s", layers[i].folder, imported.path))
		}
	}
	if layers[i].folder == "domain" && !within(pkg, "domain/domaintest") {
		found = append(found, impurities(file)...)
	}
	if layers[i].folder == "ports" {
		found = append(found, transactions(file)...)
	}
	return found
}

// impurities finds clocks, tags and goroutines in a file of the domain.
func impurities(file *ast.File) []string {
	clock := []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}
	generated := []string{"New", "NewV7", "NewV6", "NewRandom", "NewUUID", "NewString"}
	names := make(map[string]string) // what the file calls a package, whatever its own name
	for _, spec := range file.Imports {
		imported := must(strconv.Unquote(spec.Path.Value))
		name := path.Base(imported)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = imported
	}
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			if n.Tag != nil {
				found = append(found, "the domain has no tags: "+n.Tag.Value)
			}
		case *ast.GoStmt:
			found = append(found, "the domain starts no goroutine")
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok {
				switch name := names[x.Name]; {
				case name == "time" && slices.Contains(clock, n.Sel.Name):
					found = append(found, "the domain has no clock: time."+n.Sel.Name)
				case name == uuid && slices.Contains(generated, n.Sel.Name):
					found = append(found, "the domain makes no ids: uuid."+n.Sel.Name)
				}
			}
		}
		return true
	})
	return found
}

// transactions finds a transaction that leaks out of an adapter, by its name.
func transactions(file *ast.File) []string {
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && (id.Name == "Tx" || strings.HasSuffix(id.Name, "Transaction")) {
			found = append(found, "a port shows no transaction: "+id.Name)
		}
		return true
	})
	return found
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func TestArchitecture_ImportsPointInwardAndTheDomainIsPure(t *testing.T) {
	found, err := violations(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found {
		t.Error(v)
	}
}

// The test is tested against a tree that breaks each rule once.
func TestArchitecture_EachRuleIsKeptByTheTest(t *testing.T) {
	found, err := violations(os.DirFS("testdata/architecture"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"adapters/postgres/to_cmd.go":         "adapters must not import cmd/pinworker",
		"adapters/postgres/to_sibling.go":     "adapters must not import adapters/kafka",
		"app/crm/to_adapter.go":               "app must not import adapters/postgres",
		"app/crm/to_io.go":                    "app must not import database/sql",
		"app/crm/to_other_context.go":         "app must not import app/calendar",
		"app/promotion/to_other_domain.go":    "app must not import domain/calendar",
		"domain/crm/clock_by_another_name.go": "the domain has no clock: time.Now",
		"domain/crm/database_test.go":         "a test of the domain must not import github.com/jackc/pgx/v5",
		"app/crm/to_driver.go":                "app must not import github.com/jackc/pgx/v5",
		"domain/crm/clock.go":                 "the domain has no clock: time.Now",
		"domain/crm/goroutine.go":             "the domain starts no goroutine",
		"domain/crm/new_id.go":                "the domain makes no ids: uuid.New",
		"domain/crm/tags.go":                  "the domain has no tags: `json:\"id\"`",
		"domain/crm/to_context.go":            "domain must not import context",
		"domain/crm/to_io.go":                 "domain must not import io/fs",
		"domain/crm/to_library.go":            "domain must not import github.com/samber/lo",
		"domain/crm/to_other_context.go":      "domain must not import domain/calendar",
		"domain/crm/to_ports.go":              "domain must not import ports",
		"ports/to_app.go":                     "ports must not import app/crm",
		"ports/to_driver.go":                  "ports must not import github.com/jackc/pgx/v5",
		"ports/transaction.go":                "a port shows no transaction: Tx",
		"sql/migrations/to_app.go":            "sql must not import app/crm",
		"util/misplaced.go":                   "Go code outside of domain, ports, app, adapters, sql, docs and cmd",
	}
	for _, file := range slices.Sorted(maps.Keys(want)) {
		if v := file + ": " + want[file]; !slices.Contains(found, v) {
			t.Errorf("not found: %s", v)
		}
	}
	if len(found) != len(want) {
		t.Errorf("%d violations; want %d: %q", len(found), len(want), found)
	}
}
