package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// Security says how to prove who we are, and to know whom we talk to.
type Security struct {
	TLS  TLS
	SASL SASL
}

// TLS names files in PEM form.
type TLS struct {
	Enabled bool
	CA      string // who signed the brokers' certificates; "": the system's
	Cert    string // ours, with Key; "": brokers ask for none
	Key     string
}

// SASL is a user with a password. Mechanism "" is none.
type SASL struct {
	Mechanism string // PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512
	User      string
	Password  string
}

// The mechanisms.
const (
	Plain       = sarama.SASLTypePlaintext
	ScramSHA256 = sarama.SASLTypeSCRAMSHA256
	ScramSHA512 = sarama.SASLTypeSCRAMSHA512
)

// ReadPassword reads a file that holds a password alone; a line's end after it is none of it.
func ReadPassword(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the password of Kafka's user: %w", err)
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" {
		return "", fmt.Errorf("read the password of Kafka's user: %s is empty", path)
	}
	return password, nil
}

// load reads the files; nil where TLS is off.
func (t TLS) load() (*tls.Config, error) {
	if !t.Enabled {
		return nil, nil //nolint:nilnil // no TLS is a way to talk
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("read kafka.tls.ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read kafka.tls.ca: %s holds no certificate in PEM form", t.CA)
		}
	}
	switch {
	case t.Cert == "" && t.Key == "":
	case t.Cert == "" || t.Key == "":
		return nil, errors.New("kafka.tls.cert and kafka.tls.key go together: one of them is not set")
	default:
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("read kafka.tls.cert and kafka.tls.key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func (s SASL) apply(c *sarama.Config) {
	if s.Mechanism == "" {
		return
	}
	c.Net.SASL.Enable, c.Net.SASL.Mechanism = true, sarama.SASLMechanism(s.Mechanism)
	c.Net.SASL.User, c.Net.SASL.Password = s.User, s.Password
	hash := scram.SHA256
	switch s.Mechanism {
	case ScramSHA512:
		hash = scram.SHA512
	case ScramSHA256:
	default:
		return
	}
	c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: hash} }
}

// scramClient is sarama's view of a conversation of xdg-go's.
type scramClient struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

// Begin implements sarama.SCRAMClient.
func (c *scramClient) Begin(user, password, authorization string) error {
	client, err := c.hash.NewClient(user, password, authorization)
	if err != nil {
		return fmt.Errorf("begin SCRAM: %w", err)
	}
	c.conversation = client.NewConversation()
	return nil
}

// Step implements sarama.SCRAMClient.
func (c *scramClient) Step(challenge string) (string, error) { return c.conversation.Step(challenge) }

// Done implements sarama.SCRAMClient.
func (c *scramClient) Done() bool { return c.conversation.Done() }
