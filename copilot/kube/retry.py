"""When a request is tried again at once, and after how long. Bounded to a few seconds: more is for the caller to decide."""

from __future__ import annotations

import random

from tenacity import RetryCallState

from copilot.kube.errors import Unavailable

ATTEMPTS = 3
_LONGEST_WAIT = 5.0  # seconds


def had_no_effect(error: BaseException) -> bool:
    """True when the request certainly was not carried out and may succeed in a moment."""
    return (
        isinstance(error, Unavailable)
        and not error.unknown
        and error.status in ("429", "503", "network")
        and (error.retry_after or 0) <= _LONGEST_WAIT
    )


def pause(state: RetryCallState) -> float:
    """What the server asked for, else 0.1 s, then 0.2 s; a random part on top, so that many clients do not come back together."""
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after if isinstance(error, Unavailable) else None
    return (asked if asked is not None else 0.1 * state.attempt_number) + random.uniform(0, 0.1)  # noqa: S311 - jitter


def backoff(failures: int, retry_after: float | None = None) -> float:
    """Seconds before the next connect of a watch after so many failures in a row: 1 s, doubling up to 30 s, the upper half at random."""
    longest = min(30.0, 2.0 ** min(failures, 5))
    return max(1.0, random.uniform(longest / 2, longest), min(retry_after or 0.0, 60.0))  # noqa: S311 - jitter
