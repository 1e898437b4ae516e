package main

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// reliabilityPage ends with the report of the last full run.
const (
	reliabilityPage = "../../docs/reliability.md"
	reportHeading   = "## The last full run\n"
)

// faultReport is what a run has seen.
type faultReport struct {
	seed  uint64
	begun time.Time
	rows  []string
}

func (f *faultReport) add(name string, times int, r *trial, took time.Duration) {
	r.Helper()
	counts, findings := r.check()
	var seen []string
	for _, what := range slices.Sorted(maps.Keys(r.seen)) {
		seen = append(seen, fmt.Sprintf("%s: %d", what, r.seen[what]))
	}
	f.rows = append(f.rows, fmt.Sprintf("| %s | %d | %s | %d | %d | %d | %d | %d | %.1f s | %s |", name, times, strings.Join(seen, "; "),
		counts.committed, counts.parked, counts.records, counts.repetitions, len(findings), r.longest.Seconds(), took.Round(time.Second)))
}

func (f *faultReport) leaveOut(name string, why error) {
	f.rows = append(f.rows, fmt.Sprintf("| %s | 0 | not tried: %v | | | | | | | |", name, why))
}

// text is the report as Markdown.
func (f *faultReport) text() string {
	return fmt.Sprintf(`
%s, %d cores, %s in all; %s=%d repeats its choices.

| fault | times | seen | committed | parked | in Kafka | of them repeated | lost, reordered or foreign | longest until delivered | took |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
%s
`, f.begun.UTC().Format("2 January 2006"), runtime.NumCPU(), time.Since(f.begun).Round(time.Second), seedEnv, f.seed, strings.Join(f.rows, "\n"))
}

// write puts the report where the last one was.
func (f *faultReport) write(t *testing.T) {
	t.Helper()
	page, err := os.ReadFile(reliabilityPage)
	if err != nil {
		t.Fatal(err)
	}
	about, _, found := strings.Cut(string(page), reportHeading)
	if !found {
		t.Fatalf("%s has no %q", reliabilityPage, reportHeading)
	}
	if err := os.WriteFile(reliabilityPage, []byte(about+reportHeading+f.text()), 0o600); err != nil {
		t.Fatal(err)
	}
}
