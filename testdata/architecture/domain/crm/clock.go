package crm

import "time"

var began = time.Now()
