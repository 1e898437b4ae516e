package simulation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	appcalendar "github.com/pin-platform/pinworker/app/calendar"
	appcrm "github.com/pin-platform/pinworker/app/crm"
	apppromotion "github.com/pin-platform/pinworker/app/promotion"
	"github.com/pin-platform/pinworker/domain/ids"
)

// Platform is what operations are asked of.
type Platform struct {
	Calendar  appcalendar.Operations
	Promotion apppromotion.Operations
	CRM       appcrm.Operations
}

// at returns the platform as of a moment.
func (p Platform) at(moment time.Time) Platform {
	clock := func() time.Time { return moment }
	p.Calendar.Clock, p.Promotion.Clock, p.CRM.Clock = clock, clock, clock
	return p
}

// Plan says how much happens, and for how long.
type Plan struct {
	Rate        float64 // operations a second
	For         time.Duration
	Concurrency int // operations under way at once, at most
	Seed        uint64
	Tenant      ids.TenantID // whose all of it is
	// Late is for how long after an item's moment operations still try to come before the worker:
	// its interval, from a second to the horizon.
	Late time.Duration
}

// Horizon is how far ahead, at most, lies what is to come due within the run.
func (p Plan) Horizon() time.Duration { return min(max(p.For/2, 2*time.Second), 10*time.Second) }

// tries is how many operations may fail, and nothing else happen, before the run is given up.
const tries = 20

// Run asks for operations at the plan's rate until its time is over, and waits for the last
// answers. It is an error where the first operations all fail.
func Run(ctx context.Context, platform Platform, plan Plan, log *Log) error {
	began := time.Now()
	r := runner{platform: platform, log: log, traffic: newTraffic(plan)}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(plan.Concurrency)
	next, pause := began, time.Duration(float64(time.Second)/plan.Rate)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(time.Until(next))
		select {
		case <-ctx.Done():
			return errors.Join(group.Wait(), ctx.Err())
		case <-timer.C:
		}
		now := time.Now()
		if now.Sub(began) >= plan.For {
			return group.Wait()
		}
		group.Go(func() error { return r.one(ctx) })
		// What was not asked for while the platform was slow is asked for later, up to a second's worth.
		if next = next.Add(pause); now.Sub(next) > time.Second {
			next = now
		}
	}
}

type runner struct {
	platform Platform
	log      *Log
	mu       sync.Mutex // of what follows
	traffic  *traffic
	answered int
	failed   int
}

// one asks for the next operation and puts the answer on record.
func (r *runner) one(ctx context.Context) error {
	r.mu.Lock()
	a := r.traffic.next(time.Now())
	r.mu.Unlock()
	a.op.Began = time.Now()
	err := a.do(ctx, r.platform.at(a.op.At))
	a.op.Ended, a.op.Answer = time.Now(), AnswerOf(err)
	r.log.add(a.op)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered++
	if a.op.Outcome == Unknown {
		r.failed++
	}
	if a.op.Outcome == Accepted && a.then != nil {
		a.then(a.op.Ended)
	}
	if r.answered == tries && r.failed == tries {
		return fmt.Errorf("the first %d operations all failed, the last of them: %w", tries, err)
	}
	return nil
}
