"""An hour without the API server, or without slurmctld, or against refusals, in virtual time: requests, log and memory stay bounded."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from structlog.testing import capture_logs

from copilot.config import Settings
from copilot.kube import Kube
from copilot.kube.access import Access
from copilot.model import Node, SlurmView, Verb
from copilot.slurm import PartitionConfig, SlurmRefused, SlurmUnavailable
from copilot.telemetry import Metrics
from tests.lab.objects import stateful_set
from tests.unit.jsonpatch import apply

# the package's own name `run` is the function in it
run_module: Any = importlib.import_module("copilot.reconcile.run")
pytestmark = pytest.mark.looptime
HOUR = 3600.0
NODES = 20


class Answer:
    """As much of aiohttp's response as the client reads. A watch stays silent until it ends."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        self.status, self._body, self.headers = status, body, dict[str, str]()
        self.content = SimpleNamespace(readline=self._watch_ends)

    async def _watch_ends(self) -> bytes:
        """After the time that the server gives a watch."""
        await asyncio.sleep(240.0)
        return b""

    async def read(self) -> bytes:
        return json.dumps(self._body).encode()

    async def __aenter__(self) -> Answer:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def close(self) -> None:
        return None


class Server(Kube):
    """The client with a wire of ours: `fault(verb)` gives the status of an answer, 0 where all is well, None for no connection."""

    def __init__(self) -> None:
        super().__init__(
            cast("Access", SimpleNamespace(namespace="slurm", renew=self._no_new_token)), None, 10.0, lambda *_: None
        )
        self.fault: Callable[[str], int | None] = lambda _: 0
        self.asked: Counter[str] = Counter()
        self.set = stateful_set("cpu", 0)
        self.set["metadata"] |= {"namespace": "slurm", "uid": "u", "generation": 1, "resourceVersion": "1"}

    async def _no_new_token(self) -> bool:
        return False

    async def _send(self, verb: str, path: str, query: Any, body: Any, *_: Any) -> aiohttp.ClientResponse:
        self.asked[verb] += 1
        status = self.fault(verb)
        if status is None:
            raise aiohttp.ClientConnectionError("refused")
        if status:
            return cast("aiohttp.ClientResponse", Answer(status, {"kind": "Status", "message": "no", "code": status}))
        if verb == "patch":
            self.set = apply(self.set, body)
            self.set["metadata"]["generation"] += 1
        if path.endswith("/statefulsets/cpu"):
            return cast("aiohttp.ClientResponse", Answer(200, self.set))
        items = [self.set] if path == "/apis/apps/v1/namespaces/slurm/statefulsets" else []
        found = {"metadata": {"resourceVersion": "1"}, "items": items, "major": "1", "minor": "36"}
        return cast("aiohttp.ClientResponse", Answer(200, found))


class Table:
    """slurmctld's node table; `fault` is raised by every question, `refuses` by every update."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.fault: Exception | None = None
        self.refuses = False
        self.asked: Counter[str] = Counter()
        self.flags = frozenset({"CLOUD", "POWERED_DOWN"})
        self.base = "IDLE"

    async def nodes(self) -> SlurmView:
        self.asked["show"] += 1
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(0.01)
        if self.fault:
            raise self.fault
        return SlurmView(now, {f"cpu-{index}": Node(f"cpu-{index}", self.base, self.flags) for index in range(NODES)})

    async def update(self, state: str, nodes: Sequence[str], reason: str | None = None) -> None:
        self.asked["update"] += 1
        if self.fault:
            raise self.fault
        if self.refuses:
            raise SlurmRefused("Invalid node state specified", list(nodes))

    async def version(self) -> str:
        return "22.05.8"

    async def config(self) -> dict[str, str]:
        self.asked["show"] += 1
        if self.fault:
            raise self.fault
        return {"SuspendTime": "300 sec"}

    async def running_since(self) -> dict[str, int]:
        if self.fault:
            raise self.fault
        return {}

    async def partitions(self) -> list[PartitionConfig]:
        return []

    def power_up(self) -> None:
        self.base, self.flags = "ALLOCATED", frozenset({"CLOUD", "POWERING_UP", "NOT_RESPONDING"})


class Running:
    """The daemon without its sockets, its two counterparts, and what it logged."""

    def __init__(self, kube: Server, slurm: Table, daemon: Any, lines: list[Any]) -> None:
        self.kube, self.slurm, self.daemon, self.lines = kube, slurm, daemon, lines

    def resume(self) -> None:
        names = [f"cpu-{index}" for index in range(NODES)]
        self.daemon._loop.hook(Verb.RESUME, names, "r", {})

    async def an_hour(self) -> Counter[str]:
        """Passes it, with a hook every ten seconds; returns what was asked of the API server and of slurmctld meanwhile."""
        await asyncio.sleep(30.0)  # the first questions after a change may come faster
        self.kube.asked.clear()
        self.slurm.asked.clear()
        self.lines.clear()
        for _ in range(int(HOUR / 10)):
            await asyncio.sleep(10.0)
            self.resume()
        return self.kube.asked + self.slurm.asked

    def held(self) -> int:
        """How much is remembered: hints, tracks, updates, deletions, Events, waits."""
        daemon = self.daemon
        queues: int = daemon._deleter._queue.qsize() + daemon._announcer._queue.qsize() + len(daemon._teller._pending)
        return len(daemon._loop._hints.wanted(float("-inf"))) + len(daemon._loop._tracks) + len(daemon._teller.told) + queues


@asynccontextmanager
async def running(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    monkeypatch.setattr(run_module, "Slurm", Table)
    kube = Server()
    with capture_logs() as lines:
        daemon = run_module._Daemon(Settings(), kube, Metrics())
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in daemon._roots(group).values()]
            await asyncio.sleep(5.0)
            yield Running(kube, cast("Table", daemon._slurm), daemon, lines)
            for task in (*tasks, *daemon._writing.values()):
                task.cancel()


def bounded(asked: Counter[str], all_of: Running) -> None:
    """No more than a request a second for each side, few lines, and nothing that grows with the hour's 360 hooks of 20 nodes.

    Looks at a slurmctld that answers are no retries: one a second while nodes come, and one after each hook and each update.
    """
    assert asked["show"] <= 1.25 * HOUR
    assert asked["update"] <= HOUR / 5
    assert asked.total() - asked["show"] - asked["update"] <= HOUR
    events = Counter(line["event"] for line in all_of.lines)
    assert max(events.values(), default=0) <= HOUR / 10, events.most_common(3)
    assert all_of.held() <= 4 * NODES


async def test_without_the_api_server(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as all_of:
        all_of.kube.fault = lambda _: None
        all_of.slurm.power_up()
        all_of.resume()
        bounded(await all_of.an_hour(), all_of)


async def test_without_slurmctld(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as all_of:
        all_of.slurm.power_up()
        all_of.resume()
        all_of.slurm.fault = SlurmUnavailable("slurmctld does not answer")
        asked = await all_of.an_hour()
        assert asked["show"] <= HOUR
        bounded(asked, all_of)


@pytest.mark.parametrize("status", [403, 409, 422, 429, 500])
async def test_against_a_server_that_refuses_every_patch(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as all_of:
        all_of.kube.fault = lambda verb: status if verb in ("patch", "create") else 0
        all_of.slurm.power_up()
        all_of.resume()
        asked = await all_of.an_hour()
        assert asked["patch"] > 10
        bounded(asked, all_of)


async def test_against_a_slurmctld_that_refuses_every_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pod is ever made (a controller that is away), so all nodes fail, and slurmctld will not hear of it."""
    async with running(monkeypatch) as all_of:
        all_of.slurm.refuses = True
        all_of.slurm.power_up()
        all_of.resume()
        asked = await all_of.an_hour()
        assert asked["update"] > 10
        bounded(asked, all_of)
