"""How soon Slurm should be asked again, for the sake of one node."""

from __future__ import annotations

from copilot.plan.facts import Facts
from copilot.plan.policy import Policy
from copilot.plan.wish import Wish
from copilot.plan.world import Pace, Track, World

_ORDER = (Pace.QUIET, Pace.ACTIVE, Pace.FAST)


def faster(one: Pace, other: Pace) -> Pace:
    """The more urgent of two."""
    return max(one, other, key=_ORDER.index)


def pace_of(facts: Facts, track: Track | None, world: World, policy: Policy) -> Pace:
    """Moments count while a running pod is about to register, or while a loss waits for the view that confirms it."""
    if track is not None and (_registering(facts, track, world, policy) or _unconfirmed(track, world)):
        return Pace.FAST
    hinted = facts.wanted and facts.hint is not None and not facts.up
    in_flight = facts.powering_up or facts.coming or facts.wish is Wish.RELEASE or hinted
    return Pace.ACTIVE if in_flight else Pace.QUIET


def _registering(facts: Facts, track: Track, world: World, policy: Policy) -> bool:
    if facts.up or not facts.wanted or track.running_at is None or track.requested_at is None:
        return False
    return world.now - track.running_at < policy.fast_for


def _unconfirmed(track: Track, world: World) -> bool:
    return track.missing_since is not None and world.slurm is not None and world.slurm.taken_at <= track.missing_since
