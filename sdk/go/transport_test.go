package tidegate

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Paced calls to a real Tidegate, whose checks carry the fields of a limit of ten a second.
func TestPacedCallsAreNotRefused(t *testing.T) {
	url := serve(t)
	refusals := func(client *http.Client, user string) int64 {
		var count atomic.Int64
		var group sync.WaitGroup
		for range 10 {
			group.Add(1)
			go func() {
				defer group.Done()
				for range 3 {
					body := `{"domain":"shop","descriptors":[{"entries":[{"key":"fast","value":"` + user + `"}]}]}`
					response, err := client.Post(url+"/v1/check", "application/json", strings.NewReader(body))
					if err != nil {
						t.Error(err)
						return
					}
					response.Body.Close()
					if response.StatusCode == http.StatusTooManyRequests {
						count.Add(1)
					}
				}
			}()
		}
		group.Wait()
		return count.Load()
	}
	without := refusals(&http.Client{}, "plain")
	paced := refusals(&http.Client{Transport: &Transport{}}, "paced")
	t.Logf("refused of 30: %d without the transport, %d with it", without, paced)
	// A busy machine delays calls past the edge of a window, so that a few are refused.
	if without <= 10 || paced >= without/2 {
		t.Fatalf("%d, %d", without, paced)
	}
}

func TestATargetThatAskedToWaitIsClosed(t *testing.T) {
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer server.Close()
	client := &http.Client{Transport: &Transport{WaitMax: time.Second}}
	response, err := client.Get(server.URL)
	if err != nil || response.StatusCode != http.StatusTooManyRequests {
		t.Fatal(response, err)
	}
	response.Body.Close()
	var held *HeldError
	if _, err := client.Get(server.URL); !errors.As(err, &held) || held.RetryAfter < 3_590*time.Second {
		t.Fatal(err)
	}
	if calls.Load() != 1 {
		t.Fatalf("%d calls", calls.Load())
	}
}

func TestAFailedCallIsRepeatedWithItsBody(t *testing.T) {
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 16)
		n, _ := r.Body.Read(body)
		bodies = append(bodies, string(body[:n]))
		if len(bodies) == 1 {
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	defer server.Close()
	request, _ := http.NewRequestWithContext(context.Background(), http.MethodPut, server.URL, strings.NewReader("order"))
	response, err := (&http.Client{Transport: &Transport{}}).Do(request)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatal(response, err)
	}
	response.Body.Close()
	if strings.Join(bodies, ",") != "order,order" {
		t.Fatal(bodies)
	}
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer server.Close()
	client := &http.Client{Transport: &Transport{AttemptsMax: 1}}
	response, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	request, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	if _, err := client.Do(request); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}
