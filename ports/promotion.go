package ports

import "github.com/pin-platform/pinworker/domain/promotion"

// ExpirePromotions is the job of the promotion context (spec: expire-promotions).
const ExpirePromotions Job = "expire-promotions"

// What the promotion context needs.
type (
	// DuePurchases are active purchases by their EndsAt, each with its targets; the moment itself is
	// due (spec: expire-promotions).
	DuePurchases = Due[promotion.PromotionPurchase, promotion.Event]
	// PurchasePreview is what expire-promotions would do.
	PurchasePreview = Preview[promotion.PromotionPurchase, promotion.Event]
	// Purchases are all purchases, for making and cancelling them.
	Purchases = Store[promotion.PurchaseID, promotion.PromotionPurchase, promotion.Event]
	// PurchaseLedger is what `verify` reads of the purchases.
	PurchaseLedger = Ledger[promotion.PromotionPurchase, promotion.Event]
)
