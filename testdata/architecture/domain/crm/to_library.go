package crm

import _ "github.com/samber/lo"
