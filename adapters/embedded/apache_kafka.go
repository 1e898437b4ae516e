package embedded

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

// ApacheKafka is Apache Kafka itself: brokers that are Java processes of their own.
type ApacheKafka struct {
	folder string
	nodes  []*node
}

// ApacheKafkaConfig says what cluster to start. It needs a JDK.
type ApacheKafkaConfig struct {
	Jars    string // a folder with Kafka's jars; .ci/kafka/pom.xml fetches them
	Brokers int    // how many; the first one is the only controller, too
	Port    int    // the first broker's, taken as it is; 0 takes a free one
	Folder  string // where its data is kept; empty: one for temporary files
	// Through, where it is set, puts something in front of each broker: it gets the address that a broker
	// listens at, and returns the one to reach it by.
	Through func(address string) (string, error)
	// Listeners are further ones of each broker, with their security protocols (SSL, SASL_SSL) by their
	// names in capitals. Properties says what they ask of whom, and Scram which users there are: what
	// kafka-storage takes after --add-scram.
	Listeners  map[string]string
	Properties string
	Scram      []string
}

// StartApacheKafka starts one broker from a folder with Kafka's jars, and creates topics. A port
// other than 0 is taken as it is.
func StartApacheKafka(ctx context.Context, jars string, port int, topics ...string) (*ApacheKafka, error) {
	k, err := StartApacheKafkaCluster(ctx, ApacheKafkaConfig{Jars: jars, Brokers: 1, Port: port})
	if err != nil {
		return nil, err
	}
	if err := k.createTopics(ctx, topics); err != nil {
		k.Close()
		return nil, fmt.Errorf("create topics in Apache Kafka: %w", err)
	}
	return k, nil
}

// StartApacheKafkaCluster starts brokers, without topics, and returns once all of them answer.
func StartApacheKafkaCluster(ctx context.Context, config ApacheKafkaConfig) (*ApacheKafka, error) {
	folder, err := os.MkdirTemp(config.Folder, "pinworker-kafka-")
	if err != nil {
		return nil, fmt.Errorf("start Apache Kafka: %w", err)
	}
	k := &ApacheKafka{folder: folder}
	if err := k.start(ctx, config); err != nil {
		k.Close()
		return nil, fmt.Errorf("start Apache Kafka: %w", err)
	}
	return k, nil
}

func (k *ApacheKafka) start(ctx context.Context, config ApacheKafkaConfig) error {
	controller, err := freePort()
	if err != nil {
		return err
	}
	for id := range config.Brokers {
		n, err := newNode(config, id+1, controller, filepath.Join(k.folder, strconv.Itoa(id+1)))
		if err != nil {
			return err
		}
		k.nodes = append(k.nodes, n)
	}
	format := []string{"kafka.tools.StorageTool", "format", "-t", clusterID()}
	for _, user := range config.Scram {
		format = append(format, "--add-scram", user)
	}
	var starts errgroup.Group
	for _, n := range k.nodes {
		starts.Go(func() error {
			if out, err := n.java(append(slices.Clip(format), "-c", n.config)...).CombinedOutput(); err != nil {
				return fmt.Errorf("format its storage: %w: %s", err, out)
			}
			return n.start(ctx)
		})
	}
	return starts.Wait()
}

// Brokers returns the addresses to connect to.
func (k *ApacheKafka) Brokers() []string {
	return k.addresses(func(n *node) string { return n.address })
}

// BrokersThrough returns the addresses of what Through has put in front.
func (k *ApacheKafka) BrokersThrough() []string {
	return k.addresses(func(n *node) string { return n.through })
}

// BrokersBy returns the addresses of a listener of the configuration's.
func (k *ApacheKafka) BrokersBy(listener string) []string {
	return k.addresses(func(n *node) string { return n.listeners[listener] })
}

func (k *ApacheKafka) addresses(of func(*node) string) []string {
	addresses := make([]string, len(k.nodes))
	for i, n := range k.nodes {
		addresses[i] = of(n)
	}
	return addresses
}

// Kill kills a broker, by its id, from 1 on. Its data stays.
func (k *ApacheKafka) Kill(id int) { k.nodes[id-1].kill() }

// Restart starts a broker that was killed, or has ended, and returns once it answers.
func (k *ApacheKafka) Restart(ctx context.Context, id int) error {
	k.Kill(id)
	if err := k.nodes[id-1].start(ctx); err != nil {
		return fmt.Errorf("restart broker %d: %w", id, err)
	}
	return nil
}

// Ended reports whether a broker runs no more, and what it has said: errors alone.
func (k *ApacheKafka) Ended(id int) (ended bool, said string) {
	n := k.nodes[id-1]
	select {
	case <-n.done:
		ended = true
	default:
	}
	return ended, n.output.String()
}

// Close kills the brokers and removes their data.
func (k *ApacheKafka) Close() {
	for _, n := range k.nodes {
		n.kill()
	}
	os.RemoveAll(k.folder) //nolint:errcheck // it is temporary
}

func (k *ApacheKafka) createTopics(ctx context.Context, topics []string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers()...))
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

// node is one broker.
type node struct {
	address, through string
	listeners        map[string]string // the addresses of the configuration's
	config           string            // its file
	java             func(arguments ...string) *exec.Cmd
	process          *exec.Cmd
	done             chan struct{} // closed where the process has ended
	output           *lockedText
}

// newNode writes what a broker reads at its start.
func newNode(config ApacheKafkaConfig, id, controller int, folder string) (*node, error) {
	ports := make([]int, 2)
	for i := range ports {
		var err error
		if ports[i], err = freePort(); err != nil {
			return nil, err
		}
	}
	if id == 1 && config.Port != 0 {
		ports[0] = config.Port
	}
	n := &node{
		address: fmt.Sprintf("127.0.0.1:%d", ports[0]), listeners: make(map[string]string), config: filepath.Join(folder, "server.properties"),
	}
	roles := "broker"
	listeners, advertised := "PLAINTEXT://"+n.address, "PLAINTEXT://"+n.address
	if config.Through != nil {
		behind := fmt.Sprintf("127.0.0.1:%d", ports[1])
		var err error
		if n.through, err = config.Through(behind); err != nil {
			return nil, err
		}
		listeners, advertised = listeners+",THROUGH://"+behind, advertised+",THROUGH://"+n.through
	}
	protocols := []string{"PLAINTEXT:PLAINTEXT", "THROUGH:PLAINTEXT", "CONTROLLER:PLAINTEXT"}
	for name, protocol := range config.Listeners {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		n.listeners[name] = fmt.Sprintf("127.0.0.1:%d", port)
		further := fmt.Sprintf(",%s://%s", name, n.listeners[name])
		listeners, advertised = listeners+further, advertised+further
		protocols = append(protocols, name+":"+protocol)
	}
	if id == 1 {
		roles += ",controller"
		listeners += fmt.Sprintf(",CONTROLLER://127.0.0.1:%d", controller)
	}
	// A broker that is killed is given up, and one that lags behind is, sooner than by default.
	properties := fmt.Sprintf(`process.roles=%s
node.id=%d
controller.quorum.voters=1@127.0.0.1:%d
listeners=%s
advertised.listeners=%s
listener.security.protocol.map=%s
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs=%s
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
offsets.topic.replication.factor=1
offsets.topic.num.partitions=3
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
%s`, roles, id, controller, listeners, advertised, strings.Join(protocols, ","), filepath.Join(folder, "data"), config.Properties)
	logging := "rootLogger.level=error\nrootLogger.appenderRef.console.ref=c\nappender.console.type=Console\n" +
		"appender.console.name=c\nappender.console.layout.type=PatternLayout\nappender.console.layout.pattern=%p %c %m%n\n"
	logConfig := filepath.Join(folder, "log4j2.properties")
	n.java = func(arguments ...string) *exec.Cmd {
		return exec.Command("java", append([]string{
			"-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", // it lives for a test: start soon
			"-Dlog4j2.configurationFile=" + logConfig, "-cp", filepath.Join(config.Jars, "*"),
		}, arguments...)...)
	}
	return n, errors.Join(os.Mkdir(folder, 0o700),
		os.WriteFile(n.config, []byte(properties), 0o600), os.WriteFile(logConfig, []byte(logging), 0o600))
}

// start starts the process, and returns once it answers.
func (n *node) start(ctx context.Context) error {
	n.output, n.done = &lockedText{}, make(chan struct{})
	n.process = n.java("kafka.Kafka", n.config)
	n.process.Stdout, n.process.Stderr = n.output, n.output
	if err := n.process.Start(); err != nil {
		close(n.done)
		return err
	}
	go func() {
		defer close(n.done)
		n.process.Wait() //nolint:errcheck // its state tells
	}()
	if err := n.await(ctx); err != nil {
		n.kill()
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(n.output.String()))
	}
	return nil
}

func (n *node) kill() {
	if n.process == nil || n.process.Process == nil {
		return
	}
	n.process.Process.Kill() //nolint:errcheck // it may have ended by itself
	<-n.done
}

// await returns once the broker answers.
func (n *node) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(n.address))
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
		case <-n.done:
			return fmt.Errorf("it ended: %s", n.process.ProcessState)
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// lockedText is written by a process and read beside it.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
