package published_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/app/published"
	"github.com/pin-platform/pinworker/ports"
)

func TestAnnounced_TellsTheMessagesFromTheEventsAlone(t *testing.T) {
	purchase, key := uuid.New(), uuid.New()
	began := time.Now().UTC().Truncate(time.Millisecond)
	run, another := ports.NewRunID(), ports.RunID(uuid.New()) // of a service whose ids tell no time
	events := []ports.Happened{
		{Version: 1, Event: "PromotionPurchased", At: began.Add(-time.Hour), Run: run},
		{Version: 2, Event: "PromotionActivated", At: began.Add(-time.Hour), Run: run}, // together with the one before: one message
		{Version: 3, Event: "PromotionPurchaseImported", At: began, Run: another},
		{Version: 4, Event: "PromotionPurchaseExpired", At: began, Run: another},
	}
	got := published.Announced(purchase, key, events)
	if len(got) != 2 {
		t.Fatalf("announced %+v; want two messages", got)
	}
	for i, version := range []int{2, 4} {
		want := published.MessageID(purchase, version, "PromotionPurchaseChangedKafkaEvent")
		if got[i].ID != want || got[i].Topic != published.TopicPurchaseChanged || got[i].Key != key.String() || !got[i].At.Equal(events[version-1].At) {
			t.Errorf("message %+v; want %s, of event %d", got[i], want, version)
		}
	}
	if w := got[0].Written; w.Before(began) || w.After(time.Now()) {
		t.Errorf("written at %s; want when the run began, %s, which was about an earlier moment", w, began)
	}
	if w := got[1].Written; !w.Equal(began) {
		t.Errorf("written at %s; want the event's own moment", w)
	}
}
