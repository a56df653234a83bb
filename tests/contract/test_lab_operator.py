"""The stand-in for SlurmCluster's operator: each reading of the lists, on both servers."""

from __future__ import annotations

import asyncio

import pytest

from tests.contract.conftest import Api, cluster
from tests.contract.workers import Workers, until_ready
from tests.lab.endpoint import Object
from tests.lab.operator import Operator, Reading

GROUP = "/spec/workerGroupSpecs/0"
READINGS = pytest.mark.parametrize("reading", list(Reading))


async def create(api: Api) -> None:
    made = cluster("demo", "cpu")
    made["spec"]["workerGroupSpecs"][0]["template"]["spec"]["schedulerName"] = "nobody"
    await api.admin.post(api.clusters(), made)


async def order(api: Api, replicas: int, created: list[int], deleted: list[int]) -> Object:
    names = [f"demo-worker-cpu-{index}" for index in deleted]
    values = {"replicas": replicas, "podsToBeCreated": created, "podsToBeDeleted": names}
    return await api.admin.patch(
        api.clusters("demo"), [{"op": "add", "path": f"{GROUP}/{name}", "value": value} for name, value in values.items()]
    )


def lists(obj: Object) -> tuple[list[int], list[str]]:
    spec = obj["spec"]["workerGroupSpecs"][0]
    return spec["podsToBeCreated"], spec["podsToBeDeleted"]


async def until_workers(api: Api, *indexes: int) -> dict[str, Object]:
    """Exactly these pods are ready, and the status says so."""
    names = [f"demo-worker-cpu-{index}" for index in indexes]
    pods = await until_ready(api, *names)
    await api.admin.until(api.clusters("demo"), lambda obj: obj.get("status", {}).get("availableWorkers") == sorted(names))
    return pods


@READINGS
async def test_a_sparse_set_is_created_and_thinned(api: Api, workers: Workers, reading: Reading) -> None:
    async with Operator(api.endpoint, reading, namespace=api.namespace, late=0.2):
        await create(api)
        await order(api, 3, [1, 4, 7], [])
        before = await until_workers(api, 1, 4, 7)
        assert before["demo-worker-cpu-4"]["metadata"]["ownerReferences"][0]["kind"] == "SlurmCluster"
        await order(api, 2, [], [4])
        after = await until_workers(api, 1, 7)
        assert [pod["metadata"]["uid"] for name, pod in after.items()] == [before[name]["metadata"]["uid"] for name in after]
    assert sorted(workers.running) == ["demo-worker-cpu-1", "demo-worker-cpu-7"]


@READINGS
async def test_what_becomes_of_the_lists(api: Api, workers: Workers, reading: Reading) -> None:
    async with Operator(api.endpoint, reading, namespace=api.namespace, late=0.5):
        await create(api)
        ordered = await order(api, 1, [2], [])
        await until_workers(api, 2)
        if reading is Reading.NEVER_CLEARS:
            assert lists(await api.admin.get(api.clusters("demo"))) == ([2], [])
        else:
            if reading is Reading.CLEARS_LATE:
                assert lists(ordered) == ([2], [])
            cleared = await api.admin.until(api.clusters("demo"), lambda obj: lists(obj) == ([], []))
            assert cleared["metadata"]["generation"] == ordered["metadata"]["generation"] + 1, "clearing is a change of the spec"
    assert workers.starts == ["demo-worker-cpu-2"]


@READINGS
async def test_an_entry_that_stands_is_no_new_order(api: Api, workers: Workers, reading: Reading) -> None:
    """Deleted and wanted again later: where the list still names the pod it must not be deleted a second time."""
    async with Operator(api.endpoint, reading, namespace=api.namespace, late=0.2):
        await create(api)
        await order(api, 2, [0, 1], [])
        await until_workers(api, 0, 1)
        await order(api, 1, [], [1])
        await until_workers(api, 0)
        # A client that never tidies the list of deleted pods orders the same index again.
        patch = [
            {"op": "replace", "path": f"{GROUP}/replicas", "value": 2},
            {"op": "add", "path": f"{GROUP}/podsToBeCreated", "value": [1]},
        ]
        await api.admin.patch(api.clusters("demo"), patch)
        await until_workers(api, 0, 1)
        before = dict(workers.running)
        await api.admin.patch(api.clusters("demo"), {"metadata": {"labels": {"touched": "yes"}}})
        await api.admin.patch(api.clusters("demo"), [{"op": "replace", "path": f"{GROUP}/replicas", "value": 3}])
        await until_workers(api, 0, 1, 2)
        assert before.items() <= workers.running.items()


@READINGS
async def test_replicas_rule_where_the_lists_say_nothing(api: Api, workers: Workers, reading: Reading) -> None:
    async with Operator(api.endpoint, reading, namespace=api.namespace, late=0.2):
        await create(api)
        await order(api, 2, [], [])
        await until_workers(api, 0, 1)
        await order(api, 1, [], [])
        await until_workers(api, 0)
        # An order to delete without fewer replicas: the pod is replaced by the lowest free index.
        uid = workers.running["demo-worker-cpu-0"]
        await order(api, 1, [], [0])
        await api.admin.until(api.pods(), lambda page: all(pod["metadata"]["uid"] != uid for pod in page["items"]))
        await until_workers(api, 0)


async def test_a_lost_pod_of_a_member_is_made_again(api: Api, workers: Workers) -> None:
    async with Operator(api.endpoint, Reading.NEVER_CLEARS, namespace=api.namespace):
        await create(api)
        await order(api, 1, [3], [])
        uid = (await until_workers(api, 3))["demo-worker-cpu-3"]["metadata"]["uid"]
        await api.admin.delete(api.pods("demo-worker-cpu-3"))
        await api.admin.until(api.pods(), lambda page: all(pod["metadata"]["uid"] != uid for pod in page["items"]))
        await until_workers(api, 3)
    assert workers.starts == ["demo-worker-cpu-3"] * 2


async def test_dead_it_does_nothing_and_slow_it_acts_late(api: Api, workers: Workers) -> None:
    async with Operator(api.endpoint, Reading.CLEARS_AT_ONCE, namespace=api.namespace, delay=0.3) as operator:
        operator.alive = False
        await create(api)
        ordered = await order(api, 1, [0], [])
        async with asyncio.timeout(10):
            while operator.looked_at.get("demo") != ordered["metadata"]["generation"]:  # noqa: ASYNC110 - it has no event for that
                await asyncio.sleep(0.01)
        assert await api.admin.list(api.pods()) == []
        assert lists(await api.admin.get(api.clusters("demo"))) == lists(ordered)
        began = asyncio.get_running_loop().time()
        operator.alive = True
        await until_workers(api, 0)
        assert asyncio.get_running_loop().time() - began >= 0.3
    assert workers.starts == ["demo-worker-cpu-0"]


async def test_groups_whose_names_begin_alike_are_told_apart(api: Api, workers: Workers) -> None:
    made = cluster("demo", "cpu", "cpu-1")
    for group in made["spec"]["workerGroupSpecs"]:
        group["template"]["spec"]["schedulerName"] = "nobody"
        group["replicas"] = 2
    async with Operator(api.endpoint, Reading.CLEARS_AT_ONCE, namespace=api.namespace):
        await api.admin.post(api.clusters(), made)
        await until_ready(api, "demo-worker-cpu-0", "demo-worker-cpu-1", "demo-worker-cpu-1-0", "demo-worker-cpu-1-1")
        await api.admin.patch(api.clusters("demo"), [{"op": "replace", "path": f"{GROUP}/replicas", "value": 0}])
        await until_ready(api, "demo-worker-cpu-1-0", "demo-worker-cpu-1-1")
    assert sorted(workers.running) == ["demo-worker-cpu-1-0", "demo-worker-cpu-1-1"]
