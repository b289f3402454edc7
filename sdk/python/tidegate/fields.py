"""Reads what an answer says about limits: waits and quotas, in every form that services use.

Malformed fields are ignored one by one. An answer from a cache (`Age`) says nothing about limits now.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Dict, List, Mapping, Optional, Tuple

SECOND = 1_000_000_000
MILLISECOND = 1_000_000
NS_MAX = 2**64 - 1
POLICIES_MAX = 16
FIELD_BYTES_MAX = 4_096

_INTEGER = re.compile(r"[0-9]+\Z")
_DECIMAL = re.compile(r"([0-9]+)(?:\.([0-9]+))?\Z")
_COMPOUND = re.compile(r"([0-9]+(?:\.[0-9]+)?)(d|h|ms|us|ns|m|s)")
_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)\Z", re.ASCII
)
_UNITS = {
    "d": 86_400 * SECOND, "h": 3_600 * SECOND, "m": 60 * SECOND, "s": SECOND,
    "ms": MILLISECOND, "us": 1_000, "ns": 1,
}
_TRIPLES = [
    ("", "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset", "requests"),
    ("", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "requests"),
    ("", "x-rate-limit-limit", "x-rate-limit-remaining", "x-rate-limit-reset", "requests"),
] + [
    (name, f"x-ratelimit-limit-{name}", f"x-ratelimit-remaining-{name}", f"x-ratelimit-reset-{name}", unit)
    for name, unit in [("requests", "requests"), ("tokens", "other")]
] + [
    (name, f"anthropic-ratelimit-{name}-limit", f"anthropic-ratelimit-{name}-remaining",
     f"anthropic-ratelimit-{name}-reset", unit)
    for name, unit in [("requests", "requests"), ("input-tokens", "other"), ("output-tokens", "other")]
]


@dataclass
class Policy:
    """One quota, as far as an answer says something about it. Times are in nanoseconds."""

    name: str = ""
    unit: str = "requests"
    quota: Optional[int] = None
    window: Optional[int] = None
    remaining: Optional[int] = None
    reset: Optional[int] = None


@dataclass
class ResponseFields:
    """What one answer says about limits."""

    wait: Optional[int] = None
    forbids_retry: bool = False
    policies: List[Policy] = field(default_factory=list)


def read_fields(headers: Mapping[str, str], now: int) -> ResponseFields:
    """Reads the fields of an answer. `now` is the time of day in nanoseconds; the answer's own `Date` counts instead."""
    fields = {str(name).lower(): str(value).strip() for name, value in headers.items()}
    if (_integer(fields.get("age", "")) or 0) > 0:
        return ResponseFields()
    date = _date(fields.get("date", ""))
    now = now if date is None else date
    pushback = fields.get("grpc-retry-pushback-ms", "")
    return ResponseFields(
        wait=_wait(fields, now),
        forbids_retry=pushback.startswith("-") and _integer(pushback[1:]) is not None,
        policies=_policies(fields, now),
    )


def _integer(text: str) -> Optional[int]:
    return min(int(text), NS_MAX) if _INTEGER.match(text) else None


def _decimal(text: str, unit: int) -> Optional[int]:
    found = _DECIMAL.match(text)
    if not found:
        return None
    decimals = found.group(2) or "0"
    part, scale = 0, unit
    for digit in decimals[:9]:
        scale //= 10
        part += scale * int(digit)
    beyond = any(digit != "0" for digit in decimals[9:])
    return min(min(int(found.group(1)), NS_MAX) * unit + part + beyond, NS_MAX)


def _compound(text: str) -> Optional[int]:
    total, position = 0, 0
    for found in _COMPOUND.finditer(text):
        if found.start() != position:
            return None
        total += _decimal(found.group(1), _UNITS[found.group(2)]) or 0
        position = found.end()
    return total if text and position == len(text) else None


def _rfc3339(text: str) -> Optional[int]:
    found = _RFC3339.match(text)
    if not found:
        return None
    zone = found.group(8)
    try:
        parts = [int(part) for part in found.groups()[:6]]
        seconds = int(datetime(*parts[:5], min(parts[5], 59), tzinfo=timezone.utc).timestamp()) + (parts[5] == 60)
    except ValueError:
        return None
    if zone not in "Zz":
        offset = int(zone[1:3]) * 3_600 + int(zone[4:6]) * 60
        seconds -= offset if zone[0] == "+" else -offset
    part = _decimal(f"0.{found.group(7) or 0}", SECOND) or 0
    return max(seconds, 0) * SECOND + part


def _reset(text: str, now: int) -> Optional[int]:
    number = _integer(text.split(".")[0])
    if number is not None and number > 1_000_000_000:
        instant = _decimal(text, MILLISECOND if number > 1_000_000_000_000 else SECOND)
        return None if instant is None else max(instant - now, 0)
    for reader in (lambda: _decimal(text, SECOND), lambda: _compound(text)):
        span = reader()
        if span is not None:
            return span
    instant = _rfc3339(text)
    return None if instant is None else max(instant - now, 0)


def _date(text: str) -> Optional[int]:
    try:
        return max(int(parsedate_to_datetime(text).timestamp()), 0) * SECOND if text.endswith("GMT") else None
    except (TypeError, ValueError, OverflowError):
        return None


def _wait(fields: Mapping[str, str], now: int) -> Optional[int]:
    precise = [
        _decimal(fields[name], MILLISECOND)
        for name in ("retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after")
        if name in fields
    ]
    pushback = _integer(fields.get("grpc-retry-pushback-ms", ""))
    precise.append(None if pushback is None else pushback * MILLISECOND)
    precise.append(_retry_info(fields.get("grpc-status-details-bin", "")))
    rounded = []
    for name in ("retry-after", "x-ratelimit-retry-after"):
        if name in fields:
            span = _decimal(fields[name], SECOND)
            date = _date(fields[name])
            rounded.append(span if span is not None else None if date is None else max(date - now, 0))
    longest_precise = max((wait for wait in precise if wait is not None), default=None)
    longest = max((wait for wait in rounded if wait is not None), default=None)
    if longest_precise is None or longest is None:
        return longest if longest_precise is None else longest_precise
    # Whole seconds are rounded up: the precise one is the same wait.
    return longest_precise if abs(longest - longest_precise) < SECOND else max(longest, longest_precise)


def _retry_info(text: str) -> Optional[int]:
    """The delay of a `google.rpc.RetryInfo` in the details of a gRPC status."""
    if not text or len(text) > 8_192:
        return None
    try:
        status = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
        for any_message in _messages(status, 3):
            if next(_messages(any_message, 1), b"") == b"type.googleapis.com/google.rpc.RetryInfo":
                delay = next(_messages(next(_messages(any_message, 2), b""), 1), None)
                if delay is None:
                    return None
                numbers = {number: value for number, value in _protobuf(delay) if isinstance(value, int)}
                seconds, nanos = numbers.get(1, 0), numbers.get(2, 0)
                return seconds * SECOND + nanos if seconds < 2**63 and nanos < SECOND else None
    except (binascii.Error, ValueError, IndexError):
        pass
    return None


def _messages(message: bytes, wanted: int):
    return (value for number, value in _protobuf(message) if number == wanted and isinstance(value, bytes))


def _protobuf(message: bytes):
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value & NS_MAX
            if shift >= 70:
                raise ValueError("a varint is too long")

    while position < len(message):
        tag = varint()
        kind = tag & 7
        if kind == 0:
            yield tag >> 3, varint()
        elif kind == 2:
            length = varint()
            if position + length > len(message):
                raise ValueError("a field is cut off")
            position += length
            yield tag >> 3, message[position - length : position]
        elif kind in (1, 5):
            position += 8 if kind == 1 else 4
        else:
            raise ValueError("an unknown kind of field")


def _policies(fields: Mapping[str, str], now: int) -> List[Policy]:
    policies: List[Policy] = []
    for key, value, parameters in _list(fields.get("ratelimit-policy", "")):
        if key is None and value is not None and len(policies) < POLICIES_MAX:
            policies.append(_policy(value, parameters))
    for key, value, parameters in _list(fields.get("ratelimit", "")):
        _state(key, value, parameters, policies)
    if not policies:
        for name, limit, remaining, reset, unit in _TRIPLES:
            first = [re.split("[,;]", fields.get(one, ""))[0].strip() for one in (limit, remaining, reset)]
            quota, left = _integer(first[0]), _integer(first[1])
            if quota is not None or left is not None:
                policies.append(Policy(name, unit, quota, None, left, _reset(first[2], now)))
    return policies[:POLICIES_MAX]


def _policy(value, parameters: Dict[str, object]) -> Policy:
    quota = value if isinstance(value, int) else parameters.get("q")
    unit = {None: "requests", "requests": "requests", "concurrent-requests": "concurrency"}
    window = _natural(parameters.get("w"))
    return Policy(
        name=value if isinstance(value, str) else "",
        unit=unit.get(parameters.get("qu") if isinstance(parameters.get("qu"), str) else None, "other"),
        quota=_natural(quota),
        window=None if window is None else min(window * SECOND, NS_MAX),
    )


def _state(key, value, parameters: Dict[str, object], policies: List[Policy]) -> None:
    if key is None:
        name = value if isinstance(value, str) else ""
        policy = next((policy for policy in policies if policy.name == name), None)
        if policy is None:
            if len(policies) >= POLICIES_MAX:
                return
            policy = Policy(name)
            policies.append(policy)
        reset = _natural(parameters.get("t"))
        policy.remaining = _natural(parameters.get("r"))
        policy.reset = None if reset is None else min(reset * SECOND, NS_MAX)
        return
    number = _natural(value)
    if number is None:
        return
    if not policies:
        policies.append(Policy())
    if key == "limit":
        policies[0].quota = number if policies[0].quota is None else policies[0].quota
    elif key == "remaining":
        policies[0].remaining = number
    elif key == "reset":
        policies[0].reset = number * SECOND


def _natural(value) -> Optional[int]:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


_KEY = re.compile(r"[a-z*][a-z0-9_\-.*]*")
_ITEM = re.compile(
    r'"((?:[ !#-\[\]-~]|\\["\\])*)"'  # a string
    r"|(-?[0-9]+)(\.[0-9]+)?"  # a number
    r"|([A-Za-z*][A-Za-z0-9!#$%&'*+\-.^_`|~:/]*)"  # a token
    r"|(\?[01]|:[A-Za-z0-9+/=]*:)"  # a boolean or bytes
)


def _list(text: str) -> List[Tuple[Optional[str], object, Dict[str, object]]]:
    """A list of items with parameters (RFC 9651), or a dictionary: its members have keys. Empty if it is malformed."""
    if len(text) > FIELD_BYTES_MAX or not text.isascii():
        return []
    members, position = [], 0
    while position < len(text):
        key = _KEY.match(text, position)
        if key and text[key.end() : key.end() + 1] == "=":
            name, position = key.group(), key.end() + 1
        else:
            name = None
        item = _bare_item(text, position)
        if item is None:
            return []
        value, position = item
        parameters: Dict[str, object] = {}
        while text[position : position + 1] == ";":
            position += 1
            while text[position : position + 1] == " ":
                position += 1
            key = _KEY.match(text, position)
            if not key:
                return []
            position = key.end()
            parameter: object = None
            if text[position : position + 1] == "=":
                item = _bare_item(text, position + 1)
                if item is None:
                    return []
                parameter, position = item
            parameters[key.group()] = parameter
        members.append((name, value, parameters))
        rest = text[position:].lstrip(" \t")
        if not rest:
            break
        if rest[0] != "," or not rest[1:].strip(" \t"):
            return []
        position = len(text) - len(rest[1:].lstrip(" \t"))
    return members


def _bare_item(text: str, position: int):
    found = _ITEM.match(text, position)
    if not found:
        return None
    string, integer, decimals, token, _ = found.groups()
    if string is not None:
        return re.sub(r"\\(.)", r"\1", string), found.end()
    if token is not None:
        return token, found.end()
    if integer is not None:
        digits = len(integer.lstrip("-"))
        if digits > (12 if decimals else 15) or (decimals and len(decimals) > 4):
            return None
        return (None if decimals else int(integer)), found.end()
    return None, found.end()
