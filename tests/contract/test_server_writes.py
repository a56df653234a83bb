"""PUT and the patch types: what is applied, what is a conflict, and what counts as a change."""

from __future__ import annotations

import asyncio
import copy

import pytest

from tests.contract.conftest import Api, cluster, pod, stateful_set, why
from tests.lab.endpoint import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, ApiError, Object


def replace(path: str, value: object) -> Object:
    return {"op": "replace", "path": path, "value": value}


def require(path: str, value: object) -> Object:
    return {"op": "test", "path": path, "value": value}


def seen(obj: Object) -> tuple[int, int]:
    """(generation, resourceVersion)"""
    return obj["metadata"]["generation"], int(obj["metadata"]["resourceVersion"])


async def test_generation_counts_spec_changes_and_resource_version_every_change(api: Api) -> None:
    made = await api.admin.post(api.sets(), stateful_set("w"))
    assert made["metadata"]["generation"] == 1
    scaled = await api.admin.patch(api.sets("w"), [replace("/spec/replicas", 3)])
    generation, version = seen(scaled)
    assert generation == 2
    told = await api.admin.patch(api.sets("w", "status"), {"status": {"collisionCount": 7}})
    assert seen(told)[0] == 2
    assert seen(told)[1] > version
    labelled = await api.admin.patch(api.sets("w"), {"metadata": {"labels": {"x": "y"}}})
    assert seen(labelled)[0] == 2
    assert seen(labelled)[1] > seen(told)[1]


async def test_a_patch_that_changes_nothing_is_no_change(api: Api) -> None:
    # A cluster, because no controller writes to it: the version stands still but for us.
    made = await api.admin.post(api.clusters(), cluster("c", "cpu"))
    patches: tuple[object, ...] = ([], [replace("/spec/workerGroupSpecs/0/replicas", 0)], {"spec": {}})
    for patch in patches:
        assert seen(await api.admin.patch(api.clusters("c"), patch)) == seen(made)


async def test_json_patch_with_a_failing_test_is_422_and_changes_nothing(api: Api) -> None:
    made = await api.admin.post(api.clusters(), cluster("c", "cpu"))
    patch = [require("/metadata/generation", 7), replace("/spec/workerGroupSpecs/0/replicas", 3)]
    error = await api.refused("PATCH", api.clusters("c"), patch, JSON_PATCH)
    assert why(error) == (422, "Invalid")
    assert error.body["message"] == "the server rejected our request due to an error in our request"
    assert error.body["details"] == {}, (
        "the server does not say which operation failed: told from bad values by the missing causes"
    )
    assert await api.admin.get(api.clusters("c")) == made


@pytest.mark.parametrize(
    "operation",
    [
        require("/spec/nothing", 3),
        require("/spec/workerGroupSpecs/0/groupName", "gpu"),
        replace("/spec/nothing/deep", 3),
        replace("/spec/workerGroupSpecs/7/replicas", 3),
        {"op": "remove", "path": "/spec/nothing"},
        {"op": "bogus", "path": "/spec/workerGroupSpecs/0/replicas", "value": 1},
    ],
    ids=lambda operation: f"{operation['op']} {operation['path']}",
)
async def test_a_json_patch_that_does_not_apply_is_422(api: Api, operation: Object) -> None:
    await api.admin.post(api.clusters(), cluster("c", "cpu"))
    assert why(await api.refused("PATCH", api.clusters("c"), [operation], JSON_PATCH)) == (422, "Invalid")


async def test_json_patch_operations(api: Api) -> None:
    made = await api.admin.post(api.clusters(), cluster("c", "cpu", "gpu"))
    spec = "/spec/workerGroupSpecs"
    patched = await api.admin.patch(
        api.clusters("c"),
        [
            require("/metadata/uid", made["metadata"]["uid"]),
            require("/metadata/generation", 1),
            require(f"{spec}/1/groupName", "gpu"),
            # A test against null holds for what is not there: how a client says "nobody has set this meanwhile".
            require(f"{spec}/1/podsToBeCreated", None),
            replace(f"{spec}/1/replicas", 2),
            {"op": "add", "path": f"{spec}/1/podsToBeCreated", "value": [0, 4]},
            # The server's library lets replace create a member.
            replace(f"{spec}/1/podsToBeDeleted", []),
        ],
    )
    group = patched["spec"]["workerGroupSpecs"][1]
    assert (group["replicas"], group["podsToBeCreated"], group["podsToBeDeleted"]) == (2, [0, 4], [])
    assert patched["spec"]["workerGroupSpecs"][0] == made["spec"]["workerGroupSpecs"][0]
    appended = await api.admin.patch(api.clusters("c"), [{"op": "add", "path": f"{spec}/1/podsToBeCreated/-", "value": 9}])
    assert appended["spec"]["workerGroupSpecs"][1]["podsToBeCreated"] == [0, 4, 9]
    removed = await api.admin.patch(api.clusters("c"), [{"op": "remove", "path": f"{spec}/1/podsToBeCreated/0"}])
    assert removed["spec"]["workerGroupSpecs"][1]["podsToBeCreated"] == [4, 9]


async def test_of_two_guarded_patches_at_once_one_is_applied(api: Api) -> None:
    await api.admin.post(api.clusters(), cluster("c", "cpu"))

    async def guarded(replicas: int) -> int:
        patch = [require("/metadata/generation", 1), replace("/spec/workerGroupSpecs/0/replicas", replicas)]
        try:
            await api.admin.patch(api.clusters("c"), patch)
        except ApiError as error:
            return error.status
        return 200

    assert sorted(await asyncio.gather(*(guarded(n) for n in range(1, 7)))) == [200, *[422] * 5]


async def test_merge_patch_replaces_a_list_whole(api: Api) -> None:
    """Why a SlurmCluster must not be merge-patched."""
    await api.admin.post(api.clusters(), cluster("c", "cpu", "gpu"))
    patch = {"spec": {"workerGroupSpecs": [{"groupName": "gpu", "replicas": 1}]}}
    patched = await api.admin.patch(api.clusters("c"), patch)
    assert patched["spec"]["workerGroupSpecs"] == [{"groupName": "gpu", "replicas": 1}]


async def test_strategic_patch_is_for_built_in_kinds_only(api: Api) -> None:
    await api.admin.post(api.sets(), stateful_set("w"))
    patched = await api.admin.patch(api.sets("w"), {"spec": {"replicas": 0, "ordinals": {"start": 2}}}, STRATEGIC_PATCH)
    assert patched["spec"]["ordinals"] == {"start": 2}
    await api.admin.post(api.clusters(), cluster("c", "cpu"))
    assert why(await api.refused("PATCH", api.clusters("c"), {}, STRATEGIC_PATCH)) == (415, "UnsupportedMediaType")


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        ({"spec": {}}, "application/json", (415, "UnsupportedMediaType")),
        ({"spec": {}}, "text/plain", (415, "UnsupportedMediaType")),
        ({"spec": {"replicas": 1}}, JSON_PATCH, (400, "BadRequest")),
        ([], MERGE_PATCH, (400, "BadRequest")),
    ],
)
@pytest.mark.parametrize("custom", [False, True])
async def test_a_patch_of_the_wrong_form(
    api: Api, body: object, content_type: str, expected: tuple[int, str], custom: bool
) -> None:
    collection, made = (api.clusters, cluster("x", "cpu")) if custom else (api.sets, stateful_set("x"))
    await api.admin.post(collection(), made)
    assert why(await api.refused("PATCH", collection("x"), body, content_type)) == expected


async def test_stale_put_is_409(api: Api) -> None:
    for collection, made in ((api.sets, stateful_set("x")), (api.clusters, cluster("x", "cpu"))):
        stale = await api.admin.post(collection(), made)
        await api.admin.patch(collection("x"), {"metadata": {"labels": {"changed": "yes"}}})
        error = await api.refused("PUT", collection("x"), stale)
        assert why(error) == (409, "Conflict")
        assert "the object has been modified" in error.body["message"]


async def test_a_patch_with_a_stale_resource_version_is_409(api: Api) -> None:
    stale = await api.admin.post(api.clusters(), cluster("c", "cpu"))
    await api.admin.patch(api.clusters("c"), {"metadata": {"labels": {"changed": "yes"}}})
    patch = {"metadata": {"resourceVersion": stale["metadata"]["resourceVersion"]}, "spec": {}}
    assert why(await api.refused("PATCH", api.clusters("c"), patch, MERGE_PATCH)) == (409, "Conflict")


async def test_a_patch_meant_for_another_is_422(api: Api) -> None:
    other = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}, "status": {"phase": "Running"}}
    await api.admin.post(api.pods(), pod("p", schedulerName="nobody"))
    await api.admin.post(api.clusters(), cluster("c", "cpu"))
    for path in (api.pods("p"), api.pods("p", "status"), api.clusters("c")):
        error = await api.refused("PATCH", path, other, MERGE_PATCH)
        assert why(error) == (422, "Invalid")
        assert error.body["details"]["causes"][0]["field"] == "metadata.uid"
    assert (await api.admin.get(api.pods("p")))["status"]["phase"] == "Pending"
    told = await api.admin.patch(api.clusters("c", "status"), other)
    assert told["status"] == {"phase": "Running"}, "the status of a custom resource is written to whichever has the name"


async def test_put_refusals(api: Api) -> None:
    made = await api.admin.post(api.clusters(), cluster("c", "cpu"))
    without = copy.deepcopy(made)
    del without["metadata"]["resourceVersion"]
    assert why(await api.refused("PUT", api.clusters("c"), without)) == (422, "Invalid")
    renamed = {**made, "metadata": {**made["metadata"], "name": "d"}}
    assert why(await api.refused("PUT", api.clusters("c"), renamed)) == (400, "BadRequest")
    assert why(await api.refused("PUT", api.clusters("d"), renamed)) == (404, "NotFound")
    other = {**made, "metadata": {**made["metadata"], "uid": "00000000-0000-0000-0000-000000000000"}}
    assert why(await api.refused("PUT", api.clusters("c"), other)) == (409, "Conflict")


async def test_values_that_the_kind_does_not_allow_are_422_with_causes(api: Api) -> None:
    await api.admin.post(api.sets(), stateful_set("w"))
    negative = await api.refused("PATCH", api.sets("w"), [replace("/spec/replicas", -1)], JSON_PATCH)
    assert why(negative) == (422, "Invalid")
    assert [cause["field"] for cause in negative.body["details"]["causes"]] == ["spec.replicas"]
    fixed = await api.refused("PATCH", api.sets("w"), [replace("/spec/serviceName", "other")], JSON_PATCH)
    assert why(fixed) == (422, "Invalid")
    assert fixed.body["details"]["causes"][0]["field"] == "spec"
    await api.admin.post(api.clusters(), cluster("c", "cpu"))
    text = await api.refused("PATCH", api.clusters("c"), [replace("/spec/workerGroupSpecs/0/replicas", "x")], JSON_PATCH)
    assert why(text) == (422, "Invalid")
    assert text.body["details"]["causes"][0]["field"] == "spec.workerGroupSpecs[0].replicas"


async def test_an_unknown_field_is_dropped_in_silence(api: Api) -> None:
    """Why a patch is read back: a server of another version may not know the field."""
    await api.admin.post(api.sets(), stateful_set("w"))
    patched = await api.admin.patch(api.sets("w"), [{"op": "add", "path": "/spec/reserveOrdinals", "value": [1]}])
    assert "reserveOrdinals" not in patched["spec"]


async def test_status_and_spec_are_written_apart(api: Api) -> None:
    await api.admin.post(api.clusters(), {**cluster("c", "cpu"), "status": {"availableWorkers": ["early"]}})
    assert "status" not in await api.admin.get(api.clusters("c"))
    mixed = {"spec": {"workerGroupSpecs": []}, "status": {"availableWorkers": ["a"]}}
    told = await api.admin.patch(api.clusters("c", "status"), mixed)
    assert told["status"] == {"availableWorkers": ["a"]}
    assert len(told["spec"]["workerGroupSpecs"]) == 1
    scaled = await api.admin.patch(api.clusters("c"), mixed | {"status": {"availableWorkers": []}})
    assert scaled["status"] == {"availableWorkers": ["a"]}
    assert scaled["spec"]["workerGroupSpecs"] == []


async def test_scale_of_a_stateful_set(api: Api) -> None:
    made = await api.admin.post(api.sets(), stateful_set("w"))
    scale = await api.admin.get(api.sets("w", "scale"))
    assert scale["kind"] == "Scale"
    assert scale["spec"].get("replicas", 0) == 0
    assert scale["status"]["selector"] == "app=w"
    assert scale["metadata"]["uid"] == made["metadata"]["uid"]
    scaled = await api.admin.patch(api.sets("w", "scale"), {"spec": {"replicas": 2}})
    assert scaled["spec"]["replicas"] == 2
    assert (await api.admin.get(api.sets("w")))["spec"]["replicas"] == 2
    assert why(await api.refused("PUT", api.sets("w", "scale"), scale)) == (409, "Conflict")
    error = await api.refused("GET", api.clusters("c", "scale"))
    assert why(error) == (404, "NotFound")
