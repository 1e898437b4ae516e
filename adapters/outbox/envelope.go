package outbox

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/pin-platform/pinworker/ports"
)

// The envelope is that of Watermill's forwarder.Publisher, byte for byte (envelope_test.go). It is
// written by hand because reflection over a map of headers took a fifth of a page's time
// (docs/performance.md); Watermill's Forwarder takes it apart.

// envelopeSize is about how long an envelope is: for buffers.
const envelopeSize = 1100

// header is one of a message's.
type header struct{ name, value string }

// traceHeaders are those of W3C's trace context, in order.
func traceHeaders(ctx context.Context) []header {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	var headers []header
	for _, name := range slices.Sorted(maps.Keys(carrier)) {
		headers = append(headers, header{name, carrier[name]})
	}
	return headers
}

// appendEnvelope appends a message in its envelope. Headers come in the order of their names, as
// encoding/json writes a map.
func appendEnvelope(text []byte, source string, run ports.RunID, m ports.Message, traced []header) []byte {
	text = append(text, `{"destination_topic":`...)
	text = appendString(text, m.Topic)
	text = append(text, `,"uuid":`...)
	text = appendID(text, m.ID)
	text = append(text, `,"payload":"`...)
	text = base64.StdEncoding.AppendEncode(text, m.Payload)
	text = append(text, `","metadata":{`...)
	text = appendString(appendName(text, headerAggregateType), m.AggregateType)
	text = appendInt(appendName(append(text, ','), headerAggregateVersion), m.AggregateVersion)
	text = appendInt(appendName(append(text, ','), headerContractVersion), m.ContractVersion)
	text = appendID(appendName(append(text, ','), headerCorrelationID), run)
	text = appendID(appendName(append(text, ','), HeaderID), m.ID)
	text = appendString(appendName(append(text, ','), HeaderPartitionKey), m.Key)
	text = appendString(appendName(append(text, ','), headerSource), source)
	text = appendString(appendName(append(text, ','), headerSpecVersion), "1.0")
	text = appendID(appendName(append(text, ','), headerSubject), m.Subject)
	text = appendID(appendName(append(text, ','), headerTenantID), m.Tenant)
	text = append(appendName(append(text, ','), headerTime), '"')
	text = append(m.OccurredAt.AppendFormat(text, time.RFC3339Nano), '"')
	text = appendString(appendName(append(text, ','), headerType), m.Topic)
	text = appendString(appendName(append(text, ','), headerContentType), "application/json")
	for _, h := range traced {
		text = appendString(appendName(append(text, ','), h.name), h.value)
	}
	return append(text, "}}"...)
}

func appendName(text []byte, name string) []byte { return append(appendString(text, name), ':') }

func appendInt(text []byte, n int) []byte {
	return append(strconv.AppendInt(append(text, '"'), int64(n), 10), '"')
}

// appendID appends an id in its text form.
func appendID[ID ~[16]byte](text []byte, id ID) []byte {
	b := [16]byte(id)
	text = hex.AppendEncode(append(text, '"'), b[:4])
	for _, part := range [][]byte{b[4:6], b[6:8], b[8:10], b[10:]} {
		text = hex.AppendEncode(append(text, '-'), part)
	}
	return append(text, '"')
}

// appendString appends a JSON string as encoding/json does.
func appendString(text []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			quoted, _ := json.Marshal(s) //nolint:errchkjson // a string has always a form
			return append(text, quoted...)
		}
	}
	return append(append(append(text, '"'), s...), '"')
}
