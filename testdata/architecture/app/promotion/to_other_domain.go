package promotion

import (
	_ "github.com/pin-platform/pinworker/domain/calendar"
	_ "github.com/pin-platform/pinworker/domain/promotion"
)
