package portstest

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/app/verify"
	"github.com/pin-platform/pinworker/ports"
)

// entry returns one aggregate as a ledger has it.
func entry[A, E any](t *testing.T, ledger ports.Ledger[A, E], id uuid.UUID) ports.Entry[A, E] {
	t.Helper()
	for e, err := range ledger.Entries(t.Context(), time.Time{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.ID == id {
			return e
		}
	}
	t.Fatalf("the ledger has no %s", id)
	panic("unreachable")
}

// check reports every row that is not the fold of its stream, and returns how many lack one.
func check[A verify.Aggregate[A, S, E], S, E any](t *testing.T, ledger ports.Ledger[A, E]) int {
	t.Helper()
	report, err := verify.Run(t.Context(), ledger, time.Time{}, func(f verify.Finding) {
		t.Errorf("%s: %s", f.ID, f.What)
	})
	if err != nil {
		t.Error(err)
	}
	return report.Ahead
}
