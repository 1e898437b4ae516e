package crm

import _ "context"
