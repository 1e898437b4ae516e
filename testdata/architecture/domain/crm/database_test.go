package crm

import _ "github.com/jackc/pgx/v5"
