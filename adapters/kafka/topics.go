package kafka

import (
	"context"
	"fmt"
	"strconv"

	"github.com/IBM/sarama"
)

// Cluster is what Kafka tells of itself, and of some topics.
type Cluster struct {
	Brokers int // that are there
	Topics  []Topic
}

// Topic is what Kafka tells of a topic.
type Topic struct {
	Name       string
	Err        error // it is not there (Missing), or nothing is told of it
	Missing    bool
	Partitions int
	Leaderless int // partitions without a leader: what is for them waits
	Replicas   int // of the partition that has the fewest
	InSync     int // as above
	// MinInSync and MaxMessageBytes are the topic's configuration; 0: not told.
	MinInSync       int
	MaxMessageBytes int
	// MayWrite says whether our user may, where the broker tells: an authorizer is on.
	MayWrite, Told bool
}

// writeOperation is Kafka's number for the right to write to a topic.
const writeOperation = 4

// Describe returns what Kafka tells of itself and of some topics, in their order. The error says that
// no broker answers.
func Describe(ctx context.Context, config Config, topics ...string) (Cluster, error) {
	return reading(ctx, config, func(client sarama.Client) (cluster Cluster, err error) {
		broker := client.LeastLoadedBroker()
		if broker == nil {
			return cluster, sarama.ErrOutOfBrokers
		}
		if err := broker.Open(client.Config()); err != nil && err != sarama.ErrAlreadyConnected { //nolint:errorlint // sarama's own, as it is
			return cluster, err
		}
		request := sarama.NewMetadataRequest(client.Config().Version, topics)
		request.IncludeTopicAuthorizedOperations = true
		response, err := broker.GetMetadata(request)
		if err != nil {
			return cluster, err
		}
		told := make(map[string]*sarama.TopicMetadata, len(response.Topics))
		for _, t := range response.Topics {
			told[t.Name] = t
		}
		admin, err := sarama.NewClusterAdminFromClient(client)
		if err != nil {
			return cluster, err
		}
		cluster.Brokers = len(response.Brokers)
		settings := settingsOf(admin, topics)
		for _, name := range topics {
			t := topicOf(name, told[name])
			t.MinInSync, t.MaxMessageBytes = settings[name]["min.insync.replicas"], settings[name]["max.message.bytes"]
			cluster.Topics = append(cluster.Topics, t)
		}
		return cluster, nil
	})
}

func topicOf(name string, m *sarama.TopicMetadata) Topic {
	t := Topic{Name: name}
	switch {
	case m == nil:
		t.Err, t.Missing = sarama.ErrUnknownTopicOrPartition, true
		return t
	case m.Err != sarama.ErrNoError:
		t.Err, t.Missing = m.Err, m.Err == sarama.ErrUnknownTopicOrPartition
		return t
	}
	t.Partitions = len(m.Partitions)
	for i, p := range m.Partitions {
		if p.Leader < 0 {
			t.Leaderless++
		}
		if i == 0 || len(p.Replicas) < t.Replicas {
			t.Replicas = len(p.Replicas)
		}
		if i == 0 || len(p.Isr) < t.InSync {
			t.InSync = len(p.Isr)
		}
	}
	const nothingTold = -1 << 31
	if m.TopicAuthorizedOperations != nothingTold && m.TopicAuthorizedOperations != 0 {
		t.Told, t.MayWrite = true, m.TopicAuthorizedOperations&(1<<writeOperation) != 0
	}
	return t
}

// settingsOf returns what topics are set to; a user that may not read that is no fault.
func settingsOf(admin sarama.ClusterAdmin, topics []string) map[string]map[string]int {
	resources := make([]*sarama.ConfigResource, len(topics))
	for i, topic := range topics {
		resources[i] = &sarama.ConfigResource{
			Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"min.insync.replicas", "max.message.bytes"},
		}
	}
	settings := make(map[string]map[string]int)
	results, err := admin.DescribeConfigs(resources, sarama.DescribeConfigsOptions{})
	if err != nil {
		return settings
	}
	for _, r := range results {
		settings[r.Name] = make(map[string]int)
		for _, c := range r.Configs {
			if n, err := strconv.Atoi(c.Value); err == nil {
				settings[r.Name][c.Name] = n
			}
		}
	}
	return settings
}

// String tells of a topic in a line.
func (t Topic) String() string {
	if t.Err != nil {
		return fmt.Sprintf("%s: %v", t.Name, t.Err)
	}
	set := "its settings are not told"
	if t.MinInSync > 0 {
		set = fmt.Sprintf("min.insync.replicas %d, max.message.bytes %d", t.MinInSync, t.MaxMessageBytes)
	}
	return fmt.Sprintf("%s: %d partitions, %d replicas, %d in sync, %s", t.Name, t.Partitions, t.Replicas, t.InSync, set)
}
