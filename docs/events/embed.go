// Package events embeds the contracts of what is published, as programs read them: asyncapi.json and the
// JSON Schemas that it refers to. The pages beside them are for people.
package events

import "embed"

// Files holds them, by name.
//
//go:embed *.json
var Files embed.FS
