"""What the patches of `targets` make the real controllers do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from copilot import targets
from copilot.kube import Conflict, Kube
from copilot.model import Kind, TargetRef
from tests.contract.conftest import Api, cluster, stateful_set
from tests.contract.kube_fixture import kube_of
from tests.lab import kruise
from tests.lab.controlplane import ControlPlane
from tests.lab.endpoint import Object
from tests.lab.kruise import Kruise

on_the_real_server = pytest.mark.parametrize("real_plane", ["real"], indirect=True)
Uids = dict[int, str]


@pytest.fixture(scope="module")
def manager(plane: ControlPlane) -> Iterator[Kruise]:
    """OpenKruise's manager beside the control plane, for this module only: its webhooks fail closed."""
    if reason := kruise.missing():
        pytest.skip(reason)
    manager = Kruise(plane.endpoint, plane.folder / "kruise")
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        try:
            runner.run(manager.start())
            yield manager
        finally:
            runner.run(manager.stop())


async def patch_to(kube: Kube, api: Api, kind: Kind, wanted: set[int]) -> Object:
    """Reads, computes, patches: what the copilot does, once."""
    path = targets.path(TargetRef(kind, api.namespace, "gpu"))
    operations = targets.patch(kind, await kube.get(path), {"gpu": wanted}, {}, ordinals=True)
    after = await kube.patch(path, operations)
    assert targets.says(kind, after, {"gpu": wanted})
    return after


async def pods_become(api: Api, wanted: set[int]) -> Uids:
    """The uids by index once exactly these pods are there and none is on its way out."""

    def indexes(listed: Object) -> set[int]:
        return {int(item["metadata"]["name"].rpartition("-")[2]) for item in listed["items"]}

    listed = await api.admin.until(api.pods(), lambda seen: indexes(seen) == wanted, within=60)
    return {int(item["metadata"]["name"].rpartition("-")[2]): item["metadata"]["uid"] for item in listed["items"]}


@on_the_real_server
async def test_moving_the_window_of_a_statefulset_restarts_none_of_the_pods_that_stay(api: Api) -> None:
    await api.admin.post(api.sets(), stateful_set("gpu"))
    async with kube_of(api) as (kube, _):
        await patch_to(kube, api, Kind.STATEFUL_SET, {0, 1, 2, 3, 4, 5})
        before = await pods_become(api, set(range(6)))
        await patch_to(kube, api, Kind.STATEFUL_SET, {2, 5})
        after = await pods_become(api, {2, 3, 4, 5})
        assert after == {index: before[index] for index in (2, 3, 4, 5)}
        await patch_to(kube, api, Kind.STATEFUL_SET, {1, 3})
        lower = await pods_become(api, {1, 2, 3})
        assert {index: lower[index] for index in (2, 3)} == {index: before[index] for index in (2, 3)}
        assert lower[1] != before[1]
        emptied = await patch_to(kube, api, Kind.STATEFUL_SET, set())
        await pods_become(api, set())
        assert emptied["metadata"]["generation"] == 5
        assert emptied["status"].get("currentRevision") == emptied["status"].get("updateRevision")


@on_the_real_server
async def test_a_sparse_set_is_run_exactly_by_openkruise(api: Api, manager: Kruise) -> None:
    assert manager.manager is not None
    body: dict[str, Any] = {**stateful_set("gpu"), "apiVersion": kruise.API}
    await api.admin.post(api.path(kruise.API, "statefulsets"), body)
    async with kube_of(api) as (kube, _):
        await patch_to(kube, api, Kind.ADVANCED_STATEFUL_SET, {2, 7, 9})
        before = await pods_become(api, {2, 7, 9})
        await patch_to(kube, api, Kind.ADVANCED_STATEFUL_SET, {0, 7, 9})
        after = await pods_become(api, {0, 7, 9})
        assert (after[7], after[9]) == (before[7], before[9])
        await patch_to(kube, api, Kind.ADVANCED_STATEFUL_SET, {7})
        assert await pods_become(api, {7}) == {7: before[7]}
        await patch_to(kube, api, Kind.ADVANCED_STATEFUL_SET, set())
        await pods_become(api, set())


@on_the_real_server
async def test_openkruise_reads_ranges_as_we_do(api: Api, manager: Kruise) -> None:
    assert manager.manager is not None
    body: dict[str, Any] = {**stateful_set("gpu", 3, reserveOrdinals=[0, "2-3", 5]), "apiVersion": kruise.API}
    made = await api.admin.post(api.path(kruise.API, "statefulsets"), body)
    covers = targets.read(Kind.ADVANCED_STATEFUL_SET, made).states[0].covers
    assert covers == frozenset({1, 4, 6})
    before = await pods_become(api, {1, 4, 6})
    async with kube_of(api) as (kube, _):
        await patch_to(kube, api, Kind.ADVANCED_STATEFUL_SET, {1, 6})
        assert await pods_become(api, {1, 6}) == {index: before[index] for index in (1, 6)}


@on_the_real_server
async def test_a_version_that_drops_the_reserve_list_is_seen_by_reading_back(api: Api, manager: Kruise) -> None:
    """v1alpha1 has no reserveOrdinals: what is written through it comes back without."""
    assert manager.manager is not None
    await api.admin.post(api.path(kruise.API, "statefulsets"), {**stateful_set("gpu"), "apiVersion": kruise.API})
    obj = await api.admin.get(api.path(kruise.API, "statefulsets", "gpu"))
    operations = targets.patch(Kind.ADVANCED_STATEFUL_SET, obj, {"gpu": {4}}, {}, ordinals=True)
    after = await api.admin.patch(api.path("apps.kruise.io/v1alpha1", "statefulsets", "gpu"), operations)
    assert not targets.says(Kind.ADVANCED_STATEFUL_SET, after, {"gpu": {4}})


async def test_a_slurmcluster_takes_the_lists_and_keeps_what_is_not_ours(api: Api) -> None:
    group = f"{api.namespace}-worker-cpu"
    body = cluster(api.namespace, "gpu-a", "cpu")
    body["spec"]["workerGroupSpecs"][1]["template"]["spec"]["containers"][0]["aFieldOfTomorrow"] = {"deep": [1, 2]}
    made = await api.admin.post(api.clusters(), body)
    async with kube_of(api) as (kube, _):
        operations = targets.patch(Kind.SLURM_CLUSTER, made, {group: {1, 4}}, {group: {7}}, ordinals=True)
        after = await kube.patch(api.clusters(api.namespace), operations)
        entry = after["spec"]["workerGroupSpecs"][1]
        assert (entry["replicas"], entry["podsToBeCreated"], entry["podsToBeDeleted"]) == (2, [1, 4], [f"{group}-7"])
        assert entry["template"] == made["spec"]["workerGroupSpecs"][1]["template"]
        assert after["spec"]["workerGroupSpecs"][0] == made["spec"]["workerGroupSpecs"][0]
        assert after["metadata"]["generation"] == made["metadata"]["generation"] + 1
        # Zeros and empty lists are kept.
        operations = targets.patch(Kind.SLURM_CLUSTER, after, {group: set()}, {}, ordinals=True)
        entry = (await kube.patch(api.clusters(api.namespace), operations))["spec"]["workerGroupSpecs"][1]
        assert (entry["replicas"], entry["podsToBeCreated"]) == (0, [])


@pytest.mark.parametrize("change", ["scaled", "recreated", "reordered"])
async def test_a_patch_for_an_object_that_has_changed_is_a_conflict(api: Api, change: str) -> None:
    made = await api.admin.post(api.clusters(), cluster("demo", "gpu-a", "cpu"))
    operations = targets.patch(Kind.SLURM_CLUSTER, made, {"demo-worker-cpu": {1}}, {}, ordinals=True)
    if change == "recreated":
        await api.admin.delete(api.clusters("demo"))
        await api.admin.post(api.clusters(), cluster("demo", "gpu-a", "cpu"))
    elif change == "scaled":
        await api.admin.patch(api.clusters("demo"), [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 5}])
    else:
        swapped = list(reversed(made["spec"]["workerGroupSpecs"]))
        await api.admin.patch(api.clusters("demo"), {"spec": {"workerGroupSpecs": swapped}})
    before = await api.admin.get(api.clusters("demo"))
    async with kube_of(api) as (kube, _):
        with pytest.raises(Conflict):
            await kube.patch(api.clusters("demo"), operations)
    assert await api.admin.get(api.clusters("demo")) == before


async def test_a_status_written_meanwhile_is_no_conflict(api: Api) -> None:
    made = await api.admin.post(api.clusters(), cluster("demo", "cpu"))
    operations = targets.patch(Kind.SLURM_CLUSTER, made, {"demo-worker-cpu": {1}}, {}, ordinals=True)
    await api.admin.patch(api.clusters("demo", "status"), {"status": {"availableWorkers": ["demo-worker-cpu-0"]}})
    async with kube_of(api) as (kube, _):
        assert targets.says(Kind.SLURM_CLUSTER, await kube.patch(api.clusters("demo"), operations), {"demo-worker-cpu": {1}})
