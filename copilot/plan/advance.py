"""How the memory of a wanted node goes on from one decision to the next; `rest` has the others."""

from __future__ import annotations

from typing import Any

from copilot.model import Phase
from copilot.plan.facts import Facts, ended, is_home, is_stale, lives, phase_of_start
from copilot.plan.rest import rest
from copilot.plan.world import AT_REST, Track, What, World, changed

# No pod's uid: the one in which a node's jobs ran before we came.
_EARLIER = "an earlier one"
_APART = 5.0  # seconds; slurmd tells its age in whole ones


def advance(facts: Facts, world: World, forced: bool) -> Track | None:
    """The node's next memory, None when there is nothing to remember. `forced`: the target's nature keeps its pod although unwanted."""
    if not facts.wanted:
        return rest(facts, world, forced)
    track = facts.track
    if track is None or _starts_anew(facts, track):
        track = begin(facts, world)
    return progress(facts, world, track)


def _starts_anew(facts: Facts, track: Track) -> bool:
    """At rest until now, or a later start has overtaken the remembered one while nobody looked.

    Slurm waits again for a node that had registered: it was off in between. And a hook that comes after a failure is about what follows it.
    """
    if track.phase in AT_REST:
        return True
    if track.failure is not None and facts.hint is not None and facts.hint.received_at > track.since:
        return True
    return facts.powering_up and (track.requested_at is None or track.up_at is not None)


def begin(facts: Facts, world: World) -> Track:
    """A new start of the node, or a node found running (or down, or silent) when the copilot came, which is no start of ours."""
    now, hint = world.now, facts.hint
    if facts.up or not (facts.powering_up or facts.overruled):
        home = _lost_home(facts, world) or _home(facts)
        return Track(Phase.UP if facts.up else phase_of_start(facts), now, **{**_old_pod(facts), **home})
    asked = world.slurm.taken_at if world.slurm is not None else now
    return Track(
        phase=Phase.REQUESTED,
        since=now,
        requested_at=hint.received_at if hint else asked,
        hinted=hint is not None,
        request_id=hint.request_id if hint else "",
        jobs=hint.jobs if hint else (),
        **_old_pod(facts),
        # someone acted on it before we came: its hook was not lost
        missed_counted=facts.track is None and facts.covered,
    )


def _old_pod(facts: Facts) -> dict[str, Any]:
    """The pod that is known from the node's rest to be older than this start."""
    before, pod = facts.track, facts.pod
    return {"stale_uid": pod.uid, "restarts": pod.restarts} if before and pod and is_stale(pod, before) else {}


def progress(facts: Facts, world: World, track: Track) -> Track:
    """A wanted node: stages as they are reached, the pod it runs in, what is missing."""
    new: dict[str, Any] = {}
    if facts.hint is not None and not track.hinted:
        new.update(hinted=True, request_id=facts.hint.request_id, jobs=facts.hint.jobs)
    if track.requested_at is None or track.up_at is not None:
        return _on(facts, world, track, new)
    if facts.up:
        new.update(up_at=world.now, failure=None, message="", trouble=None, trouble_since=None)
        # What runs in its place now is what registered: a container that crashed before that took no job with it.
        running = facts.pod is not None and facts.pod.running
        new.update(_home(facts) if running else _baseline(facts, track, world))
        return changed(track, Phase.UP, world.now, new)
    new.update(_stages(facts, track, world.now))
    return changed(track, Phase.FAILED if track.failure is not None else phase_of_start(facts), world.now, new)


def _on(facts: Facts, world: World, track: Track, new: dict[str, Any]) -> Track:
    """Registered once. Not responding or down is Slurm's own affair as long as the pod is there."""
    new.update(_baseline(facts, track, world))
    if track.failure is not None and new.get("missing_since", track.missing_since) is not None:
        return changed(track, Phase.FAILED, world.now, new)
    new.update(failure=None, message="")
    return changed(track, Phase.UP if facts.up else phase_of_start(facts), world.now, new)


def _home(facts: Facts) -> dict[str, Any]:
    """The pod that the node's jobs run in from now on. One that could not register is none: the list of pods is late."""
    pod = facts.pod
    if pod is None or (facts.track is not None and is_stale(pod, facts.track)):
        return {}
    return {"pod_uid": pod.uid, "restarts": pod.restarts, "missing_since": None}


def _lost_home(facts: Facts, world: World) -> dict[str, Any]:
    """Of a node found running a job that is older than its slurmd and its container: nobody looked while the pod was replaced, or its container
    began anew, and the job is gone.

    slurmctld was away too, else it would have missed the job when the new slurmd registered; now it shows it RUNNING until the next
    registration, half an hour later (24.11.5). BootTime is slurmctld's own reckoning (its clock less the age that slurmd tells), as the job's
    start is, which slurmctld sets anew once the nodes are there: so no skew of clocks can make a healthy job look like this one.
    """
    node, pod, since = facts.node, facts.pod, world.running_since.get(facts.name)
    if node is None or pod is None or since is None or not node.busy or node.boot_epoch is None:
        return {}
    if node.boot_epoch <= since + _APART:
        return {}
    if pod.created_epoch > since + _APART:
        return {"pod_uid": _EARLIER, "missing_since": world.now}
    if pod.restarts and pod.started_epoch > since + _APART:
        return {"pod_uid": pod.uid, "restarts": pod.restarts - 1, "missing_since": world.now}
    return {}


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
        new.update(scheduled_at=None, running_at=None, stale_uid="")
    if pod.scheduled and (new.get("scheduled_at", track.scheduled_at)) is None:
        new["scheduled_at"] = now
    if pod.running and (new.get("running_at", track.running_at)) is None:
        new["running_at"] = now
    return new


def _baseline(facts: Facts, track: Track, world: World) -> dict[str, Any]:
    """Which pod the node's jobs run in, and since when that one is known to be gone, replaced or restarted.

    A pod that ended, was replaced or restarted took the job with it, if there was one. Whether there was, only a view that is asked for after the
    change can tell: a job may have started since the last. If there was none, the node lives on in the new pod.
    """
    pod, node = facts.pod, facts.node
    if node is None or world.slurm is None:
        return {}
    if not track.pod_uid:
        return _home(facts)
    if lives(facts, track, world.now):
        return {"missing_since": None}
    if track.missing_since is None:
        return {"missing_since": world.now} if world.pods.synced else {}
    other = pod is not None and not ended(pod) and not is_home(pod, track)
    return _home(facts) if other and world.slurm.taken_at > track.missing_since and not node.busy else {}


def stage_reached(before: Track | None, track: Track) -> What | None:
    """The furthest stage on the way up that a view of pods has just shown; registration has words of its own."""
    if track.up_at is not None or track.requested_at is None:
        return None
    if track.running_at is not None and (before is None or before.running_at != track.running_at):
        return What.RUNNING
    if track.scheduled_at is not None and (before is None or before.scheduled_at != track.scheduled_at):
        return What.SCHEDULED
    return None
