package pinworker_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// source is what the Go files of a folder hold, as far as tests are found by it.
type source struct {
	tests    []string // functions that are tests
	literals []string // strings
	imports  []string // folders of this module
}

// read reads a folder; its tests, or what they import.
func read(tree fs.FS, folder string, tests bool) (source, error) {
	var s source
	files, err := fs.Glob(tree, path.Join(folder, "*.go"))
	if err != nil {
		return s, err
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") != tests {
			continue
		}
		content, err := fs.ReadFile(tree, name)
		if err != nil {
			return s, err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, content, parser.SkipObjectResolution)
		if err != nil {
			return s, err
		}
		for _, i := range imports(file) {
			if i.ours {
				s.imports = append(s.imports, i.path)
			}
		}
		ast.Inspect(file, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil && strings.HasPrefix(n.Name.Name, "Test") {
					s.tests = append(s.tests, n.Name.Name)
				}
			case *ast.BasicLit:
				if n.Kind == token.STRING {
					s.literals = append(s.literals, must(strconv.Unquote(n.Value)))
				}
			}
			return true
		})
	}
	return s, nil
}

// missing returns what is named and does not exist. A subtest's name has to be a literal in its package's
// tests, or in a package that they import: a suite, a table, the name of a job.
func missing(tree fs.FS, named []proof) ([]string, error) {
	var found []string
	packages := make(map[string]source)
	for _, p := range named {
		s, known := packages[p.pkg]
		if !known {
			var err error
			if s, err = read(tree, p.pkg, true); err != nil {
				return nil, err
			}
			for _, folder := range s.imports {
				imported, err := read(tree, folder, false)
				if err != nil {
					return nil, err
				}
				s.literals = append(s.literals, imported.literals...)
			}
			packages[p.pkg] = s
		}
		test, subtests, _ := strings.Cut(p.test, "/")
		if !slices.Contains(s.tests, test) {
			found = append(found, p.String()+": there is no such test")
			continue
		}
		for subtest := range strings.SplitSeq(subtests, "/") {
			if subtest != "" && !slices.Contains(s.literals, subtest) {
				found = append(found, p.String()+": there is no such subtest")
			}
		}
	}
	return found, nil
}

// unproved returns what is named and did not run and pass, as the log of `go test -json` has it.
func unproved(log io.Reader, named []proof) ([]string, error) {
	type key struct{ Package, Test string }
	type event struct {
		Action string
		key
	}
	ended := make(map[key]string) // what became of a test: the last that is said of it
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		if slices.Contains([]string{"pass", "fail", "skip"}, e.Action) {
			ended[e.key] = e.Action
		}
	}
	var found []string
	for _, p := range named {
		became := ended[key{path.Join(module, p.pkg), strings.ReplaceAll(p.test, " ", "_")}]
		switch became {
		case "pass":
		case "":
			found = append(found, p.String()+": it did not run")
		default:
			found = append(found, p.String()+": "+became)
		}
	}
	return found, nil
}

// pages name the tests that prove what they say, in tables of so many cells.
var pages = map[string]int{"docs/tests.md": 2, "docs/observability.md": 3}

// named reads the pages.
func named(t *testing.T) (rows []row, tests []proof) {
	t.Helper()
	for name, cells := range pages {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		of, wrong := proofs(string(page), cells)
		for _, w := range wrong {
			t.Errorf("%s: %s", name, w)
		}
		if len(of) == 0 {
			t.Errorf("%s names no test", name)
		}
		rows = append(rows, of...)
	}
	return rows, testsOf(rows)
}

// testsOf are the tests of rows. One may prove several of them.
func testsOf(rows []row) (tests []proof) {
	for _, r := range rows {
		tests = append(tests, r.proofs...)
	}
	slices.SortFunc(tests, func(a, b proof) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(tests)
}

func TestDocs_WhatIsQuotedIsWhereThePageSays(t *testing.T) {
	rows, _ := named(t)
	for _, a := range astray(os.DirFS("."), rows) {
		t.Error(a)
	}
}

func TestDocs_EachNamedTestExists(t *testing.T) {
	_, tests := named(t)
	found, err := missing(os.DirFS("."), tests)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Error(f)
	}
}

// In its text a page may name the beginning of some tests' names as well, as `go test -run` does.
func TestDocs_EachTestThatAPageMentionsExists(t *testing.T) {
	declared, mentioned := regexp.MustCompile(`(?m)^func (Test\w+)\(`), regexp.MustCompile(`\bTest[A-Z]\w*`)
	var tests []string
	mentions := make(map[string]string) // the page of each
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") && path.Ext(name) != ".md" {
			return err
		}
		text, err := os.ReadFile(name)
		if path.Ext(name) == ".md" {
			for _, test := range mentioned.FindAllString(string(text), -1) {
				mentions[test] = name
			}
			return err
		}
		for _, test := range declared.FindAllStringSubmatch(string(text), -1) {
			tests = append(tests, test[1])
		}
		return err
	})
	if err != nil || len(mentions) == 0 {
		t.Fatal(mentions, err)
	}
	for mention, page := range mentions {
		if !slices.ContainsFunc(tests, func(test string) bool { return strings.HasPrefix(test, mention) }) {
			t.Errorf("%s: there is no test %s", page, mention)
		}
	}
}

// logEnv names a file with what `go test -json ./...` has said. .ci/run sets it.
const logEnv = "PINWORKER_TEST_LOG"

func TestDocs_EachNamedTestRanAndPassed(t *testing.T) {
	name := os.Getenv(logEnv)
	if name == "" {
		t.Skip("needs the log of a whole run: " + logEnv)
	}
	log, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() //nolint:errcheck // it was read
	_, tests := named(t)
	found, err := unproved(log, tests)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Error(f)
	}
}

// The checks are tested against a page that breaks each of their rules once.
func TestDocs_WhatIsNamedAndIsNotThereIsFound(t *testing.T) {
	const page = "# Tests\n\n| `TestInAHeader` | proved by |\n| --- | --- |\n" +
		"| sound, a literal in its own file | `domain/crm` `TestLead_Expire_INV_LEAD_4/expires a microsecond later` |\n" +
		"| sound, a literal in what it imports | `.` `TestDocs_EachNamedTestExists`; `adapters/memory` `TestLeads_KeepThePortsPromises/settled items are never claimed` *(leads)* |\n" +
		"| no such test | `domain/crm` `TestLead_Lives` |\n" +
		"| a helper, a method and a test of another package | `domain/crm` `given`, `TestArchitecture_ImportsPointInwardAndTheDomainIsPure` |\n" +
		"| no such package | `domain/sales` `TestLead_Expire_INV_LEAD_4` |\n" +
		"| no package at all | `TestLead_Expire_INV_LEAD_4` |\n" +
		"| no such subtest | `domain/crm` `TestLead_Expire_INV_LEAD_4/expires a second later` |\n" +
		"| nothing | later |\n" +
		"| `TestLead_Archive` in the wrong cell | `domain/crm` |\n" +
		"| three | cells | `domain/crm` `TestLead_Archive` |\n"
	rows, got := proofs(page, 2)
	var tests []proof // in the page's order
	for _, r := range rows {
		tests = append(tests, r.proofs...)
	}
	there, err := missing(os.DirFS("."), tests)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"proved by nothing: nothing",
		"proved by nothing: `TestLead_Archive` in the wrong cell",
		"3 cells, not 2: | three | cells | `domain/crm` `TestLead_Archive` |",
		"domain/crm TestLead_Lives: there is no such test",
		"given TestArchitecture_ImportsPointInwardAndTheDomainIsPure: there is no such test",
		"domain/sales TestLead_Expire_INV_LEAD_4: there is no such test",
		" TestLead_Expire_INV_LEAD_4: there is no such test",
		"domain/crm TestLead_Expire_INV_LEAD_4/expires a second later: there is no such subtest",
	}
	if got = append(got, there...); !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestDocs_WhatDidNotRunAndPassIsFound(t *testing.T) {
	said := func(action, pkg, test string) string {
		return fmt.Sprintf(`{"Time":"2026-03-01T12:00:00Z","Action":%q,"Package":%q,"Test":%q,"Elapsed":0.1}`, action, path.Join(module, pkg), test) + "\n"
	}
	log := said("run", "domain/crm", "TestRan") + said("output", "domain/crm", "TestRan") + said("pass", "domain/crm", "TestRan") +
		said("pass", "", "TestOfTheRoot") + said("pass", "domain/crm", "TestRan/one,_and_another") +
		said("skip", "domain/crm", "TestSkipped") + said("fail", "domain/crm", "TestFailed") +
		said("run", "domain/crm", "TestDied") + said("pass", "domain/crm", "TestOfAnotherPackage")
	found, err := unproved(strings.NewReader(log), []proof{
		{"domain/crm", "TestRan"},
		{".", "TestOfTheRoot"},
		{"domain/crm", "TestRan/one, and another"},
		{"domain/crm", "TestRan/a third"},
		{"domain/crm", "TestSkipped"},
		{"domain/crm", "TestFailed"},
		{"domain/crm", "TestDied"},
		{"domain/promotion", "TestOfAnotherPackage"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"domain/crm TestRan/a third: it did not run",
		"domain/crm TestSkipped: skip",
		"domain/crm TestFailed: fail",
		"domain/crm TestDied: it did not run",
		"domain/promotion TestOfAnotherPackage: it did not run",
	}
	if !slices.Equal(found, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(found, "\n"), strings.Join(want, "\n"))
	}
	if _, err := unproved(strings.NewReader("no JSON\n"), nil); err == nil {
		t.Error("a log that is none is taken for one")
	}
}
