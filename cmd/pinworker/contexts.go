package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/adapters/postgres"
	"github.com/pin-platform/pinworker/cmd/pinworker/internal/settings"
)

// withWorker wires every context that has a database, for one command that asks or decides: also
// those whose jobs run elsewhere, or nowhere.
func withWorker(ctx context.Context, global *globals, std streams, work func(*worker) error) error {
	return withContexts(ctx, global, std, settings.Settings.Configured, (*worker).current,
		func(_ settings.Settings, w *worker) error { return work(w) }, settings.AnyDatabase)
}

// withReachable is withWorker for a command that can do with some of the contexts. Those whose database
// is away are left out; the command says so.
func withReachable(ctx context.Context, global *globals, std streams, work func(settings.Settings, *worker) error) error {
	return withContexts(ctx, global, std, settings.Settings.Configured, (*worker).reach, work, settings.AnyDatabase)
}

// withContext is withWorker for a command about one context: what the others are like does not matter.
func withContext(ctx context.Context, global *globals, std streams, name string, work func(*worker) error) error {
	return withContexts(ctx, global, std, func(settings.Settings) []string { return []string{name} }, (*worker).current,
		func(_ settings.Settings, w *worker) error { return work(w) }, settings.DatabaseOf(name))
}

// withContexts wires some contexts for one command, once they are ready for it. Its log is for whoever
// typed the command: what went wrong, unless log.level asks for more.
func withContexts(
	ctx context.Context, global *globals, std streams, contexts func(settings.Settings) []string,
	ready func(*worker, context.Context) error, work func(settings.Settings, *worker) error, needs ...settings.Need,
) error {
	s, values, err := global.load(os.Environ(), needs...)
	if err != nil {
		return err
	}
	if at := slices.IndexFunc(values, func(v settings.Value) bool { return v.Key == "log.level" }); values[at].Origin == "default" {
		s.Log.Level = slog.LevelWarn
	}
	w, err := newWorker(s, std.err, contexts(s)...)
	if err != nil {
		return err
	}
	if err := ready(w, ctx); err != nil {
		return errors.Join(unready(err), w.close())
	}
	return errors.Join(work(s, w), w.close())
}

// current returns an error where a context's schema cannot be worked with. A context without a job
// here may have no more to do with the database than the common URL: it is told and left out then,
// unless it is the only one.
func (w *worker) current(ctx context.Context) error {
	for _, c := range slices.Clone(w.contexts) {
		if err := c.answers(ctx); err != nil && !w.passOver(c, err) {
			return err
		}
	}
	return nil
}

// answers is current of a context whose database may be silent.
func (c *boundedContext) answers(ctx context.Context) error {
	asking, cancel := withPatience(ctx)
	defer cancel()
	err := c.current(asking)
	if err != nil && asking.Err() != nil {
		return fmt.Errorf("context %s: %w", c.name, context.Cause(asking))
	}
	return err
}

// passOver leaves a context out that has nothing to do with this database, if there is another one.
func (w *worker) passOver(c *boundedContext, err error) bool {
	if len(c.jobs) > 0 || len(w.contexts) == 1 || !postgres.NotOurs(err) {
		return false
	}
	w.log.Warn("a context is passed over: no job of it is enabled here, and it is not in this database", "context", c.name, "error", err)
	w.leaveOut(c)
	return true
}

func (w *worker) leaveOut(c *boundedContext) {
	w.contexts = slices.DeleteFunc(w.contexts, func(other *boundedContext) bool { return other == c })
	if err := c.close(); err != nil {
		w.log.Warn("a context that was left out is not closed", "context", c.name, "error", err)
	}
}

// unasked is a context that a command could not ask.
type unasked struct {
	Context string `json:"context"`
	Error   string `json:"error"`
}

// reach is current for whoever can do with some of the contexts: it leaves out those whose database
// does not answer, unless none does.
func (w *worker) reach(ctx context.Context) error {
	w.unasked = []unasked{}
	all := slices.Clone(w.contexts)
	errs := make([]error, len(all))
	var looks sync.WaitGroup
	for i, c := range all {
		looks.Go(func() { errs[i] = c.answers(ctx) })
	}
	looks.Wait()
	for i, c := range all {
		schema := (*exitError)(nil)
		switch err := errs[i]; {
		case err == nil || w.passOver(c, err):
		case ctx.Err() != nil || len(w.contexts) == 1 || errors.As(unready(err), &schema):
			return err
		default:
			w.unasked = append(w.unasked, unasked{c.name, err.Error()})
			w.leaveOut(c)
		}
	}
	return nil
}

// incomplete returns an error where a context could not be asked: what was printed is not all.
func (w *worker) incomplete() error {
	if len(w.unasked) == 0 {
		return nil
	}
	return errors.New(w.whoWasNotAsked())
}

// noteUnasked tells, beside an answer that is whole, which contexts were not asked for it.
func (w *worker) noteUnasked(std streams) {
	if len(w.unasked) > 0 {
		fmt.Fprintln(std.err, "pinworker:", w.whoWasNotAsked()) //nolint:errcheck // the answer itself was printed
	}
}

func (w *worker) whoWasNotAsked() string {
	texts := make([]string, len(w.unasked))
	for i, u := range w.unasked {
		texts[i] = fmt.Sprintf("%s was not asked: %s", u.Context, u.Error)
	}
	return strings.Join(texts, "; ")
}

// actOn acts on an id in the context that knows it: the others answer with unknown. list is the command that
// shows which ids are known.
func (w *worker) actOn(std streams, id uuid.UUID, unknown error, list string, act func(*boundedContext) error) error {
	err := unknown
	for _, c := range w.contexts {
		if err = act(c); !errors.Is(err, unknown) {
			break
		}
	}
	switch {
	case errors.Is(err, unknown):
		return fmt.Errorf("%s: %w; `pinworker %s` shows what is; looked for in %s", id, err, list, w.where())
	case err != nil:
		return err
	}
	w.noteUnasked(std)
	return nil
}

// where names the contexts that were asked, and those that were not.
func (w *worker) where() string {
	asked := strings.Join(w.names(), ", ")
	if len(w.unasked) > 0 {
		asked += "; " + w.whoWasNotAsked()
	}
	return asked
}

// unready gives a schema that cannot be worked with its exit code: nothing was touched.
func unready(err error) error {
	var lacks *postgres.PlatformError
	if errors.Is(err, postgres.ErrSchemaBehind) || errors.As(err, &lacks) {
		return &exitError{exitUsage, err}
	}
	return err
}
