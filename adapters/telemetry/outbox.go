package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Outbox observes the contexts' outboxes and their relays (spec: interface, metrics).
type Outbox struct {
	backlog   *prometheus.GaugeVec
	parked    *prometheus.GaugeVec
	oldest    *prometheus.GaugeVec
	published *prometheus.CounterVec
	errors    *prometheus.CounterVec
	dueToAck  *prometheus.HistogramVec
	snapshot  *prometheus.GaugeVec
	other     string
	carried   map[string]bool
}

// NewOutbox registers the metrics. Topics that it does not carry have the label other.
func NewOutbox(registry prometheus.Registerer, other string) *Outbox {
	o := &Outbox{
		other: other, carried: make(map[string]bool),
		backlog: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "outbox_backlog", Help: "Messages that wait for Kafka; counting ends at 10000.",
		}, []string{"context", "topic"}),
		parked: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "outbox_parked", Help: "Messages that Kafka refuses for good, neither released nor discarded.",
		}, []string{"context", "topic"}),
		oldest: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "outbox_oldest_age_seconds", Help: "For how long the oldest message has waited, by the database's clock; 0 where none does.",
		}, []string{"context"}),
		published: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_published_total", Help: "Messages that Kafka acknowledged.",
		}, []string{"topic"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_publish_errors_total", Help: "Messages that Kafka refuses for good (permanent), and rounds in which an outage stopped some (transient).",
		}, []string{"topic", "kind"}),
		dueToAck: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "outbox_due_to_ack_seconds", Help: "From the moment that what a message tells of came due to Kafka's acknowledgement.",
			Buckets: []float64{1, 5, 10, 30, 60, 90, 120, 300, 900, 3600, 3900, 7200, 86400},
		}, []string{"topic"}),
	}
	o.snapshot = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "database_oldest_snapshot_age_seconds",
		Help: "For how long a transaction, a prepared one, or a replication slot or standby that does not move has kept vacuum from cleaning up, as far as our role may see; 0 where there is none.",
	}, []string{"context"})
	registry.MustRegister(o.snapshot, o.backlog, o.parked, o.oldest, o.published, o.errors, o.dueToAck)
	return o
}

// Carries shows what is counted of topics from the start, at zero: a rate does not see what a series
// begins with. It is called before all else.
func (o *Outbox) Carries(topics ...string) {
	for _, topic := range topics {
		o.carried[topic] = true
		o.published.WithLabelValues(topic)
		o.errors.WithLabelValues(topic, "permanent")
		o.errors.WithLabelValues(topic, "transient")
		o.dueToAck.WithLabelValues(topic)
	}
}

// label keeps labels a finite set, whatever somebody has written into an outbox.
func (o *Outbox) label(topic string) string {
	if o.carried[topic] {
		return topic
	}
	return o.other
}

// Published implements outbox.Observer.
func (o *Outbox) Published(topic string, n int, lags []time.Duration) {
	topic = o.label(topic)
	o.published.WithLabelValues(topic).Add(float64(n))
	for _, lag := range lags {
		o.dueToAck.WithLabelValues(topic).Observe(lag.Seconds())
	}
}

// Parked implements outbox.Observer.
func (o *Outbox) Parked(topic string) { o.errors.WithLabelValues(o.label(topic), "permanent").Inc() }

// HeldUp implements outbox.Observer. An outage of the database is no topic's.
func (o *Outbox) HeldUp(topic string) {
	if topic != "" {
		o.errors.WithLabelValues(o.label(topic), "transient").Inc()
	}
}

// Depth sets the gauges of one topic.
func (o *Outbox) Depth(contextName, topic string, waiting, parked int) {
	o.backlog.WithLabelValues(contextName, topic).Set(float64(waiting))
	o.parked.WithLabelValues(contextName, topic).Set(float64(parked))
}

// Snapshot sets the gauge of one context's database.
func (o *Outbox) Snapshot(contextName string, age time.Duration) {
	o.snapshot.WithLabelValues(contextName).Set(age.Seconds())
}

// Oldest sets the gauge of one context.
func (o *Outbox) Oldest(contextName string, age time.Duration) {
	o.oldest.WithLabelValues(contextName).Set(age.Seconds())
}
