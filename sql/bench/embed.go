// Package bench embeds the statements that `pinworker bench` measures the worker against: fill_*.sql
// write due items with their streams, limit_*.sql do a page of a job in one statement, bare_*.sql
// with constant bodies.
package bench

import (
	"embed"
	"fmt"
)

//go:embed *.sql
var files embed.FS

// Statement returns a file by its name, less .sql.
func Statement(name string) string {
	text, err := files.ReadFile(name + ".sql")
	if err != nil {
		panic(fmt.Sprintf("there is no %s: %v", name, err)) // a name in the program itself
	}
	return string(text)
}
