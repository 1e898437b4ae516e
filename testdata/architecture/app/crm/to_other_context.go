package crm

import _ "github.com/pin-platform/pinworker/app/calendar"
