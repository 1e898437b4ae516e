package embeddedtest

import (
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"
)

// Proxy passes PostgreSQL's protocol on, message by message, in both directions and for any number
// of connections. A test may look at each message before it is passed on, hold it, or lose it.
type Proxy struct {
	listener net.Listener
	target   string

	mu     sync.Mutex
	before func(Message) (pass bool)
}

// Message is what a Proxy is about to pass on.
type Message struct {
	Client bool // from a client, not from the server
	Kind   byte // its type in the protocol; 0: a client's first one, which has none
}

// Asks reports whether the message asks for something: a client waits for an answer to it.
func (m Message) Asks() bool { return m.Client && (m.Kind == 'Q' || m.Kind == 'S') } // Query, Sync

// NewProxy starts a proxy in front of a database, and returns the URL that leads through it.
func NewProxy(t testing.TB, databaseURL string) (p *Proxy, throughURL string) {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	p = &Proxy{target: u.Host, before: func(Message) bool { return true }}
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.listener.Close() }) //nolint:errcheck // the test is over
	go p.serve()
	u.Host = p.listener.Addr().String()
	return p, u.String()
}

// Before sets what is called before each message, by many connections at once. Where it returns
// false the message is lost, and its connection with it.
func (p *Proxy) Before(each func(Message) (pass bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before = each
}

func (p *Proxy) passes(m Message) bool {
	p.mu.Lock()
	before := p.before
	p.mu.Unlock()
	return before(m) // it may hold the message for as long as it likes
}

func (p *Proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close() //nolint:errcheck // it is the server that is missing
			return
		}
		hangUp := sync.OnceFunc(func() {
			client.Close() //nolint:errcheck // that is the point
			server.Close() //nolint:errcheck // that is the point
		})
		go p.carry(client, server, true, hangUp)
		go p.carry(server, client, false, hangUp)
	}
}

// carry carries messages one way. All have a type and a length, but for a client's first one.
func (p *Proxy) carry(from io.Reader, to io.Writer, client bool, hangUp func()) {
	defer hangUp()
	for typed := !client; ; typed = true {
		message := Message{Client: client}
		header := make([]byte, 5)
		if !typed {
			header = header[:4]
		}
		if _, err := io.ReadFull(from, header); err != nil {
			return
		}
		if typed {
			message.Kind = header[0]
		}
		body := make([]byte, int(binary.BigEndian.Uint32(header[len(header)-4:]))-4)
		if _, err := io.ReadFull(from, body); err != nil {
			return
		}
		if !p.passes(message) {
			return
		}
		if _, err := to.Write(slices.Concat(header, body)); err != nil {
			return
		}
	}
}
