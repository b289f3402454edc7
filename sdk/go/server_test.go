package tidegate

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

const rules = `domain: shop
descriptors:
  - key: user
    rate_limit: {name: per-user, algorithm: token_bucket, unit: hour, requests_per_unit: 2}
  - key: fast
    rate_limit: {name: fast, algorithm: token_bucket, unit: second, requests_per_unit: 10}
  - key: job
    rate_limit: {name: jobs, algorithm: concurrency, requests_per_unit: 1, time_to_live: 60s}
`

// serve starts a real Tidegate: TIDEGATE names the program, or target/debug/tidegate is used.
func serve(t *testing.T) string {
	t.Helper()
	program := os.Getenv("TIDEGATE")
	if program == "" {
		program = "../../target/debug/tidegate"
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	command := exec.Command(program, "serve",
		"--set", "rules.paths="+path, "--set", "http.listen="+address,
		"--set", "grpc.listen=127.0.0.1:0", "--set", "debug.listen=127.0.0.1:0")
	if err := command.Start(); err != nil {
		t.Fatalf("no Tidegate: %v (build it with `cargo build -p tidegate-app`)", err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
	})
	for range 600 {
		if response, err := http.Get("http://" + address + "/readyz"); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return "http://" + address
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("Tidegate does not become ready")
	return ""
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return fmt.Sprint(listener.Addr())
}
