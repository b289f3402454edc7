package tidegate

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"math/bits"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Times are nanoseconds as uint64; they saturate.
const (
	second      = uint64(time.Second)
	millisecond = uint64(time.Millisecond)
	forever     = uint64(math.MaxUint64)

	policiesMax   = 16
	fieldBytesMax = 4_096
)

// policy is one quota, as far as an answer says something about it.
type policy struct {
	name                            string
	unit                            string // "requests", "concurrency" or "other"
	quota, window, remaining, reset *uint64
}

// responseFields is what one answer says about limits.
type responseFields struct {
	wait         *uint64
	forbidsRetry bool
	policies     []policy
}

// readFields reads the fields of an answer. now is the time of day; the answer's own Date counts instead. An answer
// from a cache says nothing about limits now.
func readFields(headers http.Header, now uint64) responseFields {
	get := func(name string) string { return strings.TrimSpace(headers.Get(name)) }
	if age := readInteger(get("Age")); age != nil && *age > 0 {
		return responseFields{}
	}
	if date := readDate(get("Date")); date != nil {
		now = *date
	}
	pushback := get("Grpc-Retry-Pushback-Ms")
	forbids := strings.HasPrefix(pushback, "-") && readInteger(pushback[1:]) != nil
	return responseFields{wait: readWait(get, now), forbidsRetry: forbids, policies: readPolicies(headers, get, now)}
}

func add(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return forever
	}
	return sum
}

func mul(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	if high != 0 {
		return forever
	}
	return low
}

func sub(a, b uint64) uint64 {
	if b > a {
		return 0
	}
	return a - b
}

func isDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

func readInteger(text string) *uint64 {
	if !isDigits(text) {
		return nil
	}
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		number = forever
	}
	return &number
}

// readDecimal reads a number of units with decimals, rounded up.
func readDecimal(text string, unit uint64) *uint64 {
	whole, decimals, found := strings.Cut(text, ".")
	number := readInteger(whole)
	if number == nil || (found && !isDigits(decimals)) {
		return nil
	}
	part, scale, beyond := uint64(0), unit, uint64(0)
	for i, digit := range []byte(decimals) {
		if i < 9 {
			scale /= 10
			part += scale * uint64(digit-'0')
		} else if digit != '0' {
			beyond = 1
		}
	}
	value := add(add(mul(*number, unit), part), beyond)
	return &value
}

var compoundUnits = map[string]uint64{
	"d": 86_400 * second, "h": 3_600 * second, "m": 60 * second, "s": second,
	"ms": millisecond, "us": 1_000, "ns": 1,
}

// readCompound reads a span such as 6m0s.
func readCompound(text string) *uint64 {
	sum, rest := uint64(0), text
	for rest != "" {
		number := len(rest) - len(strings.TrimLeft(rest, "0123456789."))
		after := rest[number:]
		end := strings.IndexAny(after, "0123456789")
		if end < 0 {
			end = len(after)
		}
		span := readDecimal(rest[:number], compoundUnits[after[:end]])
		if compoundUnits[after[:end]] == 0 || span == nil {
			return nil
		}
		sum, rest = add(sum, *span), after[end:]
	}
	if text == "" {
		return nil
	}
	return &sum
}

// readReset reads when a quota is whole again: a span, an epoch, a text such as 6m0s, or an RFC 3339 instant.
func readReset(text string, now uint64) *uint64 {
	whole, _, _ := strings.Cut(text, ".")
	if number := readInteger(whole); number != nil && *number > 1_000_000_000 {
		unit := second
		if *number > 1_000_000_000_000 {
			unit = millisecond
		}
		if instant := readDecimal(text, unit); instant != nil {
			left := sub(*instant, now)
			return &left
		}
		return nil
	}
	if span := readDecimal(text, second); span != nil {
		return span
	}
	if span := readCompound(text); span != nil {
		return span
	}
	if instant, err := time.Parse(time.RFC3339Nano, text); err == nil && instant.UnixNano() >= 0 {
		left := sub(uint64(instant.UnixNano()), now)
		return &left
	}
	return nil
}

func readDate(text string) *uint64 {
	date, err := http.ParseTime(text)
	if err != nil || date.Unix() < 0 {
		return nil
	}
	value := uint64(date.Unix()) * second
	return &value
}

func readWait(get func(string) string, now uint64) *uint64 {
	var precise, rounded *uint64
	longest := func(into **uint64, value *uint64) {
		if value != nil && (*into == nil || *value > **into) {
			*into = value
		}
	}
	for _, name := range []string{"Retry-After-Ms", "X-Ms-Retry-After-Ms", "X-Amz-Retry-After"} {
		longest(&precise, readDecimal(get(name), millisecond))
	}
	if pushback := readInteger(get("Grpc-Retry-Pushback-Ms")); pushback != nil {
		value := mul(*pushback, millisecond)
		longest(&precise, &value)
	}
	longest(&precise, readRetryInfo(get("Grpc-Status-Details-Bin")))
	for _, name := range []string{"Retry-After", "X-Ratelimit-Retry-After"} {
		if span := readDecimal(get(name), second); span != nil {
			longest(&rounded, span)
		} else if date := readDate(get(name)); date != nil {
			left := sub(*date, now)
			longest(&rounded, &left)
		}
	}
	switch {
	case precise == nil:
		return rounded
	case rounded == nil || (*rounded < add(*precise, second) && *precise < add(*rounded, second)):
		// Whole seconds are rounded up: the precise one is the same wait.
		return precise
	default:
		longest(&precise, rounded)
		return precise
	}
}

// readRetryInfo finds the delay of a google.rpc.RetryInfo in the details of a gRPC status.
func readRetryInfo(text string) *uint64 {
	if text == "" || len(text) > 8_192 {
		return nil
	}
	status, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil {
		return nil
	}
	var found *uint64
	protobufFields(status, func(number uint64, _ uint64, detail []byte) {
		if number != 3 || found != nil {
			return
		}
		var kind string
		var message []byte
		protobufFields(detail, func(number uint64, _ uint64, value []byte) {
			switch number {
			case 1:
				kind = string(value)
			case 2:
				message = value
			}
		})
		if kind != "type.googleapis.com/google.rpc.RetryInfo" {
			return
		}
		protobufFields(message, func(number uint64, _ uint64, delay []byte) {
			if number != 1 || delay == nil {
				return
			}
			var seconds, nanos uint64
			protobufFields(delay, func(number uint64, value uint64, _ []byte) {
				switch number {
				case 1:
					seconds = value
				case 2:
					nanos = value
				}
			})
			if seconds < 1<<63 && nanos < second {
				value := add(mul(seconds, second), nanos)
				found = &value
			}
		})
	})
	return found
}

// protobufFields calls each for every field, up to the end of the message or its first malformed byte.
func protobufFields(message []byte, each func(number, value uint64, bytes []byte)) {
	for len(message) > 0 {
		tag, read := binary.Uvarint(message)
		if read <= 0 {
			return
		}
		message = message[read:]
		switch tag & 7 {
		case 0:
			value, read := binary.Uvarint(message)
			if read <= 0 {
				return
			}
			message = message[read:]
			each(tag>>3, value, nil)
		case 2:
			length, read := binary.Uvarint(message)
			if read <= 0 || length > uint64(len(message)-read) {
				return
			}
			each(tag>>3, 0, message[read:read+int(length):read+int(length)])
			message = message[read+int(length):]
		case 1, 5:
			size := map[uint64]int{1: 8, 5: 4}[tag&7]
			if len(message) < size {
				return
			}
			message = message[size:]
		default:
			return
		}
	}
}

type triple struct{ name, limit, remaining, reset, unit string }

var triples = []triple{
	{"", "Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset", "requests"},
	{"", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "requests"},
	{"", "X-Rate-Limit-Limit", "X-Rate-Limit-Remaining", "X-Rate-Limit-Reset", "requests"},
	openAI("requests", "requests"), openAI("tokens", "other"),
	anthropic("requests", "requests"), anthropic("input-tokens", "other"), anthropic("output-tokens", "other"),
}

func openAI(name, unit string) triple {
	front := "X-Ratelimit-"
	return triple{name, front + "Limit-" + name, front + "Remaining-" + name, front + "Reset-" + name, unit}
}

func anthropic(name, unit string) triple {
	front := "Anthropic-Ratelimit-" + name
	return triple{name, front + "-Limit", front + "-Remaining", front + "-Reset", unit}
}

func readPolicies(headers http.Header, get func(string) string, now uint64) []policy {
	var policies []policy
	for _, item := range readLists(headers.Values("Ratelimit-Policy")) {
		if item.key == "" && !item.value.isOther() && len(policies) < policiesMax {
			policies = append(policies, policyOf(item))
		}
	}
	for _, item := range readLists(headers.Values("Ratelimit")) {
		policies = applyState(item, policies)
	}
	if len(policies) > 0 {
		return policies
	}
	first := func(name string) string {
		text := get(name)
		if end := strings.IndexAny(text, ",;"); end >= 0 {
			text = text[:end]
		}
		return strings.TrimSpace(text)
	}
	for _, t := range triples {
		quota, remaining := readInteger(first(t.limit)), readInteger(first(t.remaining))
		if quota != nil || remaining != nil {
			reset := readReset(first(t.reset), now)
			policies = append(policies, policy{name: t.name, unit: t.unit, quota: quota, remaining: remaining, reset: reset})
		}
	}
	return policies
}

func policyOf(item listItem) policy {
	p := policy{unit: "requests", window: seconds(item.parameters["w"].natural())}
	if item.value.isText {
		p.name, p.quota = item.value.text, item.parameters["q"].natural()
	} else {
		p.quota = item.value.natural()
	}
	if unit := item.parameters["qu"]; unit.isText {
		switch unit.text {
		case "requests":
		case "concurrent-requests":
			p.unit = "concurrency"
		default:
			p.unit = "other"
		}
	}
	return p
}

func applyState(item listItem, policies []policy) []policy {
	if item.key == "" {
		name, index := item.value.text, -1
		for i := range policies {
			if policies[i].name == name {
				index = i
			}
		}
		if index < 0 {
			if len(policies) >= policiesMax {
				return policies
			}
			policies, index = append(policies, policy{name: name, unit: "requests"}), len(policies)
		}
		policies[index].remaining = item.parameters["r"].natural()
		policies[index].reset = seconds(item.parameters["t"].natural())
		return policies
	}
	number := item.value.natural()
	if number == nil {
		return policies
	}
	if len(policies) == 0 {
		policies = append(policies, policy{unit: "requests"})
	}
	switch item.key {
	case "limit":
		if policies[0].quota == nil {
			policies[0].quota = number
		}
	case "remaining":
		policies[0].remaining = number
	case "reset":
		policies[0].reset = seconds(number)
	}
	return policies
}

func seconds(number *uint64) *uint64 {
	if number == nil {
		return nil
	}
	value := mul(*number, second)
	return &value
}
