package kafka

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/IBM/sarama"
)

// codes are all that the client knows, by name, as its source has them.
func codes(t *testing.T) map[string]sarama.KError {
	t.Helper()
	folder, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/IBM/sarama").Output()
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(strings.TrimSpace(string(folder)), "errors.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]sarama.KError)
	ast.Inspect(file, func(n ast.Node) bool {
		value, ok := n.(*ast.ValueSpec)
		if !ok || len(value.Values) != 1 {
			return true
		}
		if kind, ok := value.Type.(*ast.Ident); !ok || kind.Name != "KError" {
			return true
		}
		var text string
		switch v := value.Values[0].(type) {
		case *ast.BasicLit:
			text = v.Value
		case *ast.UnaryExpr:
			text = "-" + v.X.(*ast.BasicLit).Value
		}
		code, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("%s: %v", value.Names[0].Name, err)
		}
		found[value.Names[0].Name] = sarama.KError(code)
		return true
	})
	if len(found) < 90 {
		t.Fatalf("found only %d codes", len(found))
	}
	return found
}

// Neither ErrInvalidTimestamp, which is about our clock, nor ErrInvalidMessage, which is about the way to the
// broker, is about the message.
func TestRefused_EveryCodeThatTheClientKnows(t *testing.T) {
	refused := map[string]bool{
		"ErrInvalidMessageSize": true, "ErrMessageSizeTooLarge": true, "ErrMessageSetSizeTooLarge": true,
		"ErrUnsupportedForMessageFormat": true, "ErrInvalidRecord": true,
	}
	known := codes(t)
	for name, code := range known {
		t.Run(name, func(t *testing.T) {
			if _, is := permanent[code]; is == slices.Contains(transient, code) {
				t.Errorf("%s (%d) is to be one of permanent and transient", name, code)
			}
			for how, err := range map[string]error{
				"itself": code, "wrapped": fmt.Errorf("produce: %w", code),
			} {
				got := Refused(&PublishError{Topic: "t", Err: err})
				if got != refused[name] {
					t.Errorf("%s (%d), %s: refused %v; want %v", name, code, how, got, refused[name])
				}
			}
		})
	}
	if n := len(permanent) + len(transient); n != len(known) {
		t.Errorf("%d codes have a verdict; the client knows %d", n, len(known))
	}
}

func TestRefused_WhatIsNoCode(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		want bool
	}{
		{"an envelope that cannot be opened", errors.New("cannot unmarshal"), true},
		{"a message that the client does not send for its size", &PublishError{Topic: "t", Err: sarama.ConfigurationError("larger than Producer.MaxMessageBytes")}, true},
		{"a message that the client cannot encode", &PublishError{Topic: "t", Err: sarama.PacketEncodingError{Info: "too long"}}, true},
		{"a message that is no record", &PublishError{Topic: "t", Err: notARecordError{errors.New("reserved")}}, true},
		{"a client that is set up wrongly", &PublishError{Topic: "t", Err: notConnectedError{sarama.ConfigurationError("TLS without a certificate")}}, false},
		{"a code that nobody knows", &PublishError{Topic: "t", Err: sarama.KError(4711)}, false},
		{"no broker", &PublishError{Topic: "t", Err: sarama.ErrOutOfBrokers}, false},
		{"an open breaker", &PublishError{Topic: "t", Err: errors.New("circuit breaker is open")}, false},
		{"a lost connection", &PublishError{Topic: "t", Err: notConnectedError{errors.New("connection refused")}}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Refused(test.err); got != test.want {
				t.Errorf("refused %v; want %v", got, test.want)
			}
		})
	}
}
