package tidegate

import "math/bits"

const (
	utilisation   = 99
	floorPart     = 10
	slack         = 2 * millisecond
	idleIntervals = 8
	idleMin       = 100 * millisecond
	unansweredMax = 8
)

// schedule says when the next call may leave under one quota that the service named.
type schedule struct {
	name            string
	quota, window   uint64 // zero: unknown
	remaining, peak uint64
	applied         uint64
	resetsAt, next  uint64
	pacedSince      uint64
	isPaced         bool
}

func newSchedule(p policy, sequence, now uint64) *schedule {
	s := &schedule{name: p.name, remaining: *p.remaining, peak: *p.remaining, applied: sequence, resetsAt: forever, next: now}
	s.readTerms(p, now)
	return s
}

func (s *schedule) readTerms(p policy, now uint64) {
	if p.quota != nil && *p.quota > 0 {
		s.quota = *p.quota
	}
	if p.window != nil && *p.window > 0 {
		s.window = *p.window
	}
	if p.reset != nil {
		s.resetsAt = add(now, *p.reset)
	}
}

// apply reads an answer. Only an answer to a later call than the last may raise what is left; every answer may lower it.
func (s *schedule) apply(p policy, sequence, lastSent, now uint64) {
	if p.remaining == nil {
		return
	}
	left := sub(*p.remaining, sub(lastSent, sequence))
	if sequence <= s.applied && left >= s.left(lastSent) {
		return
	}
	s.remaining, s.peak, s.applied = *p.remaining, max(s.peak, *p.remaining), sequence
	s.readTerms(p, now)
}

func (s *schedule) wait(lastSent, now uint64) uint64 {
	s.passReset(lastSent, now)
	left := s.available(lastSent, now)
	if left == 0 {
		s.startPacing(now)
		if s.resetsAt == forever {
			return sub(s.next, now)
		}
		return sub(s.resetsAt, now)
	}
	if s.isPaced && sub(now, s.next) > max(mul(s.interval(left, now), idleIntervals), idleMin) {
		s.isPaced = false
	}
	if !s.isPaced && left > (s.peak+floorPart-1)/floorPart {
		return 0
	}
	s.startPacing(now)
	return sub(s.next, now)
}

func (s *schedule) countSend(lastSent, now uint64) {
	s.next = add(max(s.next, sub(now, slack)), s.interval(max(s.left(lastSent), 1), now))
}

func (s *schedule) reopen(at uint64) {
	s.isPaced, s.pacedSince, s.next = true, at, max(s.next, at)
}

func (s *schedule) startPacing(now uint64) {
	if !s.isPaced {
		s.isPaced, s.pacedSince = true, now
	}
}

func (s *schedule) left(lastSent uint64) uint64 { return sub(s.remaining, sub(lastSent, s.applied)) }

// available is what the next call may count on: calls in flight are charged, except after a whole window at the stated
// rate.
func (s *schedule) available(lastSent, now uint64) uint64 {
	if s.quota > 0 && s.window > 0 && s.isPaced && sub(now, s.pacedSince) >= s.window {
		return s.remaining
	}
	return s.left(lastSent)
}

func (s *schedule) passReset(lastSent, now uint64) {
	if now < s.resetsAt {
		return
	}
	s.remaining = add(s.peak, 1)
	if s.quota > 0 {
		s.remaining = min(s.remaining, s.quota)
	}
	s.applied, s.next, s.pacedSince = lastSent, max(s.next, s.resetsAt), now
	s.resetsAt = forever
	if s.window > 0 {
		s.resetsAt = add(now, s.window)
	}
}

func (s *schedule) interval(left, now uint64) uint64 {
	if s.quota > 0 && s.window > 0 {
		return divideUp(s.window, 100, mul(s.quota, utilisation))
	}
	if s.resetsAt == forever {
		return 0
	}
	return sub(s.resetsAt, now) / left
}

// divideUp is a × b ÷ c, rounded up.
func divideUp(a, b, c uint64) uint64 {
	high, low := bits.Mul64(a, b)
	if high >= c {
		return forever
	}
	quotient, rest := bits.Div64(high, low, c)
	if rest > 0 {
		quotient++
	}
	return quotient
}

// share is the rate that this process may use when the stated one is not the whole truth, in calls per 1,000 seconds.
type share struct {
	cutRate, cutAt     uint64
	isCut              bool
	accepted, binStart uint64
	acceptedRate, next uint64
}

func (s *share) countAccepted(now uint64) {
	s.accepted++
	s.readBin(now)
}

func (s *share) cut(now uint64) {
	if s.isCut && sub(now, s.cutAt) < second {
		return
	}
	s.readBin(now)
	accepted := s.acceptedRate
	if rate, limited := s.rate(now); limited {
		accepted = min(rate, max(s.acceptedRate, rate/2))
	}
	// Nothing accepted yet says nothing about a share.
	if accepted > 0 {
		s.isCut, s.cutRate, s.cutAt, s.next = true, max(accepted, 500), now, max(s.next, now)
	}
}

func (s *share) skipUntil(until uint64) { s.binStart, s.accepted = max(s.binStart, until), 0 }

func (s *share) wait(now uint64) uint64 {
	if _, limited := s.rate(now); !limited {
		s.isCut = false
		return 0
	}
	return sub(s.next, now)
}

func (s *share) countSend(now uint64) {
	if rate, limited := s.rate(now); limited {
		s.next = add(max(s.next, sub(now, slack)), 1_000*second/rate)
	}
}

func (s *share) rate(now uint64) (uint64, bool) {
	if !s.isCut {
		return 0, false
	}
	passed := sub(now, s.cutAt) / millisecond
	thousandths := 850 + 100*passed/2_000
	if passed >= 2_000 {
		grown := min(passed-2_000, 1_000_000)
		thousandths = (grown*5+grown*grown/1_000)/1_000 + 950
	}
	return max(mul(s.cutRate, thousandths)/1_000, 500), thousandths < 2_000
}

func (s *share) readBin(now uint64) {
	passed := sub(now, s.binStart)
	if passed < 500*millisecond {
		return
	}
	high, low := bits.Mul64(s.accepted, 1_000*second)
	rate := forever
	if high < passed {
		rate, _ = bits.Div64(high, low, passed)
	}
	if s.acceptedRate > 0 {
		rate = add(s.acceptedRate/5, rate/5*4)
	}
	s.acceptedRate, s.accepted, s.binStart = rate, 0, now
}

// throttle drops calls to a service that is short of capacity, before they are sent.
type throttle struct {
	bins   [10][2]uint64
	newest uint64
}

func (t *throttle) drops(now, random uint64) bool {
	t.advance(now)
	var calls, accepted uint64
	for _, bin := range t.bins {
		calls, accepted = calls+bin[0], accepted+bin[1]
	}
	allowed := accepted * 15 / 10
	if calls < 20 || calls <= allowed {
		return false
	}
	dropped := random%65_536 < min((calls-allowed)*65_536/(calls+1), 58_982)
	if dropped {
		t.count(now, false)
	}
	return dropped
}

func (t *throttle) count(now uint64, accepted bool) {
	t.advance(now)
	bin := &t.bins[t.newest%10]
	bin[0]++
	if accepted {
		bin[1]++
	}
}

func (t *throttle) advance(now uint64) {
	newest := now / second
	for i := range min(sub(newest, t.newest), 10) {
		t.bins[(newest-i)%10] = [2]uint64{}
	}
	t.newest = max(t.newest, newest)
}

// answerKind says how an answer is counted.
type answerKind int

const (
	served answerKind = iota
	refused
	short
	failed
)

// stepKind says what the next call does.
type stepKind string

const (
	stepSend          stepKind = "send"
	stepWait          stepKind = "wait"
	stepWaitForAnswer stepKind = "wait_for_answer"
	stepHeld          stepKind = "held"
)

// target is everything known of one target. It takes the time as an argument and never waits.
type target struct {
	schedules                        []*schedule
	share                            share
	throttle                         throttle
	heldUntil, lastSent, usedAt      uint64
	inFlight, limit, stated, answers uint64 // a limit of zero is none
	hasAnswer                        bool
	tokens, filledAt                 uint64
}

func newTarget(now uint64) *target {
	return &target{share: share{binStart: now, next: now}, usedAt: now, tokens: 10_000, filledAt: now}
}

func (t *target) plan(now, waitMax uint64) (stepKind, uint64) {
	t.usedAt = now
	wait := max(sub(t.heldUntil, now), t.share.wait(now))
	for _, s := range t.schedules {
		wait = max(wait, s.wait(t.lastSent, now))
	}
	limit := t.limit
	if !t.hasAnswer {
		limit = unansweredMax
	}
	switch {
	case wait > waitMax:
		return stepHeld, wait
	case wait > 0:
		return stepWait, wait
	case limit > 0 && t.inFlight >= limit:
		return stepWaitForAnswer, 0
	}
	return stepSend, 0
}

func (t *target) countSend(now uint64, first bool) uint64 {
	t.lastSent++
	for _, s := range t.schedules {
		s.countSend(t.lastSent, now)
	}
	t.share.countSend(now)
	t.inFlight++
	if first {
		t.tokens = min(t.tokens+100, 50_000)
	}
	return t.lastSent
}

// record applies an answer. jitter, between 0 and 1, spreads the end of a hold among processes.
func (t *target) record(sequence uint64, kind answerKind, fields responseFields, now uint64, jitter float64) {
	limitedInFlight := kind == refused && isConcurrencyRefusal(fields)
	t.readPolicies(sequence, fields, now)
	switch {
	case kind == served:
		t.share.countAccepted(now)
		t.raiseInFlight()
	case limitedInFlight:
		lowered := t.inFlight * 80 / 100
		if t.limit > 0 {
			lowered = min(lowered, t.limit)
		}
		t.limit, t.answers = max(lowered, 1), 0
	case kind == refused:
		t.share.cut(now)
	}
	t.hasAnswer = true
	t.cancel()
	t.throttle.count(now, kind != short)
	if (kind == refused || kind == short) && !limitedInFlight && fields.wait != nil {
		spread := uint64(float64(min(*fields.wait, second)) * jitter)
		t.heldUntil = max(t.heldUntil, add(add(now, *fields.wait), spread))
		t.share.skipUntil(t.heldUntil)
		for _, s := range t.schedules {
			s.reopen(t.heldUntil)
		}
	}
}

// cancel forgets a call that got no answer.
func (t *target) cancel() { t.inFlight = sub(t.inFlight, 1) }

func (t *target) spendRetry(stated bool, now uint64) bool {
	t.tokens = min(add(t.tokens, sub(now, t.filledAt)/millisecond), 50_000)
	t.filledAt = now
	price := uint64(1_000)
	if stated {
		price = 500
	}
	if t.tokens < price {
		return false
	}
	t.tokens -= price
	return true
}

func (t *target) raiseInFlight() {
	if t.limit == 0 {
		return
	}
	if t.answers++; t.answers >= t.limit {
		t.answers = 0
		if t.stated == 0 || t.limit < t.stated {
			t.limit++
		}
	}
}

func (t *target) readPolicies(sequence uint64, fields responseFields, now uint64) {
	namesAll := false
	for _, p := range fields.policies {
		namesAll = namesAll || (p.remaining != nil && p.quota != nil)
		if p.unit == "concurrency" && p.quota != nil {
			if stated := max(*p.quota, 1); t.stated != stated {
				t.stated = stated
				if t.limit == 0 || t.limit > stated {
					t.limit = stated
				}
			}
		}
		if p.unit != "requests" {
			continue
		}
		if known := t.schedule(p.name); known != nil {
			known.apply(p, sequence, t.lastSent, now)
		} else if p.remaining != nil {
			if len(t.schedules) == policiesMax {
				t.schedules = t.schedules[1:]
			}
			t.schedules = append(t.schedules, newSchedule(p, sequence, now))
		}
	}
	if !namesAll {
		return
	}
	// An answer that names its quotas names all of them: others have gone.
	kept := t.schedules[:0]
	for _, s := range t.schedules {
		for _, p := range fields.policies {
			if p.name == s.name {
				kept = append(kept, s)
				break
			}
		}
	}
	t.schedules = kept
}

func (t *target) schedule(name string) *schedule {
	for _, s := range t.schedules {
		if s.name == name {
			return s
		}
	}
	return nil
}

// isConcurrencyRefusal says whether the only quotas with nothing left count calls in flight.
func isConcurrencyRefusal(fields responseFields) bool {
	found := false
	for _, p := range fields.policies {
		if p.remaining != nil && *p.remaining == 0 {
			if p.unit != "concurrency" {
				return false
			}
			found = true
		}
	}
	return found
}
