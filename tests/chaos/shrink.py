"""Fewer operations that still fail: what came after the violation goes first, then halves, quarters and so on as long as there is time."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence

from tests.chaos.operations import Operation
from tests.chaos.run import Report

Play = Callable[[Sequence[Operation]], Awaitable[Report]]


async def shrunk(
    plan: Sequence[Operation], report: Report, play: Play, seconds: float, clock: Callable[[], float] = time.monotonic
) -> tuple[tuple[Operation, ...], Report]:
    """The shortest plan found within the time, and the report of its failure.

    Real daemons never do the same twice: a plan that fails once in a while may pass here, and then the longer one is kept.
    """
    end = clock() + seconds
    best, last = tuple(plan), report
    cut = before_violation(plan, report)
    if 0 < len(cut) < len(best) and clock() < end and (found := await play(cut)).failed:
        best, last = cut, found
    pieces = 2
    while len(best) > 1:
        for part in without(best, pieces):
            if clock() >= end:
                return best, last
            if (found := await play(part)).failed:
                best, last, pieces = part, found, max(pieces - 1, 2)
                break
        else:
            if pieces >= len(best):
                break
            pieces = min(2 * pieces, len(best))
    return best, last


def before_violation(plan: Sequence[Operation], report: Report) -> tuple[Operation, ...]:
    """The operations that were begun before the first violation was seen."""
    first = min((one.at for one in report.violations), default=float("inf")) - report.began
    begun = {one.operation.number for one in report.done if one.at <= first}
    return tuple(one for one in plan if one.number in begun)


def without(plan: Sequence[Operation], pieces: int) -> Iterator[tuple[Operation, ...]]:
    """The plan without its first, second, ... piece; the rest is done when it was."""
    size = -(-len(plan) // pieces)
    for start in range(0, len(plan), size):
        yield (*plan[:start], *plan[start + size :])
