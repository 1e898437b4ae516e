// Package embeddedtest gives a package's tests one PostgreSQL server, and each test a fresh
// database in it.
package embeddedtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pin-platform/pinworker/adapters/embedded"
	"github.com/pin-platform/pinworker/adapters/postgres"
	"github.com/pin-platform/pinworker/sql/roles"
)

// Main runs the tests of a package; call it in TestMain. PINWORKER_TEST_POSTGRES chooses the
// server's major version.
func Main(m *testing.M) {
	embedded.RunChild()
	code := m.Run()
	if running != nil {
		if err := running.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "stop PostgreSQL:", err)
			code = 1
		}
	}
	os.Exit(code)
}

var running *embedded.Postgres

// server starts with the first test that needs it.
var server = sync.OnceValues(func() (_ *embedded.Postgres, err error) {
	running, err = start(embedded.PostgresConfig{Version: os.Getenv("PINWORKER_TEST_POSTGRES")})
	return running, err
})

// start starts a server with a database that has all tables, and the worker's login.
func start(config embedded.PostgresConfig) (*embedded.Postgres, error) {
	ctx := context.Background()
	started, err := embedded.StartPostgres(ctx, config)
	if err != nil {
		return nil, err
	}
	for _, statement := range []string{
		"CREATE DATABASE migrated",
		"CREATE ROLE worker LOGIN PASSWORD 'worker'",
	} {
		if err := execute(ctx, started.URL(), statement); err != nil {
			return started, err
		}
	}
	migrated := databaseURL(started, "migrated")
	if err := Migrate(ctx, migrated); err != nil {
		return started, err
	}
	return started, execute(ctx, migrated, roles.Pinworker+"; GRANT pinworker TO worker")
}

// OwnServer starts a server that a test may crash, and returns it with the URL of a database that has
// all tables. What is committed there is on disk.
func OwnServer(t testing.TB) (own *embedded.Postgres, databaseOfIts string) {
	t.Helper()
	own, err := start(embedded.PostgresConfig{Version: os.Getenv("PINWORKER_TEST_POSTGRES"), Durable: true})
	if own != nil {
		t.Cleanup(func() {
			if err := own.Close(); err != nil {
				t.Error("stop PostgreSQL:", err)
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return own, databaseURL(own, "migrated")
}

// Migrate brings a database's schema up to date, the platform's tables included.
func Migrate(ctx context.Context, databaseURL string) error {
	db, err := postgres.Open(postgres.Config{URL: databaseURL, MaxConnections: 4})
	if err != nil {
		return err
	}
	defer db.Close()
	for _, name := range postgres.Contexts {
		migrator := postgres.NewMigrator(db, name)
		if err := errors.Join(migrator.UpAll(ctx), migrator.Close()); err != nil {
			return err
		}
	}
	return nil
}

// Database returns the URL of a fresh database with all tables. It goes with the server: to
// drop it would cost a checkpoint.
func Database(t testing.TB) string { return create(t, " TEMPLATE migrated") }

// EmptyDatabase returns the URL of a fresh database without any table.
func EmptyDatabase(t testing.TB) string { return create(t, "") }

// Broker is a Kafka to test against.
type Broker interface {
	Brokers() []string
	Close()
}

// KafkaJars is the variable that holds a folder with Apache Kafka's jars.
const KafkaJars = "PINWORKER_TEST_KAFKA_JARS"

// Kafka starts a broker with topics, stopped after the test: Apache Kafka itself where KafkaJars
// is set, as in CI, else one in this process. A port other than 0 is taken as it is.
func Kafka(t testing.TB, port int, topics ...string) Broker {
	t.Helper()
	var broker Broker
	var err error
	if jars := os.Getenv(KafkaJars); jars != "" {
		broker, err = embedded.StartApacheKafka(t.Context(), jars, port, topics...)
	} else {
		broker, err = embedded.StartKafka(port, topics...)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sync.OnceFunc(broker.Close))
	return broker
}

// LimitBatches sets the size of the batches that a topic takes, and waits until the broker knows.
func LimitBatches(t testing.TB, broker Broker, topic string, size int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Brokers()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin, value := kadm.NewClient(client), strconv.Itoa(size)
	altered, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &value}}, topic)
	if err == nil {
		_, err = altered.On(topic, func(r *kadm.AlterConfigsResponse) error { return r.Err })
	}
	if err != nil {
		t.Fatal(err)
	}
	for {
		configs, err := admin.DescribeTopicConfigs(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(configs[0].Configs, func(c kadm.Config) bool { return c.Key == "max.message.bytes" && c.MaybeValue() == value }) {
			return
		}
	}
}

// FreePort returns a port that nobody listens on.
func FreePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()                     //nolint:errcheck // it was only asked for its port
	return l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // of a TCP listener
}

var databases atomic.Int32

// AsWorker returns a database's URL for a login that has the rights of the role pinworker and no
// others: what runs in production runs under it in tests.
func AsWorker(t testing.TB, databaseURL string) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("worker", "worker")
	return u.String()
}

func create(t testing.TB, template string) string {
	t.Helper()
	if _, err := server(); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("test_%d", databases.Add(1))
	if err := execute(t.Context(), running.URL(), "CREATE DATABASE "+name+template); err != nil {
		t.Fatal(err)
	}
	return databaseURL(running, name)
}

func execute(ctx context.Context, databaseURL, statement string) error {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)              //nolint:errcheck // a connection of a moment
	_, err = conn.Exec(ctx, statement) // without arguments: several statements are allowed
	return err
}

func databaseURL(of *embedded.Postgres, name string) string {
	u, err := url.Parse(of.URL())
	if err != nil {
		panic(err) // we made it
	}
	u.Path = "/" + name
	return u.String()
}
