package contracts

import (
	"compress/gzip"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/docs/events"
)

// record is a message as Kafka has it.
type record struct {
	topic, key string
	headers    map[string]string
	payload    map[string]any
}

func (r record) check(t *testing.T) error {
	t.Helper()
	value, err := json.Marshal(r.payload)
	if err != nil {
		t.Fatal(err)
	}
	return Check(r.topic, r.key, r.headers, value)
}

// examples are the golden messages of app/published: each event, with and without what is optional.
func examples(t *testing.T) map[string]record {
	t.Helper()
	files, err := filepath.Glob("../../../../app/published/testdata/*.json")
	if err != nil {
		t.Fatal(err)
	}
	found, topics := make(map[string]record), make(map[string]bool)
	for _, file := range files {
		var m struct {
			Topic, Key, Subject, Tenant, Time string
			ID                                string         `json:"ce_id"`
			AggregateType                     string         `json:"aggregate_type"`
			AggregateVersion                  int            `json:"aggregate_version"`
			ContractVersion                   int            `json:"contract_version"`
			Payload                           map[string]any `json:"payload"`
		}
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &m)
		}
		if err != nil {
			t.Fatal(err)
		}
		topics[m.Topic] = true
		found[filepath.Base(file)] = record{m.Topic, m.Key, map[string]string{
			"content-type": "application/json", "ce_specversion": "1.0", "ce_id": m.ID, "ce_type": m.Topic, "ce_subject": m.Subject,
			"ce_source": "pin/" + strings.Split(m.Topic, ".")[1], "ce_time": m.Time, "ce_tenantid": m.Tenant,
			"ce_correlationid": m.ID, "ce_aggregatetype": m.AggregateType, "ce_aggregateversion": strconv.Itoa(m.AggregateVersion),
			"ce_contractversion": strconv.Itoa(m.ContractVersion), "ce_partitionkey": m.Key,
		}, m.Payload}
	}
	if len(topics) != len(published.Topics) {
		t.Fatalf("examples of %v; want all of %v", slices.Sorted(maps.Keys(topics)), published.Topics)
	}
	return found
}

func TestCheck_WhatIsPublishedKeepsItsContract(t *testing.T) {
	for name, r := range examples(t) {
		if err := r.check(t); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheck_AMessageThatLacksOrBendsAnythingBreaksItsContract(t *testing.T) {
	for name, r := range examples(t) {
		refused := func(what string) {
			t.Helper()
			if r.check(t) == nil {
				t.Errorf("%s passes with %s", name, what)
			}
		}
		for field, sound := range maps.Clone(r.payload) {
			delete(r.payload, field)
			refused("no " + field)
			for _, other := range []any{map[string]any{}, true, -1.5} {
				r.payload[field] = other
				refused(field + " of another type")
			}
			r.payload[field] = sound
		}
		for header, sound := range maps.Clone(r.headers) {
			delete(r.headers, header)
			refused("no " + header)
			if r.headers[header] = ""; header != "ce_type" {
				refused("nothing in " + header)
			}
			r.headers[header] = sound
		}
		for header, other := range map[string]string{
			"ce_type": published.Topics[0] + "x", "ce_source": "pin/other", "ce_id": strings.ToUpper(r.headers["ce_id"]), "ce_partitionkey": r.headers["ce_tenantid"],
			"ce_time": "2026-03-01T15:00:00+03:00", "ce_aggregatetype": "Other", "ce_aggregateversion": "0", "traceparent": "00-0-0-00", "ce_specversion": "0.3",
		} {
			sound, had := r.headers[header]
			r.headers[header] = other
			refused(header + " " + other)
			if r.headers[header] = sound; !had {
				delete(r.headers, header)
			}
		}
		if err := r.check(t); err != nil {
			t.Errorf("%s: after all that it is sound again, and refused: %v", name, err)
		}
	}
	if Check("pin.other.v1", "", nil, nil) == nil || Check(published.TopicLeadExpired, "", nil, []byte("{")) == nil {
		t.Error("a topic without a contract, or half a payload, passes")
	}
}

// The schema is AsyncAPI's own, of @asyncapi/specs 6.11.1 (Apache-2.0).
func TestAsyncAPI_IsSoundByItsOwnSchemaAndNamesEachTopicOnce(t *testing.T) {
	packed, err := os.Open("testdata/asyncapi-3.0.0.schema.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close() //nolint:errcheck // it has only been read
	text, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	specification, err := jsonschema.UnmarshalJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("asyncapi", specification); err != nil {
		t.Fatal(err)
	}
	document, err := loader{}.Load(root + "asyncapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := compiler.MustCompile("asyncapi").Validate(document); err != nil {
		t.Errorf("%#v", err)
	}
	for _, ref := range references(document) {
		if !resolves(document, ref) {
			t.Errorf("%s leads nowhere", ref)
		}
	}
	contracts, err := load()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Sorted(maps.Keys(contracts)), slices.Sorted(slices.Values(published.Topics)); !slices.Equal(got, want) {
		t.Errorf("channels of %v; want %v", got, want)
	}
}

// references are all that a document refers to.
func references(node any) (found []string) {
	switch node := node.(type) {
	case map[string]any:
		for name, inner := range node {
			if ref, ok := inner.(string); ok && name == "$ref" {
				found = append(found, ref)
			}
			found = append(found, references(inner)...)
		}
	case []any:
		for _, inner := range node {
			found = append(found, references(inner)...)
		}
	}
	return found
}

// resolves reports whether a reference leads to a part of the document, or to a file beside it.
func resolves(document any, ref string) bool {
	path, within := strings.CutPrefix(ref, "#/")
	if !within {
		_, err := events.Files.ReadFile(ref)
		return err == nil
	}
	for part := range strings.SplitSeq(path, "/") {
		object, _ := document.(map[string]any)
		if document = object[part]; document == nil {
			return false
		}
	}
	return true
}
