"""Looks on while chaos goes on, and writes down what it sees. It judges nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import aclosing
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

from copilot.hostlist import expand
from copilot.model import Kind
from tests.chaos.history import Asked, Deleted, Hooked, Job, Looked, Stopped
from tests.chaos.scene import EDITED, Scene
from tests.lab import workloads
from tests.lab.audit import indexes_of, node_states
from tests.lab.cluster import NAMESPACE
from tests.lab.endpoint import ApiError, Object

_EVERY: Final = 0.4  # seconds between looks
ENDED: Final = frozenset({"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"})


class Observer:
    """`async with Observer(scene)`: fills the scene's history. `finish` adds what the logs and accounts tell afterwards."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._cluster, self._history = scene, scene.cluster, scene.history
        self._tasks: list[asyncio.Task[None]] = []
        self._edited: dict[str, str] = {}
        self._generation: dict[str, int] = {}
        self._over = False

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._look())]
        self._tasks += [asyncio.create_task(self._watch(group, kind)) for group, kind in self._cluster.kinds.items()]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # Python 3.11's wait_for loses a cancellation that comes together with the answer: then the loops have to see for themselves.
        self._over = True
        for task in self._tasks:
            task.cancel()
        for end in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(end, Exception):
                raise end

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._over:
            begun = loop.time()
            try:
                states = await node_states(self._cluster.slurm)
            except TimeoutError:
                states = {}
            if states:
                running = frozenset(self._cluster.slurm.nodes_running())
                self._history.looks.append(Looked(begun, loop.time(), states, running))
            if not self._cluster.copilot.running and not self._scene.touched("copilot"):
                self._history.faults.append((loop.time(), f"the copilot ended by itself:\n{self._cluster.copilot.tail(8)}"))
                await self._cluster.copilot.stop()
                await self._cluster.copilot.start(ready=False)
            await asyncio.sleep(_EVERY)

    async def _watch(self, group: str, kind: Kind) -> None:
        """Each change of a target, also of one that was missed while the API server was away."""
        path = workloads.path_of(kind, NAMESPACE, group)
        collection, _, name = path.rpartition("/")
        admin = self._cluster.admin
        while not self._over:
            try:
                self._changed(group, kind, await admin.get(path))
                params = {"timeoutSeconds": "300", "fieldSelector": f"metadata.name={name}"}
                async with aclosing(admin.watch(collection, **params)) as events:
                    async for event in events:
                        if event["type"] in ("ADDED", "MODIFIED") and event["object"]["metadata"]["name"] == name:
                            self._changed(group, kind, event["object"])
            except (aiohttp.ClientError, ApiError, TimeoutError, OSError, ValueError):
                await asyncio.sleep(0.05)  # ValueError: a line that was cut

    def _changed(self, group: str, kind: Kind, obj: Object) -> None:
        meta = obj["metadata"]
        if meta["generation"] <= self._generation.get(group, 0):
            return
        self._generation[group] = meta["generation"]
        mark = (meta.get("annotations") or {}).get(EDITED, "")
        by_hand, self._edited[group] = mark != self._edited.get(group, ""), mark
        asks = workloads.asked(kind, obj)
        deletes: set[int] = set()
        if kind is Kind.SLURM_CLUSTER:
            deletes = indexes_of(workloads.entry_of(obj, group).get("podsToBeDeleted") or [], group)
        replicas = workloads.replicas_of(kind, obj, group)
        known = None if asks is None else frozenset(asks)
        self._history.asked.append(Asked(self._scene.now, group, kind, replicas, known, frozenset(deletes), by_hand))

    # Afterwards

    async def finish(self) -> None:
        """What was told rather than seen: containers' ends, deletions, hooks, jobs, and lines of the log that are none."""
        offset = self._scene.now - time.time()
        self._history.ended = self._scene.now
        self._history.stopped += [Stopped(*stop) for stop in self._cluster.audit.stops]
        self._deletions()
        for line in self._cluster.copilot.log():
            if "raw" in line:
                self._history.faults.append((self._history.ended, f"the copilot said: {line['raw'][:300]}"))
            elif line.get("event") == "hook":
                self._history.hooks.append(_hook(line, offset))
        told = await self.jobs()
        for name, mine in self._scene.jobs.items():
            fields = told.get(name)
            if fields is None and not mine.taken:
                continue  # sbatch said that it was not taken, or was cut off
            state, restarts = (fields or {}).get("JobState", ""), int((fields or {}).get("Restarts", 0))
            if state and state not in ENDED:
                state += f" ({(fields or {}).get('Reason', '')})"
            self._history.jobs.append(Job(name, mine.at, mine.cancelled, state, restarts))

    def _deletions(self) -> None:
        if self._cluster.embedded is None:
            return
        for request in self._cluster.embedded.requests("delete", "/pods/"):
            if request.user != "admin" and request.status in (0, 200, 202):
                self._history.deleted.append(Deleted(request.at, request.path.rpartition("/")[2], by_hand=False))
        self._history.deleted.sort(key=lambda one: one.at)

    async def jobs(self) -> dict[str, Mapping[str, str]]:
        """What Slurm says of our jobs, by name; of two jobs of a name the latest."""
        done = await self._cluster.slurm.run("scontrol", "-o", "show", "jobs")
        lines = done.out.splitlines() if done.rc == 0 else []
        found = [dict(reversed([word.partition("=")[::2] for word in line.split() if "=" in word])) for line in lines]
        return {fields["JobName"]: fields for fields in found if "JobName" in fields}


def _hook(line: dict[str, Any], offset: float) -> Hooked:
    at = datetime.fromisoformat(line["time"]).timestamp() + offset
    return Hooked(at, line["action"], frozenset(expand(line["nodes"], 1000)))
