package pinworker_test

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// proof is a test that a page names.
type proof struct {
	pkg  string // relative to the module's root
	test string // Test..., and behind slashes its subtest, as the source spells it
}

func (p proof) String() string { return p.pkg + " " + p.test }

var (
	delimiters = regexp.MustCompile(`^[| -]+$`)
	codeSpan   = regexp.MustCompile("`([^`]+)`")
)

// row is one of a page's tables: what is asked for, where it is, if the page says so, and what proves it.
type row struct {
	says, where string
	proofs      []proof
}

// proofs reads the tables of a page, of so many cells: the last one names a package, its tests, another
// package, its tests. What is wrong with the page itself, is told as well.
func proofs(page string, cells int) (rows []row, wrong []string) {
	header := true
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		switch {
		case !strings.HasPrefix(line, "|"):
			header = true
			continue
		case header || delimiters.MatchString(line):
			header = false
			continue
		}
		cell := strings.Split(strings.Trim(line, "|"), "|")
		if len(cell) != cells {
			wrong = append(wrong, fmt.Sprintf("%d cells, not %d: %s", len(cell), cells, line))
			continue
		}
		r, pkg := row{says: cell[0]}, ""
		if cells == 3 {
			r.where = strings.TrimSpace(cell[1])
		}
		for _, span := range codeSpan.FindAllStringSubmatch(cell[cells-1], -1) {
			if strings.HasPrefix(span[1], "Test") {
				r.proofs = append(r.proofs, proof{pkg, span[1]})
			} else {
				pkg = span[1]
			}
		}
		if len(r.proofs) == 0 {
			wrong = append(wrong, "proved by nothing: "+strings.TrimSpace(cell[0]))
		}
		rows = append(rows, r)
	}
	return rows, wrong
}

// astray returns what rows quote and is not where they say: in one of the files, or in its name.
func astray(tree fs.FS, rows []row) (found []string) {
	for _, r := range rows {
		text := ""
		for _, file := range codeSpan.FindAllStringSubmatch(r.where, -1) {
			content, err := fs.ReadFile(tree, file[1])
			if err != nil {
				found = append(found, err.Error())
			}
			text += file[1] + string(content)
		}
		for _, quoted := range codeSpan.FindAllStringSubmatch(r.says, -1) {
			if text != "" && !strings.Contains(text, quoted[1]) {
				found = append(found, quoted[1]+" is not in "+r.where)
			}
		}
	}
	return found
}

func TestDocs_WhatIsNotWhereThePageSaysIsFound(t *testing.T) {
	const proved = " | `.` `TestDocs_EachNamedTestExists` |\n"
	const page = "| what | where | proved by |\n| --- | --- | --- |\n" +
		"| `proofs`, `astray` | `docs_test.go`" + proved + "| `proofs`, `violations` | `docs_test.go`, `architecture_test.go`" + proved +
		"| `docs_test` | `docs_test.go`" + proved + "| `violations` | `docs_test.go`" + proved + "| anything | `none.go`" + proved
	rows, wrong := proofs(page, 3)
	want := []string{"violations is not in `docs_test.go`", "open none.go: file does not exist"}
	tree := fstest.MapFS{"docs_test.go": {Data: []byte("proofs astray")}, "architecture_test.go": {Data: []byte("violations")}}
	if got := slices.Concat(wrong, astray(tree, rows)); !slices.Equal(got, want) {
		t.Errorf("found %q; want %q", got, want)
	}
}
