"""How the memory of one node goes on from one decision to the next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from copilot.model import Phase
from copilot.plan.facts import Facts, phase_of_start
from copilot.plan.wish import Wish
from copilot.plan.world import Track, World

AT_REST = frozenset({Phase.OFF, Phase.HELD, Phase.RELEASING})


def advance(facts: Facts, world: World, forced: bool) -> Track | None:
    """The node's next memory, None when there is nothing to remember. `forced`: the target's nature keeps its pod although unwanted."""
    if facts.wanted:
        track = facts.track
        if track is None or track.phase in AT_REST:
            track = begin(facts, world)
        return progress(facts, world, track)
    return rest(facts, world, forced)


def begin(facts: Facts, world: World) -> Track:
    """A new start of the node, or a node found running when the copilot came.

    A pod that runs already while Slurm last had its node off is older than the resume request: slurmctld ignores its registration
    silently (facts: boot time older than the request), so it is remembered as stale.
    """
    now, hint, before, pod = world.now, facts.hint, facts.track, facts.pod
    if facts.up:
        return Track(Phase.UP, now, pod_uid=pod.uid if pod else "", restarts=pod.restarts if pod else 0)
    asked = world.slurm.taken_at if world.slurm is not None else now
    stale = before is not None and pod is not None and pod.running and not pod.terminating
    return Track(
        phase=Phase.REQUESTED,
        since=now,
        requested_at=hint.received_at if hint else asked,
        hinted=hint is not None,
        request_id=hint.request_id if hint else "",
        jobs=hint.jobs if hint else (),
        stale_uid=pod.uid if stale and pod is not None else "",
        # someone acted on it before we came: its hook was not lost
        missed_counted=before is None and facts.covered,
    )


def progress(facts: Facts, world: World, track: Track) -> Track:
    """A wanted node: stages as they are reached, the pod it runs in, what is missing."""
    new: dict[str, Any] = {}
    if facts.hint is not None and not track.hinted:
        new.update(hinted=True, request_id=facts.hint.request_id, jobs=facts.hint.jobs)
    if facts.up:
        if track.phase is not Phase.UP:
            new.update(up_at=world.now, failure=None, message="")
        phase = Phase.UP
        new.update(_baseline(facts, track, world))
    elif facts.powering_up or track.requested_at is not None:
        new.update(_stages(facts, track, world.now))
        phase = Phase.FAILED if track.failure is not None else phase_of_start(facts)
    else:
        # was up, is not now (not responding, down): Slurm's own affair as long as its pod is there
        phase = phase_of_start(facts)
        new.update(_baseline(facts, track, world))
    return _with(track, phase, world.now, new)


def _stages(facts: Facts, track: Track, now: float) -> dict[str, Any]:
    new: dict[str, Any] = {}
    if facts.covered and track.scaled_at is None:
        new["scaled_at"] = now
    pod = facts.fresh_pod
    if pod is None:
        return new
    if pod.uid != track.pod_uid:
        # another pod than before: its stages begin anew
        new.update(pod_uid=pod.uid, restarts=pod.restarts, pending_at=max(pod.first_seen, track.requested_at or pod.first_seen))
        new.update(scheduled_at=None, running_at=None)
    if pod.scheduled and (new.get("scheduled_at", track.scheduled_at)) is None:
        new["scheduled_at"] = now
    if pod.running and (new.get("running_at", track.running_at)) is None:
        new["running_at"] = now
    return new


def _baseline(facts: Facts, track: Track, world: World) -> dict[str, Any]:
    """Which pod the node's jobs run in. Under a job only the first sight counts: a pod that is replaced or restarted later took the job with it."""
    pod, node = facts.pod, facts.node
    if node is None:
        return {}
    if not track.pod_uid and pod is not None:
        return {"pod_uid": pod.uid, "restarts": pod.restarts, "missing_since": None}
    if pod is not None and pod.uid == track.pod_uid and pod.restarts <= track.restarts:
        return {"missing_since": None}
    if not track.pod_uid:
        return {}
    if pod is not None and not node.busy:
        return {"pod_uid": pod.uid, "restarts": pod.restarts, "missing_since": None}
    return {"missing_since": track.missing_since if track.missing_since is not None else world.now} if world.pods.synced else {}


def rest(facts: Facts, world: World, forced: bool) -> Track | None:
    """A node that is not wanted: on its way out, held, an orphan, or simply off."""
    track, now = facts.track, world.now
    there = facts.pod is not None or facts.covered
    if facts.wish is Wish.KEEP and track is not None:
        return track
    if facts.wish is Wish.RELEASE or (there and track is not None and track.release_since is not None):
        phase = Phase.HELD if forced and there else Phase.RELEASING
    else:
        phase = Phase.HELD if there else Phase.OFF
    if phase is Phase.OFF and (track is None or track.failure is None):
        return None
    taken = world.slurm.taken_at if world.slurm is not None else now
    track = track or Track(phase, now)
    new: dict[str, Any] = {}
    if track.phase not in AT_REST:
        # the start is over; what remains is why it failed, and which pod it had
        track = Track(
            track.phase,
            track.since,
            pod_uid=track.pod_uid,
            failure=track.failure,
            message=track.message,
            request_id=track.request_id,
        )
    if facts.pod is not None:
        new["pod_uid"] = facts.pod.uid
    if track.release_since is None and (facts.wish is Wish.RELEASE or (track.held and not forced)):
        new["release_since"] = now
    new["held"] = forced and there
    if facts.wish is Wish.OFF:
        new["orphan_since"] = (track.orphan_since if track.orphan_since is not None else taken) if there and not forced else None
        if not there:
            new["release_since"] = None
    return _with(track, phase, now, new)


def _with(track: Track, phase: Phase, now: float, new: dict[str, Any]) -> Track:
    if phase is not track.phase:
        new.update(phase=phase, since=now)
    changed = {key: value for key, value in new.items() if getattr(track, key) != value}
    return replace(track, **changed) if changed else track
