package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// network lies between a worker and the two that it talks to: a proxy in front of PostgreSQL, and one in
// front of each broker.
type network struct {
	server      *toxiproxy.ApiServer
	postgres    []*toxiproxy.Proxy // one
	kafka       []*toxiproxy.Proxy
	databaseURL string // that leads through it
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{server: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.New(io.Discard))}
	t.Cleanup(func() {
		for _, p := range append(n.postgres, n.kafka...) {
			p.Stop()
		}
	})
	return n
}

func (n *network) proxy(upstream string) (*toxiproxy.Proxy, error) {
	p := toxiproxy.NewProxy(n.server, upstream, "127.0.0.1:0", upstream)
	return p, p.Start()
}

func (n *network) database(t *testing.T, databaseURL string) {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	p, err := n.proxy(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = p.Listen
	n.postgres, n.databaseURL = append(n.postgres, p), u.String()
}

func (n *network) broker(address string) (string, error) {
	p, err := n.proxy(address)
	if err != nil {
		return "", err
	}
	n.kafka = append(n.kafka, p)
	return p.Listen, nil
}

// side is one of the two that a worker talks to.
type side struct {
	name    string
	proxies func(*network) []*toxiproxy.Proxy
	ask     []byte // anyone may ask it so, and gets an answer
}

var sides = []side{
	{"PostgreSQL", func(n *network) []*toxiproxy.Proxy { return n.postgres }, []byte("\x00\x00\x00\x08\x04\xd2\x16\x2f")},                 // SSLRequest
	{"Kafka", func(n *network) []*toxiproxy.Proxy { return n.kafka }, []byte("\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff")}, // ApiVersions
}

// weather is a way in which a network is bad.
type weather struct {
	name  string
	toxic string // Toxiproxy's, in both directions; "": no connection at all
	stops bool   // whether nothing gets through
	times int    // in the full form
	// shows tells it by what became of a question that was asked through it.
	shows func(took time.Duration, err error) bool
}

const latency = 150 * time.Millisecond

var weathers = []weather{
	{"slow", fmt.Sprintf(`"type": "latency", "attributes": {"latency": %d, "jitter": 50}`, latency.Milliseconds()), false, 10,
		func(took time.Duration, err error) bool { return err == nil && took >= latency }},
	{"cut", "", true, 10, func(_ time.Duration, err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }},
	{"half-open", `"type": "timeout", "attributes": {"timeout": 0}`, true, 3,
		func(_ time.Duration, err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }},
	{"resets", `"type": "reset_peer", "attributes": {"timeout": 0}`, true, 10,
		func(_ time.Duration, err error) bool { return errors.Is(err, syscall.ECONNRESET) }},
}

func (w weather) begins(p *toxiproxy.Proxy) error {
	if w.toxic == "" {
		p.Stop()
		return nil
	}
	for _, direction := range []string{"upstream", "downstream"} {
		_, err := p.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(`{"name": %q, "stream": %[1]q, %s}`, direction, w.toxic)))
		if err != nil {
			return err
		}
	}
	return nil
}

func (w weather) ends(ctx context.Context, p *toxiproxy.Proxy) error {
	if w.toxic == "" {
		return p.Start()
	}
	p.Toxics.ResetToxics(ctx)
	return nil
}

// asks returns how long an answer took through a proxy, or why there was none.
func (s side) asks(p *toxiproxy.Proxy) (time.Duration, error) {
	begin := time.Now()
	conn, err := net.Dial("tcp", p.Listen)
	if err != nil {
		return 0, err
	}
	defer conn.Close() //nolint:errcheck // a question of a moment
	if err := conn.SetDeadline(begin.Add(time.Second)); err != nil {
		return 0, err
	}
	if _, err := conn.Write(s.ask); err != nil {
		return 0, err
	}
	_, err = conn.Read(make([]byte, 1))
	return time.Since(begin), err
}

// badNetwork spoils the way to one side while messages wait, for as long as the run says, and mends it.
func badNetwork(s side, w weather) func(*trial) {
	return func(r *trial) {
		r.write(100)
		r.moment(100 * time.Millisecond)
		before := r.worker.heldUp()
		ends := sync.OnceFunc(func() {
			for _, p := range s.proxies(r.network) {
				if err := w.ends(r.Context(), p); err != nil {
					r.Error(err)
				}
			}
		})
		defer ends() // the next fault wants a sound network, whatever became of this one
		for _, p := range s.proxies(r.network) {
			if err := w.begins(p); err != nil {
				r.Fatal(err)
			}
			took, err := s.asks(p)
			if !w.shows(took, err) {
				r.Errorf("the way to %s is not %s: %v, %v", s.name, w.name, took, err)
			}
			r.see("questions that met it", 1)
		}
		r.write(100)
		if w.stops && (r.full || w.name != "half-open") { // on which it, or Kafka's client, gives up after a minute
			within(r.T, 3*time.Minute, "the worker tells of it", func() bool { return r.worker.heldUp() > before })
		}
		r.moment(r.atMost(time.Second, 5*time.Second))
		ends()
		r.write(50)
		r.settled()
		r.see("outages that the worker told of", r.worker.heldUp()-before)
	}
}
