package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/pin-platform/pinworker/cmd/pinworker/internal/settings"
)

func newConfig(global *globals, std streams) *cobra.Command {
	var explain bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the effective settings and where each came from",
		Long: `Shows every setting with its effective value and its origin: the default, the file, the
environment variable or --set. Secrets are masked. With --explain: what each is for and what
is allowed.

A key jobs.lead-expiration.batch_size is PINWORKER_JOBS_LEAD_EXPIRATION_BATCH_SIZE in the
environment, and

  jobs:
    lead-expiration:
      batch_size: 500

in the file.`,
		Example: "  pinworker config --config pinworker.yaml\n  pinworker config --explain",
		Args:    cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&explain, "explain", false, "show what each setting is for, its default, and what is allowed")
	cmd.RunE = command(func(*cobra.Command, []string) error {
		if explain && global.json {
			list := make([]map[string]string, 0)
			for _, row := range settings.Describe() {
				list = append(list, map[string]string{"key": row[0], "default": row[1], "allowed": row[2], "about": row[3]})
			}
			return writeJSON(std.out, map[string]any{"settings": list})
		}
		if explain {
			g := newGrid(std.out, "KEY", "DEFAULT", "ALLOWED", "WHAT FOR")
			for _, row := range settings.Describe() {
				g.row(row[0], row[1], row[2], row[3])
			}
			return g.flush()
		}
		_, values, err := global.load(os.Environ())
		if err != nil {
			return err
		}
		if global.json {
			list := make([]map[string]string, len(values))
			for i, v := range values {
				list[i] = map[string]string{"key": v.Key, "value": v.Value, "origin": v.Origin}
			}
			return writeJSON(std.out, map[string]any{"settings": list})
		}
		g := newGrid(std.out, "KEY", "VALUE", "FROM")
		for _, v := range values {
			g.row(v.Key, v.Value, v.Origin)
		}
		return g.flush()
	})
	return cmd
}
