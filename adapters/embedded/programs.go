package embedded

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// fetchable are the versions that are fetched from the Maven registry where none is installed.
var fetchable = map[string]embeddedpostgres.PostgresVersion{
	"14": embeddedpostgres.V14, "15": embeddedpostgres.V15, "16": embeddedpostgres.V16,
	"17": embeddedpostgres.V17, "18": embeddedpostgres.V18, "": embeddedpostgres.V17,
}

// fetched prepares to fetch the programs, or to take them from the cache. Several processes
// share it: one at a time fills it, until release.
func (o orders) fetched(config embeddedpostgres.Config) (_ embeddedpostgres.Config, bin string, release func(), _ error) {
	version, ok := fetchable[o.Config.Version]
	if !ok {
		return config, "", nil, fmt.Errorf("PostgreSQL %s is neither installed nor can it be fetched", o.Config.Version)
	}
	cache := filepath.Join(o.Cache, string(version))
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return config, "", nil, err
	}
	lock, err := os.OpenFile(filepath.Join(cache, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return config, "", nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return config, "", nil, err
	}
	bin = filepath.Join(cache, "programs")
	return config.Version(version).CachePath(cache).BinariesPath(bin), bin,
		func() { lock.Close() }, nil //nolint:errcheck // it was only read
}

// installed returns the folder whose bin holds PostgreSQL's programs, or "".
func installed(version string) string {
	pattern := "*"
	if version != "" {
		pattern = version
	}
	var found []string
	for _, root := range []string{"/usr/lib/postgresql/", "/opt/homebrew/opt/postgresql@", "/usr/pgsql-"} {
		matches, _ := filepath.Glob(root + pattern + "/bin/initdb") // the pattern is well-formed
		found = append(found, matches...)
	}
	major := func(path string) int {
		folder := filepath.Base(filepath.Dir(filepath.Dir(path)))
		digits := strings.TrimLeftFunc(folder, func(r rune) bool { return r < '0' || r > '9' })
		n, _ := strconv.Atoi(digits) // a folder of another name sorts first
		return n
	}
	if len(found) == 0 {
		return ""
	}
	newest := slices.MaxFunc(found, func(a, b string) int { return major(a) - major(b) })
	return filepath.Dir(filepath.Dir(newest))
}
