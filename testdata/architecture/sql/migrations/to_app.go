package migrations

import _ "github.com/pin-platform/pinworker/app/crm"
