package main

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// runbook is a page of docs/runbooks, as its README describes the shape.
type runbook struct {
	firstLook []typed
	causes    []symptom // in the order of their table
	mend      map[string][]typed
	mended    []typed // repeated until they show what they should
}

// typed is a command, and the lines that the page says it shows; nil where it does not say.
type typed struct {
	command string
	shows   []string
}

// symptom is a row of the table of causes.
type symptom struct {
	seen []string // lines that the first look shows
	name string   // of the section that mends it
}

var (
	linkToSection = regexp.MustCompile(`\[([^]]+)\]\(#[^)]+\)`)
	codeSpan      = regexp.MustCompile("`([^`]+)`")
)

// readRunbook takes a page apart. What is outside of its shape is told as well.
func readRunbook(page string) (r runbook, wrong []string) {
	r.mend = make(map[string][]typed)
	section, subsection, fence := "", "", ""
	sections := []string{"Meaning", "Severity", "First look", "Causes", "Mend", "Mended when"}
	var seen []string
	add := func(t typed) {
		switch section {
		case "First look":
			r.firstLook = append(r.firstLook, t)
		case "Mend":
			r.mend[subsection] = append(r.mend[subsection], t)
		case "Mended when":
			r.mended = append(r.mended, t)
		default:
			wrong = append(wrong, "a command outside of First look, Mend, Mended when: "+t.command)
		}
	}
	var last *typed
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, " \n")
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case strings.HasPrefix(line, "```"):
			if last != nil {
				add(*last)
				last = nil
			}
			if fence == "" {
				fence = strings.TrimPrefix(line, "```")
				if fence != "sh" && fence != "console" {
					wrong = append(wrong, "a block that is neither sh nor console: "+line)
				}
			} else {
				fence = ""
			}
		case fence == "sh":
			add(typed{command: line})
		case fence == "console" && isCommand:
			if last != nil {
				add(*last)
			}
			last = &typed{command: command, shows: []string{}}
		case fence == "console" && last != nil && strings.HasSuffix(last.command, `\`):
			last.command += "\n" + line
		case fence == "console" && last != nil:
			last.shows = append(last.shows, line)
		case fence != "":
			wrong = append(wrong, "a block that does not begin with a command: "+line)
		case strings.HasPrefix(line, "## "):
			section, subsection = strings.TrimPrefix(line, "## "), ""
			seen = append(seen, section)
		case strings.HasPrefix(line, "### "):
			subsection = strings.TrimPrefix(line, "### ")
			r.mend[subsection] = nil // there may be nothing to type
		case section == "Causes" && strings.HasPrefix(line, "|"):
			cells := strings.Split(strings.Trim(line, "| "), " | ")
			link := linkToSection.FindStringSubmatch(line)
			if link == nil {
				continue // the heading
			}
			s := symptom{name: link[1]}
			for _, span := range codeSpan.FindAllStringSubmatch(cells[0], -1) {
				s.seen = append(s.seen, strings.ReplaceAll(span[1], `\|`, "|")) // as a table's cell has it
			}
			r.causes = append(r.causes, s)
		}
	}
	if !slices.Equal(seen, sections) {
		wrong = append(wrong, fmt.Sprintf("sections %q; want %q", seen, sections))
	}
	return r, wrong
}

// What stands in angle brackets in a line stands for something else on each system. The same word is the
// same thing wherever the page has it, but for these.
var fleeting = []string{"<time>", "<n>", "<age>"}

var (
	placeholder = regexp.MustCompile(`<[a-z][a-z0-9 -]*>|\.\.\.`)
	blanks      = regexp.MustCompile(`\s+`)
)

// pattern is a regular expression for a line of a page, whose spaces may be more or less, and the words
// that are still to be learnt from it.
func pattern(line string, known map[string]string) (expression string, learnt []string) {
	rest := strings.TrimSpace(blanks.ReplaceAllString(line, " "))
	for rest != "" {
		at := placeholder.FindStringIndex(rest)
		if at == nil {
			at = []int{len(rest), len(rest)}
		}
		word := rest[at[0]:at[1]]
		expression += regexp.QuoteMeta(rest[:at[0]])
		rest = rest[at[1]:]
		value, isKnown := known[word]
		switch {
		case word == "":
		case word == "...":
			expression += `.*`
		case slices.Contains(fleeting, word):
			expression += `\S+`
		case isKnown:
			expression += regexp.QuoteMeta(value)
		default:
			expression += `(\S+)`
			learnt = append(learnt, word)
		}
	}
	return expression, learnt
}

// fits compares what a command printed with what the page shows, a line `...` being any number of
// lines, and learns what the placeholders stand for.
func fits(output string, shows []string, known map[string]string) bool {
	shown := ""
	for _, line := range shows {
		shown += line + "\n"
	}
	return search(`^`, shown, `$`, flat(output), known)
}

// search looks for what a page shows between two regular expressions, and learns what its placeholders
// stand for.
func search(before, shown, after, text string, known map[string]string) bool {
	expression, learnt := before, []string{}
	for line := range strings.Lines(shown) {
		if line == "...\n" {
			expression += `(?:.*\n)*?`
			continue
		}
		e, l := pattern(line, known)
		if expression += e; strings.HasSuffix(line, "\n") {
			expression += "\n"
		}
		learnt = append(learnt, l...)
	}
	match := regexp.MustCompile(expression + after).FindStringSubmatch(text)
	if match == nil {
		return false
	}
	values := maps.Clone(known)
	for i, word := range learnt {
		if before, twice := values[word]; twice && before != match[i+1] {
			return false
		}
		values[word] = match[i+1]
	}
	maps.Copy(known, values)
	return true
}

// flat is text with one space wherever there are some.
func flat(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimSpace(blanks.ReplaceAllString(line, " ")) + "\n")
	}
	return b.String()
}

func TestRunbook_WhatIsOutsideOfItsShapeIsFound(t *testing.T) {
	const page = "# An alert\n## Meaning\n```sh\npinworker backlog\n```\n## First look\n```console\nno command\n$ pinworker doctor \\\n  --json\n{\n```\n" +
		"```yaml\na: b\n```\n## Causes\n| shows | cause |\n| --- | --- |\n| `one`, `two` | [It is away](#it-is-away) |\n" +
		"## Mend\n### It is away\n```console\n$ true\n$ false\nno\n```\n## Mended when\n"
	r, wrong := readRunbook(page)
	if want := []string{
		"a command outside of First look, Mend, Mended when: pinworker backlog",
		"a block that does not begin with a command: no command",
		"a block that is neither sh nor console: ```yaml",
		"a block that does not begin with a command: a: b",
		`sections ["Meaning" "First look" "Causes" "Mend" "Mended when"]; want ["Meaning" "Severity" "First look" "Causes" "Mend" "Mended when"]`,
	}; !slices.Equal(wrong, want) {
		t.Errorf("wrong is\n%s\nwant\n%s", strings.Join(wrong, "\n"), strings.Join(want, "\n"))
	}
	want := runbook{
		firstLook: []typed{{"pinworker doctor \\\n  --json", []string{"{"}}},
		causes:    []symptom{{[]string{"one", "two"}, "It is away"}},
		mend:      map[string][]typed{"It is away": {{"true", []string{}}, {"false", []string{"no"}}}},
	}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("read\n%+v\nwant\n%+v", r, want)
	}
}

func TestRunbook_WhatIsPrintedFitsWhatIsShownButForItsPlaceholders(t *testing.T) {
	for name, test := range map[string]struct {
		output, shows string
		fits          bool
	}{
		"the same":                    {"a b\n", "a b\n", true},
		"wider columns":               {"  a     b  \n", "a b\n", true},
		"another line":                {"a c\n", "a b\n", false},
		"a line more":                 {"a b\nc\n", "a b\n", false},
		"a line less":                 {"a b\n", "a b\nc\n", false},
		"nothing":                     {"", "", true},
		"something, and nothing said": {"a\n", "", false},
		"any lines":                   {"a\nb\nc\nd\n", "a\n...\nd\n", true},
		"none of them":                {"a\nd\n", "a\n...\nd\n", true},
		"the rest of a line":          {"a b c\n", "a ...\n", true},
		"no regular expression":       {"abc\n", "a.c\n", false},
		"a word":                      {"lead 7\nlead 7\n", "lead <lead>\nlead <lead>\n", true},
		"a word that is two":          {"lead 7\nlead 8\n", "lead <lead>\nlead <lead>\n", false},
		"a word that was known":       {"lead 8\n", "lead <known>\n", false},
		"times":                       {"1 2\n", "<time> <time>\n", true},
	} {
		known := map[string]string{"<known>": "7"}
		if got := fits(test.output, strings.FieldsFunc(test.shows, func(r rune) bool { return r == '\n' }), known); got != test.fits {
			t.Errorf("%s: %q fits %q: %v", name, test.output, test.shows, got)
		}
		if name == "a word" && known["<lead>"] != "7" {
			t.Errorf("%s: %v is known; want the lead", name, known)
		}
	}
}
