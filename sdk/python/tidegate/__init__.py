"""Ask a Tidegate whether a request may pass, and keep outgoing calls within the limits of their targets.

    from tidegate import Admitted, Limiter, Refused, Undecided

    limiter = Limiter("http://127.0.0.1:8080", domain="shop")
    match limiter.check(user="ada"):
        case Admitted():
            serve()
        case Refused(retry_after=wait):
            answer_429(wait)
        case Undecided(allowed=allowed, reason=reason):
            serve() if allowed else answer_503()
"""

from .decide import (
    Admitted,
    Descriptor,
    Limiter,
    OnError,
    Refused,
    RefusedError,
    Undecided,
)
from .pace import HeldError, Pacer, paced_transport

__all__ = [
    "Admitted",
    "Descriptor",
    "HeldError",
    "Limiter",
    "OnError",
    "Pacer",
    "Refused",
    "RefusedError",
    "Undecided",
    "paced_transport",
]
