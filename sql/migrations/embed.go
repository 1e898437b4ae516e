// Package migrations holds the goose files of each context's two sets: worker (the tables and
// indexes that pinworker owns) and platform (the tables that the platform owns).
package migrations

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
	"testing/fstest"
)

//go:embed shared */platform/*.sql */worker/*.sql
var files embed.FS

// AnyContext stands for a context's schema in what all contexts have: the files in shared, and
// sqlc's queries on their tables.
const AnyContext = "any_context."

// Set returns a context's set of files. The worker's set is what all contexts have, in this
// context's schema, and the context's own; the two share one row of numbers.
func Set(context, set string) (fs.FS, error) {
	merged := fstest.MapFS{}
	folders := []string{context + "/" + set}
	if set == "worker" {
		folders = append(folders, "shared")
	}
	for _, folder := range folders {
		names, err := fs.Glob(files, folder+"/*.sql")
		if err != nil || len(names) == 0 {
			return nil, fmt.Errorf("migrations of %s: %d files, %w", folder, len(names), err)
		}
		for _, name := range names {
			text, err := files.ReadFile(name)
			if err != nil {
				return nil, err
			}
			merged[strings.TrimPrefix(name, folder+"/")] = &fstest.MapFile{
				Data: []byte(strings.ReplaceAll(string(text), AnyContext, context+".")),
			}
		}
	}
	return merged, nil
}
