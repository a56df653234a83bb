"""A SlurmCluster's operator that clears its lists at once is not asked again and again; in virtual time."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from copilot.config import Settings
from copilot.model import Kind, TargetRef
from copilot.reconcile.writer import Writer
from copilot.telemetry import Metrics
from tests.unit.test_writer import Server

pytestmark = pytest.mark.looptime
GROUP = "demo-worker-gpu"


def cluster() -> dict[str, Any]:
    group = {"groupName": "gpu", "replicas": 0, "podsToBeCreated": [], "podsToBeDeleted": []}
    return {"metadata": {"namespace": "ns", "name": "demo", "uid": "u1", "generation": 1}, "spec": {"workerGroupSpecs": [group]}}


class Operated:
    """A writer and an operator that takes orders off the lists at once, and whose pods come `never` or when the test says so."""

    def __init__(self) -> None:
        self.server = Server()
        self.server.object = cluster()
        ref = TargetRef(Kind.SLURM_CLUSTER, "ns", "demo")
        self.writer = Writer(ref, self.server, Settings(), asyncio.get_running_loop().time, Metrics(), lambda: True)
        self.writer.observe(self.server.object)
        self.ordered: list[list[int | str]] = []
        self.wish: tuple[set[int], set[int]] = (set(), set())
        self.tasks: list[asyncio.Task[None]] = []

    async def _clear(self) -> None:
        while True:
            entry = self.server.object["spec"]["workerGroupSpecs"][0]
            if entry["podsToBeCreated"] or entry["podsToBeDeleted"]:
                self.ordered.append([*entry["podsToBeCreated"], *entry["podsToBeDeleted"]])
                self.server.object = copy.deepcopy(self.server.object)
                self.server.object["spec"]["workerGroupSpecs"][0].update(podsToBeCreated=[], podsToBeDeleted=[])
                self.server.object["metadata"]["generation"] += 1
                self.writer.observe(self.server.object)
                self.want(*self.wish)  # the next decision
            await asyncio.sleep(0.05)

    def want(self, wanted: set[int], pods: set[int]) -> None:
        if not self.tasks:  # not in the fixture, where time is still real
            self.tasks = [asyncio.create_task(self.writer.run()), asyncio.create_task(self._clear())]
        self.wish = (wanted, pods)
        self.writer.want({GROUP: frozenset(wanted)}, {GROUP: pods})


@pytest.fixture
async def operated() -> Any:
    made = Operated()
    yield made
    for task in made.tasks:
        task.cancel()


async def test_an_order_that_was_taken_is_not_given_again_while_its_pods_come(operated: Operated) -> None:
    operated.want({1, 3}, set())
    await asyncio.sleep(2)
    operated.want({1, 3}, {1})
    await asyncio.sleep(2)
    operated.want({1, 3}, {1, 3})
    await asyncio.sleep(20)
    assert operated.ordered == [[1, 3]]


async def test_an_order_that_leads_to_nothing_is_given_again(operated: Operated) -> None:
    operated.want({2}, set())
    await asyncio.sleep(12)
    assert 2 <= len(operated.ordered) <= 3


async def test_a_deletion_that_was_taken_is_not_ordered_again_while_the_pod_ends(operated: Operated) -> None:
    operated.want({1}, {1, 2})
    await asyncio.sleep(3)
    assert len(operated.ordered) == 1
    operated.want({1}, {1})
    await asyncio.sleep(20)
    assert len(operated.ordered) == 1
