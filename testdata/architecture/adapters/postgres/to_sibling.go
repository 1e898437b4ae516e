package postgres

import _ "github.com/pin-platform/pinworker/adapters/kafka"
