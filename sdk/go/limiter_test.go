package tidegate

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

func limiter(t *testing.T, url string, options ...Option) *Limiter {
	t.Helper()
	l, err := NewLimiter(url, "shop", append([]Option{WithTimeout(5 * time.Second)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func user(name string) Entries { return Entries{{"user", name}} }

func TestTheService(t *testing.T) {
	ctx, url := context.Background(), serve(t)

	t.Run("admits until the limit and then says how long to wait", func(t *testing.T) {
		l := limiter(t, url)
		for want := int64(1); want >= 0; want-- {
			if got, ok := l.Check(ctx, user("ada")).(Admitted); !ok || got.Remaining != want {
				t.Fatalf("%+v", got)
			}
		}
		refused, ok := l.Check(ctx, user("ada")).(Refused)
		if !ok || refused.Limit != "per-user" || refused.RetryAfter <= 0 || refused.RetryAfter > 30*time.Minute {
			t.Fatalf("%+v", refused)
		}
		// Remembered: the service is not asked again.
		l.base = "http://127.0.0.1:1"
		if again, ok := l.Check(ctx, user("ada")).(Refused); !ok || again.Limit != "per-user" {
			t.Fatalf("%+v", again)
		}
	})

	t.Run("a cost that never fits has no retry time", func(t *testing.T) {
		if got := limiter(t, url).CheckCost(ctx, 3, user("eve")); got != (Refused{Never: true, Limit: "per-user"}) {
			t.Fatalf("%+v", got)
		}
	})

	t.Run("peek charges nothing and refund gives back", func(t *testing.T) {
		l := limiter(t, url)
		l.Check(ctx, user("bob"))
		for range 3 {
			if got := l.Peek(ctx, user("bob")).(Admitted); got.Remaining != 1 {
				t.Fatalf("%+v", got)
			}
		}
		if err := l.Refund(ctx, 1, user("bob")); err != nil {
			t.Fatal(err)
		}
		if got := l.Check(ctx, user("bob")).(Admitted); got.Remaining != 1 {
			t.Fatalf("%+v", got)
		}
	})

	t.Run("a permit is held until it is released", func(t *testing.T) {
		l, job := limiter(t, url), Entries{{"job", "report"}}
		release, err := l.Permit(ctx, job)
		if err != nil {
			t.Fatal(err)
		}
		var refused *RefusedError
		if _, err := limiter(t, url).Permit(ctx, job); !errors.As(err, &refused) {
			t.Fatal(err)
		}
		release()
		release, err = l.Permit(ctx, job)
		if err != nil {
			t.Fatal(err)
		}
		release()
	})

	t.Run("a batch is decided in order", func(t *testing.T) {
		got := limiter(t, url).CheckBatch(ctx, []Entries{user("cy")}, []Entries{user("cy"), {{"fast", "cy"}}}, []Entries{user("cy")})
		if _, ok := got[2].(Refused); len(got) != 3 || !ok {
			t.Fatalf("%+v", got)
		}
	})
}

func TestFailuresAreUndecided(t *testing.T) {
	ctx := context.Background()
	for _, body := range []string{"garbage", "[]", "{}", ""} {
		for _, status := range []int{200, 401, 500, 503} {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				_, _ = w.Write([]byte(body))
			}))
			l := limiter(t, server.URL)
			if got, ok := l.Check(ctx, user("ada")).(Undecided); !ok || !got.Allowed || got.Reason == "" {
				t.Errorf("%d %q: %+v", status, body, got)
			}
			if _, ok := l.CheckBatch(ctx, []Entries{user("ada")})[0].(Undecided); !ok {
				t.Errorf("%d %q: a batch", status, body)
			}
			server.Close()
		}
	}
	gone := limiter(t, "http://"+freeAddress(t), DenyOnError())
	if got, ok := gone.Check(ctx, user("ada")).(Undecided); !ok || got.Allowed {
		t.Fatalf("%+v", got)
	}
	if _, err := gone.Permit(ctx, user("ada")); err == nil {
		t.Fatal("denied")
	}
}

func TestAFailingServiceIsAskedOnceASecond(t *testing.T) {
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	now := time.Unix(0, 0)
	l := limiter(t, server.URL, WithClock(func() time.Time { return now }))
	for _, want := range []int32{5, 6} {
		for range 100 {
			l.Check(context.Background(), user("ada"))
		}
		if calls.Load() != want {
			t.Fatalf("%d calls", calls.Load())
		}
		now = now.Add(time.Second)
	}
}

func TestABadURLIsAnErrorAtOnce(t *testing.T) {
	if _, err := NewLimiter("localhost:8080", "shop"); err == nil {
		t.Fatal("accepted")
	}
}
