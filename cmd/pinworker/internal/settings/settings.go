// Package settings reads the worker's configuration: defaults, then a YAML file, then the
// environment, then --set flags; the later wins. Every setting is one row of a table: its
// key, its default, what is allowed. Nothing is touched before all of it is found sound.
package settings

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Settings are the effective values.
type Settings struct {
	Database struct {
		URL              string
		MaxConnections   int
		StatementTimeout time.Duration
		LockTimeout      time.Duration
	}
	ownDatabases map[string]string // of contexts that do not use Database.URL
	Kafka        struct {
		Brokers  []string
		ClientID string
		TLS      struct {
			Enabled       bool
			CA, Cert, Key string
		}
		SASL struct{ Mechanism, User, PasswordFile string }
	}
	ReminderDispatch   Job
	AppointmentTimeout Job
	ExpirePromotions   Job
	LeadExpiration     Job
	Relay              struct {
		Enabled       bool
		BatchSize     int
		PollInterval  time.Duration
		ShutdownGrace time.Duration
	}
	HTTPListen string
	Log        struct {
		Level  slog.Level
		Format string
	}
	Tracing struct {
		Endpoint    string
		SampleRatio float64
	}
}

// Job is what is set of a job.
type Job struct {
	Enabled   bool
	Interval  time.Duration
	BatchSize int
	// CatchUp lets another cycle follow at once where one filled its batch; leads need none.
	CatchUp bool
	// MaxBatchesPerCycle is the cap of a drain of leads.
	MaxBatchesPerCycle int
	// ItemsPerTransaction is how many appointments commit together.
	ItemsPerTransaction int
}

// contexts are the names of what may have a database of its own.
var contexts = []string{"calendar", "promotion", "crm"}

// Served are the contexts that have a job enabled.
func (s Settings) Served() []string {
	served := map[string]bool{
		"calendar":  s.ReminderDispatch.Enabled || s.AppointmentTimeout.Enabled,
		"promotion": s.ExpirePromotions.Enabled,
		"crm":       s.LeadExpiration.Enabled,
	}
	return slices.DeleteFunc(slices.Clone(contexts), func(name string) bool { return !served[name] })
}

// Configured are the contexts that have a database, whether or not a job of theirs is enabled.
func (s Settings) Configured() []string {
	return slices.DeleteFunc(slices.Clone(contexts), func(name string) bool { return s.DatabaseURL(name) == "" })
}

// DatabaseURL is a context's own database, or the common one; "" where there is neither.
func (s Settings) DatabaseURL(contextName string) string {
	return cmp.Or(s.ownDatabases[contextName], s.Database.URL)
}

// setting is one row of the table. set parses the text into s, or reports that it is not what
// is allowed.
type setting struct {
	key      string
	fallback string
	allowed  string
	about    string
	secret   bool   // never shown whole
	instead  string // the setting that is taken where this one is not set
	platform string // the name that the platform's deployments use, an environment variable
	set      func(s *Settings, text string) bool
}

// env is the setting's name as an environment variable.
func (d setting) env() string {
	return "PINWORKER_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(d.key))
}

// minConnections is what a context uses at once: its jobs, a unit of work each (2 in the calendar); its
// relay, a transaction for each of 10 lanes, held while Kafka is waited for, and the look for more, with
// another one beside it under an old snapshot; the watch on its outbox; a probe. With fewer, whoever comes
// last waits for Kafka as well: a probe would say that the database cannot be reached.
const minConnections = 2 + 10 + 2 + 1 + 1

var table = slices.Concat([]setting{
	{
		key: "database.url", secret: true, allowed: "a PostgreSQL URL, postgres://user:password@host:port/database",
		about: "the database of every context that has none of its own",
		set:   func(s *Settings, v string) bool { s.Database.URL = v; return postgresURL(v) },
	},
	{
		key: "database.max_connections", fallback: "16", allowed: fmt.Sprintf("a whole number from %d to 1000", minConnections),
		about: "connections of each context's pool",
		set:   func(s *Settings, v string) bool { return number(v, minConnections, 1000, &s.Database.MaxConnections) },
	},
	{
		key: "database.statement_timeout", fallback: "20s", allowed: "a duration from 1s to 10m, longer than database.lock_timeout",
		about: "how long one statement may take",
		set: func(s *Settings, v string) bool {
			return duration(v, time.Second, 10*time.Minute, &s.Database.StatementTimeout)
		},
	},
	{
		key: "database.lock_timeout", fallback: "5s", allowed: "a duration from 10ms to 5m",
		about: "how long an operation waits for a row, and appointment-timeout for an item's reminders; jobs pass over what else is held",
		set: func(s *Settings, v string) bool {
			return duration(v, 10*time.Millisecond, 5*time.Minute, &s.Database.LockTimeout)
		},
	},
	contextDatabase("calendar"), contextDatabase("promotion"), contextDatabase("crm"),
	{
		key: "kafka.brokers", allowed: "host:port, several of them parted by commas",
		about: "where to find Kafka first",
		set:   func(s *Settings, v string) bool { return addresses(v, &s.Kafka.Brokers) },
	},
	{
		key: "kafka.client_id", fallback: "pinworker", allowed: "letters, digits, '.', '_' and '-'",
		about: "how Kafka knows this worker",
		set:   func(s *Settings, v string) bool { s.Kafka.ClientID = v; return clientID(v) },
	},
	{
		key: "kafka.tls.enabled", fallback: "false", allowed: "true or false",
		about: "whether the brokers are talked to over TLS",
		set:   func(s *Settings, v string) bool { return boolean(v, &s.Kafka.TLS.Enabled) },
	},
	{
		key: "kafka.tls.ca", allowed: "a PEM file",
		about: "who signed the brokers' certificates; those whom the system trusts where it is not set",
		set:   func(s *Settings, v string) bool { s.Kafka.TLS.CA = v; return v != "" },
	},
	{
		key: "kafka.tls.cert", allowed: "a PEM file",
		about: "our certificate, for brokers that ask for one; with kafka.tls.key",
		set:   func(s *Settings, v string) bool { s.Kafka.TLS.Cert = v; return v != "" },
	},
	{
		key: "kafka.tls.key", allowed: "a PEM file",
		about: "our certificate's key",
		set:   func(s *Settings, v string) bool { s.Kafka.TLS.Key = v; return v != "" },
	},
	{
		key: "kafka.sasl.mechanism", allowed: "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512",
		about: "how to prove who we are; with kafka.sasl.user and kafka.sasl.password_file",
		set: func(s *Settings, v string) bool {
			s.Kafka.SASL.Mechanism = v
			return slices.Contains([]string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}, v)
		},
	},
	{
		key: "kafka.sasl.user", allowed: "a name",
		about: "Kafka's user",
		set:   func(s *Settings, v string) bool { s.Kafka.SASL.User = v; return true },
	},
	{
		key: "kafka.sasl.password_file", allowed: "a file that holds the password alone",
		about: "the user's password",
		set:   func(s *Settings, v string) bool { s.Kafka.SASL.PasswordFile = v; return v != "" },
	},
}, pollingJob(pollingDefaults{
	name: "reminder-dispatch", items: "reminders that commit together, and a cycle takes", platformBatch: "ReminderDispatchOptions__BatchSize",
	of: func(s *Settings) *Job { return &s.ReminderDispatch },
}), pollingJob(pollingDefaults{
	name: "appointment-timeout", items: "appointments that a cycle takes", platformBatch: "AppointmentTimeoutOptions__BatchSize",
	of: func(s *Settings) *Job { return &s.AppointmentTimeout },
}), []setting{
	{
		key: "jobs.appointment-timeout.items_per_transaction", fallback: "1", allowed: "a whole number from 1 to 100",
		about: "appointments that commit together; more is faster, and one that fails still fails alone",
		set:   func(s *Settings, v string) bool { return number(v, 1, 100, &s.AppointmentTimeout.ItemsPerTransaction) },
	},
}, pollingJob(pollingDefaults{
	name: "expire-promotions", items: "purchases that commit together, and a cycle takes", narrow: true,
	of: func(s *Settings) *Job { return &s.ExpirePromotions },
}), []setting{
	enabled("lead-expiration", func(s *Settings) *Job { return &s.LeadExpiration }),
	{
		key: "jobs.lead-expiration.interval", fallback: "1h", allowed: "a duration from 1s to 168h, as 1h30m or 01:30:00",
		about: "from one cycle's tick to the next", platform: "Crm__Jobs__LeadExpiration__Period",
		set: func(s *Settings, v string) bool {
			return duration(v, time.Second, 7*24*time.Hour, &s.LeadExpiration.Interval)
		},
	},
	{
		key: "jobs.lead-expiration.batch_size", fallback: "500", allowed: "a whole number from 1 to 10000",
		about: "leads that commit together", platform: "Crm__Jobs__LeadExpiration__BatchSize",
		set: func(s *Settings, v string) bool { return number(v, 1, 10000, &s.LeadExpiration.BatchSize) },
	},
	{
		key: "jobs.lead-expiration.max_batches_per_cycle", fallback: "200", allowed: "a whole number from 1 to 100000",
		about: "the cap of one cycle; the rest waits for the next", platform: "Crm__Jobs__LeadExpiration__MaxBatchesPerCycle",
		set: func(s *Settings, v string) bool { return number(v, 1, 100000, &s.LeadExpiration.MaxBatchesPerCycle) },
	},
	{
		key: "relay.enabled", fallback: "true", allowed: "true or false",
		about: "whether serve carries the outbox to Kafka",
		set:   func(s *Settings, v string) bool { return boolean(v, &s.Relay.Enabled) },
	},
	{
		key: "relay.batch_size", fallback: "500", allowed: "a whole number from 1 to 10000",
		about: "messages a round of one lane",
		set:   func(s *Settings, v string) bool { return number(v, 1, 10000, &s.Relay.BatchSize) },
	},
	{
		key: "relay.poll_interval", fallback: "1s", allowed: "a duration from 50ms to 1m",
		about: "how often an idle relay looks, if no job wakes it",
		set: func(s *Settings, v string) bool {
			return duration(v, 50*time.Millisecond, time.Minute, &s.Relay.PollInterval)
		},
	},
	{
		key: "relay.shutdown_grace", fallback: "20s", allowed: "a duration from 0s to 10m",
		about: "how long a stop waits for messages in flight",
		set:   func(s *Settings, v string) bool { return duration(v, 0, 10*time.Minute, &s.Relay.ShutdownGrace) },
	},
	{
		key: "http.listen", fallback: ":8080", allowed: "an address, host:port or :port",
		about: "where /livez, /readyz and /metrics are served",
		set:   func(s *Settings, v string) bool { s.HTTPListen = v; return address(v) },
	},
	{
		key: "log.level", fallback: "info", allowed: "debug, info, warn or error",
		about: "what is logged; debug names every item",
		set: func(s *Settings, v string) bool {
			return slices.Contains([]string{"debug", "info", "warn", "error"}, v) && s.Log.Level.UnmarshalText([]byte(v)) == nil
		},
	},
	{
		key: "log.format", fallback: "json", allowed: "json or text",
		about: "how it is logged, on standard error",
		set:   func(s *Settings, v string) bool { s.Log.Format = v; return v == "json" || v == "text" },
	},
	{
		key: "tracing.endpoint", allowed: "a URL, http://host:port or https://host:port, with a path or without, and without a user",
		about: "the OTLP receiver (over HTTP) that spans are sent to, none where it is not set; without a path, /v1/traces",
		set:   func(s *Settings, v string) bool { return otlp(v, &s.Tracing.Endpoint) },
	},
	{
		key: "tracing.sample_ratio", fallback: "1", allowed: "a number from 0 to 1",
		about: "the share of cycles that are traced; messages tell it to whoever reads them",
		set:   func(s *Settings, v string) bool { return ratio(v, &s.Tracing.SampleRatio) },
	},
})

func contextDatabase(name string) setting {
	return setting{
		key: "contexts." + name + ".database.url", secret: true, instead: "database.url", allowed: "a PostgreSQL URL, postgres://user:password@host:port/database",
		about: "the " + name + " context's own database; database.url where it is not set",
		set: func(s *Settings, v string) bool {
			if s.ownDatabases == nil {
				s.ownDatabases = make(map[string]string)
			}
			s.ownDatabases[name] = v
			return postgresURL(v)
		},
	}
}

func enabled(name string, of func(*Settings) *Job) setting {
	return setting{
		key: "jobs." + name + ".enabled", fallback: "true", allowed: "true or false",
		about: "whether serve runs the job; it leaves a context without any job alone",
		set:   func(s *Settings, v string) bool { return boolean(v, &of(s).Enabled) },
	}
}

// pollingDefaults tell three jobs apart that are set alike.
type pollingDefaults struct {
	name, items, platformBatch string
	narrow                     bool // an interval of 1 to 5 minutes only
	of                         func(*Settings) *Job
}

func pollingJob(d pollingDefaults) []setting {
	low, high, allowed := time.Second, 24*time.Hour, "a duration from 1s to 24h, as 90s or 00:01:30"
	if d.narrow {
		low, high, allowed = time.Minute, 5*time.Minute, "a duration from 1m to 5m, as 90s or 00:01:30"
	}
	return []setting{
		enabled(d.name, d.of),
		{
			key: "jobs." + d.name + ".interval", fallback: "60s", allowed: allowed,
			about: "from one cycle's tick to the next",
			set:   func(s *Settings, v string) bool { return duration(v, low, high, &d.of(s).Interval) },
		},
		{
			key: "jobs." + d.name + ".batch_size", fallback: "200", allowed: "a whole number from 1 to 10000",
			about: d.items, platform: d.platformBatch,
			set: func(s *Settings, v string) bool { return number(v, 1, 10000, &d.of(s).BatchSize) },
		},
		{
			key: "jobs." + d.name + ".catch_up", fallback: "true", allowed: "true or false",
			about: "whether another cycle follows at once where one filled its batch, for up to 30 s a tick",
			set:   func(s *Settings, v string) bool { return boolean(v, &d.of(s).CatchUp) },
		},
	}
}

func postgresURL(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return false
	}
	_, err = pgxpool.ParseConfig(text)
	return err == nil
}

func number(text string, low, high int, to *int) bool {
	n, err := strconv.Atoi(text)
	*to = n
	return err == nil && n >= low && n <= high
}

func boolean(text string, to *bool) bool {
	*to = text == "true"
	return text == "true" || text == "false"
}

func ratio(text string, to *float64) bool {
	r, err := strconv.ParseFloat(text, 64)
	*to = r
	return err == nil && r >= 0 && r <= 1
}

// otlp takes a receiver's URL. What the exporter would leave out of it, as a user, is not allowed.
func otlp(text string, to *string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery+u.Fragment != "" {
		return false
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	*to = u.String()
	return true
}

// timeSpan is .NET's form of a duration, [d.]hh:mm:ss.
var timeSpan = regexp.MustCompile(`^(?:(\d{1,3})\.)?([01]?\d|2[0-3]):([0-5]\d):([0-5]\d)$`)

// duration takes Go's form (1h30m) and .NET's (01:30:00).
func duration(text string, low, high time.Duration, to *time.Duration) bool {
	var err error
	if parts := timeSpan.FindStringSubmatch(text); parts != nil {
		days, _ := strconv.Atoi(parts[1]) // digits, or none
		*to, err = time.ParseDuration(parts[2] + "h" + parts[3] + "m" + parts[4] + "s")
		*to += time.Duration(days) * 24 * time.Hour
	} else {
		*to, err = time.ParseDuration(text)
	}
	return err == nil && *to >= low && *to <= high
}

func address(text string) bool {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return false
	}
	n, err := strconv.Atoi(port)
	return err == nil && n >= 0 && n <= 65535
}

func addresses(text string, to *[]string) bool {
	*to = nil
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		host, _, err := net.SplitHostPort(part)
		if err != nil || host == "" || !address(part) {
			return false
		}
		*to = append(*to, part)
	}
	return true
}

// readable reports whether a file is there to be read; what is in it is another matter.
func readable(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	info, err := file.Stat()
	return file.Close() == nil && err == nil && !info.IsDir()
}

func clientID(text string) bool {
	return text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
}
