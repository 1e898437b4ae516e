package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// workerProcess is `pinworker serve` as a process of its own.
type workerProcess struct {
	t     *testing.T
	cmd   *exec.Cmd
	log   *lockedBuffer
	ended chan struct{}
}

// serve starts a worker that looks for messages often. through says whether the network lies in between.
func (r *trial) serve(through bool) *workerProcess {
	r.Helper()
	database, brokers := r.database, r.kafka.Brokers()
	if through {
		database, brokers = r.network.databaseURL, r.kafka.BrokersThrough()
	}
	w := &workerProcess{t: r.T, ended: make(chan struct{})}
	w.cmd, _, w.log, _ = program(r.T, "serve", "--set", "database.url="+database, "--set", "kafka.brokers="+strings.Join(brokers, ","),
		"--set", "http.listen=127.0.0.1:0", "--set", "relay.poll_interval=50ms", "--set", "jobs.reminder-dispatch.enabled=false",
		"--set", "jobs.appointment-timeout.enabled=false", "--set", "jobs.expire-promotions.enabled=false")
	if err := w.cmd.Start(); err != nil {
		r.Fatal(err)
	}
	go func() {
		defer close(w.ended)
		w.cmd.Wait() //nolint:errcheck // its state tells
	}()
	r.Cleanup(func() {
		w.kill()
		if r.Failed() {
			r.Logf("the worker's log:\n%s", w.log)
		}
	})
	eventually(r.T, "the worker has started", func() bool { return w.told("worker started", "") > 0 })
	r.worker = w
	return w
}

func (w *workerProcess) kill() {
	w.cmd.Process.Kill() //nolint:errcheck // it may have ended
	<-w.ended
}

// killed reports whether it ended by SIGKILL.
func (w *workerProcess) killed() bool {
	status, ok := w.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// stop ends it as a deployment does.
func (w *workerProcess) stop() {
	w.t.Helper()
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		w.t.Fatal(err)
	}
	<-w.ended
	if code := w.cmd.ProcessState.ExitCode(); code != exitDone {
		w.t.Errorf("exit %d: %s", code, w.log)
	}
}

// told counts the lines of its log with a text, and part of an error, that begin and have it so.
func (w *workerProcess) told(text, why string) (n int) {
	for line := range strings.Lines(w.log.String()) {
		var entry struct{ Msg, Error string }
		if json.Unmarshal([]byte(line), &entry) == nil && strings.HasPrefix(entry.Msg, text) && strings.Contains(entry.Error, why) {
			n++
		}
	}
	return n
}

// heldUp counts how often it told that an outage began, heldUpBy those of one kind.
func (w *workerProcess) heldUp() int             { return w.heldUpBy("") }
func (w *workerProcess) heldUpBy(why string) int { return w.told("outbox relay is held up", why) }
