"""Looks on while a test runs, and proves afterwards that nobody's job was harmed and no target ever asked for more than it should."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp

from copilot.model import Kind
from tests.lab import workloads
from tests.lab.endpoint import Admin, ApiEndpoint, ApiError, Object
from tests.lab.slurm import SlurmLab

States = dict[str, frozenset[str]]
_POWER = frozenset({"POWERED_DOWN", "POWERING_DOWN"})
_LATELY = 10.0  # seconds
_BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})


async def node_states(slurm: SlurmLab) -> States:
    """The words of every node's state; empty when slurmctld does not answer."""
    done = await slurm.run("scontrol", "-o", "show", "nodes")
    found = {}
    for line in done.out.splitlines() if done.rc == 0 else ():
        name, _, rest = line.partition(" ")
        found[name.removeprefix("NodeName=")] = frozenset(rest.partition(" State=")[2].split(" ")[0].split("+"))
    return found


def steps_in(pid: int) -> list[int]:
    """The slurmstepds below a process: each is a job that runs there, whatever slurmctld knows of it.

    Not the dead: slurmd, the first process of its pod, reaps none that were not its own.
    """
    found, todo = [], [pid]
    while todo:
        proc = Path(f"/proc/{todo.pop()}")
        try:
            children = [int(word) for task in proc.glob("task/*/children") for word in task.read_text().split()]
            todo += children
            name, _, rest = (proc / "stat").read_text().partition("(")[2].rpartition(")")
            if name.startswith("slurmstepd") and rest.split()[0] not in "ZX":
                found.append(int(proc.name))
        except OSError:  # it ended while we looked
            continue
    return found


class Audit:
    """`async with`: watches the targets; the kubelet's part tells it of every container before it is stopped.

    Tests that break something on purpose say so first: `excuse(nodes)` for containers that may be ended under a job, `hinted(nodes)`
    for nodes that hooks of the test name although Slurm does not want them, `may_end(job, states)` for jobs that shall not complete.
    """

    def __init__(self, slurm: SlurmLab, endpoint: ApiEndpoint, namespace: str, groups: dict[str, Kind]) -> None:
        self._slurm, self._namespace, self._groups = slurm, namespace, groups
        self._admin = Admin(endpoint)
        self._tasks: list[asyncio.Task[None]] = []
        self.violations: list[str] = []
        self.jobs: dict[int, tuple[str, ...]] = {}
        self._may_restart: set[int] = set()
        # when (seconds of the loop's clock), which node, how many job steps were in it
        self.stops: list[tuple[float, str, int]] = []
        self.unchecked = 0
        self._excused: set[str] = set()
        self._hinted: set[str] = set()
        self._asked: dict[str, tuple[int, set[int]]] = {}
        self._before: States = {}
        self._over = False
        self._lately: deque[tuple[float, States]] = deque(maxlen=30)

    async def __aenter__(self) -> Self:
        await self._admin.__aenter__()
        self._tasks = [asyncio.create_task(self._watch(group, kind)) for group, kind in self._groups.items()]
        self._tasks.append(asyncio.create_task(self._look_on()))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over = True
        for task in self._tasks:
            task.cancel()
        ends = await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._admin.__aexit__(kind, error, trace)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    # What tests tell it

    def excuse(self, *names: str) -> None:
        self._excused.update(names)

    def hinted(self, *names: str) -> None:
        self._hinted.update(names)

    def submitted(self, job: int) -> None:
        """The job must end COMPLETED at its first start."""
        self.jobs[job] = ("COMPLETED",)

    def may_end(self, job: int, *states: str) -> None:
        """The job may end so, and may have been requeued and started again before."""
        self.jobs[job] = states
        self._may_restart.add(job)

    # What it sees

    async def before_stop(self, name: str) -> None:
        """A container is about to be ended: is there a job in it?"""
        steps = steps_in(pid) if (pid := self._slurm.node_pid(name)) else []
        self.stops.append((asyncio.get_running_loop().time(), name, len(steps)))
        if name in self._excused:
            self._excused.discard(name)
        elif steps or not self._slurm.namespaces:
            running = await self._running_on(name)
            if running is None or running:
                words = "slurmctld does not answer" if running is None else f"running: {running}"
                self.violations.append(f"the container of {name} was ended with {len(steps)} slurmstepd in it ({words})")

    async def _running_on(self, name: str) -> list[str] | None:
        done = await self._slurm.run("squeue", "-h", "-o", "%i", "-t", "RUNNING", "-w", name)
        return done.out.split() if done.rc == 0 else None

    async def _look_on(self) -> None:
        """Slurm's table every second, from when there is one: what Slurm wanted a moment ago is not seen any more when a patch is."""
        # asyncio.wait_for of 3.11 loses a cancellation that comes together with the end of what it waits for.
        while not self._over:
            with contextlib.suppress(TimeoutError):
                if self._slurm.conf_path.exists() and (states := await node_states(self._slurm)):
                    self._lately.append((time.monotonic(), states))
            await asyncio.sleep(1)

    async def _watch(self, group: str, kind: Kind) -> None:
        """Looks at the target at each change. Written for a server that goes away."""
        path = workloads.path_of(kind, self._namespace, group)
        collection, _, name = path.rpartition("/")
        while True:
            try:
                await self._changed(group, kind, await self._admin.get(path))
                async for event in self._admin.watch(collection, timeoutSeconds="300", fieldSelector=f"metadata.name={name}"):
                    if event["type"] in ("ADDED", "MODIFIED") and event["object"]["metadata"]["name"] == name:
                        await self._changed(group, kind, event["object"])
            except (aiohttp.ClientError, ApiError, TimeoutError, OSError):
                await asyncio.sleep(0.1)

    async def _changed(self, group: str, kind: Kind, obj: Object) -> None:
        generation = obj["metadata"]["generation"]
        replicas, asks = workloads.replicas_of(kind, obj, group), workloads.asked(kind, obj)
        if asks is None:
            # Not which, but how many: that many of the lowest stand for them.
            asks = set(range(max(replicas, 0)))
        before = self._asked.get(group, (0, set()))
        if generation == before[0]:
            return
        self._asked[group] = (generation, asks)
        if replicas < 0:
            self.violations.append(f"{group} asked for {replicas} replicas")
        if not asks <= before[1]:
            await self._judge_growth(group, kind, before[1], asks)

    async def _judge_growth(self, group: str, kind: Kind, before: set[int], asks: set[int]) -> None:
        """Whatever is newly asked for must be wanted by Slurm now, or have been lately, or at the last change, or lie between such nodes.

        Lately: who patches goes by a view that is seconds old, and so may we be.
        """
        states = await node_states(self._slurm)
        earlier, self._before = self._before, states or self._before
        if not states:
            self.unchecked += 1
            return
        wanted = wanted_by(states, group) | wanted_by(earlier, group) | indexes_of(self._hinted, group)
        wanted = wanted.union(*(wanted_by(seen, group) for taken, seen in self._lately if time.monotonic() - taken < _LATELY))
        fair = before | workloads.window(kind, wanted | before)
        too_much = set(range(len(wanted), len(asks))) if kind is Kind.SLURM_CLUSTER else asks - fair
        if too_much:
            self.violations.append(
                f"{group} asked for {sorted(asks)} when Slurm wanted {sorted(wanted)}: {sorted(too_much)} too much"
            )

    async def assert_clean(self) -> None:
        """Call it when all jobs have ended. AssertionError with everything that was seen and should not have been."""
        found = list(self.violations)
        for job, allowed in self.jobs.items():
            fields = await self._slurm.job(job)
            state, restarts = fields.get("JobState", "unknown to Slurm"), int(fields.get("Restarts", "0"))
            if state not in allowed or (restarts and job not in self._may_restart):
                found.append(f"job {job} is {state} after {restarts} restarts, not {' or '.join(allowed)}")
        self.forget()
        assert not found, "; ".join(found)

    def forget(self) -> None:
        """What was seen and what was said so far."""
        self.violations.clear()
        self.jobs.clear()
        for names in (self._excused, self._hinted):
            names.clear()
        self._may_restart.clear()


def wanted_by(states: States, group: str) -> set[int]:
    """The nodes of the group that are on, on their way, or allocated."""
    on = [name for name, words in states.items() if not words & _POWER or words & _BUSY]
    return indexes_of(on, group)


def indexes_of(names: Iterable[str], group: str) -> set[int]:
    is_index: Callable[[str], bool] = str.isdigit
    rests = (name.removeprefix(f"{group}-") for name in names if name.startswith(f"{group}-"))
    return {int(rest) for rest in rests if is_index(rest)}
