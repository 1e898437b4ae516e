package embedded

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ApacheKafka is one broker of Apache Kafka itself, in a Java process of its own.
type ApacheKafka struct {
	address string
	folder  string
	process *exec.Cmd
	done    chan error
}

// Brokers returns the address to connect to.
func (k *ApacheKafka) Brokers() []string { return []string{k.address} }

// Close kills the broker and removes its data.
func (k *ApacheKafka) Close() {
	k.process.Process.Kill() //nolint:errcheck // it may have ended by itself
	k.done <- <-k.done       // for whoever closes it again
	os.RemoveAll(k.folder)   //nolint:errcheck // it is temporary
}

// StartApacheKafka starts a broker from a folder with Kafka's jars (.ci/kafka/pom.xml fetches
// them) and creates topics. A port other than 0 is taken as it is. It needs a JDK.
func StartApacheKafka(ctx context.Context, jars string, port int, topics ...string) (*ApacheKafka, error) {
	k, err := startApacheKafka(ctx, jars, port)
	if err != nil {
		return nil, fmt.Errorf("start Apache Kafka: %w", err)
	}
	if err := k.createTopics(ctx, topics); err != nil {
		k.Close()
		return nil, fmt.Errorf("create topics in Apache Kafka: %w", err)
	}
	return k, nil
}

func startApacheKafka(ctx context.Context, jars string, port int) (*ApacheKafka, error) {
	controller, err := freePort()
	if err != nil {
		return nil, err
	}
	if port == 0 {
		if port, err = freePort(); err != nil {
			return nil, err
		}
	}
	folder, err := os.MkdirTemp("", "pinworker-kafka-")
	if err != nil {
		return nil, err
	}
	k := &ApacheKafka{address: fmt.Sprintf("127.0.0.1:%d", port), folder: folder, done: make(chan error, 1)}
	config := filepath.Join(folder, "server.properties")
	properties := fmt.Sprintf(`process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:%[1]d
listeners=PLAINTEXT://%[2]s,CONTROLLER://127.0.0.1:%[1]d
advertised.listeners=PLAINTEXT://%[2]s
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs=%[3]s
offsets.topic.replication.factor=1
offsets.topic.num.partitions=3
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
`, controller, k.address, filepath.Join(folder, "data"))
	logging := "rootLogger.level=error\nrootLogger.appenderRef.console.ref=c\nappender.console.type=Console\n" +
		"appender.console.name=c\nappender.console.layout.type=PatternLayout\nappender.console.layout.pattern=%p %c %m%n\n"
	logConfig := filepath.Join(folder, "log4j2.properties")
	if err := errors.Join(os.WriteFile(config, []byte(properties), 0o600), os.WriteFile(logConfig, []byte(logging), 0o600)); err != nil {
		return nil, err
	}
	java := func(arguments ...string) *exec.Cmd {
		return exec.Command("java", append([]string{
			"-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", // it lives for a test: start soon
			"-Dlog4j2.configurationFile=" + logConfig, "-cp", filepath.Join(jars, "*"),
		}, arguments...)...)
	}
	if out, err := java("kafka.tools.StorageTool", "format", "-t", clusterID(), "-c", config).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("format its storage: %w: %s", err, out)
	}
	var output bytes.Buffer
	k.process = java("kafka.Kafka", config)
	k.process.Stdout, k.process.Stderr = &output, &output
	if err := k.process.Start(); err != nil {
		return nil, err
	}
	go func() { k.done <- k.process.Wait() }()
	if err := k.await(ctx); err != nil {
		k.Close()
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(output.String()))
	}
	return k, nil
}

// await returns once the broker answers.
func (k *ApacheKafka) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(k.address))
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		ping, stop := context.WithTimeout(ctx, time.Second)
		err := client.Ping(ping)
		stop()
		if err == nil {
			return nil
		}
		select {
		case ended := <-k.done:
			k.done <- ended
			return fmt.Errorf("it ended: %w", ended)
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (k *ApacheKafka) createTopics(ctx context.Context, topics []string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(k.address))
	if err != nil {
		return err
	}
	defer client.Close()
	created, err := kadm.NewClient(client).CreateTopics(ctx, Partitions, 1, nil, topics...)
	if err != nil {
		return err
	}
	return created.Error()
}

// clusterID is a UUID as Kafka spells it: base 64 for URLs, without padding, and, as it is an
// argument, without a dash at its beginning.
func clusterID() string {
	id := uuid.New()
	id[0] &= 0x7f
	return base64.RawURLEncoding.EncodeToString(id[:])
}
