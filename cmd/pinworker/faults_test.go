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
	short, full int // times
	// come brings it about once, while messages wait, sees that it happened, and ends it.
	come func(*trial)
	// must names what has to have been seen at least once for each time.
	must string
}

func faults() []fault {
	list := []fault{
		{"worker killed", 5, 200, killWorker, "kills"},
	}
	for _, s := range sides {
		for _, w := range weathers {
			list = append(list, fault{"network to " + s.name + ": " + w.name, 1, 10, badNetwork(s, w), "questions that met it"})
		}
	}
	return list
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
	report := faultReport{seed: seed}
	for _, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			times := f.short
			if full {
				times = f.full
			}
			begin := time.Now()
			r := newTrial(t, s, f.name, seed, full)
			for range times {
				f.come(r)
			}
			if r.worker == nil {
				r.serve(false)
			}
			r.settled()
			r.worker.stop()
			if r.seen[f.must] < times {
				t.Errorf("seen: %v; want %q %d times", r.seen, f.must, times)
			}
			report.add(f.name, times, r.seen, r.check(), time.Since(begin))
		})
	}
	t.Log("\n" + report.table())
}

// killWorker kills a worker at some moment after it has begun to send.
func killWorker(r *trial) {
	before := r.waiting() + 400
	r.write(400)
	w := r.serve(false)
	eventually(r.T, "it is in a round", func() bool { return r.waiting() < before || len(r.inRound()) > 0 })
	r.moment(150 * time.Millisecond)
	w.kill()
	r.worker = nil
	if w.killed() {
		r.see("kills", 1)
	}
	if after := r.waiting(); after > 0 {
		r.see("kills while messages waited", 1)
	}
}

// atMost is the most that something may take, by the form of the run.
func (r *trial) atMost(short, full time.Duration) time.Duration {
	if r.full {
		return full
	}
	return short
}
