package outbox

import (
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// NewWatermillLogger returns Watermill's logger on ours. Watermill's own adapter writes the lines, its
// Info as Debug; before it stands that a text is written once a minute at most, with how often it was
// kept back, that nothing of what a message holds is written, and nothing of each message that goes well.
func NewWatermillLogger(log *slog.Logger) watermill.LoggerAdapter {
	levels := map[slog.Level]slog.Level{slog.LevelInfo: slog.LevelDebug}
	return &watermillLogger{
		to:     watermill.NewSlogLoggerWithLevelMapping(log.With("from", "watermill"), levels),
		seldom: &seldom{texts: make(map[string]*told)},
	}
}

type watermillLogger struct {
	to     watermill.LoggerAdapter
	seldom *seldom // one for all that With returns
}

// Error implements watermill.LoggerAdapter.
func (l *watermillLogger) Error(text string, err error, fields watermill.LogFields) {
	l.write(text, fields, func(text string, fields watermill.LogFields) { l.to.Error(text, err, fields) })
}

// Info implements watermill.LoggerAdapter.
func (l *watermillLogger) Info(text string, fields watermill.LogFields) {
	l.write(text, fields, l.to.Info)
}

// Debug implements watermill.LoggerAdapter.
func (l *watermillLogger) Debug(text string, fields watermill.LogFields) {
	l.write(text, fields, l.to.Debug)
}

// Trace implements watermill.LoggerAdapter. Its lines are about each message.
func (*watermillLogger) Trace(string, watermill.LogFields) {}

// With implements watermill.LoggerAdapter.
func (l *watermillLogger) With(fields watermill.LogFields) watermill.LoggerAdapter {
	return &watermillLogger{to: l.to.With(plain(fields)), seldom: l.seldom}
}

func (l *watermillLogger) write(text string, fields watermill.LogFields, to func(string, watermill.LogFields)) {
	keptBack, ok := l.seldom.allows(text)
	if !ok {
		return
	}
	fields = plain(fields)
	if keptBack > 0 {
		fields["kept_back"] = keptBack
	}
	to(text, fields)
}

// plain returns what is a number, a text or the like: Watermill's payloads and metadata are not.
func plain(fields watermill.LogFields) watermill.LogFields {
	fields = maps.Clone(fields)
	if fields == nil {
		return watermill.LogFields{}
	}
	maps.DeleteFunc(fields, func(name string, value any) bool {
		return name == "payload" || slog.AnyValue(value).Kind() == slog.KindAny
	})
	return fields
}

// seldom lets each text through once a minute. Watermill's texts are constants, and few.
type seldom struct {
	mu    sync.Mutex
	texts map[string]*told
}

type told struct {
	at       time.Time
	keptBack int // since then
}

func (s *seldom) allows(text string) (keptBack int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.texts[text]
	if last != nil && time.Since(last.at) < time.Minute {
		last.keptBack++
		return 0, false
	}
	if last != nil {
		keptBack = last.keptBack
	}
	s.texts[text] = &told{at: time.Now()}
	return keptBack, true
}
