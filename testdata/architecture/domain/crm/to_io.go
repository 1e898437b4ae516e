package crm

import _ "io/fs"
