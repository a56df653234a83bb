"""A small model of what stands behind a target for the property tests: the object, its controller, the pods and the slurmds in them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from copilot.model import Kind, Pod, Target
from copilot.targets import patch, read
from tests.unit import jsonpatch
from tests.unit.slurm_life import Daemon

GRACE = 6.0
NEVER = float("inf")
NAMES = {Kind.STATEFUL_SET: "a", Kind.ADVANCED_STATEFUL_SET: "a", Kind.SLURM_CLUSTER: "c"}


@dataclass(slots=True)
class Run:
    """A pod's life: Pending until `starts`, then running one slurmd; gone at `ends`."""

    name: str
    uid: str
    created: float
    starts: float
    ends: float = NEVER
    terminating: bool = False
    restarts: int = 0
    boot: float = 0.0

    def daemon(self, now: float) -> Daemon | None:
        return Daemon(self.uid, self.restarts, self.boot or self.starts) if self.starts <= now < self.ends else None

    def seen(self, now: float, first_seen: float) -> Pod:
        running = self.starts <= now
        return Pod(
            self.name,
            self.uid,
            first_seen,
            created_epoch=self.created,
            phase="Running" if running else "Pending",
            scheduled=running,
            ready=running,
            running=running,
            terminating=self.terminating,
            restarts=self.restarts,
        )


def _object(kind: Kind) -> dict[str, Any]:
    meta = {"name": NAMES[kind], "namespace": "ns", "uid": "t", "generation": 1}
    if kind is Kind.SLURM_CLUSTER:
        return {"metadata": meta, "spec": {"workerGroupSpecs": [{"groupName": "g", "replicas": 0}]}}
    return {"metadata": meta, "spec": {"replicas": 0, "podManagementPolicy": "Parallel", "ordinals": {"start": 0}}}


@dataclass(slots=True)
class Cluster:
    """`patch` is the API server, `step` the controllers, schedulers and kubelets. `clears`: how a SlurmCluster's operator reads its lists."""

    kind: Kind
    chance: random.Random
    clears: str = "at once"
    lag: float = 1.0
    stuck: bool = False
    target_object: dict[str, Any] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    made: int = 0
    _covers: list[tuple[float, frozenset[int]]] = field(default_factory=list)
    _acted: tuple[object, object] | None = None

    def __post_init__(self) -> None:
        self.target_object = _object(self.kind)

    @property
    def target(self) -> Target:
        return read(self.kind, self.target_object)

    def node(self, index: int) -> str:
        return self.target.groups[0].node(index)

    def patch(self, wanted: AbstractSet[int], existing: AbstractSet[int]) -> bool:
        """What the writer sends; False when there was nothing to say."""
        group = self.target.groups[0].name
        operations = patch(self.kind, self.target_object, {group: wanted}, {group: existing}, ordinals=True)
        if operations:
            self.target_object = jsonpatch.apply(self.target_object, operations)
            self.target_object["metadata"]["generation"] += 1
        return bool(operations)

    def alive(self, now: float) -> dict[str, Daemon]:
        return {name: daemon for name, run in self.runs.items() if (daemon := run.daemon(now)) is not None}

    def step(self, now: float) -> None:
        for name, run in list(self.runs.items()):
            if run.ends <= now:
                del self.runs[name]
        if self.kind is Kind.SLURM_CLUSTER:
            self._operator(now)
        else:
            self._controller(now)

    def _controller(self, now: float) -> None:
        """Of a StatefulSet of either kind: follows what the object said `lag` seconds ago."""
        covers = self.target.states[0].covers
        assert covers is not None
        self._covers.append((now, frozenset(covers)))
        while len(self._covers) > 1 and self._covers[1][0] <= now - self.lag:
            self._covers.pop(0)
        self._make(self._covers[0][1], now)
        keep = {self.node(index) for index in self._covers[0][1]}
        for name in self.runs.keys() - keep:
            self.end(name, now)

    def _operator(self, now: float) -> None:
        """Of a SlurmCluster: carries its lists out as orders, each once, or as a state for as long as they stand."""
        entry = self.target_object["spec"]["workerGroupSpecs"][0]
        orders = (entry.get("podsToBeCreated") or [], entry.get("podsToBeDeleted") or [])
        if self.clears != "never" and orders == self._acted:
            if self.clears == "late":
                self._clear(entry)
            return
        for name in orders[1]:
            self.end(name, now)
        missing = [index for index in orders[0] if self.node(index) in self.runs]
        self._make(frozenset(orders[0]), now)
        # an order for a pod whose forerunner still goes is carried out when it has gone
        self._acted = None if missing else orders
        if self.clears == "at once" and not missing:
            self._clear(entry)

    def _clear(self, entry: dict[str, Any]) -> None:
        self._acted = None
        if entry.get("podsToBeCreated") or entry.get("podsToBeDeleted"):
            entry["podsToBeCreated"], entry["podsToBeDeleted"] = [], []
            self.target_object["metadata"]["generation"] += 1

    def _make(self, indexes: frozenset[int], now: float) -> None:
        for index in indexes:
            name = self.node(index)
            if name not in self.runs:
                self.made += 1
                starts = NEVER if self.stuck else now + self.chance.choice([0.5, 1.0, 3.0])
                self.runs[name] = Run(name, f"u{self.made}", now, starts)

    def end(self, name: str, now: float, grace: float = GRACE) -> None:
        """The pod gets a deletionTimestamp; slurmd works until it is gone."""
        run = self.runs.get(name)
        if run is not None and not run.terminating:
            run.terminating, run.ends = True, now + (grace if run.starts <= now else 0.5)

    def delete(self, name: str, uid: str, now: float) -> None:
        """With a uid precondition, as the copilot does it."""
        if name in self.runs and self.runs[name].uid == uid:
            self.end(name, now)

    def restart(self, name: str, now: float) -> None:
        """The container dies and comes back at once."""
        run = self.runs.get(name)
        if run is not None and run.starts <= now and not run.terminating:
            run.restarts, run.boot = run.restarts + 1, now

    def seen(self, now: float, before: Mapping[str, Pod]) -> dict[str, Pod]:
        """The pods as a watch shows them now; `before` keeps the time of the first sight."""
        known = {pod.uid: pod.first_seen for pod in before.values()}
        return {name: run.seen(now, known.get(run.uid, now)) for name, run in self.runs.items()}
