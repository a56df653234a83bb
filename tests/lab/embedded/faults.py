"""What can go wrong between the copilot and an API server, on order: `faults.add(Action.HANG, verb="patch", path="statefulsets")`."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from enum import StrEnum

from tests.lab.embedded.status import StatusError

_REASONS = {
    401: ("Unauthorized", "Unauthorized"),
    403: ("Forbidden", "forbidden by a fault of the test"),
    409: ("Conflict", "Operation cannot be fulfilled: the object has been modified"),
    429: ("TooManyRequests", "Too many requests, please try again later."),
    500: ("InternalError", "Internal error occurred: etcdserver: request timed out"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "Timeout: request did not complete within the allotted timeout"),
}


class Action(StrEnum):
    """What is done to a request.

    STATUS: it is answered with `status` (and Retry-After: `retry_after`) and not carried out.
    HANG: it is not carried out, and not answered while the fault stands.
    SLOW: it is carried out `seconds` late.
    RESET_BEFORE, RESET_AFTER: the connection is reset before, or after it was carried out, without an answer.
    CUT_WATCH: the watch is cut in the middle of an event's line, of the first event that comes `seconds` or more after its start.
    GONE: a watch begins with the ERROR event 410; any other request is answered 410.
    BOOKMARK_GAP: the watch sends no bookmarks.
    """

    STATUS = "status"
    HANG = "hang"
    SLOW = "slow"
    RESET_BEFORE = "reset_before"
    RESET_AFTER = "reset_after"
    CUT_WATCH = "cut_watch"
    GONE = "gone"
    BOOKMARK_GAP = "bookmark_gap"


_OF_WATCHES = frozenset({Action.CUT_WATCH, Action.BOOKMARK_GAP})


@dataclass(slots=True)
class Fault:
    """Strikes the next `times` requests (None: all) whose verb and path match. `fired` counts the requests it struck."""

    action: Action
    verb: str = ""
    path: str = ""
    times: int | None = 1
    status: int = 500
    retry_after: int | None = None
    seconds: float = 0.0
    fired: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def matches(self, verb: str, path: str) -> bool:
        if self.times is not None and self.fired >= self.times:
            return False
        if self.action in _OF_WATCHES and verb != "watch":
            return False
        return (not self.verb or verb in self.verb.split("|")) and re.search(self.path, path) is not None

    def error(self) -> StatusError:
        """The answer of STATUS and GONE."""
        if self.action is Action.GONE:
            return StatusError(410, "Expired", "too old resource version: 1 (2)")
        reason, message = _REASONS.get(self.status, ("", f"status {self.status} by a fault of the test"))
        return StatusError(self.status, reason, message, retry_after=self.retry_after)


class Faults:
    """The faults in force, oldest first; a request is struck by the first that matches."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def add(
        self,
        action: Action,
        *,
        verb: str = "",
        path: str = "",
        times: int | None = 1,
        status: int = 500,
        retry_after: int | None = None,
        seconds: float = 0.0,
    ) -> Fault:
        """`verb` is get, list, watch, create, update, patch or delete, or several joined by `|`; `path` a regular expression."""
        fault = Fault(action, verb, path, times, status, retry_after, seconds)
        self._faults.append(fault)
        return fault

    @property
    def strikes(self) -> int:
        """How many requests the faults in force have struck."""
        return sum(fault.fired for fault in self._faults)

    def strike(self, verb: str, path: str) -> Fault | None:
        """The fault that this request suffers; it is counted."""
        for fault in self._faults:
            if fault.matches(verb, path):
                fault.fired += 1
                return fault
        return None

    def remove(self, fault: Fault) -> None:
        """Ends it, also for the requests that hang by it: those are reset."""
        fault.ended.set()
        self._faults.remove(fault)

    def clear(self) -> None:
        for fault in list(self._faults):
            self.remove(fault)
