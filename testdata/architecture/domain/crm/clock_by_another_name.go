package crm

import clock "time"

var later = clock.Now()
