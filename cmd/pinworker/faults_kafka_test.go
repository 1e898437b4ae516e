package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"
)

// killBroker kills one of the three brokers, perhaps the one that is the controller, and starts it again.
func killBroker(r *trial) {
	victim := 1 + r.choice.IntN(3)
	r.write(200)
	r.moment(50 * time.Millisecond)
	r.kafka.Kill(victim)
	if ended, _ := r.kafka.Ended(victim); ended {
		r.see(fmt.Sprintf("kills of broker %d", victim), 1)
		r.see("kills", 1)
	}
	r.write(200)
	r.moment(r.atMost(time.Second, 5*time.Second))
	r.restart(victim)
	r.write(50)
	r.settled()
}

// loseLeader kills a broker that leads a part of the topic and is not the controller: others take over, and
// messages go on without it.
func loseLeader(r *trial) {
	leads := func(id int32) (n int) {
		for _, p := range r.partitions() {
			if p.Leader == id {
				n++
			}
		}
		return n
	}
	victim := int32(2 + r.choice.IntN(2))
	led := leads(victim)
	r.write(200)
	r.moment(50 * time.Millisecond)
	r.kafka.Kill(int(victim))
	r.write(200)
	eventually(r.T, "others lead", func() bool {
		partitions := r.partitions()
		return len(partitions) > 0 && !slices.ContainsFunc(partitions, func(p kadm.PartitionDetail) bool { return p.Leader == victim || p.Leader < 0 })
	})
	r.settled()
	if led > 0 {
		r.see("times that leaders moved", 1)
	}
	r.see("partitions whose leader moved", led)
	r.restart(int(victim))
}

// restart starts brokers again, and waits until they are as they were: each partition has its replicas, and
// is led by the broker that it began with.
func (r *trial) restart(brokers ...int) {
	r.Helper()
	var starts errgroup.Group
	for _, id := range brokers {
		starts.Go(func() error { return r.kafka.Restart(r.Context(), id) })
	}
	if err := starts.Wait(); err != nil {
		r.Fatal(err)
	}
	r.replicated()
	eventually(r.T, "leaders are elected anew", func() bool {
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		var all kadm.TopicsSet
		for partition := range r.partitions() {
			all.Add(r.topic, int32(partition))
		}
		_, err := r.admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, all)
		return err == nil && !slices.ContainsFunc(r.partitions(), func(p kadm.PartitionDetail) bool { return p.Leader != p.Replicas[0] })
	})
}

// loseReplicas kills two of three brokers: the last one leads all, and may take nothing.
func loseReplicas(r *trial) {
	r.write(100)
	r.moment(50 * time.Millisecond)
	r.kafka.Kill(2)
	r.kafka.Kill(3)
	eventually(r.T, "one replica of each partition is left", func() bool {
		partitions := r.partitions()
		return len(partitions) > 0 && !slices.ContainsFunc(partitions, func(p kadm.PartitionDetail) bool { return len(p.ISR) != 1 })
	})
	begin, told := time.Now(), r.worker.heldUp()
	r.write(200)
	eventually(r.T, "the worker has met it", func() bool { return r.worker.heldUp() > told })
	if r.full { // that long is what is tried
		<-time.After(time.Until(begin.Add(30 * time.Second)))
	}
	if waiting := r.waiting(); waiting < 200 {
		r.Errorf("%d messages wait; want all that were written meanwhile, 200", waiting)
	}
	r.see("seconds with one replica of two that must be", int(time.Since(begin).Seconds()))
	r.see("outages that the worker told of", r.worker.heldUp()-told)
	r.restart(2, 3)
	r.settled()
}

// remakeTopic deletes the topic while nothing is on its way, so that what it held is known, and makes it again
// while messages wait.
func remakeTopic(r *trial) {
	r.write(100)
	r.settled()
	held := r.records()
	r.before = append(r.before, held...)
	told := r.worker.heldUp()
	if deleted, err := r.admin.DeleteTopics(r.Context(), r.topic); err != nil || deleted.Error() != nil {
		r.Fatal(err, deleted.Error())
	}
	eventually(r.T, "no broker knows it any more", func() bool { return !r.anyBrokerKnowsTheTopic() })
	r.see("records deleted with it", len(held))
	r.see("times deleted", 1)
	r.write(100)
	eventually(r.T, "the worker has met it", func() bool { return r.worker.heldUp() > told })
	r.see("outages that the worker told of", r.worker.heldUp()-told)
	if waiting := r.waiting(); waiting != 100 {
		r.Errorf("%d messages wait; want all 100", waiting)
	}
	r.createTopic()
	r.write(100)
	r.settled()
}

func (r *trial) anyBrokerKnowsTheTopic() bool {
	r.Helper()
	for id := range 3 {
		request := kmsg.NewPtrMetadataRequest()
		request.Topics = []kmsg.MetadataRequestTopic{{Topic: &r.topic}}
		response, err := request.RequestWith(r.Context(), r.client.Broker(id+1))
		if err != nil {
			r.Fatal(err)
		}
		if response.Topics[0].ErrorCode != kerr.UnknownTopicOrPartition.Code {
			return true
		}
	}
	return false
}

// writeOversize commits a message that Kafka takes in no way, in company.
func writeOversize(r *trial) {
	parked := func() int { return r.count("SELECT count(*) FROM crm.outbox_parked WHERE topic = $1", r.topic) }
	before := parked()
	r.write(50)
	r.writeSized(1, 2<<20)
	r.write(50)
	r.settled()
	r.see("messages parked", parked()-before)
}

func canBeFilled(s *services) error { return s.disk.unmounted }

// fillDisk leaves the brokers no room: what they cannot write ends them. Then there is room again.
func fillDisk(r *trial) {
	r.write(100)
	r.moment(50 * time.Millisecond)
	r.disk.fill(r.T)
	var ended []int
	eventually(r.T, "a broker ends for want of room", func() bool {
		if r.waiting() < 500 {
			r.write(100)
		}
		ended = nil
		for id := range 3 {
			if gone, said := r.kafka.Ended(id + 1); gone && strings.Contains(strings.ToLower(said), syscall.ENOSPC.Error()) {
				ended = append(ended, id+1)
			}
		}
		return len(ended) > 0
	})
	r.see("times that brokers ended with ENOSPC", 1)
	r.see("brokers that ended", len(ended))
	r.disk.empty(r.T)
	r.restart(1, 2, 3)
	r.settled()
}
