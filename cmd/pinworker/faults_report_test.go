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

// reliabilityPage ends with the report of the full form, a row a fault.
const reliabilityPage = "../../docs/reliability.md"

const reportHead = `| fault | times | seen | committed | parked | in Kafka | of them repeated | lost, reordered or foreign | longest until delivered | took | seed, day, cores |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
`

// faultReport is what a run has seen.
type faultReport struct {
	seed uint64
	rows map[string]string // by fault
}

func (f *faultReport) add(name string, times int, r *trial, took time.Duration) {
	r.Helper()
	counts, findings := r.check()
	var seen []string
	for _, what := range slices.Sorted(maps.Keys(r.seen)) {
		seen = append(seen, fmt.Sprintf("%s: %d", what, r.seen[what]))
	}
	f.rows[name] = fmt.Sprintf("| %s | %d | %s | %d | %d | %d | %d | %d | %.1f s | %s | %d, %s, %d |\n", name, times, strings.Join(seen, "; "),
		counts.committed, counts.parked, counts.records, counts.repetitions, len(findings), r.longest.Seconds(), took.Round(time.Second),
		f.seed, time.Now().UTC().Format(time.DateOnly), runtime.NumCPU())
}

func (f *faultReport) leaveOut(name string, why error) {
	f.rows[name] = fmt.Sprintf("| %s | 0 | not tried: %v | | | | | | | | |\n", name, why)
}

// text is the report as Markdown, each fault in its place.
func (f *faultReport) text() string {
	text := reportHead
	for _, fault := range faults() {
		text += f.rows[fault.name]
	}
	return text
}

// write puts the rows where the last ones of the same faults were.
func (f *faultReport) write(t *testing.T) {
	t.Helper()
	page, err := os.ReadFile(reliabilityPage)
	if err != nil {
		t.Fatal(err)
	}
	about, before, found := strings.Cut(string(page), reportHead)
	if !found {
		t.Fatalf("%s does not end with the report", reliabilityPage)
	}
	all := faultReport{rows: make(map[string]string)}
	for line := range strings.Lines(before) {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		all.rows[name] = line
	}
	maps.Copy(all.rows, f.rows)
	if err := os.WriteFile(reliabilityPage, []byte(about+all.text()), 0o600); err != nil {
		t.Fatal(err)
	}
}
