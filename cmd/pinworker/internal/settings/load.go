package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
)

// Sources are what settings are read from.
type Sources struct {
	File    string   // path of a YAML file; empty: none
	Environ []string // NAME=value, as os.Environ returns
	Flags   []string // key=value, of --set
}

// Value is one effective setting, with its secret masked.
type Value struct {
	Key    string
	Value  string
	Origin string // default, or the file, variable or flag that it came from
}

// Problem is one thing that is wrong with the configuration.
type Problem struct {
	Key     string
	Value   string // as it was given; a secret is masked
	Origin  string
	Allowed string
}

func (p Problem) String() string {
	text := p.Key
	if p.Value != "" {
		text += fmt.Sprintf(" = %q", p.Value)
	}
	if p.Origin != "" {
		text += " (" + p.Origin + ")"
	}
	return text + ": " + p.Allowed
}

// Error is a configuration that cannot be used: every problem at once.
type Error struct{ Problems []Problem }

func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = "  " + p.String()
	}
	return "the configuration cannot be used:\n" + strings.Join(lines, "\n")
}

// given is a value as one source has it.
type given struct{ text, origin string }

// Need says what a command uses: it returns the keys of what is not set, or cannot be used, of that.
type Need func(Settings) (keys []string)

// EveryDatabase is the need of what serves: each context that has a job enabled has a database, its
// own or the common one.
func EveryDatabase(s Settings) []string {
	return unless(!slices.ContainsFunc(s.Served(), func(name string) bool { return s.DatabaseURL(name) == "" }), "database.url")
}

// AnyDatabase is the need of what works on all contexts that have a database: that one has.
func AnyDatabase(s Settings) []string { return unless(len(s.Configured()) > 0, "database.url") }

// DatabaseOf is the need of what works on one context.
func DatabaseOf(name string) Need {
	return func(s Settings) []string { return unless(s.DatabaseURL(name) != "", "contexts."+name+".database.url") }
}

// Kafka is the need of what talks to Kafka: brokers, files that can be read, and all of what only
// makes sense together.
func Kafka(s Settings) []string {
	tls, sasl := s.Kafka.TLS, s.Kafka.SASL
	needs := slices.Concat(unless(len(s.Kafka.Brokers) > 0, "kafka.brokers"), unless(tls.CA == "" || readable(tls.CA), "kafka.tls.ca"))
	if tls.Cert+tls.Key != "" {
		needs = slices.Concat(needs, unless(readable(tls.Cert), "kafka.tls.cert"), unless(readable(tls.Key), "kafka.tls.key"))
	}
	if sasl.Mechanism+sasl.User+sasl.PasswordFile != "" {
		needs = slices.Concat(needs, unless(sasl.Mechanism != "", "kafka.sasl.mechanism"), unless(sasl.User != "", "kafka.sasl.user"),
			unless(readable(sasl.PasswordFile), "kafka.sasl.password_file"))
	}
	return needs
}

// Relay is the need of what serves: Kafka, if the relay is enabled.
func Relay(s Settings) []string {
	if !s.Relay.Enabled {
		return nil
	}
	return Kafka(s)
}

func unless(met bool, key string) []string {
	if met {
		return nil
	}
	return []string{key}
}

// Load reads the sources for a command with some needs. The error is an *Error.
func Load(sources Sources, needs ...Need) (Settings, []Value, error) {
	var problems []Problem
	layers := []map[string]given{
		defaults(),
		fromFile(sources.File, &problems),
		fromEnvironment(sources.Environ, &problems),
		fromFlags(sources.Flags, &problems),
	}
	var s Settings
	set, bad := make(map[string]bool), make(map[string]bool)
	values := make([]Value, 0, len(table))
	for _, d := range table {
		var effective given
		for _, layer := range layers {
			if g, ok := layer[d.key]; ok {
				effective = g
			}
		}
		shown := d.show(effective.text)
		values = append(values, Value{Key: d.key, Value: shown, Origin: effective.origin})
		if effective.text == "" && effective.origin == origin {
			continue
		}
		set[d.key] = true
		if !d.set(&s, effective.text) {
			bad[d.key] = true
			problems = append(problems, Problem{d.key, shown, effective.origin, "allowed is " + d.allowed})
		}
	}
	for _, need := range needs {
		for _, key := range need(s) {
			at := slices.IndexFunc(table, func(d setting) bool { return d.key == key })
			switch {
			case bad[key]: // it was told above
			case set[key]:
				problems = append(problems, Problem{key, values[at].Value, values[at].Origin, "allowed is " + table[at].allowed})
			default:
				problems = append(problems, missing(key))
			}
		}
	}
	if !bad[lockTimeout] && !bad[statementTimeout] && s.Database.LockTimeout >= s.Database.StatementTimeout {
		at := slices.IndexFunc(values, func(v Value) bool { return v.Key == lockTimeout })
		problems = append(problems, Problem{lockTimeout, values[at].Value, values[at].Origin,
			"must be shorter than " + statementTimeout + ", which is " + s.Database.StatementTimeout.String()})
	}
	if len(problems) > 0 {
		return Settings{}, values, &Error{problems}
	}
	return s, values, nil
}

// origin of what nobody set.
const origin = "default"

const lockTimeout, statementTimeout = "database.lock_timeout", "database.statement_timeout"

func defaults() map[string]given {
	layer := make(map[string]given)
	for _, d := range table {
		layer[d.key] = given{d.fallback, origin}
	}
	return layer
}

func missing(key string) Problem {
	d := table[slices.IndexFunc(table, func(d setting) bool { return d.key == key })]
	unset := "is not set"
	if d.instead != "" {
		unset += ", and neither is " + d.instead
	}
	return Problem{Key: key, Allowed: unset + "; allowed is " + d.allowed + ". Set it in the file, as " + d.env() + " or with --set"}
}

func known(key string) bool {
	return slices.ContainsFunc(table, func(d setting) bool { return d.key == key })
}

func unknown(key, origin string) Problem {
	return Problem{Key: key, Origin: origin, Allowed: "there is no such setting; `pinworker config` lists them"}
}

// nesting parts the levels of a key while a file is read: no key holds it.
const nesting = "\x00"

func fromFile(path string, problems *[]Problem) map[string]given {
	layer := make(map[string]given)
	if path == "" {
		return layer
	}
	unreadable := func(err error) {
		if pathError := (*fs.PathError)(nil); errors.As(err, &pathError) {
			err = pathError.Err
		}
		*problems = append(*problems, Problem{Key: "--config or PINWORKER_CONFIG", Value: path, Allowed: "cannot be read: " + err.Error()})
	}
	text, err := os.ReadFile(path)
	if err != nil {
		unreadable(err)
		return layer
	}
	file := koanf.New(nesting)
	if err := file.Load(rawbytes.Provider(text), yaml.Parser()); err != nil {
		unreadable(err)
		return layer
	}
	keys := file.Keys()
	slices.Sort(keys)
	for _, nested := range keys {
		key, value := strings.ReplaceAll(nested, nesting, "."), file.Get(nested)
		switch {
		case value == nil && slices.ContainsFunc(table, func(d setting) bool { return strings.HasPrefix(d.key, key+".") }):
			continue // a section without anything in it
		case strings.Contains(nested, "."):
			*problems = append(*problems, Problem{Key: key, Origin: path, Allowed: "keys are nested in the file, not dotted"})
			continue
		case !known(key):
			*problems = append(*problems, unknown(key, path))
			continue
		}
		if list, ok := value.([]any); ok {
			parts := make([]string, len(list))
			for i, part := range list {
				parts[i] = fmt.Sprint(part)
			}
			value = strings.Join(parts, ",")
		}
		if value == nil {
			value = ""
		}
		layer[key] = given{fmt.Sprint(value), path}
	}
	return layer
}

// same reports whether two spellings mean the same.
func (d setting) same(a, b string) bool {
	var first, second Settings
	return a == b || d.set(&first, a) && d.set(&second, b) && reflect.DeepEqual(first, second)
}

// notSetting reports whether a variable that begins as ours do is no setting: where the file is,
// what tests are run against, and what Kubernetes adds.
func notSetting(name string) bool {
	return name == "PINWORKER_CONFIG" || strings.HasPrefix(name, "PINWORKER_TEST_") || serviceLink.MatchString(name)
}

// serviceLink matches what Kubernetes tells every pod of a Service that is named pinworker.
var serviceLink = regexp.MustCompile(`^PINWORKER_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_\d+_.*)?)$`)

func fromEnvironment(environ []string, problems *[]Problem) map[string]given {
	layer := make(map[string]given)
	variables := make(map[string]string)
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		variables[name] = value
	}
	names := make(map[string]bool)
	for _, d := range table {
		names[d.env()] = true
		own, isOwn := variables[d.env()]
		platform, isPlatform := variables[d.platform]
		isPlatform = isPlatform && d.platform != "" // some systems have variables without a name
		switch {
		case isOwn && isPlatform && !d.same(own, platform):
			*problems = append(*problems, Problem{d.key, d.show(own), d.env(),
				fmt.Sprintf("disagrees with %s = %q: set one of the two", d.platform, d.show(platform))})
		case isOwn:
			layer[d.key] = given{own, d.env()}
		case isPlatform:
			layer[d.key] = given{platform, d.platform}
		}
	}
	var strangers []string
	for name := range variables {
		if strings.HasPrefix(name, "PINWORKER_") && !names[name] && !notSetting(name) {
			strangers = append(strangers, name)
		}
	}
	slices.Sort(strangers)
	for _, name := range strangers {
		*problems = append(*problems, unknown(name, "environment"))
	}
	return layer
}

func fromFlags(flags []string, problems *[]Problem) map[string]given {
	layer := make(map[string]given)
	for _, flag := range flags {
		key, value, ok := strings.Cut(flag, "=")
		at := slices.IndexFunc(table, func(d setting) bool { return d.key == key })
		earlier, twice := layer[key]
		switch {
		case !ok:
			*problems = append(*problems, Problem{Key: "--set", Value: mask(flag), Allowed: "allowed is key=value"})
		case at < 0:
			*problems = append(*problems, unknown(key, "--set"))
		case twice && !table[at].same(earlier.text, value):
			d := table[at]
			*problems = append(*problems, Problem{key, d.show(value), "--set", "disagrees with --set " + key + "=" + d.show(earlier.text)})
		default:
			layer[key] = given{value, "--set"}
		}
	}
	return layer
}

// show is a value as people may see it.
func (d setting) show(text string) string {
	if d.secret && text != "" {
		return mask(text)
	}
	return text
}

// mask hides the passwords of a URL; of what is no URL, all but plain words.
func mask(text string) string {
	const hidden = "xxxxx" // as url.Redacted has it
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Host == "" && strings.ContainsAny(text, ":=@/"):
		return hidden
	}
	query := u.Query()
	for name := range query {
		if strings.Contains(name, "password") {
			query.Set(name, hidden)
		}
	}
	u.RawQuery = query.Encode()
	return u.Redacted()
}

// Describe returns the whole table, for people: key, default, what is allowed, what it is for.
func Describe() [][4]string {
	rows := make([][4]string, len(table))
	for i, d := range table {
		rows[i] = [4]string{d.key, d.fallback, d.allowed, d.about}
	}
	return rows
}
