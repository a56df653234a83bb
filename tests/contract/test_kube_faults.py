"""What the copilot makes of an API server in trouble. On the embedded server, the only one that is in trouble on order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx

from copilot.kube import Conflict, Kube, Reflector, Refused, Unavailable
from tests.contract.conftest import stateful_set
from tests.contract.kube_fixture import running, until
from tests.lab.embedded import Action, EmbeddedServer
from tests.lab.endpoint import Admin, resource

SETS = resource("apps/v1", "statefulsets", "hpc")
GPU = f"{SETS}/gpu"
THREE = [{"op": "test", "path": "/spec/replicas", "value": 0}, {"op": "add", "path": "/spec/replicas", "value": 3}]


@dataclass
class Lab:
    server: EmbeddedServer
    admin: Admin
    kube: Kube

    async def replicas(self) -> int:
        return int((await self.admin.get(GPU))["spec"]["replicas"])


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    async with EmbeddedServer(tmp_path) as server, Admin(server.endpoint) as admin:
        kubeconfig = await server.kubeconfig("hpc")
        await admin.post(SETS, stateful_set("gpu"))
        kube = await Kube.connect(kubeconfig=kubeconfig, timeout=0.5)
        yield Lab(server, admin, kube)
        await kube.close()


@pytest.mark.parametrize("status", [429, 503])
async def test_not_now_is_tried_again_when_the_server_says(lab: Lab, status: int) -> None:
    lab.server.faults.add(Action.STATUS, verb="patch", status=status, retry_after=1)
    assert (await lab.kube.patch(GPU, THREE))["spec"]["replicas"] == 3
    first, second = lab.server.requests("patch")
    assert [first.status, second.status] == [status, 200]
    assert second.at - first.at >= 1.0, "Retry-After was not obeyed"


async def test_a_long_retry_after_is_handed_to_the_caller_at_once(lab: Lab) -> None:
    lab.server.faults.add(Action.STATUS, verb="get", status=429, retry_after=60)
    with pytest.raises(Unavailable) as caught:
        await lab.kube.get(GPU)
    assert (caught.value.retry_after, caught.value.unknown, caught.value.status) == (60, False, "429")
    assert len(lab.server.requests("get", "gpu")) == 1


async def test_it_gives_up_after_three_attempts(lab: Lab) -> None:
    lab.server.faults.add(Action.STATUS, verb="patch", status=503, times=None)
    with pytest.raises(Unavailable):
        await lab.kube.patch(GPU, THREE)
    assert len(lab.server.requests("patch")) == 3


@pytest.mark.parametrize("action", [Action.RESET_BEFORE, Action.RESET_AFTER, Action.HANG])
async def test_a_patch_without_an_answer_is_sent_once_and_called_unknown(lab: Lab, action: Action) -> None:
    lab.server.faults.add(action, verb="patch")
    with pytest.raises(Unavailable) as caught:
        await lab.kube.patch(GPU, THREE)
    assert caught.value.unknown
    assert caught.value.status == ("timeout" if action is Action.HANG else "network")
    assert await lab.replicas() == (3 if action is Action.RESET_AFTER else 0)
    lab.server.faults.clear()
    # Sending it again does no harm: it says so itself when it was applied.
    if action is Action.RESET_AFTER:
        with pytest.raises(Conflict):
            await lab.kube.patch(GPU, THREE)
    else:
        await lab.kube.patch(GPU, THREE)
    assert await lab.replicas() == 3


async def test_500_behind_a_write_is_unknown_and_not_repeated(lab: Lab) -> None:
    lab.server.faults.add(Action.STATUS, verb="patch", status=500)
    with pytest.raises(Unavailable) as caught:
        await lab.kube.patch(GPU, THREE)
    assert (caught.value.unknown, caught.value.status) == (True, "500")
    assert len(lab.server.requests("patch")) == 1


async def test_401_with_the_same_token_is_not_repeated(lab: Lab) -> None:
    lab.server.faults.add(Action.STATUS, verb="get", status=401, times=None)
    with pytest.raises(Refused) as caught:
        await lab.kube.get(GPU)
    assert caught.value.status == 401
    assert len(lab.server.requests("get", "gpu")) == 1


async def test_a_list_whose_pages_expire_is_refused_as_410(lab: Lab) -> None:
    lab.server.faults.add(Action.GONE, verb="list")
    with pytest.raises(Refused) as caught:
        await lab.kube.list(SETS)
    assert caught.value.status == 410


async def test_a_server_that_was_away_is_found_again(lab: Lab) -> None:
    async with lab.server.away():
        with pytest.raises(Unavailable) as caught:
            await lab.kube.patch(GPU, THREE)
        assert not caught.value.unknown
    await lab.kube.patch(GPU, THREE)


async def test_cancellation_is_not_swallowed_and_not_repeated(lab: Lab) -> None:
    hang = lab.server.faults.add(Action.HANG, verb="patch", times=None)
    task = asyncio.create_task(lab.kube.patch(GPU, THREE))
    async with asyncio.timeout(10):
        while not hang.fired:  # noqa: ASYNC110 - the server counts
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert hang.fired == 1


async def test_nothing_blocks_the_loop(lab: Lab) -> None:
    with blockbuster_ctx():
        mirror = Reflector(lab.kube, SETS, lambda obj, _: str(obj["metadata"]["uid"]))
        async with running(mirror):
            await until(lambda: mirror.synced, "the first list")
            await lab.kube.patch(GPU, THREE)
            await lab.kube.create_event(
                {"apiVersion": "apps/v1", "kind": "StatefulSet", "namespace": "hpc", "name": "gpu"}, "A", "b"
            )
