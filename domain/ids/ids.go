// Package ids holds the one id type of the domain. An id is a UUID that knows, at compile
// time only, what it identifies: a lead's id cannot be passed where a tenant's is asked for.
package ids

import "github.com/google/uuid"

// ID identifies one Of. Its zero value identifies nothing.
//
// It is a [16]byte and no uuid.UUID inside, so that database drivers take it as plain bytes.
type ID[Of any] [16]byte

type (
	tenant struct{}
	user   struct{}

	// TenantID identifies the organisation that an aggregate belongs to.
	TenantID = ID[tenant]
	// UserID identifies a person: an agent or an investor.
	UserID = ID[user]
)

// Parse reads the text form of a UUID; the error says what is wrong with it.
func Parse[Of any](text string) (ID[Of], error) {
	id, err := uuid.Parse(text)
	return ID[Of](id), err
}

// IsZero reports whether the id identifies nothing.
func (id ID[Of]) IsZero() bool { return id == ID[Of]{} }

// String returns the lower-case text form, as events and logs spell ids.
func (id ID[Of]) String() string { return uuid.UUID(id).String() }

// MarshalText writes the text form, so that contracts may hold ids as they are.
func (id ID[Of]) MarshalText() ([]byte, error) { return uuid.UUID(id).MarshalText() }

// UnmarshalText reads the text form.
func (id *ID[Of]) UnmarshalText(text []byte) error {
	return (*uuid.UUID)(id).UnmarshalText(text)
}
