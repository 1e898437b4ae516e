package main

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/app/published"
)

func TestReadBack_AMessageThatIsNotWhatItsContractPromisesIsAnError(t *testing.T) {
	broker := embeddedtest.Kafka(t, 0, published.TopicLeadExpired)
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Brokers()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	foreign := &kgo.Record{Topic: published.TopicLeadExpired, Value: []byte(`{"ContractVersion":1}`)}
	if err := client.ProduceSync(t.Context(), foreign).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if _, err := readBack(t.Context(), broker.Brokers(), published.TopicLeadExpired); err == nil || !strings.Contains(err.Error(), "LeadId") {
		t.Errorf("error %v; want what it lacks", err)
	}
}
