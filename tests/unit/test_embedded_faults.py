"""Each fault of the embedded API server really happens: one that did nothing would make the tests that use it worthless."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import aiohttp
import pytest

from tests.lab.embedded import Action, EmbeddedServer
from tests.lab.endpoint import Admin, ApiError, Object, resource

CLUSTERS = resource("kai.alibabacloud.com/v1", "slurmclusters", "default")
NODES = resource("v1", "nodes")
LOST = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer(tmp_path, bookmark_every=0.05) as server:
        yield server


@pytest.fixture
async def admin(server: EmbeddedServer) -> AsyncIterator[Admin]:
    async with Admin(server.endpoint, timeout=10) as admin:
        await admin.post(CLUSTERS, cluster("demo"))
        yield admin


def cluster(name: str) -> Object:
    spec = {"workerGroupSpecs": [{"groupName": "cpu", "replicas": 0}]}
    return {"apiVersion": "kai.alibabacloud.com/v1", "kind": "SlurmCluster", "metadata": {"name": name}, "spec": spec}


def node(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


async def scale(admin: Admin, replicas: int) -> Object:
    return await admin.patch(
        f"{CLUSTERS}/demo", [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": replicas}]
    )


async def replicas(admin: Admin) -> int:
    found = (await admin.get(f"{CLUSTERS}/demo"))["spec"]["workerGroupSpecs"][0]["replicas"]
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize(
    ("status", "reason"),
    [(401, "Unauthorized"), (429, "TooManyRequests"), (500, "InternalError"), (503, "ServiceUnavailable"), (504, "Timeout")],
)
async def test_a_status_so_many_times_and_nothing_done(server: EmbeddedServer, admin: Admin, status: int, reason: str) -> None:
    fault = server.faults.add(Action.STATUS, verb="patch", path="slurmclusters", times=2, status=status, retry_after=7)
    for _ in range(2):
        with pytest.raises(ApiError) as caught:
            await scale(admin, 3)
        assert (caught.value.status, caught.value.body["reason"]) == (status, reason)
        assert caught.value.headers["Retry-After"] == "7"
        assert await replicas(admin) == 0
    assert fault.fired == 2
    await scale(admin, 3)
    assert fault.fired == 2


async def test_retry_after_only_when_asked_for(server: EmbeddedServer, admin: Admin) -> None:
    server.faults.add(Action.STATUS, status=500)
    with pytest.raises(ApiError) as caught:
        await replicas(admin)
    assert "Retry-After" not in caught.value.headers


async def test_a_fault_strikes_only_its_verb_and_path(server: EmbeddedServer, admin: Admin) -> None:
    fault = server.faults.add(Action.STATUS, verb="patch|delete", path="/slurmclusters/d", times=None)
    await admin.list(CLUSTERS)
    await admin.post(NODES, node("a"))
    await admin.delete(f"{NODES}/a")
    assert fault.fired == 0
    with pytest.raises(ApiError):
        await scale(admin, 1)
    with pytest.raises(ApiError):
        await admin.delete(f"{CLUSTERS}/demo")
    assert fault.fired == 2
    server.faults.clear()
    await scale(admin, 1)


async def test_hang_is_not_answered_and_not_done(server: EmbeddedServer, admin: Admin) -> None:
    fault = server.faults.add(Action.HANG, verb="patch")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await scale(admin, 3)
    assert fault.fired == 1
    assert await replicas(admin) == 0


async def test_hang_ends_in_a_reset_when_the_fault_is_removed(server: EmbeddedServer, admin: Admin) -> None:
    fault = server.faults.add(Action.HANG, verb="patch")
    hanging = asyncio.create_task(scale(admin, 3))
    async with asyncio.timeout(10):
        while not fault.fired:  # noqa: ASYNC110 - the request is on its way
            await asyncio.sleep(0.01)
        assert not hanging.done()
        server.faults.remove(fault)
        with pytest.raises(LOST):
            await hanging
    assert await replicas(admin) == 0


@pytest.mark.parametrize(("action", "done"), [(Action.RESET_BEFORE, 0), (Action.RESET_AFTER, 3)])
async def test_a_reset_before_or_after_it_was_done(server: EmbeddedServer, admin: Admin, action: Action, done: int) -> None:
    fault = server.faults.add(action, verb="patch")
    with pytest.raises(LOST):
        await scale(admin, 3)
    assert fault.fired == 1
    assert await replicas(admin) == done
    assert [request.status for request in server.requests("patch")] == [0]


async def test_slow_is_late_and_done(server: EmbeddedServer, admin: Admin) -> None:
    server.faults.add(Action.SLOW, verb="patch", seconds=0.2)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await scale(admin, 3)
    assert loop.time() - began >= 0.2
    assert await replicas(admin) == 3


async def _version(admin: Admin) -> str:
    return str((await admin.get(CLUSTERS))["metadata"]["resourceVersion"])


async def test_a_watch_is_cut_in_the_middle_of_an_event(server: EmbeddedServer, admin: Admin) -> None:
    start = await _version(admin)
    fault = server.faults.add(Action.CUT_WATCH, path="slurmclusters")
    await scale(admin, 3)
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {server.endpoint.admin_token}"}) as session:
        url = f"{server.endpoint.url}{CLUSTERS}?watch=1&resourceVersion={start}"
        async with session.get(url) as answer:
            read = b""
            with pytest.raises(LOST):
                async with asyncio.timeout(10):
                    while True:
                        read += await answer.content.readexactly(1)
    assert read.startswith(b'{"type": "MODIFIED"')
    assert not read.endswith(b"\n")
    assert fault.fired == 1
    async with aclosing(admin.watch(CLUSTERS, resourceVersion=start)) as events:
        assert (await anext(events))["type"] == "MODIFIED", "the next watch is whole"


async def test_gone_as_an_event_of_a_watch_and_as_the_status_of_a_list(server: EmbeddedServer, admin: Admin) -> None:
    start = await _version(admin)
    server.faults.add(Action.GONE, path="slurmclusters", times=2)
    events = [event async for event in admin.watch(CLUSTERS, resourceVersion=start, timeoutSeconds="5")]
    assert [(event["type"], event["object"]["code"]) for event in events] == [("ERROR", 410)]
    with pytest.raises(ApiError) as caught:
        await admin.list(CLUSTERS)
    assert (caught.value.status, caught.value.body["reason"]) == (410, "Expired")


async def test_a_gap_in_the_bookmarks(server: EmbeddedServer, admin: Admin) -> None:
    start = await _version(admin)
    server.faults.add(Action.BOOKMARK_GAP)
    query = {"resourceVersion": start, "timeoutSeconds": "1", "allowWatchBookmarks": "true"}

    async def watch() -> list[str]:
        return [event["type"] async for event in admin.watch(CLUSTERS, **query)]

    async with asyncio.TaskGroup() as group:
        gap = group.create_task(watch())
        async with asyncio.timeout(10):
            while not server.faults.strikes:  # noqa: ASYNC110 - the first watch is on its way
                await asyncio.sleep(0.01)
        good = group.create_task(watch())
        await admin.post(NODES, node("a"))
    assert gap.result() == []
    assert "BOOKMARK" in good.result()


async def test_away_refuses_resets_and_forgets_nothing(server: EmbeddedServer, admin: Admin) -> None:
    start = await _version(admin)
    await scale(admin, 1)
    async with aclosing(admin.watch(CLUSTERS, resourceVersion=start)) as events:
        await anext(events)
        async with server.away():
            with pytest.raises(LOST):
                async with asyncio.timeout(10):
                    await anext(events)
            with pytest.raises(aiohttp.ClientConnectorError, match="Connect call failed"):
                await replicas(admin)
    assert await replicas(admin) == 1


async def test_compaction_makes_versions_and_pages_too_old(server: EmbeddedServer, admin: Admin) -> None:
    start = await _version(admin)
    await admin.post(CLUSTERS, cluster("second"))
    page = await admin.get(CLUSTERS, limit="1")
    running = admin.watch(CLUSTERS, resourceVersion=page["metadata"]["resourceVersion"])
    async with aclosing(running):
        going_on = asyncio.ensure_future(anext(running))
        async with asyncio.timeout(10):
            while not server.watching:  # noqa: ASYNC110 - the watch is on its way
                await asyncio.sleep(0.01)
        await admin.post(NODES, node("a"))
        server.compact()
        with pytest.raises(ApiError) as caught:
            await admin.get(CLUSTERS, limit="1", **{"continue": page["metadata"]["continue"]})
        assert caught.value.status == 410
        late = [event async for event in admin.watch(CLUSTERS, resourceVersion=start, timeoutSeconds="5")]
        assert [(event["type"], event["object"]["code"]) for event in late] == [("ERROR", 410)]
        # A watch that had kept up is none the worse.
        await scale(admin, 2)
        assert (await going_on)["type"] == "MODIFIED"


@pytest.mark.usefixtures("admin")
async def test_a_revoked_token_is_unknown(server: EmbeddedServer) -> None:
    role = {"kind": "Role", "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}
    token = server.access.service_account("reader", "default", role)
    async with Admin(server.endpoint, token=token) as reader:
        assert await replicas(reader) == 0
        server.access.revoke(token)
        with pytest.raises(ApiError) as caught:
            await replicas(reader)
    assert caught.value.status == 401


async def test_the_account_tells_what_was_asked(server: EmbeddedServer, admin: Admin) -> None:
    await scale(admin, 3)
    await admin.list(CLUSTERS)
    with pytest.raises(ApiError):
        await admin.get(f"{CLUSTERS}/nope")
    (patch,) = server.requests("patch", "slurmclusters/demo$")
    assert (patch.status, patch.user) == (200, "admin")
    assert patch.body == [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 3}]
    assert [request.status for request in server.requests("get|list", CLUSTERS)] == [200, 404]
