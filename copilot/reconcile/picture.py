"""The picture that `status` prints: of all groups, of every node that is not simply off, and of one node its whole story."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, overload

from copilot.hostlist import fold
from copilot.model import Node, Phase, Pod, SlurmView
from copilot.plan import Breaker, Policy, Track, World, outlook, plain
from copilot.reconcile.groups import Groups
from copilot.reconcile.report import stages
from copilot.slurm import Saving


def snapshot(world: World, groups: Groups, problems: Mapping[str, str], saving: Saving) -> dict[str, Any]:
    """Groups with counts by phase, and every node that is not simply off, ready for JSON. Ages and pauses in seconds."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in world.groups}
    for name, member in world.members.items():
        track = world.tracks.get(name)
        counts[member.group.name][track.phase if track else Phase.OFF] += 1
    pods = Counter(world.members[name].group.name for name in world.pods.pods)
    idle = _idle(world)
    listed = []
    for name, group in sorted(world.groups.items()):
        writer = groups.writers[group.target]
        listed.append(
            {
                "name": name,
                "target": str(group.target),
                "replicas": next((state.replicas for state in writer.target.states if state.group.name == name), 0)
                if writer.target
                else 0,
                "pods": pods[name],
                "nodes": counts[name].total(),
                "phases": dict(counts[name]),
                "idle": len(idle[name]),
                "kept_up": _kept_up(idle[name], saving),
                "held": name in world.held,
                "breaker": _breaker(world.breakers.get(name), world.now),
                "problem": writer.problem,
            }
        )
    return {
        "groups": listed,
        "nodes": _Rows(world),
        "problems": dict(problems),
        "view_age": _age(world.slurm, world.now),
        "pods_synced": world.pods.synced,
    }


def _idle(world: World) -> dict[str, list[Node]]:
    """By group, the nodes that are up without a job: they cost money, and SuspendTime or an exception keeps them."""
    nodes = world.slurm.nodes if world.slurm else {}
    found: dict[str, list[Node]] = {name: [] for name in world.groups}
    for name, track in world.tracks.items():
        if track.phase is Phase.UP and name in nodes and not nodes[name].busy:
            found[world.members[name].group.name].append(nodes[name])
    return found


def _kept_up(idle: Sequence[Node], saving: Saving) -> list[dict[str, Any]]:
    """The idle nodes that slurmctld never powers down, or should have by now: by reason, the largest first."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for node in idle:
        if why := saving.why(node, time.time()):
            reasons[why].append(node.name)
    rows = [{"nodes": fold(names), "count": len(names), "why": why} for why, names in reasons.items()]
    return sorted(rows, key=lambda row: (-row["count"], row["why"]))


def _breaker(breaker: Breaker | None, now: float) -> dict[str, Any] | None:
    """None while it is closed. `next_try`: seconds until one node tries; 0 while one does, or may."""
    if breaker is None or breaker.opened_at is None:
        return None
    return {
        "failures": breaker.failures,
        "reason": breaker.reason or "",
        "message": breaker.message,
        "probe": breaker.probe,
        "next_try": round(max(0.0, breaker.opened_at + breaker.pause - now), 1) if not breaker.probe else 0.0,
    }


class _Rows(Sequence[dict[str, Any]]):
    """A row for each node that is not simply off, by group and index; made when it is asked for: 10,000 at once would take 60 ms."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._names = sorted(world.tracks, key=lambda name: (world.members[name].group.name, world.members[name].index))
        # kept: the members change when a group comes or goes, perhaps before the last row is asked for
        self._groups = [world.members[name].group.name for name in self._names]

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return [self[each] for each in range(len(self))[index]]
        name = self._names[index]
        return _node(name, self._groups[index], self._world.tracks[name], self._world)


def _node(name: str, group: str, track: Track, world: World) -> dict[str, Any]:
    node = world.slurm.nodes.get(name) if world.slurm else None
    pod = world.pods.pods.get(name)
    return {
        "name": name,
        "group": group,
        "phase": track.phase,
        "age": round(world.now - track.since, 3),
        "state": node.state if node else "unknown to Slurm",
        "reason": track.message
        or (node.reason if node else "")
        or (plain(f"{pod.trouble}: {pod.message}", name, pod.uid) if pod and pod.trouble else ""),
        "failure": track.failure or "",
        "pod": pod.phase if pod else "",
        "jobs": list(track.jobs),
        "request_id": track.request_id,
        "stages": {stage: round(seconds, 3) for stage, seconds in stages(track).items()},
    }


def _age(view: SlurmView | None, now: float) -> float | None:
    return round(now - view.taken_at, 3) if view else None


def story(world: World, policy: Policy, name: str, saving: Saving) -> dict[str, Any] | None:
    """All that is known of one node, None for a name that is no member: its row, its pod, what Kubernetes told of both, what comes next."""
    member = world.members.get(name)
    if member is None:
        return None
    track = world.tracks.get(name) or Track(Phase.OFF, world.now)
    pod = world.pods.pods.get(name)
    node = world.slurm.nodes.get(name) if world.slurm else None
    told = [event for about in (f"Pod/{name}", member.group.target.about) for event in world.events.get(about, {}).values()]
    return {
        **_node(name, member.group.name, track, world),
        "target": str(member.group.target),
        "next": outlook(world, policy, name),
        "kept_up": saving.why(node, time.time()) if node and node.up and not node.busy else "",
        "pod": _pod(pod, world.now) if pod else None,
        "events": [
            {"about": event.about, "reason": event.reason, "message": event.message, "age": round(world.now - event.seen_at, 1)}
            for event in sorted(told, key=lambda event: event.seen_at)
        ],
    }


def _pod(pod: Pod, now: float) -> dict[str, Any]:
    return {
        "uid": pod.uid,
        "phase": pod.phase,
        "age": round(now - pod.first_seen, 1),
        "host": pod.host,
        "ip": pod.ip,
        "scheduled": pod.scheduled,
        "running": pod.running,
        "ready": pod.ready,
        "terminating": pod.terminating,
        "restarts": pod.restarts,
        "trouble": pod.trouble,
        "message": pod.message,
    }
