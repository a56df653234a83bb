"""The memory of a node that is not wanted: on its way out, held, an orphan, or simply off."""

from __future__ import annotations

from typing import Any

from copilot.model import FailureReason, Phase
from copilot.plan.facts import Facts
from copilot.plan.wish import Wish, given_up
from copilot.plan.world import AT_REST, Track, World, changed


def rest(facts: Facts, world: World, forced: bool) -> Track | None:
    """The next memory, None when there is nothing to remember. `forced`: the target's nature keeps the pod.

    What Slurm does not list, and what a job is on, keeps its memory as it is. Allocated and powered down is no such case: there the next
    start is about to come, and the pod that is there now is older than it.
    """
    there = facts.pod is not None or facts.covered
    if facts.wish is Wish.KEEP and not facts.coming and facts.track is not None:
        return facts.track
    track = facts.track or Track(Phase.HELD, world.now)
    if track.phase not in AT_REST:
        track = _ended(facts, track)
    if not there and facts.wish is not Wish.RELEASE and track.failure is None:
        return None
    new = {**_release(facts, world, track, forced), **_running(facts, world, track), "held": forced and there}
    if facts.wish is Wish.OFF:
        since = track.orphan_since if track.orphan_since is not None else _taken(world)
        new["orphan_since"] = since if there and not forced else None
    return changed(track, _phase(facts, new.get("release_since", track.release_since), there, forced), world.now, new)


def _ended(facts: Facts, track: Track) -> Track:
    """The start is over; what remains is why it failed, and which pod it had."""
    failure, message = track.failure, track.message if track.failure else ""
    if failure is None and track.up_at is None and facts.node is not None and given_up(facts.node):
        failure = track.trouble or FailureReason.REGISTRATION_TIMEOUT
        message = track.message if track.trouble else "slurmctld gave the node up at ResumeTimeout"
    return Track(track.phase, track.since, pod_uid=track.pod_uid, failure=failure, message=message, request_id=track.request_id)


def _release(facts: Facts, world: World, track: Track, forced: bool) -> dict[str, Any]:
    """Since when it is on its way out: given up by Slurm, or no longer in the window that held it. Ends when nothing is left of it."""
    if facts.wish is Wish.OFF and facts.pod is None and not facts.covered:
        return {"release_since": None}
    if track.release_since is None and (facts.wish is Wish.RELEASE or (track.held and not forced)):
        return {"release_since": world.now}
    return {}


def _running(facts: Facts, world: World, track: Track) -> dict[str, Any]:
    """Whether its pod is older than any resume request to come, so that slurmctld will ignore its registration (facts: boot time).

    That is so when it was seen running before a view was asked for in which the node was still off. Seen later than that it may have
    started after the request. A container that restarts boots anew.
    """
    pod = facts.pod
    if pod is None:
        return {}
    same = pod.uid == track.pod_uid and pod.restarts == track.restarts
    since = track.running_at if same else None
    if pod.running and since is None:
        since = world.now
    old = since is not None and since <= _taken(world) and facts.node is not None
    return {"pod_uid": pod.uid, "restarts": pod.restarts, "running_at": since, "stale_uid": pod.uid if old else ""}


def _phase(facts: Facts, release_since: float | None, there: bool, forced: bool) -> Phase:
    if forced and there:
        return Phase.HELD
    if facts.wish is Wish.RELEASE or (there and release_since is not None):
        return Phase.RELEASING
    return Phase.HELD if there else Phase.OFF


def _taken(world: World) -> float:
    return world.slurm.taken_at if world.slurm is not None else world.now
