"""Asks the HTTP API of a Tidegate.

A result is a value of one of three types, never a bare boolean: a service that cannot be reached is `Undecided`, and
the caller has to say what that means. Refusals are remembered until their retry time, so that a refused caller costs no
call. After five failures in a row the service is asked once a second until it answers.
"""

from __future__ import annotations

import enum
import http.client
import json
import ssl
import threading
import time
import urllib.parse
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

#: Connections that are kept open for the next call.
IDLE_CONNECTIONS_MAX = 8
#: Refusals that are remembered.
REFUSALS_MAX = 10_000
#: Failures in a row after which the service is asked less often, and how often that is, in seconds.
FAILURES_MAX = 5
PROBE_PAUSE = 1.0
#: Bytes of an answer that are read.
ANSWER_BYTES_MAX = 16 * 1024 * 1024

#: One descriptor: ordered entries. A mapping keeps the order in which it was written.
Descriptor = Mapping[str, str]


class OnError(enum.Enum):
    """What an undecided request is allowed to do."""

    ALLOW = "allow"
    DENY = "deny"


class _Result:
    """Results are looked at by their type: a refused request must not pass because an object is true."""

    def __bool__(self) -> bool:
        raise TypeError(
            f"{type(self).__name__} is neither true nor false: compare its type with Admitted, Refused and Undecided"
        )


@dataclass(frozen=True)
class Admitted(_Result):
    """The request may proceed."""

    #: What is left of the tightest limit; `None` if no limit applied.
    remaining: Optional[int] = None
    #: How long to wait before proceeding, in seconds: the turn of a leaky bucket.
    delay: float = 0.0
    #: Held slots of a concurrency limit, for `Limiter.release`.
    permit: Optional[str] = None
    #: Admitted only by the allowance of a soft limit.
    soft: bool = False


@dataclass(frozen=True)
class Refused(_Result):
    """The request is over a limit."""

    #: When to ask again, in seconds; `None` if it never fits.
    retry_after: Optional[float]
    #: The name of the limit that refused.
    limit: str = ""


@dataclass(frozen=True)
class Undecided(_Result):
    """No decision was possible. `allowed` is what the settings of the service, or of this client, make of it."""

    allowed: bool
    reason: str


Result = Union[Admitted, Refused, Undecided]


class RefusedError(Exception):
    """Raised by `Limiter.permit` for a request that may not proceed."""

    def __init__(self, result: Result) -> None:
        super().__init__(str(result))
        self.result = result


class Limiter:
    """A client of one Tidegate for one domain. Safe to use from several threads."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        domain: str,
        token: Optional[str] = None,
        timeout: float = 0.05,
        on_error: OnError = OnError.ALLOW,
        tls: Optional[ssl.SSLContext] = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"not an http or https URL: {url}")
        self._https = parts.scheme == "https"
        self._host = parts.hostname
        self._port = parts.port
        self._base = parts.path.rstrip("/")
        self._domain = domain
        self._timeout = timeout
        self._on_error = on_error
        self._tls = tls
        self._clock = clock
        self._headers = {"content-type": "application/json"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        self._lock = threading.Lock()
        self._idle: List[http.client.HTTPConnection] = []
        self._refusals: Dict[str, Tuple[float, Refused]] = {}
        self._failures = 0
        self._probe_at = 0.0

    # -- questions ---------------------------------------------------------------------------------------------------

    def check(self, *descriptors: Descriptor, cost: int = 1, **entries: str) -> Result:
        """Decides a request and charges it if it is admitted.

        Keyword arguments are the entries of one descriptor: `check(user="ada")`. Several descriptors are mappings:
        `check({"user": "ada"}, {"path": "/login", "user": "ada"})`.
        """
        body = self._body(descriptors, entries, cost)
        remembered = self._remembered(body)
        if remembered is not None:
            return remembered
        result = self._ask("/v1/check?status=200", body)
        self._remember(body, result)
        return result

    def check_batch(self, requests: Sequence[Union[Descriptor, Sequence[Descriptor]]]) -> List[Result]:
        """Decides up to 100 requests in one call, each on its own and in order."""
        bodies = [self._request(_descriptors(request), 1) for request in requests]
        if not bodies:
            return []
        try:
            answer = self._post("/v1/check?status=200", json.dumps({"requests": bodies}))
            results = [self._result(item) for item in answer["answers"]]
        except _Failure as failure:
            return [self._undecided(str(failure))] * len(bodies)
        except (KeyError, TypeError):
            return [self._undecided("the answer is not one of a Tidegate")] * len(bodies)
        return results

    def peek(self, *descriptors: Descriptor, cost: int = 1, **entries: str) -> Result:
        """Shows what `check` would answer. Charges nothing."""
        return self._ask("/v1/peek?status=200", self._body(descriptors, entries, cost))

    def refund(self, *descriptors: Descriptor, cost: int = 1, **entries: str) -> bool:
        """Gives a charge back. Returns whether the service did it; it needs the role `change`."""
        body = self._body(descriptors, entries, cost)
        self._forget(body)
        try:
            self._post("/v1/refund", body)
        except _Failure:
            return False
        return True

    def release(self, permit: str) -> bool:
        """Frees the slots of a permit. Returns whether they were held; without an answer they expire by themselves."""
        try:
            return self._post("/v1/release", json.dumps({"permit": permit})).get("released") is True
        except _Failure:
            return False

    @contextmanager
    def permit(self, *descriptors: Descriptor, cost: int = 1, **entries: str) -> Iterator[Result]:
        """Holds a slot while the block runs.

            with limiter.permit(job="report"):
                make_report()

        Raises `RefusedError` if the request may not proceed.
        """
        result = self.check(*descriptors, cost=cost, **entries)
        if isinstance(result, Refused) or (isinstance(result, Undecided) and not result.allowed):
            raise RefusedError(result)
        try:
            yield result
        finally:
            if isinstance(result, Admitted) and result.permit is not None:
                self.release(result.permit)

    def close(self) -> None:
        """Closes the kept connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def __enter__(self) -> "Limiter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- bodies and results ------------------------------------------------------------------------------------------

    def _body(self, descriptors: Sequence[Descriptor], entries: Mapping[str, str], cost: int) -> str:
        all_descriptors = list(descriptors) + ([entries] if entries else [])
        if not all_descriptors:
            raise ValueError("a request needs at least one descriptor: check(user='ada')")
        return json.dumps(self._request(all_descriptors, cost))

    def _request(self, descriptors: Sequence[Descriptor], cost: int) -> Dict[str, Any]:
        return {
            "domain": self._domain,
            "cost": cost,
            "descriptors": [
                {"entries": [{"key": key, "value": str(value)} for key, value in descriptor.items()]}
                for descriptor in descriptors
            ],
        }

    def _ask(self, path: str, body: str) -> Result:
        try:
            return self._result(self._post(path, body))
        except _Failure as failure:
            return self._undecided(str(failure))

    def _result(self, answer: Any) -> Result:
        if not isinstance(answer, dict) or not isinstance(answer.get("admitted"), bool):
            return self._undecided("the answer is not one of a Tidegate")
        if answer.get("undecided"):
            return Undecided(allowed=answer["admitted"], reason=str(answer["undecided"]))
        if answer["admitted"]:
            left = [item["remaining"] for item in answer.get("decisions", []) if item.get("role") != "shadow"]
            return Admitted(
                remaining=min(left, default=None),
                delay=answer.get("delay_ms", 0) / 1000,
                permit=answer.get("permit"),
                soft=answer.get("soft", False),
            )
        refused_by = answer.get("refused_by", {})
        wait = answer.get("retry_after_ms")
        return Refused(
            retry_after=None if wait is None else wait / 1000,
            limit=refused_by.get("limit") or refused_by.get("path") or "",
        )

    def _undecided(self, reason: str) -> Undecided:
        return Undecided(allowed=self._on_error is OnError.ALLOW, reason=reason)

    # -- remembered refusals -----------------------------------------------------------------------------------------

    def _remembered(self, body: str) -> Optional[Refused]:
        with self._lock:
            entry = self._refusals.get(body)
            if entry is None:
                return None
            until, refused = entry
            left = until - self._clock()
            if left <= 0:
                del self._refusals[body]
                return None
        return Refused(retry_after=left, limit=refused.limit)

    def _remember(self, body: str, result: Result) -> None:
        if not isinstance(result, Refused) or not result.retry_after:
            return
        with self._lock:
            if len(self._refusals) >= REFUSALS_MAX:
                # The oldest is the first: a dictionary keeps the order of insertion.
                del self._refusals[next(iter(self._refusals))]
            self._refusals[body] = (self._clock() + result.retry_after, result)

    def _forget(self, body: str) -> None:
        with self._lock:
            self._refusals.pop(body, None)

    # -- calls -------------------------------------------------------------------------------------------------------

    def _post(self, path: str, body: str) -> Any:
        with self._lock:
            now = self._clock()
            if self._failures >= FAILURES_MAX:
                if now < self._probe_at:
                    raise _Failure("the service did not answer; it is asked again once a second")
                self._probe_at = now + PROBE_PAUSE
        try:
            answer = self._send(path, body.encode())
        except _Failure:
            with self._lock:
                self._failures += 1
                self._probe_at = self._clock() + PROBE_PAUSE
            raise
        with self._lock:
            self._failures = 0
        return answer

    def _send(self, path: str, body: bytes) -> Any:
        deadline = self._clock() + self._timeout
        connection, is_kept = self._connection()
        while True:
            try:
                connection.request("POST", self._base + path, body, self._headers)
                answer = connection.getresponse()
                text = answer.read(ANSWER_BYTES_MAX)
                break
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                # The service may have closed a kept connection before the request arrived: nothing was done.
                if not (is_kept and isinstance(error, (ConnectionError, http.client.RemoteDisconnected))):
                    raise _Failure(f"the service did not answer: {error or type(error).__name__}") from None
                if self._clock() >= deadline:
                    raise _Failure("the service did not answer in time") from None
                connection, is_kept = self._new_connection(), False
        self._keep(connection, answer)
        try:
            parsed = json.loads(text)
        except ValueError:
            raise _Failure(f"the service answered {answer.status} without JSON") from None
        if answer.status not in (200, 429):
            detail = parsed.get("detail") or parsed.get("undecided") if isinstance(parsed, dict) else None
            raise _Failure(f"the service answered {answer.status}: {detail or answer.reason}")
        return parsed

    def _connection(self) -> Tuple[http.client.HTTPConnection, bool]:
        with self._lock:
            if self._idle:
                return self._idle.pop(), True
        return self._new_connection(), False

    def _new_connection(self) -> http.client.HTTPConnection:
        if self._https:
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout, context=self._tls or ssl.create_default_context()
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)

    def _keep(self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse) -> None:
        with self._lock:
            if not answer.will_close and len(self._idle) < IDLE_CONNECTIONS_MAX:
                self._idle.append(connection)
                return
        connection.close()


class _Failure(Exception):
    """A call without a usable answer."""


def _descriptors(request: Union[Descriptor, Sequence[Descriptor]]) -> Sequence[Descriptor]:
    return [request] if isinstance(request, Mapping) else request
