// Package contracts holds messages, as Kafka has them, to what docs/events promises of them.
package contracts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	kafkabinding "github.com/cloudevents/sdk-go/protocol/kafka_sarama/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/pin-platform/pinworker/docs/events"
)

// Check reports where a record is not what asyncapi.json says of its topic's message, by its headers or its
// payload, or not an event of CloudEvents 1.0 to their own SDK.
func Check(topic, key string, headers map[string]string, value []byte) error {
	contracts, err := load()
	if err != nil {
		return err
	}
	c, known := contracts[topic]
	if !known {
		return fmt.Errorf("message of %s: the topic has no contract", topic)
	}
	payload, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err == nil {
		err = c.payload.Validate(payload)
	}
	asJSON := make(map[string]any, len(headers))
	for name, h := range headers {
		asJSON[name] = h
	}
	err = errors.Join(err, c.headers.Validate(asJSON), cloudEvent(headers, value))
	if key != headers["ce_partitionkey"] {
		err = errors.Join(err, fmt.Errorf("its key is %q, and ce_partitionkey says %q", key, headers["ce_partitionkey"]))
	}
	if err != nil {
		return fmt.Errorf("message %s of %s breaks its contract: %w", headers["ce_id"], topic, err)
	}
	return nil
}

// contract is what one topic's message has to be.
type contract struct{ headers, payload *jsonschema.Schema }

// root is where the documents are to each other, whatever folder the program runs in.
const root = "embed:///"

type loader struct{}

// Load implements jsonschema.URLLoader.
func (loader) Load(url string) (any, error) {
	file, err := events.Files.Open(strings.TrimPrefix(url, root))
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it has only been read
	return jsonschema.UnmarshalJSON(file)
}

// load compiles asyncapi.json, and all that it refers to, by topic.
var load = sync.OnceValues(func() (map[string]contract, error) {
	text, err := events.Files.ReadFile("asyncapi.json")
	var document struct {
		Channels map[string]struct {
			Address  string
			Messages map[string]struct {
				Ref string `json:"$ref"`
			}
		}
	}
	if err == nil {
		err = json.Unmarshal(text, &document)
	}
	if err != nil {
		return nil, fmt.Errorf("read asyncapi.json: %w", err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	compiler.UseLoader(loader{})
	contracts := make(map[string]contract)
	for _, channel := range document.Channels {
		for _, message := range channel.Messages {
			var c contract
			var wrong [2]error
			c.headers, wrong[0] = compiler.Compile(root + "asyncapi.json" + message.Ref + "/headers/schema")
			c.payload, wrong[1] = compiler.Compile(root + "asyncapi.json" + message.Ref + "/payload/schema")
			if err := errors.Join(wrong[:]...); err != nil {
				return nil, fmt.Errorf("compile the contract of %s: %w", channel.Address, err)
			}
			contracts[channel.Address] = c
		}
	}
	return contracts, nil
})

// cloudEvent has CloudEvents' SDK read a record, as a consumer would.
func cloudEvent(headers map[string]string, value []byte) error {
	raw := make(map[string][]byte, len(headers))
	for name, h := range headers {
		raw[name] = []byte(h)
	}
	m := kafkabinding.NewMessage(value, headers["content-type"], raw)
	if encoding := m.ReadEncoding(); encoding != binding.EncodingBinary {
		return fmt.Errorf("to CloudEvents' SDK it is %s, not binary", encoding)
	}
	event, err := binding.ToEvent(context.Background(), m)
	if err != nil {
		return fmt.Errorf("to CloudEvents' SDK: %w", err)
	}
	if err := event.Validate(); err != nil {
		return fmt.Errorf("to CloudEvents' SDK: %w", err)
	}
	if event.ID() != headers["ce_id"] || event.Type() != headers["ce_type"] || event.Subject() != headers["ce_subject"] || !bytes.Equal(event.Data(), value) {
		return fmt.Errorf("CloudEvents' SDK reads another event: %s", event)
	}
	return nil
}
