package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion(global *globals, std streams) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Show the version, the commit and Go's version",
		Example: "  pinworker version --json",
		Args:    cobra.NoArgs,
		RunE: command(func(*cobra.Command, []string) error {
			if global.json {
				return writeJSON(std.out, map[string]string{"version": version(), "commit": commit(), "go": runtime.Version()})
			}
			_, err := fmt.Fprintf(std.out, "pinworker %s (commit %s, %s)\n", version(), commit(), runtime.Version())
			return err
		}),
	}
}

// version is the module's, as Go's build recorded it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "unknown"
}
