package tidegate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

const targetsMax = 1_024

// HeldError means that a call was not sent: its target allows none for longer than WaitMax, or is short of capacity.
type HeldError struct {
	Target string
	// RetryAfter is when to try again; zero if the target is short of capacity.
	RetryAfter time.Duration
}

func (e *HeldError) Error() string {
	if e.RetryAfter == 0 {
		return fmt.Sprintf("tidegate: %s is short of capacity, so that this call was dropped", e.Target)
	}
	return fmt.Sprintf("tidegate: %s allows no call for %v", e.Target, e.RetryAfter)
}

// Transport paces the calls of an http.Client before they are refused, closes a target that asked to wait, and repeats
// refused calls with jitter within a budget:
//
//	client := &http.Client{Transport: &tidegate.Transport{}}
//
// Calls to one host share what is known of it. Cancel a request's context to end its waiting.
type Transport struct {
	// Base sends the calls; http.DefaultTransport if it is nil.
	Base http.RoundTripper
	// WaitMax is the longest wait for a turn; a minute if it is zero.
	WaitMax time.Duration
	// AttemptsMax is the number of attempts at one call; three if it is zero.
	AttemptsMax int
	// Observe sees each wait ("waited"), retry ("retry") and refusal without a call ("held"); it may be nil.
	Observe func(target, event string, span time.Duration)

	mu      sync.Mutex
	origin  time.Time
	targets map[string]*pacedTarget
}

// pacedTarget is a target with its line of callers.
type pacedTarget struct {
	*target
	line    chan struct{}
	changed chan struct{}
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	host := request.URL.Host
	if t.drops(host) {
		return nil, &HeldError{Target: host}
	}
	attempts := t.AttemptsMax
	if attempts == 0 {
		attempts = 3
	}
	if !isRepeatable(request) {
		attempts = 1
	}
	for attempt := 1; ; attempt++ {
		sequence, err := t.waitTurn(request.Context(), host, attempt == 1)
		if err != nil {
			return nil, err
		}
		response, err := t.base().RoundTrip(request)
		pause, again := t.record(host, sequence, response, err, attempt, attempts)
		if !again {
			return response, err
		}
		next := request.Clone(request.Context())
		if request.GetBody != nil {
			if next.Body, err = request.GetBody(); err != nil {
				return nil, err
			}
		}
		if response != nil {
			response.Body.Close()
		}
		t.observe(host, "retry", pause)
		if err := sleep(request.Context(), pause); err != nil {
			return nil, err
		}
		request = next
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base != nil {
		return t.Base
	}
	return http.DefaultTransport
}

func (t *Transport) waitMax() time.Duration {
	if t.WaitMax == 0 {
		return time.Minute
	}
	return t.WaitMax
}

func (t *Transport) observe(target, event string, span time.Duration) {
	if t.Observe != nil {
		t.Observe(target, event, span)
	}
}

// now is the time since the first call. The lock is held.
func (t *Transport) now() uint64 {
	if t.origin.IsZero() {
		t.origin = time.Now()
	}
	return uint64(time.Since(t.origin))
}

// state finds or makes a target. The lock is held.
func (t *Transport) state(host string) *pacedTarget {
	if found := t.targets[host]; found != nil {
		return found
	}
	if t.targets == nil {
		t.targets = make(map[string]*pacedTarget)
	}
	if len(t.targets) >= targetsMax {
		oldest := ""
		for name, each := range t.targets {
			if oldest == "" || each.usedAt < t.targets[oldest].usedAt {
				oldest = name
			}
		}
		delete(t.targets, oldest)
	}
	made := &pacedTarget{target: newTarget(t.now()), line: make(chan struct{}, 1), changed: make(chan struct{}, 1)}
	t.targets[host] = made
	return made
}

func (t *Transport) drops(host string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state(host).throttle.drops(t.now(), rand.Uint64())
}

// waitTurn waits in line until a call may leave, and counts it.
func (t *Transport) waitTurn(ctx context.Context, host string, first bool) (uint64, error) {
	t.mu.Lock()
	state, started := t.state(host), t.now()
	t.mu.Unlock()
	limit := time.NewTimer(t.waitMax())
	defer limit.Stop()
	select {
	case state.line <- struct{}{}:
		defer func() { <-state.line }()
	case <-limit.C:
		return 0, t.held(host, state)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	for {
		t.mu.Lock()
		now := t.now()
		left := sub(uint64(t.waitMax()), sub(now, started))
		step, wait := state.plan(now, left)
		if step == stepSend {
			sequence := state.countSend(now, first)
			t.mu.Unlock()
			if waited := time.Duration(now - started); waited > time.Millisecond {
				t.observe(host, "waited", waited)
			}
			return sequence, nil
		}
		t.mu.Unlock()
		if step == stepHeld || left == 0 {
			t.observe(host, "held", time.Duration(wait))
			return 0, &HeldError{Target: host, RetryAfter: time.Duration(min(wait, 1<<62))}
		}
		if step == stepWaitForAnswer {
			wait = left
		}
		timer := time.NewTimer(time.Duration(wait) + time.Millisecond)
		select {
		case <-timer.C:
		case <-state.changed:
		case <-ctx.Done():
			timer.Stop()
			return 0, ctx.Err()
		}
		timer.Stop()
	}
}

func (t *Transport) held(host string, state *pacedTarget) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return &HeldError{Target: host, RetryAfter: time.Duration(max(sub(state.heldUntil, t.now()), 1))}
}

// record applies an answer, and says whether and after which pause the call is repeated.
func (t *Transport) record(
	host string, sequence uint64, response *http.Response, err error, attempt, attemptsMax int,
) (time.Duration, bool) {
	kind, fields := failed, responseFields{}
	if err == nil {
		kind = classify(response.StatusCode, response.Header)
		fields = readFields(response.Header, uint64(time.Now().UnixNano()))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	state, now := t.state(host), t.now()
	state.record(sequence, kind, fields, now, rand.Float64())
	select {
	case state.changed <- struct{}{}:
	default:
	}
	if kind == served || fields.forbidsRetry || attempt >= attemptsMax {
		return 0, false
	}
	pause := pauseBefore(attempt, fields.wait, kind != failed, rand.Float64())
	if pause > uint64(t.waitMax()) || !state.spendRetry(fields.wait != nil, now) {
		return 0, false
	}
	return time.Duration(pause) + time.Millisecond, true
}

func classify(status int, headers http.Header) answerKind {
	switch status {
	case http.StatusTooManyRequests:
		return refused
	case http.StatusServiceUnavailable:
		return short
	case http.StatusRequestTimeout, http.StatusBadGateway, http.StatusGatewayTimeout:
		return failed
	case http.StatusOK:
		switch headers.Get("Grpc-Status") {
		case "8":
			return refused
		case "14":
			return short
		}
	}
	return served
}

// pauseBefore is the pause before the next attempt. A stated wait is never shortened.
func pauseBefore(attempt int, stated *uint64, wasRefused bool, jitter float64) uint64 {
	if stated != nil {
		return add(*stated, uint64(float64(min(*stated, second))*jitter))
	}
	first := 100 * millisecond
	if wasRefused {
		first = second
	}
	half := min(first<<min(attempt-1, 20), 20*second) / 2
	return half + uint64(float64(half)*jitter)
}

func isRepeatable(request *http.Request) bool {
	if request.Body != nil && request.Body != http.NoBody && request.GetBody == nil {
		return false
	}
	switch request.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPut, http.MethodDelete, http.MethodTrace:
		return true
	}
	return request.Header.Get("Idempotency-Key") != ""
}

func sleep(ctx context.Context, span time.Duration) error {
	timer := time.NewTimer(span)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
