// Package tidegate asks a Tidegate whether a request may pass, and keeps outgoing calls within the limits of their
// targets.
//
//	limiter, err := tidegate.NewLimiter("http://127.0.0.1:8080", "shop")
//	…
//	switch result := limiter.Check(ctx, tidegate.Entries{{"user", "ada"}}).(type) {
//	case tidegate.Admitted:
//		serve()
//	case tidegate.Refused:
//		answer429(result.RetryAfter)
//	case tidegate.Undecided:
//		if result.Allowed {
//			serve()
//		}
//	}
package tidegate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	// refusalsMax is how many refusals a Limiter remembers.
	refusalsMax = 10_000
	// failuresMax failures in a row make the Limiter ask once per probePause.
	failuresMax = 5
	probePause  = time.Second
	// answerBytesMax bounds what is read of an answer.
	answerBytesMax = 16 << 20
)

// Entry is one key and value of a descriptor.
type Entry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Entries is one descriptor: ordered entries.
type Entries []Entry

// Result is Admitted, Refused or Undecided. There is no boolean: an unreachable service is neither.
type Result interface{ isResult() }

// Admitted means that the request may proceed.
type Admitted struct {
	// Remaining is what is left of the tightest limit; -1 if no limit applied.
	Remaining int64
	// Delay is how long to wait before proceeding: the turn of a leaky bucket.
	Delay time.Duration
	// Permit names held slots of a concurrency limit, for Release; empty if there are none.
	Permit string
	// Soft says that only the allowance of a soft limit admitted the request.
	Soft bool
}

// Refused means that the request is over a limit.
type Refused struct {
	// RetryAfter is when to ask again. It is zero if Never is true.
	RetryAfter time.Duration
	// Never says that waiting does not help: the cost exceeds the limit.
	Never bool
	// Limit is the name of the limit that refused.
	Limit string
}

// Undecided means that no decision was possible.
type Undecided struct {
	// Allowed is what the settings of the service, or of the Limiter, make of it.
	Allowed bool
	// Reason says why.
	Reason string
}

func (Admitted) isResult()  {}
func (Refused) isResult()   {}
func (Undecided) isResult() {}

// RefusedError is returned by Permit for a request that may not proceed.
type RefusedError struct{ Result Result }

func (e *RefusedError) Error() string { return fmt.Sprintf("tidegate: %+v", e.Result) }

// Option changes a setting of a Limiter.
type Option func(*Limiter)

// WithToken sends an access token.
func WithToken(token string) Option { return func(l *Limiter) { l.token = token } }

// WithTimeout bounds each call; the default is 50 ms.
func WithTimeout(timeout time.Duration) Option { return func(l *Limiter) { l.timeout = timeout } }

// WithHTTPClient replaces the HTTP client, for TLS settings and proxies.
func WithHTTPClient(client *http.Client) Option { return func(l *Limiter) { l.client = client } }

// DenyOnError makes undecided requests not allowed. By default they are allowed.
func DenyOnError() Option { return func(l *Limiter) { l.allow = false } }

// WithClock replaces the clock, for tests.
func WithClock(now func() time.Time) Option { return func(l *Limiter) { l.now = now } }

// Limiter is a client of one Tidegate for one domain. It may be used from several goroutines.
type Limiter struct {
	base, domain, token string
	timeout             time.Duration
	client              *http.Client
	allow               bool
	now                 func() time.Time

	mu       sync.Mutex
	refusals map[string]refusal
	failures int
	probeAt  time.Time
}

type refusal struct {
	until time.Time
	limit string
}

// NewLimiter makes a Limiter. The URL has the scheme http or https.
func NewLimiter(base, domain string, options ...Option) (*Limiter, error) {
	parsed, err := url.Parse(base)
	if err != nil || (parsed.Scheme != "http" && parsed.Scheme != "https") || parsed.Host == "" {
		return nil, fmt.Errorf("tidegate: not an http or https URL: %q", base)
	}
	l := &Limiter{
		base:     strings.TrimRight(base, "/"),
		domain:   domain,
		timeout:  50 * time.Millisecond,
		client:   &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}},
		allow:    true,
		now:      time.Now,
		refusals: make(map[string]refusal),
	}
	for _, option := range options {
		option(l)
	}
	return l, nil
}

// Check decides a request of cost 1 and charges it if it is admitted.
func (l *Limiter) Check(ctx context.Context, descriptors ...Entries) Result {
	return l.CheckCost(ctx, 1, descriptors...)
}

// CheckCost is Check with a cost.
func (l *Limiter) CheckCost(ctx context.Context, cost uint64, descriptors ...Entries) Result {
	body := l.body(cost, descriptors)
	if refused, found := l.remembered(body); found {
		return refused
	}
	result := l.ask(ctx, "/v1/check?status=200", body)
	if refused, ok := result.(Refused); ok {
		l.remember(body, refused)
	}
	return result
}

// CheckBatch decides up to 100 requests in one call, each on its own and in order.
func (l *Limiter) CheckBatch(ctx context.Context, requests ...[]Entries) []Result {
	bodies := make([]json.RawMessage, len(requests))
	for i, descriptors := range requests {
		bodies[i] = json.RawMessage(l.body(1, descriptors))
	}
	results := make([]Result, len(requests))
	var answer struct{ Answers []answer }
	body, _ := json.Marshal(map[string]any{"requests": bodies})
	err := l.post(ctx, "/v1/check?status=200", string(body), &answer)
	if err == nil && len(answer.Answers) != len(requests) {
		err = errors.New("the answer is not one of a Tidegate")
	}
	for i := range results {
		if err != nil {
			results[i] = Undecided{Allowed: l.allow, Reason: err.Error()}
		} else {
			results[i] = l.result(&answer.Answers[i])
		}
	}
	return results
}

// Peek shows what Check would answer. It charges nothing.
func (l *Limiter) Peek(ctx context.Context, descriptors ...Entries) Result {
	return l.ask(ctx, "/v1/peek?status=200", l.body(1, descriptors))
}

// Refund gives a charge back. It needs the role "change".
func (l *Limiter) Refund(ctx context.Context, cost uint64, descriptors ...Entries) error {
	body := l.body(cost, descriptors)
	l.mu.Lock()
	delete(l.refusals, body)
	l.mu.Unlock()
	return l.post(ctx, "/v1/refund", body, &json.RawMessage{})
}

// Release frees the slots of a permit. Without an answer they expire by themselves.
func (l *Limiter) Release(ctx context.Context, permit string) error {
	body, _ := json.Marshal(map[string]string{"permit": permit})
	return l.post(ctx, "/v1/release", string(body), &json.RawMessage{})
}

// Permit holds a slot until the returned function is called:
//
//	release, err := limiter.Permit(ctx, tidegate.Entries{{"job", "report"}})
//	if err != nil {
//		return err
//	}
//	defer release()
func (l *Limiter) Permit(ctx context.Context, descriptors ...Entries) (release func(), err error) {
	result := l.Check(ctx, descriptors...)
	switch result := result.(type) {
	case Admitted:
		return func() {
			if result.Permit != "" {
				// The caller's context may be over when the work is.
				_ = l.Release(context.WithoutCancel(ctx), result.Permit)
			}
		}, nil
	case Undecided:
		if result.Allowed {
			return func() {}, nil
		}
	}
	return nil, &RefusedError{Result: result}
}

type answer struct {
	Admitted  *bool
	Undecided string
	DelayMs   int64  `json:"delay_ms"`
	RetryMs   *int64 `json:"retry_after_ms"`
	Permit    string
	Soft      bool
	RefusedBy struct{ Limit, Path string } `json:"refused_by"`
	Decisions []struct {
		Role      string
		Remaining int64
	}
}

func (l *Limiter) body(cost uint64, descriptors []Entries) string {
	type descriptor struct {
		Entries Entries `json:"entries"`
	}
	request := struct {
		Domain      string       `json:"domain"`
		Cost        uint64       `json:"cost"`
		Descriptors []descriptor `json:"descriptors"`
	}{Domain: l.domain, Cost: cost, Descriptors: make([]descriptor, 0, len(descriptors))}
	for _, entries := range descriptors {
		request.Descriptors = append(request.Descriptors, descriptor{entries})
	}
	body, _ := json.Marshal(request) // only texts and numbers: it cannot fail
	return string(body)
}

func (l *Limiter) ask(ctx context.Context, path, body string) Result {
	var got answer
	if err := l.post(ctx, path, body, &got); err != nil {
		return Undecided{Allowed: l.allow, Reason: err.Error()}
	}
	return l.result(&got)
}

func (l *Limiter) result(got *answer) Result {
	switch {
	case got.Admitted == nil:
		return Undecided{Allowed: l.allow, Reason: "the answer is not one of a Tidegate"}
	case got.Undecided != "":
		return Undecided{Allowed: *got.Admitted, Reason: got.Undecided}
	case *got.Admitted:
		remaining := int64(-1)
		for _, decision := range got.Decisions {
			if decision.Role != "shadow" && (remaining < 0 || decision.Remaining < remaining) {
				remaining = decision.Remaining
			}
		}
		delay := time.Duration(got.DelayMs) * time.Millisecond
		return Admitted{Remaining: remaining, Delay: delay, Permit: got.Permit, Soft: got.Soft}
	}
	refused := Refused{Never: got.RetryMs == nil, Limit: got.RefusedBy.Limit}
	if got.RetryMs != nil {
		refused.RetryAfter = time.Duration(*got.RetryMs) * time.Millisecond
	}
	if refused.Limit == "" {
		refused.Limit = got.RefusedBy.Path
	}
	return refused
}

func (l *Limiter) remembered(body string) (Refused, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entry, found := l.refusals[body]
	if !found {
		return Refused{}, false
	}
	left := entry.until.Sub(l.now())
	if left <= 0 {
		delete(l.refusals, body)
		return Refused{}, false
	}
	return Refused{RetryAfter: left, Limit: entry.limit}, true
}

func (l *Limiter) remember(body string, refused Refused) {
	if refused.Never || refused.RetryAfter <= 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.refusals) >= refusalsMax {
		for any := range l.refusals {
			delete(l.refusals, any)
			break
		}
	}
	l.refusals[body] = refusal{until: l.now().Add(refused.RetryAfter), limit: refused.Limit}
}

func (l *Limiter) post(ctx context.Context, path, body string, into any) error {
	if err := l.mayAsk(); err != nil {
		return err
	}
	err := l.send(ctx, path, body, into)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failures++
		l.probeAt = l.now().Add(probePause)
	} else {
		l.failures = 0
	}
	return err
}

// mayAsk lets one call a second pass while the service fails.
func (l *Limiter) mayAsk() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if l.failures < failuresMax {
		return nil
	}
	if now.Before(l.probeAt) {
		return errors.New("the service did not answer; it is asked again once a second")
	}
	l.probeAt = now.Add(probePause)
	return nil
}

func (l *Limiter) send(ctx context.Context, path, body string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.base+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if l.token != "" {
		request.Header.Set("Authorization", "Bearer "+l.token)
	}
	response, err := l.client.Do(request)
	if err != nil {
		return fmt.Errorf("the service did not answer: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, answerBytesMax))
	if err != nil {
		return fmt.Errorf("the service did not answer: %w", err)
	}
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusTooManyRequests {
		var problem struct{ Detail, Undecided string }
		_ = json.Unmarshal(text, &problem)
		return fmt.Errorf("the service answered %s: %s%s", response.Status, problem.Detail, problem.Undecided)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("the service answered %s without JSON", response.Status)
	}
	return nil
}
