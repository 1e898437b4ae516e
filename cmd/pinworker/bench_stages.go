package main

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/pin-platform/pinworker/domain/crm"
	"github.com/pin-platform/pinworker/ports"
)

// stage is how far a lead that is due has come on its way to Kafka.
type stage int

const (
	claimed stage = iota
	committed
	relayed
	acked
	stages
)

func (s stage) String() string { return [...]string{"claim", "commit", "relay", "ack"}[s] }

// journey notes when a lead last passed each stage, and how many are through.
type journey struct {
	mu      sync.Mutex
	at      [stages]time.Time
	through int
	heard   chan struct{}
}

func newJourney() *journey { return &journey{heard: make(chan struct{}, 1)} }

// reach says that leads pass a stage, and that n are through.
func (j *journey) reach(s stage, n int) {
	j.mu.Lock()
	j.at[s] = time.Now()
	j.through += n
	j.mu.Unlock()
	select {
	case j.heard <- struct{}{}:
	default:
	}
}

// until waits for n leads to be through, and returns when the last one passed each stage.
func (j *journey) until(ctx context.Context, n int) ([stages]time.Time, error) {
	for {
		j.mu.Lock()
		at, through := j.at, j.through
		j.mu.Unlock()
		if through >= n {
			return at, nil
		}
		select {
		case <-ctx.Done():
			return at, ctx.Err()
		case <-j.heard:
		}
	}
}

// stagedLeads tells when a lead is claimed: once it is decided on.
type stagedLeads struct {
	ports.DueLeads

	journey *journey
}

// Transition implements ports.Due.
func (l stagedLeads) Transition(ctx context.Context, claim ports.Claim, rule ports.Rule[crm.Lead, crm.Event]) (ports.Outcome[crm.Lead, crm.Event], error) {
	decide := rule.Decide
	rule.Decide = func(lead crm.Lead, at time.Time) ([]crm.Event, error) {
		l.journey.reach(claimed, 0)
		return decide(lead, at)
	}
	return l.DueLeads.Transition(ctx, claim, rule)
}

// stagedPublisher tells when the relay hands a message over, and when Kafka has it.
type stagedPublisher struct {
	message.Publisher

	journey *journey
}

// Publish implements message.Publisher.
func (p stagedPublisher) Publish(topic string, messages ...*message.Message) error {
	p.journey.reach(relayed, 0)
	err := p.Publisher.Publish(topic, messages...)
	if err == nil {
		p.journey.reach(acked, len(messages))
	}
	return err
}
