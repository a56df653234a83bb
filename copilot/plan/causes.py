"""Why a start is held up: from what Kubernetes and Slurm say of a node to one reason of the closed list, its words and its grace."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from copilot.model import FailureReason, KubeEvent, Pod
from copilot.plan.facts import Facts, ended
from copilot.plan.policy import Policy
from copilot.plan.world import Track, World

# A controller that is refused again and again tries rarely and tells even more rarely (25 Events at once, then one in five minutes).
_STANDS = 600.0
# An Event's time has whole seconds, and the server's clock may be a little behind ours.
_SLACK = 2.0
# How long a controller may take to make a pod before that is worth a word.
_MAKING = 10.0
# Without a machine to come there is no reason to wait for one.
_HOPELESS = 10.0
_LONGEST = 240  # characters of a message that are told
_IMAGE = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
_CONFIG = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError", "ContainerCannotRun"}
)
_UNPLACED = frozenset({"Unschedulable", "SchedulingGated", "SchedulerError"})
_EVICTED = frozenset({"Evicted", "Preempting", "NodeShutdown", "Terminated", "DisruptionTarget"})
# Told only by Events: kubelet leaves such a pod in ContainerCreating without a word in its status.
_PREPARING = ("FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox")
_PROMISES = ("TriggeredScaleUp", "Nominated")
# A deletion's end is told in whole seconds, and a pod needs a moment to go.
_OVERDUE = 5.0
# Between one crash and the next the container runs for a moment, and an evicted pod goes and is replaced: the trouble is the same one.
_COMES_BACK = frozenset({FailureReason.CRASH_LOOP, FailureReason.EVICTED})
# What a pod that goes and is replaced looks like in between.
_IN_BETWEEN = frozenset({FailureReason.POD_LOST, FailureReason.API_ERROR})
# The job as a whole cannot have what it needs; the other reasons are about one node or one image.
CAPACITY = frozenset({FailureReason.UNSCHEDULABLE, FailureReason.QUOTA})


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a node does not come. `grace` in seconds, counted from when the trouble was first seen, or from `since` where that is later."""

    reason: FailureReason
    words: str
    grace: float
    since: float = 0.0


def cause_of(facts: Facts, track: Track, world: World, policy: Policy) -> Cause | None:
    """What keeps a wanted node that Slurm waits for from coming, None when nothing is known to."""
    if track.requested_at is None or track.up_at is not None or not (facts.powering_up or facts.refused):
        return None
    if facts.node is not None and facts.refused:
        words = (
            facts.node.reason or "slurmctld refused the registration: the pod has less than the node's line in slurm.conf says"
        )
        return Cause(FailureReason.INVALID_REGISTRATION, words, 0.0)
    found = _without_pod(facts, track, world, policy) if facts.pod is None else _of_pod(facts, facts.pod, world, policy)
    return replace(found, words=plain(found.words, facts.name, facts.pod.uid if facts.pod else "")) if found else None


def remember(track: Track, cause: Cause | None, now: float) -> Track:
    """The memory with what holds the start up and since when; the same object when nothing differs.

    What crashes or is evicted shows other faces in between, which begin no grace anew: else it would never be over.
    """
    if track.trouble in _COMES_BACK and (cause is None or cause.reason in _IN_BETWEEN):
        return track
    if cause is None:
        if track.trouble is None:
            return track
        return replace(track, trouble=None, trouble_since=None, message="")
    words = f"{cause.reason}: {cause.words}"
    if track.trouble is cause.reason:
        return track if track.message == words else replace(track, message=words)
    goes_on = track.trouble is not None and not _COMES_BACK.isdisjoint((track.trouble, cause.reason))
    return replace(track, trouble=cause.reason, trouble_since=track.trouble_since if goes_on else now, message=words)


def overdue(cause: Cause | None, track: Track, world: World) -> bool:
    """Whether the grace is over, as of the view that the judgement rests on."""
    if cause is None or track.trouble_since is None or world.slurm is None:
        return False
    return world.slurm.taken_at - max(track.trouble_since, cause.since) >= cause.grace


def plain(words: str, name: str, uid: str = "") -> str:
    """A message without what differs from node to node, so that alike nodes are told in one update, logged in one line and shown in one row."""
    words = words.partition(" is forbidden: ")[2] or words
    if uid:
        words = words.replace(uid, "")
    words = re.sub(rf"\b{re.escape(name)}\b(?!-)", "the pod", words)
    words = " ".join(words.split())
    return words if len(words) <= _LONGEST else words[: _LONGEST - 3] + "..."


def _without_pod(facts: Facts, track: Track, world: World, policy: Policy) -> Cause | None:
    """No pod: the target could not be patched, or its controller could not make the pod, which only an Event on the target tells."""
    group = facts.member.group
    if not facts.covered:
        refused = world.unpatched.get(group.name)
        if refused is None:
            return None
        if refused.admission:
            return Cause(FailureReason.REJECTED, refused.words, policy.rejected_grace, refused.since)
        return Cause(FailureReason.API_ERROR, refused.words, policy.api_error_grace, refused.since)
    since = (track.requested_at or 0.0) - _STANDS
    event = _told(world, group.target.about, "FailedCreate", since)
    if event is not None:
        return _refused(event.message, policy)
    if track.scaled_at is None or world.now - track.scaled_at < _MAKING:
        return None
    words = f"no pod was made for it and no Event says why: does the controller of {group.target} run?"
    return Cause(FailureReason.API_ERROR, words, max(0.0, policy.api_error_grace - _MAKING))


def _refused(message: str, policy: Policy) -> Cause:
    if "exceeded quota" in message or "failed quota" in message:
        return Cause(FailureReason.QUOTA, message, policy.quota_grace)
    if "admission webhook" in message or "denied" in message or "forbidden" in message or "is invalid" in message:
        return Cause(FailureReason.REJECTED, message, policy.rejected_grace)
    return Cause(FailureReason.API_ERROR, message, policy.api_error_grace)


def _of_pod(facts: Facts, pod: Pod, world: World, policy: Policy) -> Cause | None:
    if pod.terminating:
        if pod.ends_at is None or pod.ends_at + _OVERDUE > world.now:
            return None
        words = "its old pod is Terminating past its grace: is its host gone? delete the pod by force once the host is known to be off"
        return Cause(FailureReason.POD_LOST, words, policy.pod_lost_grace, pod.ends_at + _OVERDUE)
    if not pod.trouble and not ended(pod):
        return None if pod.running else _without_a_word(facts, pod, world, policy)
    return _of_trouble(facts, pod, world, policy)


def _of_trouble(facts: Facts, pod: Pod, world: World, policy: Policy) -> Cause | None:
    """By Kubernetes' own word for it."""
    words = pod.message or pod.trouble
    if pod.trouble == "NodeLost":
        return Cause(FailureReason.POD_LOST, words, policy.pod_lost_grace)
    if ended(pod):
        return Cause(FailureReason.EVICTED, f"{pod.trouble or pod.phase}: {words}", policy.evicted_grace)
    if pod.trouble in _UNPLACED:
        return _unschedulable(facts, words, world, policy)
    if pod.trouble in _IMAGE:
        return Cause(FailureReason.IMAGE_PULL, f"{pod.trouble}: {words}", policy.image_pull_grace)
    if pod.trouble in _CONFIG:
        return Cause(FailureReason.CONTAINER_CONFIG, f"{pod.trouble}: {words}", policy.container_config_grace)
    if pod.running or not pod.scheduled or pod.trouble in _EVICTED:
        return None
    return Cause(FailureReason.CRASH_LOOP, f"{pod.trouble}: {words}", policy.crash_loop_grace)


def _without_a_word(facts: Facts, pod: Pod, world: World, policy: Policy) -> Cause | None:
    """A pod whose status says nothing: its volumes are being prepared, or nobody has looked at it."""
    if pod.scheduled:
        return _preparing(facts, pod, world, policy)
    if world.now - pod.first_seen < _MAKING:
        return None
    words = "no scheduler has a word about its pod: does kube-scheduler run, and is the pod's schedulerName right?"
    return _unschedulable(facts, words, world, policy)


def _unschedulable(facts: Facts, words: str, world: World, policy: Policy) -> Cause:
    """A cluster autoscaler that adds a machine gets the time for it; one that will not add any leaves nothing to wait for."""
    since = (facts.pod.first_seen if facts.pod else 0.0) - _SLACK
    promise = _latest(world, f"Pod/{facts.name}", _PROMISES, since)
    refusal = _told(world, f"Pod/{facts.name}", "NotTriggerScaleUp", since)
    if promise is not None and (refusal is None or refusal.seen_at <= promise.seen_at):
        return Cause(FailureReason.UNSCHEDULABLE, words, policy.scale_up_grace, promise.seen_at)
    if refusal is not None:
        hopeless = min(policy.unschedulable_grace, _HOPELESS)
        return Cause(FailureReason.UNSCHEDULABLE, f"{words} (cluster autoscaler: {refusal.message})", hopeless)
    return Cause(FailureReason.UNSCHEDULABLE, words, policy.unschedulable_grace)


def _preparing(facts: Facts, pod: Pod, world: World, policy: Policy) -> Cause | None:
    event = _latest(world, f"Pod/{facts.name}", _PREPARING, pod.first_seen - _SLACK)
    if event is None:
        return None
    return Cause(FailureReason.CONTAINER_CONFIG, f"{event.reason}: {event.message}", policy.container_config_grace)


def evicted(pod: Pod) -> bool:
    """Kubernetes itself took it away, with a word for it."""
    return pod.trouble in _EVICTED


def _latest(world: World, about: str, reasons: Iterable[str], since: float) -> KubeEvent | None:
    events = (event for reason in reasons if (event := _told(world, about, reason, since)))
    return max(events, key=lambda event: event.seen_at, default=None)


def _told(world: World, about: str, reason: str, since: float) -> KubeEvent | None:
    of_object: Mapping[str, KubeEvent] = world.events.get(about, {})
    event = of_object.get(reason)
    return event if event is not None and event.seen_at >= since else None
