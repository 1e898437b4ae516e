// Package migrations embeds the goose files of each context's two sets: worker (the tables
// and indexes that pinworker owns) and platform (the tables that the platform owns).
package migrations

import "embed"

// FS holds <context>/schema.sql, <context>/worker/*.sql and <context>/platform/*.sql.
//
//go:embed */schema.sql */*/*.sql
var FS embed.FS
