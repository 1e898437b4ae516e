// Package bench embeds the statements that `pinworker bench` measures the worker against.
package bench

import _ "embed"

var (
	// FillLeads writes leads with their streams.
	//
	//go:embed fill_leads.sql
	FillLeads string
	// Limit does a page of lead-expiration in one statement.
	//
	//go:embed limit.sql
	Limit string
	// Bare does it with constant bodies.
	//
	//go:embed bare.sql
	Bare string
)
