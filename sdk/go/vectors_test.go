package tidegate

import (
	"encoding/json"
	"net/http"
	"os"
	"reflect"
	"testing"
)

// The vectors that all client libraries share, made by the Rust crate.
func readVectors(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile("../vectors/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

func headersOf(fields map[string]string) http.Header {
	headers := make(http.Header)
	for name, value := range fields {
		headers.Set(name, value)
	}
	return headers
}

func TestFieldsAreReadAsInRust(t *testing.T) {
	type policyVector struct {
		Name, Unit       string
		Quota, Remaining *uint64
		Window           *uint64 `json:"window_ns"`
		Reset            *uint64 `json:"reset_ns"`
	}
	var vectors struct {
		DaySeconds uint64 `json:"day_seconds"`
		Cases      []struct {
			Headers map[string]string
			Expect  struct {
				Wait         *uint64 `json:"wait_ns"`
				ForbidsRetry bool    `json:"forbids_retry"`
				Policies     []policyVector
			}
		}
	}
	readVectors(t, "fields", &vectors)
	for _, c := range vectors.Cases {
		read := readFields(headersOf(c.Headers), vectors.DaySeconds*second)
		got := c.Expect
		got.Wait, got.ForbidsRetry, got.Policies = read.wait, read.forbidsRetry, []policyVector{}
		for _, p := range read.policies {
			got.Policies = append(got.Policies, policyVector{p.name, p.unit, p.quota, p.remaining, p.window, p.reset})
		}
		if !reflect.DeepEqual(got, c.Expect) {
			a, _ := json.Marshal(got)
			b, _ := json.Marshal(c.Expect)
			t.Errorf("%v:\n%s, not\n%s", c.Headers, a, b)
		}
	}
}

func TestCallsArePacedAsInRust(t *testing.T) {
	type stepVector struct {
		At   uint64 `json:"at_ms"`
		Plan *struct {
			WaitMax uint64 `json:"wait_max_ms"`
		}
		Send   *struct{}
		Answer *struct {
			Sequence uint64
			Status   int
			Headers  map[string]string
		}
		Retry  *struct{ Stated bool }
		Drop   *struct{ Random uint64 }
		Expect struct {
			Step          stepKind
			Ns, Sequence  uint64
			Held          uint64 `json:"held_ns"`
			Paid, Dropped bool
		}
	}
	var vectors struct {
		DaySeconds uint64 `json:"day_seconds"`
		Scenarios  []struct {
			Seed  int
			Steps []stepVector
		}
	}
	readVectors(t, "pacing", &vectors)
	for _, scenario := range vectors.Scenarios {
		target := newTarget(scenario.Steps[0].At * millisecond)
		for index, step := range scenario.Steps {
			got, now := step.Expect, step.At*millisecond
			switch {
			case step.Plan != nil:
				got.Step, got.Ns = target.plan(now, step.Plan.WaitMax*millisecond)
			case step.Send != nil:
				got.Sequence = target.countSend(now, true)
			case step.Answer != nil:
				headers := headersOf(step.Answer.Headers)
				fields := readFields(headers, vectors.DaySeconds*second)
				target.record(step.Answer.Sequence, classify(step.Answer.Status, headers), fields, now, 0)
				got.Held = sub(target.heldUntil, now)
			case step.Retry != nil:
				got.Paid = target.spendRetry(step.Retry.Stated, now)
			default:
				got.Dropped = target.throttle.drops(now, step.Drop.Random)
			}
			if got != step.Expect {
				t.Fatalf("seed %d, step %d: %+v, not %+v", scenario.Seed, index, got, step.Expect)
			}
		}
	}
}
