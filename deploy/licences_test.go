package deploy_test

import (
	"debug/buildinfo"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/licensecheck"
)

var update = flag.Bool("update", false, "write docs/licences.md anew")

// allowed are the licences that ask for no more than to be named, and for changes of a file to be shown.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-2-Clause-Views", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0"}

// readByUs are texts that are in no catalogue.
var readByUs = map[string]string{"github.com/xi2/xz": "public domain"}

func TestLicences_OfWhatIsInTheProgramAreAllowedAndListed(t *testing.T) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	page := "# Licences\n\nOf the modules that are in the program, as their own texts have it. Written by\n" +
		"`cd deploy && go test -run Licences -update`; CI fails where it is not up to date, or where a licence is not among\n" +
		strings.Join(allowed, ", ") + ".\n\n| module | licence |\n| --- | --- |\n"
	folders := folders(t)
	for _, module := range info.Deps {
		licence, known := readByUs[module.Path]
		if !known {
			licences := licencesIn(t, folders[module.Path])
			if len(licences) == 0 || slices.ContainsFunc(licences, func(l string) bool { return !slices.Contains(allowed, l) }) {
				t.Errorf("%s: licences %q; allowed are %q", module.Path, licences, allowed)
			}
			licence = strings.Join(licences, ", ")
		}
		page += fmt.Sprintf("| `%s` | %s |\n", module.Path, licence)
	}
	const name = "../docs/licences.md"
	if *update {
		if err := os.WriteFile(name, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(name); err != nil || string(text) != page {
		t.Errorf("docs/licences.md is not up to date (%v): cd deploy && go test -run Licences -update", err)
	}
}

// folders are where the modules of the worker lie.
func folders(t *testing.T) map[string]string {
	t.Helper()
	list := exec.Command("go", "list", "-m", "-json=Path,Dir", "all")
	list.Dir = ".."
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	for modules := json.NewDecoder(strings.NewReader(string(out))); ; {
		var module struct{ Path, Dir string }
		if err := modules.Decode(&module); err == io.EOF {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		found[module.Path] = module.Dir
	}
}

// licencesIn are those of a module's own texts.
func licencesIn(t *testing.T, folder string) (licences []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "[LlCc][IiOo][CcPp][EeYy]*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if filepath.Ext(file) == ".go" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range licensecheck.Scan(text).Match {
			licences = append(licences, match.ID)
		}
	}
	slices.Sort(licences)
	return slices.Compact(licences)
}
