# Shorthands; README and .ci/run use the commands themselves.
.PHONY: test demo build generate lint ci golden

test:
	go test ./...

demo:
	go run ./cmd/pinworker demo

build: ## bin/pinworker: static, and the same wherever the same commit is built with the same Go
	CGO_ENABLED=0 go build -trimpath -buildvcs=true -ldflags '-s -w' -o bin/pinworker ./cmd/pinworker

generate: ## sqlc, from sql/queries; the result is committed
	go run github.com/sqlc-dev/sqlc/cmd/sqlc@v1.31.1 generate

golden: ## write the golden files anew; look at the difference before you commit it
	go test ./app/published ./adapters/postgres -run 'Contract|Stored' -update

lint:
	go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 run ./...

ci:
	bash .ci/run
