package kafka_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pin-platform/pinworker/adapters/embedded"
	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/kafka"
)

// rights are what users may do with the topic. All have the password "secret", by every mechanism.
var rights = map[string][]kmsg.ACLOperation{
	"writer": {kmsg.ACLOperationWrite, kmsg.ACLOperationDescribeConfigs},
	"reader": {kmsg.ACLOperationRead},
	"nobody": nil,
}

var mechanisms = []string{kafka.Plain, kafka.ScramSHA256, kafka.ScramSHA512}

// demanding starts what demands to know who we are, with the topic: by a certificate of the authority's, which
// CN=pinworker has, or by a user's password. Both talk TLS.
func demanding(t *testing.T, a *authority) (certificate, password []string) {
	t.Helper()
	if jars := os.Getenv(embeddedtest.KafkaJars); jars != "" {
		return demandingApacheKafka(t, a, jars)
	}
	options := []kfake.Opt{kfake.TLS(a.server(false)), kfake.EnableSASL(), kfake.EnableACLs()}
	for user, operations := range rights {
		var acls []kfake.ACL
		for _, operation := range operations {
			acls = append(acls, kfake.ACL{
				Resource: kmsg.ACLResourceTypeTopic, Name: topic, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: operation, Allow: true,
			})
		}
		for _, mechanism := range mechanisms {
			options = append(options, kfake.User(mechanism, user, "secret", acls...))
		}
	}
	return cluster(t, kfake.TLS(a.server(true))), cluster(t, options...)
}

func demandingApacheKafka(t *testing.T, a *authority, jars string) (certificate, password []string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var scram []string
	plain := "org.apache.kafka.common.security.plain.PlainLoginModule required"
	for user := range rights {
		plain += fmt.Sprintf(` user_%s="secret"`, user)
		for _, mechanism := range []string{kafka.ScramSHA256, kafka.ScramSHA512} {
			scram = append(scram, fmt.Sprintf("%s=[name=%s,password=secret]", mechanism, user))
		}
	}
	properties := []string{
		"ssl.keystore.type=PEM", "ssl.keystore.location=" + a.keystore(), "ssl.truststore.type=PEM", "ssl.truststore.location=" + a.ca,
		"listener.name.certificate.ssl.client.auth=required",
		"listener.name.password.sasl.enabled.mechanisms=" + strings.Join(mechanisms, ","),
		"listener.name.password.plain.sasl.jaas.config=" + plain + ";",
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users=User:ANONYMOUS;User:CN=pinworker", // who comes to its first listener, and who has the certificate
	}
	for _, mechanism := range []string{kafka.ScramSHA256, kafka.ScramSHA512} {
		properties = append(properties, "listener.name.password."+strings.ToLower(mechanism)+
			".sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;")
	}
	k, err := embedded.StartApacheKafkaCluster(t.Context(), embedded.ApacheKafkaConfig{
		Jars: jars, Brokers: 1, Listeners: map[string]string{"CERTIFICATE": "SSL", "PASSWORD": "SASL_SSL"},
		Properties: strings.Join(properties, "\n") + "\n", Scram: scram,
	})
	must(err)
	t.Cleanup(k.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers()...))
	must(err)
	defer client.Close()
	admin := kadm.NewClient(client)
	_, err = admin.CreateTopic(t.Context(), 1, 1, nil, topic)
	must(err)
	for user, operations := range rights {
		if len(operations) == 0 {
			continue
		}
		created, err := admin.CreateACLs(t.Context(), kadm.NewACLs().Allow("User:"+user).AllowHosts("*").
			Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).Operations(operations...))
		must(err)
		for _, c := range created {
			must(c.Err)
		}
	}
	return k.BrokersBy("CERTIFICATE"), k.BrokersBy("PASSWORD")
}
