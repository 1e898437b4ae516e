package main

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
)

const (
	// faultsEnv set to "full" has each fault come as often as docs/reliability.md tells, and writes its
	// report there; by default a few times.
	faultsEnv = "PINWORKER_TEST_FAULTS"
	// seedEnv repeats the choices of the run that reported the seed.
	seedEnv = "PINWORKER_TEST_SEED"
)

// fault is a way in which the world goes wrong beneath a worker's relay.
type fault struct {
	name        string
	short, full int  // times
	through     bool // whether the worker's network is one that can be spoilt
	// come brings it about once, while messages wait, sees that it happened, and ends it.
	come func(*trial)
	// must names what has to have been seen at least once for each time.
	must string
	// needs says why it cannot be brought about here; nil: it always can.
	needs func(*services) error
}

func faults() []fault {
	list := []fault{
		{name: "worker killed", short: 5, full: 200, come: killWorker, must: "kills"},
		{name: "relay's connections terminated", short: 30, full: 1000, come: terminateConnection, must: "connections ended"},
		{name: "broker killed and restarted", short: 1, full: 15, come: killBroker, must: "kills"},
		{name: "leader lost, of three brokers", short: 1, full: 10, come: loseLeader, must: "times that leaders moved"},
		{name: "minimum of in-sync replicas not met", short: 1, full: 3, come: loseReplicas, must: "outages that the worker told of"},
		{name: "PostgreSQL crashed and restarted", short: 1, full: 20, come: restartPostgres, must: "starts of the server"},
		{name: "PostgreSQL read-only", short: 1, full: 20, come: makeReadOnly, must: "writes refused with 25006"},
		{name: "topic deleted and made again", short: 1, full: 10, come: remakeTopic, must: "times deleted"},
		{name: "message of 2 MB", short: 1, full: 20, come: writeOversize, must: "messages parked"},
	}
	for _, s := range sides {
		for _, w := range weathers {
			list = append(list, fault{
				name: "network to " + s.name + ": " + w.name, short: 1, full: w.times, through: true, come: badNetwork(s, w), must: "questions that met it",
			})
		}
	}
	return append(list, fault{name: "brokers' disk full", short: 1, full: 5, come: fillDisk, must: "times that brokers ended with ENOSPC", needs: canBeFilled})
}

func TestFaults_NothingIsLostAndEachSubjectKeepsItsOrder(t *testing.T) {
	jars := os.Getenv(embeddedtest.KafkaJars)
	if jars == "" {
		t.Skip("needs Apache Kafka itself: " + embeddedtest.KafkaJars)
	}
	full := os.Getenv(faultsEnv) == "full"
	seed := rand.Uint64()
	if text := os.Getenv(seedEnv); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedEnv, err)
		}
	}
	t.Logf("%s=%d", seedEnv, seed)
	s := startServices(t, jars)
	report := faultReport{seed: seed, rows: make(map[string]string)}
	for _, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			if f.needs != nil {
				if err := f.needs(s); err != nil {
					report.leaveOut(f.name, err)
					t.Skip(err)
				}
			}
			times := f.short
			if full {
				times = f.full
			}
			begin := time.Now()
			r := newTrial(t, s, f.name, seed, full)
			r.serve(f.through)
			r.write(1)
			r.settled() // by now it has come up to both
			for range times {
				f.come(r)
			}
			r.settled()
			r.worker.stop()
			if r.seen[f.must] < times {
				t.Errorf("seen: %v; want %q %d times", r.seen, f.must, times)
			}
			report.add(f.name, times, r, time.Since(begin))
			if full && !t.Failed() {
				report.write(t)
			}
		})
	}
	t.Log("\n" + report.text())
}

// killWorker kills a worker at some moment of its rounds, or before its first one, and starts another.
func killWorker(r *trial) {
	if r.waiting() < 2000 { // those that live so shortly on a busy machine may not keep up
		r.write(400)
	}
	eventually(r.T, "it is in a round", func() bool {
		_, lanes := r.connections()
		return len(lanes) > 0 || r.waiting() == 0
	})
	r.moment(500 * time.Millisecond)
	r.worker.kill()
	if r.worker.killed() {
		r.see("kills", 1)
	}
	if r.waiting() > 0 {
		r.see("kills while messages waited", 1)
	}
	r.serve(false)
}

// atMost is the most that something may take, by the form of the run.
func (r *trial) atMost(short, full time.Duration) time.Duration {
	if r.full {
		return full
	}
	return short
}
