package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/pin-platform/pinworker/cmd/pinworker/internal/settings"
)

// streams are what a command reads from and writes to.
type streams struct {
	in  io.Reader
	out io.Writer // what was asked for
	err io.Writer // logs and progress
}

// globals are the flags of every command.
type globals struct {
	file string
	set  []string
	json bool
}

// load reads the settings; a problem with them ends the command with exit code 2.
func (g *globals) load(environ []string, needs ...settings.Need) (settings.Settings, []settings.Value, error) {
	s, values, err := settings.Load(settings.Sources{File: g.file, Environ: environ, Flags: g.set}, needs...)
	if err != nil {
		return s, values, &exitError{exitUsage, err}
	}
	return s, values, nil
}

// command gives a command's work its error handling: what is not interrupted and has no exit
// code yet has failed.
func command(work func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := work(cmd, args)
		var coded *exitError
		switch {
		case err == nil, errors.As(err, &coded):
			return err
		case errors.Is(err, context.Canceled) && cmd.Context().Err() != nil:
			return err
		}
		return &exitError{exitFailed, err}
	}
}

// parent is a command that only groups others: by itself it is a mistake.
func parent(cmd *cobra.Command, children ...*cobra.Command) *cobra.Command {
	names := make([]string, len(children))
	for i, child := range children {
		names[i] = child.Name()
		cmd.Example += child.Example + "\n"
	}
	cmd.Example = strings.TrimRight(cmd.Example, "\n")
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		allowed := strings.Join(names, ", ")
		if len(args) > 0 {
			return usage("unknown command %q: %s has %s", args[0], cmd.CommandPath(), allowed)
		}
		return usage("%s: which of %s?", cmd.CommandPath(), allowed)
	}
	cmd.AddCommand(children...)
	return cmd
}

// oneArgument wants exactly one, and says what it is.
func oneArgument(name, allowed string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s takes one %s: allowed is %s", cmd.CommandPath(), name, allowed)
		}
		return nil
	}
}

// usage is an error of the caller's.
func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

func writeJSON(w io.Writer, document any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(document)
}

// grid is a table for people: a heading, then rows, in columns; numbers are aligned right.
type grid struct {
	w    io.Writer
	rows [][]any
}

func newGrid(w io.Writer, heading ...any) *grid {
	g := &grid{w: w}
	if len(heading) > 0 {
		g.row(heading...)
	}
	return g
}

func (g *grid) row(cells ...any) { g.rows = append(g.rows, cells) }

func (g *grid) flush() error {
	var widths []int
	right := make(map[int]bool)
	for _, cells := range g.rows {
		for i, cell := range cells {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(fmt.Sprint(cell)))
			if _, number := cell.(int); number {
				right[i] = true
			}
		}
	}
	var b strings.Builder
	for _, cells := range g.rows {
		padded := make([]string, len(cells))
		for i, cell := range cells {
			text := fmt.Sprint(cell)
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
			if padded[i] = text + pad; right[i] {
				padded[i] = pad + text
			}
		}
		b.WriteString(strings.TrimRight(strings.Join(padded, "   "), " ") + "\n")
	}
	_, err := io.WriteString(g.w, b.String())
	return err
}

// moment is a time that JSON shows as null, and people as a dash, where there is none.
type moment time.Time

func (m moment) MarshalJSON() ([]byte, error) {
	if time.Time(m).IsZero() {
		return []byte("null"), nil
	}
	return time.Time(m).UTC().MarshalJSON()
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (m *moment) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, (*time.Time)(m)) }

func (m moment) String() string {
	if time.Time(m).IsZero() {
		return "-"
	}
	return time.Time(m).UTC().Format(time.RFC3339)
}
