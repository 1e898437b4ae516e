// Package embedded starts real services for the demo and the tests, on a machine that has
// nothing but Go: PostgreSQL, from installed programs or fetched, and the Kafka protocol in
// process. Whoever imports it must call RunChild first thing in main.
package embedded

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// PostgresConfig says which server to start.
type PostgresConfig struct {
	// Version is the major version, 14 to 18; empty takes the newest that is installed, or
	// fetches a recent one.
	Version string
	// Durable keeps fsync on, as benchmarks and crash tests need it.
	Durable bool
}

// Postgres is a server of our own, with its data in a folder of its own.
type Postgres struct {
	url     string
	stdin   io.WriteCloser // of the child that holds it
	answers chan string    // of the child
	done    chan error
}

// URL leads to the server's own database, as its superuser.
func (p *Postgres) URL() string { return p.url }

// Close stops the server and removes its data.
func (p *Postgres) Close() error {
	p.stdin.Close() //nolint:errcheck // closing a pipe; the child's exit is what counts
	return <-p.done
}

// restartOrder is what a child is told to crash and restart its server by.
const restartOrder = "restart"

// Restart crashes the server, as PostgreSQL's immediate mode does, and returns once it has recovered and
// answers again.
func (p *Postgres) Restart() error {
	if _, err := fmt.Fprintln(p.stdin, restartOrder); err != nil {
		return fmt.Errorf("restart PostgreSQL: %w", err)
	}
	if answer := <-p.answers; answer != restartOrder {
		return fmt.Errorf("restart PostgreSQL: %s", answer)
	}
	return nil
}

// childEnv holds the orders of a child process.
const childEnv = "PINWORKER_EMBEDDED_POSTGRES"

// orders is what the parent tells its child.
type orders struct {
	Config PostgresConfig
	Folder string // the child's own, for data and logs; it removes it in the end
	Cache  string // where fetched programs are kept
}

// StartPostgres starts a server and returns once it answers. The server lives in a child
// process, because PostgreSQL refuses to run as root: there the child is the user postgres,
// or nobody. The child ends, with its server and its data, when this process does, however
// it does.
func StartPostgres(ctx context.Context, config PostgresConfig) (*Postgres, error) {
	var err error
	for range 3 { // a free port may be taken before the server has it
		var p *Postgres
		if p, err = startPostgres(ctx, config); err == nil {
			return p, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("start an embedded PostgreSQL: %w", err)
}

func startPostgres(ctx context.Context, config PostgresConfig) (*Postgres, error) {
	owner, err := serverUser()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "pinworker-postgres-")
	if err != nil {
		return nil, err
	}
	if owner.switched() {
		if err := os.Chown(folder, owner.uid, owner.gid); err != nil {
			return nil, errors.Join(err, os.RemoveAll(folder))
		}
	}
	order, err := json.Marshal(orders{Config: config, Folder: folder, Cache: owner.cache})
	if err != nil {
		return nil, err
	}
	// /proc/self/exe: under `go run` the program lies in a folder that another user may not enter.
	program := "/proc/self/exe"
	if _, err := os.Stat(program); err != nil {
		if program, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	child := exec.Command(program)
	child.Dir = folder
	child.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "PG") || strings.HasPrefix(v, "HOME=") || strings.HasPrefix(v, "TMPDIR=")
	}), childEnv+"="+string(order), "HOME="+folder, "TMPDIR="+folder)
	child.SysProcAttr = owner.attributes()
	stdin, err := child.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var stderr strings.Builder
	child.Stderr = &stderr
	if err := child.Start(); err != nil {
		os.RemoveAll(folder) //nolint:errcheck // the error of the start is the one to tell
		return nil, err
	}
	p := &Postgres{stdin: stdin, answers: make(chan string, 1), done: make(chan error, 1)}
	go func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			p.answers <- lines.Text()
		}
		close(p.answers)
		err := child.Wait()
		p.done <- errors.Join(err, os.RemoveAll(folder)) // where the child could not
	}()
	select {
	case p.url = <-p.answers:
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), p.Close())
	}
	if p.url == "" {
		return nil, fmt.Errorf("%w: %s", p.Close(), strings.TrimSpace(stderr.String()))
	}
	return p, nil
}

// RunChild turns this process into the child that holds a PostgreSQL server, and never
// returns, where the process was started as one. Otherwise it does nothing.
func RunChild() {
	order, ok := os.LookupEnv(childEnv)
	if !ok {
		return
	}
	var o orders
	err := json.Unmarshal([]byte(order), &o)
	if err == nil {
		err = o.serve()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve runs a server until standard input ends.
func (o orders) serve() error {
	// Its life is bound to its parent's, which ends standard input; a Ctrl-C is for the parent.
	// A parent that has gone must not end it by a broken pipe either, before it has cleaned up.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer os.RemoveAll(o.Folder) //nolint:errcheck // where this user may not, the parent does, and tells where it could not
	log, err := os.Create(filepath.Join(o.Folder, "log"))
	if err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	config := embeddedpostgres.DefaultConfig().
		Port(uint32(port)).
		RuntimePath(filepath.Join(o.Folder, "run")).
		DataPath(filepath.Join(o.Folder, "data")).
		Encoding("UTF8").
		Locale("C").
		Logger(log).
		StartTimeout(time.Minute).
		StartParameters(o.Config.parameters())
	bin, release := installed(o.Config.Version), func() {}
	if bin != "" {
		config = config.BinariesPath(bin)
	} else if config, bin, release, err = o.fetched(config); err != nil {
		return err
	}
	server := embeddedpostgres.NewDatabase(config)
	err = server.Start()
	release()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(os.Stdout, "postgres://postgres:postgres@127.0.0.1:%d/postgres?sslmode=disable\n", port); err != nil {
		return errors.Join(err, server.Stop())
	}
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); { // its end is what is waited for
		answer := orders.Text()
		if err := o.restart(bin); err != nil {
			answer = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Fprintln(os.Stdout, answer) //nolint:errcheck // whoever asked may have ended; then its orders do
	}
	return server.Stop()
}

// restart has pg_ctl do it: the options are those of the first start.
func (o orders) restart(bin string) error {
	out, err := exec.Command(filepath.Join(bin, "bin", "pg_ctl"), "restart", "-w", "-m", "immediate",
		"-D", filepath.Join(o.Folder, "data"), "-l", filepath.Join(o.Folder, "log")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func (c PostgresConfig) parameters() map[string]string {
	p := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"unix_socket_directories": "",
		"max_connections":         "400",
		"shared_buffers":          "256MB",
		"max_wal_size":            "2GB",
		"timezone":                "UTC",

		"max_prepared_transactions": "5",
	}
	if !c.Durable {
		p["fsync"], p["synchronous_commit"], p["full_page_writes"] = "off", "off", "off"
	}
	return p
}

// account is whom the server runs as.
type account struct {
	uid, gid int
	cache    string
}

func (a account) switched() bool { return a.uid != os.Getuid() }

// serverUser is this user, or where this is root the user postgres or nobody.
func serverUser() (account, error) {
	if os.Getuid() != 0 {
		cache, err := os.UserCacheDir()
		if err != nil {
			cache = os.TempDir()
		}
		return account{uid: os.Getuid(), cache: filepath.Join(cache, "pinworker-postgres")}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.Atoi(u.Uid)
		gid, errGID := strconv.Atoi(u.Gid)
		if err := errors.Join(errUID, errGID); err != nil {
			return account{}, err
		}
		return account{uid: uid, gid: gid, cache: "/var/tmp/pinworker-postgres-" + name}, nil
	}
	return account{}, errors.New("PostgreSQL refuses to run as root, and there is no user postgres or nobody")
}

// attributes put the child into a process group of its own: Ctrl-C is for its parent, who
// then ends it.
func (a account) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if a.switched() {
		attr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return attr
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return 0, errors.Join(err, l.Close())
	}
	n, err := strconv.Atoi(port)
	return n, errors.Join(err, l.Close())
}
