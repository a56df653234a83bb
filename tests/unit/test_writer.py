"""One target, made to say what is wanted: bursts, conflicts, faults; in virtual time."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from copilot.config import Settings
from copilot.kube import Conflict, Kube, Refused, Unavailable
from copilot.model import Kind, TargetRef
from copilot.reconcile.writer import Writer
from copilot.telemetry import Metrics
from tests.unit.jsonpatch import PatchTestError, apply

pytestmark = pytest.mark.looptime
REF = TargetRef(Kind.STATEFUL_SET, "ns", "a")


def stateful_set(replicas: int = 0, uid: str = "u1") -> dict[str, Any]:
    return {
        "metadata": {"namespace": "ns", "name": "a", "uid": uid, "generation": 1},
        "spec": {"replicas": replicas, "podManagementPolicy": "Parallel", "ordinals": {"start": 0}},
    }


class Server(Kube):
    """One object; `fault` is raised before (or, `applied`, after) a patch for as long as it is set."""

    def __init__(self) -> None:
        self.object = stateful_set()
        self.patches: list[float] = []
        self.attempts: list[float] = []
        self.fault: Callable[[], Exception] | None = None
        self.applied = False
        self.drops: str = ""

    async def get(self, path: str) -> dict[str, Any]:
        return copy.deepcopy(self.object)

    async def patch(self, path: str, operations: Sequence[dict[str, Any]]) -> dict[str, Any]:
        self.attempts.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.003)
        if self.fault and not self.applied:
            raise self.fault()
        try:
            changed = apply(self.object, list(operations))
        except PatchTestError as error:
            raise Conflict(str(error)) from error
        self.patches.append(asyncio.get_running_loop().time())
        if self.drops:
            changed["spec"][self.drops] = self.object["spec"][self.drops]
        changed["metadata"]["generation"] += 1
        self.object = changed
        if self.fault:
            raise self.fault()
        return copy.deepcopy(self.object)

    def edit(self, replicas: int) -> None:
        self.object = copy.deepcopy(self.object)
        self.object["spec"]["replicas"] = replicas
        self.object["metadata"]["generation"] += 1


class Bench:
    def __init__(self) -> None:
        self.server = Server()
        self.metrics = Metrics()
        self.writer = Writer(REF, self.server, Settings(), asyncio.get_running_loop().time, self.metrics, lambda: True)
        self.writer.observe(self.server.object)
        self.running = asyncio.create_task(self.writer.run())

    def want(self, *indexes: int) -> None:
        self.writer.want({"a": frozenset(indexes)}, {"a": set()})

    @property
    def replicas(self) -> int:
        return int(self.server.object["spec"]["replicas"])


@pytest.fixture
async def bench() -> Any:
    made = Bench()
    yield made
    made.running.cancel()


async def test_the_first_wish_goes_out_at_once_and_a_burst_becomes_one_more_patch(bench: Bench) -> None:
    began = asyncio.get_running_loop().time()
    for count in range(1, 17):
        bench.want(*range(count))
        await asyncio.sleep(0.01)
    await asyncio.sleep(1)
    assert bench.replicas == 16
    assert len(bench.server.patches) == 2
    assert bench.server.patches[0] - began < 0.05


async def test_a_thousand_nodes_are_one_patch_and_repeating_them_none(bench: Bench) -> None:
    for _ in range(5):
        bench.want(*range(1000))
        await asyncio.sleep(1)
    assert len(bench.server.patches) == 1
    assert bench.writer.covers("a") == frozenset(range(1000))


async def test_somebody_elses_edit_is_read_and_corrected(bench: Bench) -> None:
    bench.want(0, 1)
    await asyncio.sleep(1)
    bench.server.edit(7)
    bench.want(0, 1, 2)
    await asyncio.sleep(1)
    assert bench.replicas == 3


async def test_what_others_changed_and_we_set_back_is_counted(bench: Bench) -> None:
    """Our own changes of mind are not."""

    def repaired() -> float:
        return bench.metrics.registry.get_sample_value("slurm_copilot_drift_repaired_total", {"group": "a"}) or 0

    for wish in ((0, 1), (0, 1, 2), (0, 1)):
        bench.want(*wish)
        await asyncio.sleep(1)
    assert (len(bench.server.patches), repaired()) == (3, 0)
    bench.server.edit(1)
    bench.writer.observe(bench.server.object)
    bench.want(0, 1)
    await asyncio.sleep(1)
    assert (bench.replicas, repaired()) == (2, 1)


async def test_a_patch_whose_answer_was_lost_is_not_repeated_blindly(bench: Bench) -> None:
    bench.server.fault, bench.server.applied = (lambda: Unavailable("reset", unknown=True)), True
    bench.want(0, 1)
    await asyncio.sleep(0.5)
    bench.server.fault = None
    await asyncio.sleep(10)
    assert bench.replicas == 2
    assert len(bench.server.patches) == 1


async def test_a_dead_api_server_is_asked_at_most_once_a_second_and_the_last_wish_wins(bench: Bench) -> None:
    bench.server.fault = lambda: Unavailable("no connection")
    with capture_logs() as logs:
        for count in range(60):
            bench.want(*range(count % 5 + 1))
            await asyncio.sleep(1)
    assert 4 <= len(bench.server.attempts) <= 60
    assert len([line for line in logs if line["event"] == "target_patch_failed"]) == 1, "the same cause is said once"
    assert "no connection" in bench.writer.problem
    bench.server.fault = None
    bench.want(0, 1, 2)
    await asyncio.sleep(60)
    assert bench.replicas == 3
    assert bench.writer.problem == ""


async def test_retry_after_is_obeyed(bench: Bench) -> None:
    bench.server.fault = lambda: Unavailable("busy", "429", retry_after=20)
    bench.want(0)
    await asyncio.sleep(19)
    assert len(bench.server.attempts) == 1


async def test_a_conflict_that_is_none_is_a_refusal_told_with_its_words(bench: Bench) -> None:
    bench.server.fault = lambda: Conflict("ValidatingAdmissionPolicy says no")
    bench.want(0)
    await asyncio.sleep(20)
    assert "says no" in bench.writer.problem
    assert len(bench.server.attempts) <= 8


async def test_a_trouble_is_over_when_nothing_is_left_to_say(bench: Bench) -> None:
    """The target came to say it without us, or nobody wants it any more: `status` must not tell of it for ever."""
    bench.server.fault = lambda: Conflict("policy says no")
    bench.want(1)
    await asyncio.sleep(10)
    assert bench.writer.problem
    bench.want()
    await asyncio.sleep(60)
    assert bench.writer.problem == ""
    assert not bench.server.patches


async def test_a_refusal_is_tried_again_slowly_because_a_role_can_be_mended(bench: Bench) -> None:
    bench.server.fault = lambda: Refused("may not patch", 403)
    bench.want(0)
    await asyncio.sleep(30)
    bench.server.fault = None
    await asyncio.sleep(60)
    assert bench.replicas == 1


async def test_a_server_that_drops_a_field_is_told_and_not_asked_in_a_loop(bench: Bench) -> None:
    bench.server.drops = "ordinals"
    bench.want(5)
    await asyncio.sleep(29)
    assert len(bench.server.attempts) == 1
    assert "did not keep it" in bench.writer.problem


async def test_a_target_that_is_made_again_is_served_under_its_new_uid(bench: Bench) -> None:
    bench.want(0, 1, 2)
    await asyncio.sleep(1)
    bench.server.object = stateful_set(uid="u2")
    bench.writer.observe(bench.server.object)
    bench.want(0, 1, 2)
    await asyncio.sleep(1)
    assert bench.replicas == 3


async def test_finish_sends_what_is_pending_without_waiting_for_more_hints(bench: Bench) -> None:
    """Also when it waits for more hints already."""
    bench.want(0)
    await asyncio.sleep(0.05)
    bench.want(0, 1)
    await asyncio.sleep(0.05)
    began = asyncio.get_running_loop().time()
    await bench.writer.finish()
    assert bench.replicas == 2
    assert asyncio.get_running_loop().time() - began < 0.01
