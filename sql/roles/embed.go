// Package roles embeds the database role that a worker runs under.
package roles

import _ "embed"

// Pinworker creates the group role pinworker, or brings its rights up to date.
//
//go:embed pinworker.sql
var Pinworker string
