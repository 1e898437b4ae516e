package ports

import _ "github.com/jackc/pgx/v5"
