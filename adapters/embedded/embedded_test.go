package embedded_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pin-platform/pinworker/adapters/embedded"
)

func TestMain(m *testing.M) {
	embedded.RunChild()
	if os.Getenv("DIE_WITH_A_SERVER") != "" {
		server, err := embedded.StartPostgres(context.Background(), embedded.PostgresConfig{})
		if err != nil {
			panic(err)
		}
		os.Stdout.WriteString(server.URL() + "\n") //nolint:errcheck // the test sees what is missing
		select {}
	}
	os.Exit(m.Run())
}

func TestStartPostgres_RunsAsWhoeverThisIsAndLeavesNothingBehind(t *testing.T) {
	t.Setenv("TMPDIR", openFolder(t))
	server, err := embedded.StartPostgres(t.Context(), embedded.PostgresConfig{Version: os.Getenv("PINWORKER_TEST_POSTGRES")})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	var version string
	if err := conn.QueryRow(t.Context(), "SHOW server_version").Scan(&version); err != nil {
		t.Error(err)
	}
	t.Log("PostgreSQL", version)
	conn.Close(t.Context()) //nolint:errcheck // the server is about to stop
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	empty(t, os.Getenv("TMPDIR"))
	unreachable(t, server.URL())
}

func TestStartPostgres_AServerDiesWithItsParentHoweverThatEnds(t *testing.T) {
	folder := openFolder(t)
	parent := exec.Command("/proc/self/exe")
	parent.Env = append(os.Environ(), "DIE_WITH_A_SERVER=1", "TMPDIR="+folder)
	stdout, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 256)
	n, err := stdout.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	url := strings.TrimSpace(string(line[:n]))
	if conn, err := pgx.Connect(t.Context(), url); err != nil {
		t.Error(err)
	} else {
		conn.Close(t.Context()) //nolint:errcheck // the server is about to stop
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	parent.Wait() //nolint:errcheck // it was killed
	eventually(t, "the folder is empty", func() bool {
		entries, err := os.ReadDir(folder)
		return err == nil && len(entries) == 0
	})
	unreachable(t, url)
}

// As root, the server's user may empty its folder, but not remove it from one that is root's alone.
func TestStartPostgres_AFolderThatOnlyItsParentMayRemoveIsNoFault(t *testing.T) {
	folder := openFolder(t)
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", folder)
	p, err := embedded.StartPostgres(t.Context(), embedded.PostgresConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	empty(t, folder)
}

func TestPostgres_ARestartCrashesTheServerAndWhatWasCommittedIsThere(t *testing.T) {
	t.Setenv("TMPDIR", openFolder(t))
	server, err := embedded.StartPostgres(t.Context(), embedded.PostgresConfig{Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), server.URL())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	before := connect()
	if _, err := before.Exec(t.Context(), "CREATE TABLE kept AS SELECT 1 AS n"); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := before.Ping(t.Context()); err == nil {
		t.Error("a connection has outlived it")
	}
	after := connect()
	var rows int
	if err := after.QueryRow(t.Context(), "SELECT count(*) FROM kept").Scan(&rows); err != nil || rows != 1 {
		t.Errorf("%d rows, %v", rows, err)
	}
	after.Close(t.Context()) //nolint:errcheck // the server is about to stop
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	empty(t, os.Getenv("TMPDIR"))
}

func TestStartPostgres_AVersionThatThereIsNotIsAnError(t *testing.T) {
	t.Setenv("TMPDIR", openFolder(t))
	_, err := embedded.StartPostgres(t.Context(), embedded.PostgresConfig{Version: "7"})
	if err == nil || !strings.Contains(err.Error(), "PostgreSQL 7 is neither installed nor can it be fetched") {
		t.Errorf("error %v", err)
	}
	empty(t, os.Getenv("TMPDIR"))
}

// openFolder is a folder for temporary files that another user may enter.
func openFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "embedded-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) }) //nolint:errcheck // it is temporary
	if err := os.Chmod(folder, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	return folder
}

func empty(t *testing.T, folder string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func unreachable(t *testing.T, url string) {
	t.Helper()
	if conn, err := pgx.Connect(t.Context(), url); err == nil {
		conn.Close(t.Context()) //nolint:errcheck // that it is there at all is the fault
		t.Error("the server still runs")
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("never: %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
