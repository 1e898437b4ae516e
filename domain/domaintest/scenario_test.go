package domaintest_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/pin-platform/pinworker/domain/domaintest"
)

// counter is an aggregate as small as can be.
type counter struct{ n int }

func (c counter) Apply(by int) counter { return counter{c.n + by} }

// recorder is a testing.TB that fails without ending the test around it.
type recorder struct {
	testing.TB
	failures []string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...) }

var errRefused = errors.New("refused")

func TestScenario_CatchesWhatDoesNotMatch(t *testing.T) {
	calls := 0
	for name, test := range map[string]struct {
		decide func(counter) ([]int, error)
		expect func(domaintest.Decision[counter, int])
		fails  bool
	}{
		"the right events":             {func(c counter) ([]int, error) { return []int{c.n}, nil }, func(d domaintest.Decision[counter, int]) { d.Then(3) }, false},
		"other events":                 {func(counter) ([]int, error) { return []int{9}, nil }, func(d domaintest.Decision[counter, int]) { d.Then(3) }, true},
		"an event too many":            {func(counter) ([]int, error) { return []int{3, 4}, nil }, func(d domaintest.Decision[counter, int]) { d.Then(3) }, true},
		"nothing, as expected":         {func(counter) ([]int, error) { return nil, nil }, domaintest.Decision[counter, int].ThenNothing, false},
		"an event instead of nothing":  {func(counter) ([]int, error) { return []int{3}, nil }, domaintest.Decision[counter, int].ThenNothing, true},
		"a refusal instead of nothing": {func(counter) ([]int, error) { return nil, errRefused }, domaintest.Decision[counter, int].ThenNothing, true},
		"the right refusal":            {func(counter) ([]int, error) { return nil, errRefused }, func(d domaintest.Decision[counter, int]) { d.ThenRefused(errRefused) }, false},
		"no refusal":                   {func(counter) ([]int, error) { return nil, nil }, func(d domaintest.Decision[counter, int]) { d.ThenRefused(errRefused) }, true},
		"a refusal with an event":      {func(counter) ([]int, error) { return []int{3}, errRefused }, func(d domaintest.Decision[counter, int]) { d.ThenRefused(errRefused) }, true},
		"a decision that is not pure":  {func(counter) ([]int, error) { calls++; return []int{calls}, nil }, func(domaintest.Decision[counter, int]) {}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{TB: t}
			test.expect(domaintest.Given[counter](r, 1, 2).When(test.decide))
			if failed := len(r.failures) > 0; failed != test.fails {
				t.Errorf("failures %q; want any: %v", r.failures, test.fails)
			}
		})
	}
}
