"""What the loop tells: outcomes as batched log lines and counts, and the picture that `status` prints."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import structlog

from copilot.hostlist import fold
from copilot.model import Phase, PodView
from copilot.plan import Breaker, Outcome, Track, What, World
from copilot.reconcile.groups import Groups
from copilot.telemetry import Metrics

_log = structlog.get_logger()
_STAGES = (
    (Phase.SCALED, "requested_at", "scaled_at"),
    (Phase.PENDING, "scaled_at", "pending_at"),
    (Phase.SCHEDULED, "pending_at", "scheduled_at"),
    (Phase.RUNNING, "scheduled_at", "running_at"),
    (Phase.UP, "running_at", "up_at"),
)
# What `kubectl describe` of a target shows, in the API's manner of naming.
_EVENTS = {
    What.FAILED: "NodeFailed",
    What.STALE: "StalePodReplaced",
    What.ORPHAN: "OrphanRemoved",
    What.MISSED_HOOK: "MissedHook",
    What.SPARE: "NodeReleased",
}
# Events of type Normal; all others are Warnings.
GOOD_NEWS = frozenset({"NodeReleased", "ScaleUpResumed"})
_BREAKER_CURE = "mend the cause; one node is tried after each pause, and the first that registers lets all start again"
_SERIOUS = frozenset({What.FAILED, What.MISSED_HOOK, What.ORPHAN, What.STALE, What.UNKNOWN, What.TROUBLE, What.ELSEWHERE})


def tell(outcomes: Iterable[Outcome], metrics: Metrics) -> list[tuple[str, str, str]]:
    """One line for all nodes to which the same happened in one decision, and the counts.

    Returns what deserves an Event on the group's target: group, reason, message.
    """
    notices = []
    batches: dict[tuple[Any, ...], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        _count(outcome, metrics)
        batches[outcome.what, outcome.group, outcome.reason, outcome.message].append(outcome)
    for (what, group, reason, message), batch in batches.items():
        fields: dict[str, Any] = {"group": group, "nodes": fold(outcome.node for outcome in batch), "count": len(batch)}
        if reason:
            fields["reason"] = reason
        if message:
            fields["message"] = message
        requests = sorted({outcome.track.request_id for outcome in batch if outcome.track.request_id})
        if requests:
            fields["request_id"] = requests[0] if len(requests) == 1 else requests
        jobs = sorted({job for outcome in batch for job in outcome.track.jobs})
        if jobs:
            fields["jobs"] = jobs
        if what is What.UP:
            fields.update(_durations([outcome.track for outcome in batch]))
        (_log.warning if what in _SERIOUS else _log.info)(what.value, **fields)
        if what in _EVENTS:
            words = f": {reason}: {message}" if reason else ""
            notices.append((group, _EVENTS[what], f"{fields['count']} node(s), {fields['nodes']}{words}"))
    return notices


def breakers(before: Mapping[str, Breaker], now: Mapping[str, Breaker]) -> list[tuple[str, str, str]]:
    """A line for each breaker that opened, half-opened or closed in this decision; returns what deserves an Event, as `tell` does."""
    notices = []
    for group in sorted(before.keys() | now.keys()):
        old, new = before.get(group, Breaker()), now.get(group, Breaker())
        if new.open and new.opened_at != old.opened_at:
            words = f"no new node of {group} is started for {new.pause:g} s after {new.failures} failures in a row, last: {new.reason}: {new.message}"
            _log.warning(
                "breaker_open",
                group=group,
                failures=new.failures,
                pause=new.pause,
                reason=new.reason,
                message=new.message,
                cure=_BREAKER_CURE,
            )
            notices.append((group, "ScaleUpPaused", words))
        elif new.probe and new.probe != old.probe:
            _log.info("breaker_half_open", group=group, probe=new.probe)
        elif old.open and not new.open:
            _log.info("breaker_closed", group=group)
            notices.append((group, "ScaleUpResumed", f"a node of {group} has registered, so all may start again"))
    return notices


def _count(outcome: Outcome, metrics: Metrics) -> None:
    track = outcome.track
    if outcome.what is What.UP and track.requested_at is not None and track.up_at is not None:
        metrics.ready(outcome.group, track.up_at - track.requested_at)
        for stage, seconds in stages(track).items():
            metrics.stage(Phase(stage), seconds)
    elif outcome.what is What.FAILED and outcome.reason is not None:
        metrics.failure(outcome.group, outcome.reason)
    elif outcome.what is What.MISSED_HOOK:
        metrics.missed_hooks(1)
    elif outcome.what is What.ORPHAN:
        metrics.orphans_removed(1)
    elif outcome.what is What.STALE:
        metrics.stale_replaced(1)


def stages(track: Track) -> dict[str, float]:
    """Seconds that each stage of the start took, by the stage's name. A stage nobody saw is counted to the next one."""
    found: dict[str, float] = {}
    last = track.requested_at
    for stage, _, field in _STAGES:
        at: float | None = getattr(track, field)
        if at is not None and last is not None:
            found[stage] = max(0.0, at - last)
            last = at
    return found


def _durations(tracks: list[Track]) -> dict[str, Any]:
    """The slowest start of the batch, stage by stage: what an operator would ask about."""
    slowest = max(tracks, key=lambda track: (track.up_at or 0.0) - (track.requested_at or 0.0))
    taken = {stage: round(seconds, 3) for stage, seconds in stages(slowest).items()}
    return {"seconds": round((slowest.up_at or 0.0) - (slowest.requested_at or 0.0), 3), "stages": taken}


def gauges(world: World, desired: Mapping[str, frozenset[int]], metrics: Metrics) -> None:
    """Nodes by phase, how long the longest is in it, the three replica numbers, breaker and hold of every group."""
    phases: dict[str, Counter[Phase]] = {name: Counter() for name in world.groups}
    ages: dict[str, dict[Phase, float]] = {name: {} for name in world.groups}
    for name, track in world.tracks.items():
        group = world.members[name].group.name
        phases[group][track.phase] += 1
        ages[group][track.phase] = max(world.now - track.since, ages[group].get(track.phase, 0.0))
    totals = Counter(member.group.name for member in world.members.values())
    pods = Counter(world.members[name].group.name for name in world.pods.pods)
    for group, counted in phases.items():
        counted[Phase.OFF] = totals[group] - counted.total() + counted[Phase.OFF]
        metrics.nodes(group, counted)
        metrics.oldest(group, ages[group])
        metrics.held(group, is_held=group in world.held)
        metrics.breaker(group, is_open=group in world.breakers and world.breakers[group].open)
        metrics.replicas(group, wanted=len(desired.get(group, ())), target=len(world.covers.get(group, ())), pods=pods[group])


def owned_pods(pods: PodView, groups: Groups) -> PodView:
    """Only the pods that the groups' targets run; head, login and foreign pods of the namespace are none of ours."""
    groups.meet(pods.pods)
    return PodView(pods.synced, {name: pod for name, pod in pods.pods.items() if groups.owned(name, pod.owner)})
