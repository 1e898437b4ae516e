package outbox_test

import (
	"maps"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pin-platform/pinworker/adapters/embedded/embeddedtest"
	"github.com/pin-platform/pinworker/adapters/outbox"
	"github.com/pin-platform/pinworker/adapters/postgres"
	"github.com/pin-platform/pinworker/ports"
)

// A message that is parked between two looks is in neither.
func TestPost_FindsAMessageThatIsBeingParked(t *testing.T) {
	db, err := postgres.Open(postgres.Config{URL: embeddedtest.Database(t), MaxConnections: 2, StatementTimeout: time.Minute, LockTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	m := ports.Announced{ID: uuid.New(), Topic: "pin.crm.lead-expired.v1", Key: "a lead", Written: time.Now()}
	if _, err := db.Pool.Exec(t.Context(), `INSERT INTO crm.outbox (topic, shard, key, uuid, payload)
		SELECT $1, shard, $2, $3::uuid, '' FROM generate_series(0, 7) AS shard`, m.Topic, m.Key, [16]byte(m.ID)); err != nil {
		t.Fatal(err)
	}
	parking, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer parking.Rollback(t.Context()) //nolint:errcheck // it is committed by then
	if _, err := parking.Exec(t.Context(), `LOCK TABLE crm.outbox; WITH parked AS (DELETE FROM crm.outbox RETURNING *)
		INSERT INTO crm.outbox_parked (topic, shard, id, key, uuid, created_at, payload, error, attempts, parked_at)
		SELECT topic, shard, id, key, uuid, created_at, payload, 'too large', 2, now() FROM parked`); err != nil {
		t.Fatal(err)
	}
	found := make(chan ports.Whereabouts, 1)
	go func() {
		where, err := outbox.Post{Pool: db.Pool, Table: outbox.Table{Schema: "crm"}}.Find(t.Context(), []ports.Announced{m})
		if err != nil {
			t.Error(err)
		}
		found <- where[m.ID]
	}()
	for waits := false; !waits; { // it has looked at what is parked
		if err := parking.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'crm.outbox'::regclass)").Scan(&waits); err != nil {
			t.Fatal(err)
		}
	}
	if err := parking.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-found; got.State != ports.Waiting {
		t.Errorf("found %+v; want it where it was when the look began", got)
	}
}

// A long lane is not read whole: more of it lies ahead of the message than is looked at.
func TestPost_FindsAMessageFarBackInALongLane(t *testing.T) {
	db, err := postgres.Open(postgres.Config{URL: embeddedtest.Database(t), MaxConnections: 2, StatementTimeout: time.Minute, LockTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	const topic, key, waiting = "pin.crm.lead-expired.v1", "a lead", 60_000
	began := time.Now().UTC().Truncate(time.Microsecond).Add(-24 * time.Hour)
	// One a second for 60,000 seconds, in all lanes; every 1000th was released, and is older than what lies around it.
	if _, err := db.Pool.Exec(t.Context(), `INSERT INTO crm.outbox (topic, shard, key, uuid, created_at, payload)
		SELECT $1, shard, $2, md5(n || ' ' || shard)::uuid, $3::timestamptz + CASE WHEN n % 1000 = 0 THEN 0 ELSE n END * interval '1 second', ''
		FROM generate_series(1, $4::integer) AS n CROSS JOIN generate_series(0, 7) AS shard ORDER BY n, shard`, topic, key, began, waiting); err != nil {
		t.Fatal(err)
	}
	post := outbox.Post{Pool: db.Pool, Table: outbox.Table{Schema: "crm"}}
	for _, n := range []int{1, 999, 20_001, 30_017, 59_999} {
		var found map[uuid.UUID]ports.Whereabouts
		written := began.Add(time.Duration(n) * time.Second)
		var ids []uuid.UUID
		var messages []ports.Announced
		for shard := range 8 { // one of them is the key's own
			var id [16]byte
			if err := db.Pool.QueryRow(t.Context(), "SELECT md5($1::integer || ' ' || $2::integer)::uuid", n, shard).Scan(&id); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
			messages = append(messages, ports.Announced{ID: id, Topic: topic, Key: key, Written: written.Add(-time.Second)})
		}
		found, err = post.Find(t.Context(), messages)
		maps.DeleteFunc(found, func(_ uuid.UUID, w ports.Whereabouts) bool { return w.State == ports.Beyond })
		if err != nil || len(found) != 1 {
			t.Fatalf("message %d: found %v, %v; want it in its key's own lane", n, found, err)
		}
		for _, id := range ids {
			if w, is := found[id]; is && (w.State != ports.Waiting || !w.Since.Equal(written) || w.Ahead != min(n-1, outbox.BacklogCap) || w.AheadMore != (n-1 > outbox.BacklogCap)) {
				t.Errorf("message %d: %+v; want it since %s, behind %d", n, w, written, n-1)
			}
		}
	}
	// Of what more than is looked at lies behind, it is not told that it waits, nor that it does not.
	far := ports.Announced{ID: uuid.New(), Topic: topic, Key: key, Written: began.Add(time.Hour)}
	if found, err := post.Find(t.Context(), []ports.Announced{far}); err != nil || found[far.ID] != (ports.Whereabouts{State: ports.Beyond, Looked: 20_000}) {
		t.Errorf("found %v, %v; want it beyond what was looked at", found, err)
	}
	nobody := ports.Announced{ID: uuid.New(), Topic: topic, Key: key, Written: began.Add(45_000 * time.Second)}
	other := ports.Announced{ID: uuid.New(), Topic: "pin.crm.another.v1", Key: key, Written: began}
	if found, err := post.Find(t.Context(), []ports.Announced{nobody, other}); err != nil || len(found) > 0 {
		t.Errorf("found %v, %v; want nothing", found, err)
	}
}
