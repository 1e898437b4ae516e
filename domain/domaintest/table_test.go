package domaintest_test

import (
	"maps"
	"testing"

	"github.com/pin-platform/pinworker/domain/domaintest"
)

type light string

const (
	red   light = "Red"
	green light = "Green"
)

// lamp is an aggregate with two states and one decision.
type lamp struct{ is light }

type turned struct{ to light }

type sameError struct{}

func (sameError) Error() string { return "it is so already" }

func (l lamp) Apply(event turned) lamp { return lamp{event.to} }

func (l lamp) Stop() ([]turned, error) {
	switch l.is {
	case green:
		return []turned{{red}}, nil
	case red:
		return nil, nil
	}
	return nil, sameError{}
}

func TestTable_CatchesWhatDoesNotMatchOrIsMissing(t *testing.T) {
	type (
		commands = domaintest.Commands[lamp, turned]
		outcomes = domaintest.Outcomes[light]
	)
	for name, test := range map[string]struct {
		spoil func(commands, outcomes)
		fails bool
	}{
		"the whole table":              {func(commands, outcomes) {}, false},
		"other events":                 {func(_ commands, o outcomes) { o[green]["Stop"] = "turned turned" }, true},
		"another error":                {func(_ commands, o outcomes) { o[""]["Stop"] = "otherError" }, true},
		"a state left out":             {func(_ commands, o outcomes) { delete(o, red) }, true},
		"a state too many":             {func(_ commands, o outcomes) { o["Blue"] = o[red] }, true},
		"a command left out":           {func(c commands, _ outcomes) { delete(c, "Stop") }, true},
		"an entry left out":            {func(_ commands, o outcomes) { delete(o[red], "Stop") }, true},
		"an entry too many":            {func(_ commands, o outcomes) { o[red]["Go"] = "" }, true},
		"a command more":               {func(c commands, _ outcomes) { c["Go"] = c["Stop"] }, true},
		"a command beside the methods": {func(c commands, o outcomes) { c["Go"] = c["Stop"]; maps.Copy(o, withGo()) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := commands{"Stop": lamp.Stop}
			o := outcomes{"": {"Stop": "sameError"}, red: {"Stop": ""}, green: {"Stop": "turned"}}
			test.spoil(c, o)
			r := &recorder{TB: t}
			domaintest.Table(r, func(state light) lamp { return lamp{state} }, c, o)
			if failed := len(r.failures) > 0; failed != test.fails {
				t.Errorf("failures %q; want any: %v", r.failures, test.fails)
			}
		})
	}
}

func withGo() domaintest.Outcomes[light] {
	return domaintest.Outcomes[light]{
		"": {"Stop": "sameError", "Go": "sameError"}, red: {"Stop": "", "Go": ""}, green: {"Stop": "turned", "Go": "turned"},
	}
}
