package main

import (
	"fmt"
	"time"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/portstest"
	"github.com/pin-platform/pinworker/app/published"
)

const expirePromotions = "expire-promotions"

var promotionSituations = []situation{
	{
		page: expirePromotions, cause: "No worker serves",
		given: func(k *terminal) {
			k.kafka()
			k.overduePurchase()
		},
		then: (*terminal).wantItsEndInKafka,
	},
	{
		page: expirePromotions, cause: "Somebody holds them",
		given: func(k *terminal) {
			k.kafka()
			k.overduePurchase()
			k.forget("promotion-api", "SELECT FROM promotion.promotion_purchases FOR UPDATE")
			k.serve()
		},
		then: (*terminal).wantItsEndInKafka,
	},
	{
		page: expirePromotions, cause: "A trigger refuses it",
		given: func(k *terminal) {
			k.kafka()
			k.overduePurchase()
			k.execute(`CREATE FUNCTION promotion.paid_first() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not paid for'; END $$`)
			k.execute(`CREATE TRIGGER paid BEFORE UPDATE ON promotion.promotion_purchases FOR EACH ROW EXECUTE FUNCTION promotion.paid_first()`)
			k.runUntilHeld(expirePromotions)
			k.serve()
		},
		then: (*terminal).wantItsEndInKafka,
	},
	{
		page: expirePromotions, cause: "Its end waits for Kafka",
		given: func(k *terminal) {
			k.env["PINWORKER_KAFKA_BROKERS"] = fmt.Sprintf("127.0.0.1:%d", embeddedtest.FreePort(k.T))
			k.known["<purchase>"] = k.overduePurchase()
			k.serve()
		},
		others: kafkaComesBack,
		then:   (*terminal).wantItsEndInKafka,
	},
	{
		page: expirePromotions, cause: "Its readers are behind",
		given: func(k *terminal) {
			k.kafka()
			k.known["<purchase>"] = k.overduePurchase()
			k.serve()
			k.eventuallyShows("pinworker backlog", "promotion 0")
		},
		then: (*terminal).wantItsEndInKafka,
	},
}

// overduePurchase makes one whose time is up, and returns its id.
func (k *terminal) overduePurchase() string {
	k.Helper()
	now := time.Now()
	order := portstest.Order(now.Add(-time.Minute))
	k.must(k.worker.at(now.AddDate(0, 0, -2)).promotion.Purchase(k.Context(), "manager", order))
	return order.Purchase.String()
}

// wantItsEndInKafka checks that no purchase is active, and that each of them was announced and ended.
func (k *terminal) wantItsEndInKafka() {
	k.Helper()
	k.wantInKafka(k.broker, map[string]int{published.TopicPurchaseChanged: 2 * k.count("SELECT count(*) FROM promotion.promotion_purchases WHERE status = 'Expired'")})
}
