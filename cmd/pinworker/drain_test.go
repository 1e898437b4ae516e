package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/app/published"
)

// heldKafka takes what is sent, and neither stores nor answers it until it is let go.
type heldKafka struct {
	*kfake.Cluster
	asked, letGo chan struct{}
}

func (k *heldKafka) Brokers() []string { return k.ListenAddrs() }

func newHeldKafka(t *testing.T) *heldKafka {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(8, published.TopicLeadExpired))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	k := &heldKafka{Cluster: cluster, asked: make(chan struct{}, 10_000), letGo: make(chan struct{})}
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		k.asked <- struct{}{}
		cluster.SleepControl(func() { <-k.letGo })
		return nil, nil, false //nolint:nilnil // it is kfake that answers
	})
	return k
}

func TestServe_SIGTERMFinishesWhatIsInFlightAndASecondOneLosesNothing(t *testing.T) {
	const leads = 2000
	for name, signals := range map[string]int{"one": 1, "a second one": 2} {
		t.Run(name, func(t *testing.T) {
			p := newPlatform(t)
			p.execute(fmt.Sprintf(`INSERT INTO crm.leads SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(),
				'Active', now() - n * interval '1 second', NULL, 1, now(), now() FROM generate_series(1, %d) AS n`, leads))
			done[runResult](t, "run", "lead-expiration")
			kafka := newHeldKafka(t)
			worker := &server{t: t, http: fmt.Sprintf("127.0.0.1:%d", embeddedtest.FreePort(t))}
			cmd, _, stderr, _ := program(t, "serve", "--set", "database.url="+p.url, "--set", "kafka.brokers="+kafka.Brokers()[0],
				"--set", "http.listen="+worker.http, "--set", "relay.shutdown_grace=1m")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				cmd.Wait() //nolint:errcheck // its state tells
			}()
			<-kafka.asked
			eventually(t, "all messages are in flight: each is a goroutine's", func() bool {
				_, metrics := worker.get("/metrics")
				return slices.ContainsFunc(strings.Split(metrics, "\n"), func(line string) bool {
					n, is := strings.CutPrefix(line, "go_goroutines ")
					goroutines, err := strconv.Atoi(n)
					return is && err == nil && goroutines > leads
				})
			})
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it is stopping", func() bool { return strings.Contains(stderr.String(), "worker is stopping") })
			if signals == 1 {
				close(kafka.letGo)
				<-ended
				if code := cmd.ProcessState.ExitCode(); code != exitDone {
					t.Errorf("exit %d: %s", code, stderr)
				}
				if distinct, sent := p.messages(kafka); !p.everythingDone(leads) || distinct != leads || sent != leads {
					t.Errorf("%d distinct messages, %d sent; want %d, once, and none that waits", distinct, sent, leads)
				}
				return
			}
			eventually(t, "it ends", func() bool { // the first signal's own meaning may not be back yet
				cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
				select {
				case <-ended:
					return true
				default:
					return false
				}
			})
			if n := p.count("SELECT count(*) FROM crm.outbox"); n != leads {
				t.Errorf("%d messages wait; want all %d", n, leads)
			}
			close(kafka.letGo)
			s := serveWorker(t, "--set", "kafka.brokers="+kafka.Brokers()[0])
			eventually(t, "the next worker finishes the work", func() bool { return p.everythingDone(leads) })
			if code := s.stop(); code != exitDone {
				t.Errorf("exit %d: %s", code, &s.log)
			}
			p.wantPublishedAtLeast(kafka, leads)
		})
	}
}
