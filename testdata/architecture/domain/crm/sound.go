package crm

import (
	_ "time"

	_ "github.com/pin-platform/pinworker/domain/ids"
)
