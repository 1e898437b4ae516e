package outbox

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// written returns what a logger of Watermill's has written, in either form.
func written(use func(watermill.LoggerAdapter)) string {
	var text bytes.Buffer
	options := &slog.HandlerOptions{Level: watermill.LevelTrace}
	use(NewWatermillLogger(slog.New(slog.NewJSONHandler(&text, options))))
	use(NewWatermillLogger(slog.New(slog.NewTextHandler(&text, options))))
	return text.String()
}

func TestWatermillLog_NeverHasAPayload(t *testing.T) {
	secret := "a secret of somebody's"
	fields := watermill.LogFields{
		"payload": message.Payload(secret), "again": []byte(secret), "metadata": message.Metadata{"secret": secret},
		"message": message.NewMessage("an id", message.Payload(secret)), "topic": "a topic", "attempt": 3,
	}
	asText := watermill.LogFields{"payload": secret, "topic": "a topic", "attempt": 3}
	text := written(func(l watermill.LoggerAdapter) {
		for name, fields := range map[string]watermill.LogFields{"bytes": fields, "text": asText} {
			l.Error("error of "+name, errors.New("the reason"), fields)
			l.Info("info of "+name, fields)
			l.Debug("debug of "+name, fields)
			l.Trace("trace of "+name, fields)
			l.With(fields).Info("with "+name, nil)
		}
	})
	for _, form := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret)), fmt.Sprintf("%d", []byte(secret)), fmt.Sprintf("%x", secret)} {
		if strings.Contains(text, form) {
			t.Errorf("the payload is in the log, as %s", form)
		}
	}
	for _, part := range []string{"error of bytes", "the reason", "info of text", "debug of text", "with bytes", "a topic", "attempt=3"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in the log:\n%s", part, text)
		}
	}
}

func TestWatermillLog_SaysATextOnceAMinuteAndHowManyItStandsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := written(func(l watermill.LoggerAdapter) {
			for range 100 {
				l.With(watermill.LogFields{"handler": "relay"}).Error("it fails", errors.New("the reason"), nil)
			}
			l.Error("another text", errors.New("the reason"), nil)
			time.Sleep(time.Minute)
			l.Error("it fails", errors.New("the reason"), nil)
		})
		for part, want := range map[string]int{"it fails": 4, "another text": 2, "kept_back=99": 1, `"kept_back":99`: 1, "kept_back": 2} {
			if n := strings.Count(text, part); n != want {
				t.Errorf("%q %d times, in two forms; want %d:\n%s", part, n, want, text)
			}
		}
	})
}
