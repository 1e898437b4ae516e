package postgres

import (
	_ "github.com/jackc/pgx/v5"

	_ "github.com/pin-platform/pinworker/adapters/postgres/internal/crmdb"
	_ "github.com/pin-platform/pinworker/ports"
)
