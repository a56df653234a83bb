"""The circuit breaker of a group: after failures in a row without a success, scaling up stops for a while.

What a bad image or a full cluster costs is then one attempt per pause, not one per job that Slurm starts again. Nothing that runs is
touched. The state lives in the copilot's memory only: after a restart of ours it costs `breaker_failures` more failed starts to open again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from copilot.model import FailureReason
from copilot.plan.policy import Policy

# An open breaker whose pause is long over, and that nobody has wanted a node of since, is forgotten: what was broken may be mended.
FORGET = 3600.0


@dataclass(frozen=True, slots=True)
class Breaker:
    """Closed while `opened_at` is None.

    `failures` in a row without a success, `opened_at` when it last opened, `pause` in seconds, `probe` the one node that tries (half-open).
    """

    failures: int = 0
    opened_at: float | None = None
    pause: float = 0.0
    probe: str = ""
    reason: FailureReason | None = None
    message: str = ""

    @property
    def open(self) -> bool:
        """Whether new nodes of the group wait (all but the probe)."""
        return self.opened_at is not None


CLOSED = Breaker()


def failed(breaker: Breaker, nodes: Iterable[str], reason: FailureReason, message: str, now: float, policy: Policy) -> Breaker:
    """Starts of `nodes` failed. Opens at `breaker_failures`; a probe that fails doubles the pause."""
    names = set(nodes)
    counted = replace(breaker, failures=breaker.failures + len(names), reason=reason, message=message)
    if breaker.probe in names:
        return replace(counted, probe="", opened_at=now, pause=min(breaker.pause * 2, policy.breaker_pause_max))
    if breaker.open or counted.failures < policy.breaker_failures:
        return counted
    return replace(counted, opened_at=now, pause=policy.breaker_pause)


def turned(breaker: Breaker, waiting: Iterable[str], *, trying: bool, unclean: bool, now: float) -> Breaker:
    """The state with which a decision begins: perhaps half-open, with the first of the nodes that wait as the probe.

    `trying`: the probe of before is still on its way up. `unclean`: nodes that failed are not back in their idle state yet; a probe that
    starts among them would compete with what they still hold.
    """
    if breaker.opened_at is None or (breaker.probe and trying):
        return breaker
    over = now - breaker.opened_at - breaker.pause
    breaker = replace(breaker, probe="")
    first = next(iter(waiting), "")
    if not first:
        return CLOSED if over > FORGET else breaker
    return replace(breaker, probe=first) if over >= 0 and not unclean else breaker
