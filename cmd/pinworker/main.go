// Command pinworker runs the recurring jobs of the PIN platform. `pinworker --help` tells
// what it can do.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	_ "time/tzdata" // an image from scratch has no time zones of its own

	"github.com/spf13/cobra"

	"github.com/pin-platform/pinworker/adapters/embedded"
)

// Exit codes (spec: interface, commands).
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2 // bad usage or configuration: nothing was touched
	exitNotInOrder  = 3 // done, and what was checked is not in order
	exitInterrupted = 130
)

func main() {
	embedded.RunChild()
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		// Collecting garbage less often makes a page a fifth faster (docs/performance.md); the limit keeps
		// the heap below 64 MiB all the same.
		debug.SetGCPercent(400)
		debug.SetMemoryLimit(72 << 20)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal stops at once
	os.Exit(run(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}))
}

// run is main, for tests as well.
func run(ctx context.Context, args []string, std streams) int {
	root := newRoot(std)
	root.SetArgs(args)
	root.SetOut(std.out)
	root.SetErr(std.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	var coded *exitError
	switch {
	case errors.As(err, &coded):
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		coded = &exitError{exitInterrupted, errors.New("interrupted")}
	default: // cobra's own: a command, flag or argument that there is not
		coded = &exitError{exitUsage, fmt.Errorf("%w\nSee `pinworker --help`", err)}
	}
	if coded.err != nil {
		fmt.Fprintln(std.err, "pinworker:", coded.err) //nolint:errcheck // nothing is left to tell it to
	}
	return coded.code
}

// exitError is how a command ends other than by success.
type exitError struct {
	code int
	err  error // nil where the output has told it all
}

func (e *exitError) Error() string { return fmt.Sprint(e.err) }
func (e *exitError) Unwrap() error { return e.err }

func newRoot(std streams) *cobra.Command {
	var global globals
	root := &cobra.Command{
		Use:   "pinworker",
		Short: "Runs the recurring jobs of the PIN platform",
		Long: `pinworker runs the recurring jobs of the PIN platform over PostgreSQL and carries
their messages to Kafka. Any number of instances may run side by side.

Try it on a machine that has nothing but Go:   pinworker demo
Deploy it:                                     pinworker migrate up && pinworker serve
Ask it:                                        pinworker backlog, pinworker plan JOB, pinworker explain ID, pinworker verify

Settings come from --config (or PINWORKER_CONFIG), then the environment, then --set.
Exit codes: 0 done; 1 failed; 2 bad usage or configuration, nothing was touched;
3 done, and what was checked is not in order; 130 interrupted.`,
		Example:       "  pinworker demo\n  pinworker serve --config pinworker.yaml\n  pinworker run lead-expiration --json",
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&global.file, "config", os.Getenv("PINWORKER_CONFIG"), "YAML file with settings")
	flags.StringArrayVar(&global.set, "set", nil, "a setting, as key=value; may be repeated")
	flags.BoolVar(&global.json, "json", false, "one JSON document on standard output, and nothing else there")
	root.AddCommand(
		newServe(&global, std), newRun(&global, std), newPlan(&global, std), newExplain(&global, std), newBacklog(&global, std), newVerify(&global, std),
		newQuarantine(&global, std), newHistory(&global, std), newOutbox(&global, std), newDoctor(&global, std), newSimulate(&global, std), newBench(&global, std),
		newMigrate(&global, std), newDemo(&global, std), newConfig(&global, std), newVersion(&global, std),
	)
	return root
}
