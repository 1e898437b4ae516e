// Package deploy_test checks what the worker is deployed with against the worker itself, and against
// the types of whoever reads it. It is a module of its own: nothing of what it imports is in the
// worker's go.sum.
package deploy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// program is the worker, built from the tree that this folder is in.
var program string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		folder, err := os.MkdirTemp("", "pinworker-deploy-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(folder) //nolint:errcheck // it is temporary
		program = filepath.Join(folder, "pinworker")
		build := exec.Command("go", "build", "-o", program, "./cmd/pinworker")
		build.Dir = ".."
		if out, err := build.CombinedOutput(); err != nil {
			panic(fmt.Sprintf("build the worker: %v: %s", err, out))
		}
		return m.Run()
	}())
}

// pinworker runs the worker with an environment of its own.
func pinworker(t *testing.T, environment map[string]string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = []string{} // not the test's
	for name, value := range environment {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Errorf("pinworker %s: %v: %s", strings.Join(args, " "), err, exit.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// settings are those that a worker has in an environment. Unknown keys and bad values fail the test.
func settings(t *testing.T, environment map[string]string) map[string]string {
	t.Helper()
	var document struct{ Settings []struct{ Key, Value string } }
	if err := json.Unmarshal([]byte(pinworker(t, environment, "config", "--json")), &document); err != nil {
		t.Fatal(err)
	}
	values := make(map[string]string)
	for _, s := range document.Settings {
		values[s.Key] = s.Value
	}
	return values
}

// wantGrace checks that whoever stops a worker waits for longer than the worker does for its messages.
func wantGrace(t *testing.T, values map[string]string, given time.Duration) {
	t.Helper()
	const closing = 10 * time.Second // a unit of work is rolled back, the server and Kafka's client are closed
	grace, err := time.ParseDuration(values["relay.shutdown_grace"])
	if err != nil {
		t.Fatal(err)
	}
	if given < grace+closing {
		t.Errorf("it is killed after %s; want %s at least, as relay.shutdown_grace is %s", given, grace+closing, grace)
	}
}

// wantCommand checks that the worker knows a command and its flags.
func wantCommand(t *testing.T, command []string) {
	t.Helper()
	if help := pinworker(t, nil, append(slices.Clone(command), "--help")...); !strings.Contains(help, "pinworker "+command[0]) {
		t.Errorf("pinworker %s --help tells of something else: %s", command, help)
	}
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
