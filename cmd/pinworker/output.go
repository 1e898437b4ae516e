package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

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
func (g *globals) load(environ []string, required ...string) (settings.Settings, []settings.Value, error) {
	s, values, err := settings.Load(settings.Sources{File: g.file, Environ: environ, Flags: g.set}, required...)
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

// usage is an error of the caller's.
func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

func writeJSON(w io.Writer, document any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(document)
}

// grid is a table for people: a heading, then rows, in columns.
type grid struct{ w *tabwriter.Writer }

func newGrid(w io.Writer, heading ...any) grid {
	g := grid{tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)}
	if len(heading) > 0 {
		g.row(heading...)
	}
	return g
}

func (g grid) row(cells ...any) {
	for i, cell := range cells {
		if i > 0 {
			fmt.Fprint(g.w, "\t") //nolint:errcheck // flush tells it
		}
		fmt.Fprint(g.w, cell) //nolint:errcheck // flush tells it
	}
	fmt.Fprintln(g.w) //nolint:errcheck // flush tells it
}

func (g grid) flush() error { return g.w.Flush() }

// moment is a time that JSON shows as null, and people as a dash, where there is none.
type moment time.Time

func (m moment) MarshalJSON() ([]byte, error) {
	if time.Time(m).IsZero() {
		return []byte("null"), nil
	}
	return time.Time(m).UTC().MarshalJSON()
}

func (m moment) String() string {
	if time.Time(m).IsZero() {
		return "-"
	}
	return time.Time(m).UTC().Format("2006-01-02 15:04:05Z")
}

// span is a duration in Go's form, in JSON too.
type span time.Duration

func (s span) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s span) String() string { return time.Duration(s).Round(time.Microsecond).String() }
