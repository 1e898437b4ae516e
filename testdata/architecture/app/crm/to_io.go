package crm

import _ "database/sql"
