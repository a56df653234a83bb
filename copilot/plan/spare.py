"""Nodes that are not needed although Slurm started them: their job cannot have all of its nodes, or nobody waits for them any more.

Slurm gives no node back while it powers up, and an idle one only after SuspendTime: expensive machines that wait for nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from copilot.plan import rules
from copilot.plan.facts import Facts
from copilot.plan.world import AT_REST, Track, World

REASON = f"{rules.OURS}released with its job, which cannot have all of its nodes"
# A node that is still busy so long after its job was requeued has another job.
_OTHERS = 10.0


def goes_along(track: Track, jobs: Collection[int], since: float) -> bool:
    """Whether a node was started for those jobs alone, in the start that began at `since` or later: decided once for each start."""
    if not track.jobs or track.failure is not None or track.phase in AT_REST or track.spare_since is not None:
        return False
    if not set(track.jobs) <= set(jobs) or track.requested_at is None:
        return False
    return track.up_at is None or track.up_at >= since


def settled(facts: Facts, track: Track, world: World) -> Track:
    """Forgets the decision where another job has taken the node: it stays."""
    if track.spare_since is None or facts.node is None or not facts.node.busy or world.slurm is None:
        return track
    return replace(track, spare_since=None) if world.slurm.taken_at - track.spare_since > _OTHERS else track


def verb(facts: Facts, track: Track, world: World) -> str:
    """The update that gives a spare node back, or "". Only on a view, asked for after the decision, that shows it without a job.

    A node that powers up obeys `power_down_force` only (facts: verbs by start state); of a node that is up a job may have got hold since
    the view, and `power_down` waits for its end.
    """
    node = facts.node
    if track.spare_since is None or node is None or world.slurm is None or world.slurm.taken_at <= track.spare_since:
        return ""
    if node.busy or not rules.may_be_forced(node):
        return ""
    return rules.GIVE_UP if facts.powering_up else rules.POWER_DOWN if facts.up else ""
