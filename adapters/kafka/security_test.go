package kafka_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/pin-platform/pinworker/adapters/kafka"
)

// authority signs certificates for a test, and writes them as PEM files.
type authority struct {
	*testing.T
	folder string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	ca     string // its file
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{T: t, folder: t.TempDir()}
	a.ca, _ = a.issue("authority")
	return a
}

// issue writes a certificate and its key, and returns the files.
func (a *authority) issue(name string) (certFile, keyFile string) {
	a.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}, IsCA: a.cert == nil, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := template, key
	if a.cert != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.Fatal(err)
	}
	if a.cert == nil {
		a.key = key
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			a.Fatal(err)
		}
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.Fatal(err)
	}
	return a.write(name+".crt", "CERTIFICATE", der), a.write(name+".key", "PRIVATE KEY", keyDER)
}

func (a *authority) write(name, kind string, der []byte) string {
	a.Helper()
	path := filepath.Join(a.folder, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.Fatal(err)
	}
	return path
}

// server is what a broker in this process is set up with. It may demand a certificate that the authority
// signed.
func (a *authority) server(demands bool) *tls.Config {
	a.Helper()
	cert, key := a.issue("broker")
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		a.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if demands {
		config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		config.ClientCAs.AddCert(a.cert)
	}
	return config
}

// keystore is what Apache Kafka is set up with: a certificate and its key, in one file.
func (a *authority) keystore() string {
	a.Helper()
	var both []byte
	cert, key := a.issue("broker")
	for _, path := range []string{key, cert} {
		text, err := os.ReadFile(path)
		if err != nil {
			a.Fatal(err)
		}
		both = append(both, text...)
	}
	path := filepath.Join(a.folder, "broker.pem")
	if err := os.WriteFile(path, both, 0o600); err != nil {
		a.Fatal(err)
	}
	return path
}

func cluster(t *testing.T, options ...kfake.Opt) []string {
	t.Helper()
	c, err := kfake.NewCluster(append(options, kfake.NumBrokers(1), kfake.SeedTopics(1, topic))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c.ListenAddrs()
}

func publish(t *testing.T, brokers []string, security kafka.Security) error {
	t.Helper()
	p, err := kafka.NewPublisher(kafka.Config{Brokers: brokers, ClientID: "test", KeyHeader: "key", Security: security})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close() //nolint:errcheck // what it did is known by then
	return p.Publish(topic, newMessage("a", "{}"))
}

func TestPublisher_ProvesWhoItIsToABrokerThatDemandsACertificate(t *testing.T) {
	a := newAuthority(t)
	brokers, _ := demanding(t, a)
	cert, key := a.issue("pinworker")
	if err := publish(t, brokers, kafka.Security{TLS: kafka.TLS{Enabled: true, CA: a.ca, Cert: cert, Key: key}}); err != nil {
		t.Errorf("with our certificate: %v", err)
	}
	for name, security := range map[string]kafka.Security{
		"without TLS":                   {},
		"without a certificate":         {TLS: kafka.TLS{Enabled: true, CA: a.ca}},
		"without knowing the authority": {TLS: kafka.TLS{Enabled: true, Cert: cert, Key: key}},
	} {
		if err := publish(t, brokers, security); err == nil || kafka.Refused(err) {
			t.Errorf("%s: error %v; want one that is about the connection", name, err)
		}
	}
}

func TestPublisher_ProvesWhoItIsWithAPassword(t *testing.T) {
	a := newAuthority(t)
	_, brokers := demanding(t, a)
	for _, mechanism := range mechanisms {
		t.Run(mechanism, func(t *testing.T) {
			as := func(user, password string) error {
				t.Helper()
				return publish(t, brokers, kafka.Security{
					TLS: kafka.TLS{Enabled: true, CA: a.ca}, SASL: kafka.SASL{Mechanism: mechanism, User: user, Password: password},
				})
			}
			if err := as("writer", "secret"); err != nil {
				t.Errorf("with the password: %v", err)
			}
			if err := as("writer", "guess"); err == nil || kafka.Refused(err) {
				t.Errorf("with another: error %v; want one that is about the connection", err)
			}
			if err := as("reader", "secret"); err == nil || kafka.Refused(err) {
				t.Errorf("without the right to write: error %v; want an outage, which ends once it is granted", err)
			}
		})
	}
}

func TestNewPublisher_TellsWhatIsWrongWithAFile(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.issue("pinworker")
	other, _ := a.issue("other")
	rubbish := filepath.Join(t.TempDir(), "rubbish.pem")
	if err := os.WriteFile(rubbish, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	for says, files := range map[string]kafka.TLS{
		"holds no certificate in PEM form": {CA: rubbish},
		"read kafka.tls.ca":                {CA: rubbish + ".none"},
		"kafka.tls.cert and kafka.tls.key": {Cert: other, Key: key},
		"go together":                      {Cert: cert},
	} {
		files.Enabled = true
		if _, err := kafka.NewPublisher(kafka.Config{Security: kafka.Security{TLS: files}}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("error %v; want %q", err, says)
		}
	}
	password := filepath.Join(t.TempDir(), "password")
	for text, want := range map[string]string{"secret\n": "secret", "two words\r\n": "two words", "\n": ""} {
		if err := os.WriteFile(password, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := kafka.ReadPassword(password); got != want || (err == nil) != (want != "") {
			t.Errorf("password %q, %v; want %q", got, err, want)
		}
	}
}
