package main

import (
	"context"

	"github.com/pin-platform/pinworker/adapters/embedded"
	"github.com/pin-platform/pinworker/cmd/pinworker/internal/contracts"
)

// readBack returns what topics hold now, each partition in order. It is an error where one of the messages
// is not what docs/events promises: nothing in this package reads messages past it.
func readBack(ctx context.Context, brokers []string, topics ...string) ([]embedded.Record, error) {
	records, err := embedded.ReadAll(ctx, brokers, topics...) //nolint:forbidigo // here they are checked
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		if err := contracts.Check(r.Topic, r.Key, r.Headers, r.Value); err != nil {
			return nil, err
		}
	}
	return records, nil
}
