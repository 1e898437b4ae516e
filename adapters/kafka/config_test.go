package kafka

import (
	"reflect"
	"testing"

	"github.com/IBM/sarama"
)

// Each of these, left at its default, loses or reorders messages, creates topics, or puts a key
// where Java's clients do not look.
func TestSaramaConfig_IsSafe(t *testing.T) {
	c := saramaConfig(Config{ClientID: "pinworker"}, nil)
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	for what, holds := range map[string]bool{
		"waits for all in-sync replicas":     c.Producer.RequiredAcks == sarama.WaitForAll,
		"is idempotent":                      c.Producer.Idempotent,
		"has one request in flight a broker": c.Net.MaxOpenRequests == 1,
		"creates no topic":                   !c.Metadata.AllowAutoTopicCreation,
		"speaks a version with headers":      c.Version.IsAtLeast(sarama.V2_8_0_0),
		"compresses":                         c.Producer.Compression != sarama.CompressionNone,
		"tells of success and of failure":    c.Producer.Return.Successes && c.Producer.Return.Errors,
		"partitions as Java does": reflect.ValueOf(c.Producer.Partitioner).Pointer() ==
			reflect.ValueOf(sarama.NewMurmur2Partitioner).Pointer(),
		"puts no more into a batch than Kafka takes by default": c.Producer.MaxMessageBytes <= 1048588,
		"is known by its name": c.ClientID == "pinworker",
	} {
		if !holds {
			t.Errorf("it is not so that the producer %s", what)
		}
	}
}
