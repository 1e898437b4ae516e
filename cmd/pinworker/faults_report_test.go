package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// faultReport is what a run has seen, as a table for docs/reliability.md.
type faultReport struct {
	seed uint64
	rows []string
}

func (r *faultReport) add(name string, times int, seen map[string]int, d delivery, took time.Duration) {
	var what []string
	for _, s := range slices.Sorted(maps.Keys(seen)) {
		what = append(what, fmt.Sprintf("%s: %d", s, seen[s]))
	}
	r.rows = append(r.rows, fmt.Sprintf("| %s | %d | %s | %d | %d | %d | %d | %s |", name, times, strings.Join(what, "; "),
		d.committed, d.parked, d.records, d.repetitions, took.Round(time.Second)))
}

func (r *faultReport) table() string {
	return "| fault | times | seen | committed | parked | in Kafka | of them repeated | took |\n" +
		"| --- | --- | --- | --- | --- | --- | --- | --- |\n" + strings.Join(r.rows, "\n") + "\n"
}
