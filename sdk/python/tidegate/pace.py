"""Keeps outgoing calls within the limits of their targets.

`Target` is the arithmetic: it takes the time as an argument and never waits. `Pacer` runs it for threads:

    pacer = Pacer()
    answer = pacer.call("api.example", lambda: session.get("https://api.example/orders"))

Calls are paced before they are refused, a target that asked to wait is closed for all calls, and refused calls are
repeated with jitter within a budget. With httpx, `paced_transport` wraps a transport.
"""

from __future__ import annotations

import random
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from .fields import MILLISECOND, POLICIES_MAX, SECOND, Policy, ResponseFields, read_fields

TARGETS_MAX = 1_024
NEVER = 2**64 - 1

_UTILISATION = 99
_FLOOR_PART = 10
_SLACK = 2 * MILLISECOND
_IDLE_INTERVALS = 8
_IDLE_MIN = 100 * MILLISECOND


def _ceil(number: int, divisor: int) -> int:
    return -(-number // divisor)


class Schedule:
    """When the next call may leave under one quota that the service named."""

    def __init__(self, reading: Policy, sequence: int, now: int) -> None:
        self.name = reading.name
        self.quota = reading.quota or None
        self.window = reading.window or None
        self.remaining = self.peak = reading.remaining or 0
        self.applied = sequence
        self.resets_at = NEVER if reading.reset is None else now + reading.reset
        self.next = now
        self.paced_since: Optional[int] = None

    def apply(self, reading: Policy, sequence: int, last_sent: int, now: int) -> None:
        """Only an answer to a later call than the last may raise what is left; every answer may lower it."""
        if reading.remaining is None:
            return
        left = max(reading.remaining - (last_sent - sequence), 0)
        if sequence <= self.applied and left >= self._left(last_sent):
            return
        self.quota = reading.quota or self.quota
        self.window = reading.window or self.window
        self.remaining = reading.remaining
        self.peak = max(self.peak, reading.remaining)
        self.applied = sequence
        if reading.reset is not None:
            self.resets_at = now + reading.reset

    def wait(self, last_sent: int, now: int) -> int:
        self._pass_reset(last_sent, now)
        left = self._available(last_sent, now)
        if left == 0:
            self.paced_since = now if self.paced_since is None else self.paced_since
            return max((self.next if self.resets_at == NEVER else self.resets_at) - now, 0)
        idle = max(self._interval(left, now) * _IDLE_INTERVALS, _IDLE_MIN)
        if self.paced_since is not None and now - self.next > idle:
            self.paced_since = None
        if self.paced_since is None and left > _ceil(self.peak, _FLOOR_PART):
            return 0
        self.paced_since = now if self.paced_since is None else self.paced_since
        return max(self.next - now, 0)

    def count_send(self, last_sent: int, now: int) -> None:
        interval = self._interval(max(self._left(last_sent), 1), now)
        self.next = max(self.next, now - _SLACK, 0) + interval

    def reopen(self, at: int) -> None:
        self.paced_since = at
        self.next = max(self.next, at)

    def _left(self, last_sent: int) -> int:
        return max(self.remaining - max(last_sent - self.applied, 0), 0)

    def _available(self, last_sent: int, now: int) -> int:
        kept_pace = (
            self.quota is not None
            and self.window is not None
            and self.paced_since is not None
            and max(now - self.paced_since, 0) >= self.window
        )
        return self.remaining if kept_pace else self._left(last_sent)

    def _pass_reset(self, last_sent: int, now: int) -> None:
        if now < self.resets_at:
            return
        self.remaining = min(self.peak + 1, NEVER if self.quota is None else self.quota)
        self.applied = last_sent
        self.next = max(self.next, self.resets_at)
        self.paced_since = None if self.paced_since is None else now
        self.resets_at = NEVER if self.window is None else now + self.window

    def _interval(self, left: int, now: int) -> int:
        if self.quota is not None and self.window is not None:
            return _ceil(self.window * 100, self.quota * _UTILISATION)
        if self.resets_at == NEVER:
            return 0
        return max(self.resets_at - now, 0) // left


class Share:
    """The rate that this process may use when the stated one is not the whole truth, in calls per 1,000 seconds."""

    def __init__(self, now: int) -> None:
        self.cut_at: Optional[Tuple[int, int]] = None
        self.accepted = 0
        self.bin_start = now
        self.accepted_rate = 0
        self.next = now

    def count_accepted(self, now: int) -> None:
        self.accepted += 1
        self._read_bin(now)

    def cut(self, now: int) -> None:
        if self.cut_at is not None and now - self.cut_at[1] < SECOND:
            return
        self._read_bin(now)
        rate = self._rate(now)
        accepted = self.accepted_rate if rate is None else min(rate, max(self.accepted_rate, rate // 2))
        if accepted == 0:
            return
        self.cut_at = (max(accepted, 500), now)
        self.next = max(self.next, now)

    def skip_until(self, until: int) -> None:
        self.bin_start = max(self.bin_start, until)
        self.accepted = 0

    def wait(self, now: int) -> int:
        if self._rate(now) is None:
            self.cut_at = None
            return 0
        return max(self.next - now, 0)

    def count_send(self, now: int) -> None:
        rate = self._rate(now)
        if rate is not None:
            self.next = max(self.next, now - _SLACK, 0) + 1_000 * SECOND // rate

    def _rate(self, now: int) -> Optional[int]:
        if self.cut_at is None:
            return None
        accepted, at = self.cut_at
        passed = max(now - at, 0) // MILLISECOND
        if passed < 2_000:
            thousandths = 850 + 100 * passed // 2_000
        else:
            grown = min(passed - 2_000, 1_000_000)
            thousandths = (grown * 5 + grown * grown // 1_000) // 1_000 + 950
        return max(accepted * thousandths // 1_000, 500) if thousandths < 2_000 else None

    def _read_bin(self, now: int) -> None:
        passed = max(now - self.bin_start, 0)
        if passed < 500 * MILLISECOND:
            return
        rate = self.accepted * 1_000 * SECOND // passed
        self.accepted_rate = rate if self.accepted_rate == 0 else self.accepted_rate // 5 + rate // 5 * 4
        self.accepted = 0
        self.bin_start = now


class Throttle:
    """Drops calls to a service that is short of capacity, before they are sent."""

    def __init__(self) -> None:
        self.bins = [[0, 0] for _ in range(10)]
        self.newest = 0

    def drops(self, now: int, draw: int) -> bool:
        self._advance(now)
        calls = sum(each[0] for each in self.bins)
        allowed = sum(each[1] for each in self.bins) * 15 // 10
        if calls < 20 or calls <= allowed:
            return False
        dropped = draw % 65_536 < min((calls - allowed) * 65_536 // (calls + 1), 58_982)
        if dropped:
            self.count(now, False)
        return dropped

    def count(self, now: int, accepted: bool) -> None:
        self._advance(now)
        newest = self.bins[self.newest % 10]
        newest[0] += 1
        newest[1] += accepted

    def _advance(self, now: int) -> None:
        newest = now // SECOND
        for each in range(min(max(newest - self.newest, 0), 10)):
            self.bins[(newest - each) % 10] = [0, 0]
        self.newest = max(self.newest, newest)


class Target:
    """Everything known of one target. Times are nanoseconds of any clock that does not go back."""

    def __init__(self, now: int) -> None:
        self.schedules: List[Schedule] = []
        self.share = Share(now)
        self.throttle = Throttle()
        self.held_until = 0
        self.last_sent = 0
        self.used_at = now
        self._in_flight = 0
        self._in_flight_limit: Optional[int] = None
        self._stated_limit: Optional[int] = None
        self._answers = 0
        self._has_answer = False
        self._tokens = 10_000
        self._filled_at = now

    def plan(self, now: int, wait_max: int) -> Tuple[str, int]:
        """`send`, `wait` with a time, `wait_for_answer`, or `held` with a time beyond `wait_max`."""
        self.used_at = now
        waits = [max(self.held_until - now, 0), self.share.wait(now)]
        waits += [schedule.wait(self.last_sent, now) for schedule in self.schedules]
        wait = max(waits)
        if wait > wait_max:
            return "held", wait
        if wait > 0:
            return "wait", wait
        limit = self._in_flight_limit if self._has_answer else 8
        return ("send", 0) if limit is None or self._in_flight < limit else ("wait_for_answer", 0)

    def drops(self, now: int, draw: int) -> bool:
        return self.throttle.drops(now, draw)

    def count_send(self, now: int, first: bool = True) -> int:
        self.last_sent += 1
        for schedule in self.schedules:
            schedule.count_send(self.last_sent, now)
        self.share.count_send(now)
        self._in_flight += 1
        if first:
            self._tokens = min(self._tokens + 100, 50_000)
        return self.last_sent

    def record(self, sequence: int, kind: str, fields: ResponseFields, now: int, jitter: float = 0.0) -> None:
        """Applies an answer: `served`, `refused`, `short` or `failed`."""
        exhausted = [policy for policy in fields.policies if policy.remaining == 0]
        limited_in_flight = (
            kind == "refused" and bool(exhausted) and all(policy.unit == "concurrency" for policy in exhausted)
        )
        self._read_policies(sequence, fields, now)
        if kind == "served":
            self.share.count_accepted(now)
            self._raise_in_flight()
        elif limited_in_flight:
            lowered = min(self._in_flight * 80 // 100, self._in_flight_limit or NEVER)
            self._in_flight_limit, self._answers = max(lowered, 1), 0
        elif kind == "refused":
            self.share.cut(now)
        self._has_answer = True
        self.cancel()
        self.throttle.count(now, kind != "short")
        if kind in ("refused", "short") and not limited_in_flight and fields.wait is not None:
            spread = int(min(fields.wait, SECOND) * jitter)
            self.held_until = max(self.held_until, now + fields.wait + spread)
            self.share.skip_until(self.held_until)
            for schedule in self.schedules:
                schedule.reopen(self.held_until)

    def cancel(self) -> None:
        """Forgets a call that got no answer."""
        self._in_flight = max(self._in_flight - 1, 0)

    def spend_retry(self, stated: bool, now: int) -> bool:
        self._tokens = min(self._tokens + max(now - self._filled_at, 0) // MILLISECOND, 50_000)
        self._filled_at = now
        price = 500 if stated else 1_000
        if self._tokens < price:
            return False
        self._tokens -= price
        return True

    def _raise_in_flight(self) -> None:
        if self._in_flight_limit is None:
            return
        self._answers += 1
        if self._answers >= self._in_flight_limit:
            self._answers = 0
            self._in_flight_limit = min(self._in_flight_limit + 1, self._stated_limit or NEVER)

    def _read_policies(self, sequence: int, fields: ResponseFields, now: int) -> None:
        for reading in fields.policies:
            if reading.unit == "concurrency" and reading.quota is not None:
                stated = max(reading.quota, 1)
                if self._stated_limit != stated:
                    self._stated_limit = stated
                    self._in_flight_limit = min(self._in_flight_limit or NEVER, stated)
            if reading.unit != "requests":
                continue
            known = next((each for each in self.schedules if each.name == reading.name), None)
            if known is not None:
                known.apply(reading, sequence, self.last_sent, now)
            elif reading.remaining is not None:
                if len(self.schedules) == POLICIES_MAX:
                    del self.schedules[0]
                self.schedules.append(Schedule(reading, sequence, now))
        if any(each.remaining is not None and each.quota is not None for each in fields.policies):
            names = {each.name for each in fields.policies}
            self.schedules = [each for each in self.schedules if each.name in names]


def classify(status: int, headers: Any) -> str:
    """How an answer counts: `served`, `refused`, `short` or `failed`."""
    if status == 200:
        return {"8": "refused", "14": "short"}.get(headers.get("grpc-status", ""), "served")
    return {429: "refused", 503: "short", 408: "failed", 502: "failed", 504: "failed"}.get(status, "served")


def pause(attempt: int, stated: Optional[int], refused: bool, jitter: float) -> int:
    """The pause before the next attempt. A stated wait is never shortened."""
    if stated is not None:
        return stated + int(min(stated, SECOND) * jitter)
    first = SECOND if refused else 100 * MILLISECOND
    half = min(first << min(attempt - 1, 20), 20 * SECOND) // 2
    return half + int(half * jitter)


class HeldError(Exception):
    """A call was not sent: its target allows none for longer than `wait_max`, or is short of capacity."""

    def __init__(self, target: str, retry_after: Optional[float]) -> None:
        wait = "it is short of capacity" if retry_after is None else f"for {retry_after:.3f} s"
        super().__init__(f"{target} allows no call: {wait}")
        self.retry_after = retry_after


class Pacer:
    """Paces the calls of threads. `on_event` sees each wait, retry and drop: nothing waits silently."""

    def __init__(
        self,
        *,
        wait_max: float = 60.0,
        attempts_max: int = 3,
        on_event: Callable[[str, str, float], None] = lambda target, event, seconds: None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._wait_max = int(wait_max * SECOND)
        self._attempts_max = attempts_max
        self._on_event = on_event
        self._clock = clock
        self._changed = threading.Condition()
        self._targets: Dict[str, Target] = {}

    def call(self, target: str, send: Callable[[], Any], *, repeatable: bool = True) -> Any:
        """Sends by `send`, which returns an answer with `status_code` (or `status`) and `headers`.

        Repeats it after a refusal, if it is repeatable. Raises `HeldError` without sending where the wait is too long.
        """
        with self._changed:
            if self._state(target).drops(self._clock(), random.getrandbits(16)):
                raise HeldError(target, None)
        attempt = 1
        while True:
            sequence = self._wait_turn(target, attempt)
            answer, error = None, None
            try:
                answer = send()
                kind, fields = self._read(answer)
            except Exception as failure:  # the transport's own errors are not known here
                kind, fields, error = "failed", ResponseFields(), failure
            wait = self._record(target, sequence, kind, fields, attempt if repeatable else self._attempts_max)
            if wait is None:
                if error is not None:
                    raise error
                return answer
            self._on_event(target, "retry", wait / SECOND)
            time.sleep(wait / SECOND + 0.001)
            attempt += 1

    def _state(self, name: str) -> Target:
        state = self._targets.get(name)
        if state is None:
            if len(self._targets) >= TARGETS_MAX:
                del self._targets[min(self._targets, key=lambda each: self._targets[each].used_at)]
            state = self._targets[name] = Target(self._clock())
        return state

    def _wait_turn(self, name: str, attempt: int) -> int:
        started = self._clock()
        with self._changed:
            state = self._state(name)
            while True:
                now = self._clock()
                left = max(self._wait_max - (now - started), 0)
                step, wait = state.plan(now, left)
                if step == "send":
                    if now > started:
                        self._on_event(name, "waited", (now - started) / SECOND)
                    return state.count_send(now, attempt == 1)
                if step == "held" or (step == "wait_for_answer" and left == 0):
                    self._on_event(name, "held", wait / SECOND)
                    raise HeldError(name, wait / SECOND)
                self._changed.wait((wait if step == "wait" else left) / SECOND + 0.001)

    def _read(self, answer: Any) -> Tuple[str, ResponseFields]:
        status = getattr(answer, "status_code", None) or answer.status
        return classify(status, answer.headers), read_fields(answer.headers, time.time_ns())

    def _record(
        self, name: str, sequence: int, kind: str, fields: ResponseFields, attempt: int
    ) -> Optional[int]:
        with self._changed:
            state = self._state(name)
            now = self._clock()
            state.record(sequence, kind, fields, now, random.random())
            self._changed.notify_all()
            if kind == "served" or fields.forbids_retry or attempt >= self._attempts_max:
                return None
            wait = pause(attempt, fields.wait, kind != "failed", random.random())
            affordable = wait <= self._wait_max and state.spend_retry(fields.wait is not None, now)
            return wait if affordable else None


def paced_transport(inner: Any = None, pacer: Optional[Pacer] = None) -> Any:
    """An httpx transport whose calls are paced, one target for each host."""
    import httpx

    used = pacer or Pacer()

    class PacedTransport(httpx.BaseTransport):
        def __init__(self) -> None:
            self._inner = inner or httpx.HTTPTransport()

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            idempotent = request.method in ("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE")
            return used.call(
                request.url.netloc.decode(),
                lambda: self._inner.handle_request(request),
                repeatable=idempotent or "idempotency-key" in request.headers,
            )

        def close(self) -> None:
            self._inner.close()

    return PacedTransport()
