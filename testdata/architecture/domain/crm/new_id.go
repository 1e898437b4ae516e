package crm

import "github.com/google/uuid"

var id = uuid.New()
