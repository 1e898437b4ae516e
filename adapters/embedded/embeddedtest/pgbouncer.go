package embeddedtest

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// PgBouncer starts a pooler in transaction mode in front of a database, with so many connections to it, and
// returns the URL through it for the worker's role, as README tells operators to spell it. Where there is
// no PgBouncer the test is skipped: CI installs it.
func PgBouncer(t testing.TB, databaseURL string, connections int) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Skip("needs PgBouncer: " + err.Error())
	}
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	folder, err := os.MkdirTemp("", "pgbouncer-") //nolint:usetesting // the user nobody must enter it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) }) //nolint:errcheck // it is temporary
	port := FreePort(t)
	config := filepath.Join(folder, "pgbouncer.ini")
	text := fmt.Sprintf(`[databases]
* = host=%s port=%s user=worker password=worker
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = %d
`, u.Hostname(), u.Port(), port, connections)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, config)
	if os.Getuid() == 0 { // it refuses root
		nobody, err := user.Lookup("nobody")
		if err != nil {
			t.Fatal(err)
		}
		uid, err := strconv.Atoi(nobody.Uid)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // the test is over
		cmd.Wait()         //nolint:errcheck // it was killed
	})
	u.Host = fmt.Sprintf("127.0.0.1:%d", port)
	u.User = url.User("worker")
	query := u.Query()
	query.Set("default_query_exec_mode", "cache_describe")
	u.RawQuery = query.Encode()
	deadline := time.Now().Add(10 * time.Second)
	for {
		conn, err := net.Dial("tcp", u.Host)
		if err == nil {
			conn.Close() //nolint:errcheck // it was only a knock
			return u.String()
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
