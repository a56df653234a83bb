"""Every request that the copilot makes, with the rights that it ships with."""

from __future__ import annotations

import asyncio

import pytest

from copilot import targets
from copilot.kube import Conflict, Kube, Refused, Selection, Unavailable
from copilot.kube.client import PAGE
from copilot.model import Kind, TargetRef
from tests.contract.conftest import Api, pod, stateful_set
from tests.contract.kube_fixture import kube_of
from tests.lab.access import write_kubeconfig


async def test_says_where_it_is_and_what_the_server_is(api: Api) -> None:
    async with kube_of(api) as (kube, seen):
        assert kube.namespace == api.namespace
        assert await kube.version() == (1, 36)
        assert seen == [("get", "")]


async def test_a_patch_is_applied_whole_or_not_at_all(api: Api) -> None:
    await api.admin.post(api.sets(), stateful_set("gpu"))
    async with kube_of(api) as (kube, seen):
        obj = await kube.get(api.sets("gpu"))
        operations = targets.patch(Kind.STATEFUL_SET, obj, {"gpu": {3, 5}}, {}, ordinals=True)
        after = await kube.patch(api.sets("gpu"), operations)
        assert (after["spec"]["replicas"], after["spec"]["ordinals"]) == (3, {"start": 3})
        assert targets.says(Kind.STATEFUL_SET, after, {"gpu": {3, 5}})
        # The same again: its tests no longer hold.
        with pytest.raises(Conflict):
            await kube.patch(api.sets("gpu"), operations)
        assert (await kube.get(api.sets("gpu")))["metadata"]["generation"] == after["metadata"]["generation"]
        assert seen == [("get", ""), ("patch", ""), ("patch", "409"), ("get", "")]


async def test_a_patch_that_is_no_valid_object_is_refused_and_says_which_field(api: Api) -> None:
    await api.admin.post(api.sets(), stateful_set("gpu"))
    async with kube_of(api) as (kube, _):
        with pytest.raises(Refused, match=r"spec\.replicas.*-1") as caught:
            await kube.patch(api.sets("gpu"), [{"op": "add", "path": "/spec/replicas", "value": -1}])
        assert (caught.value.status, caught.value.reason) == (422, "Invalid")
        assert len(str(caught.value)) < 700


async def test_a_pod_is_deleted_only_if_it_is_the_one_that_was_meant(api: Api) -> None:
    made = await api.admin.post(api.pods(), pod("gpu-0"))
    async with kube_of(api) as (kube, _):
        with pytest.raises(Conflict):
            await kube.delete(api.pods("gpu-0"), "another")
        assert await api.admin.exists(api.pods("gpu-0"))
        assert await kube.delete(api.pods("gpu-0"), made["metadata"]["uid"], grace=0)
        await api.admin.until(api.pods("gpu-0"), lambda seen: not seen)
        assert not await kube.delete(api.pods("gpu-0"), made["metadata"]["uid"])


async def test_a_large_collection_comes_in_pages_without_gap_or_double(api: Api) -> None:
    names = {f"gpu-{index}" for index in range(PAGE + 1)}
    for some in (sorted(names)[begin : begin + 50] for begin in range(0, len(names), 50)):
        await asyncio.gather(*(api.admin.post(api.pods(), pod(name, {"app": "gpu"})) for name in some))
    await api.admin.post(api.pods(), pod("other"))
    async with kube_of(api) as (kube, seen):
        items, version = await kube.list(api.pods(), Selection(labels="app=gpu"))
        assert sorted(item["metadata"]["name"] for item in items) == sorted(names)
        assert int(version) > 0
        assert seen == [("list", "")] * 2


async def test_an_event_is_told_of_the_target(api: Api) -> None:
    made = await api.admin.post(api.sets(), stateful_set("gpu"))
    ref = TargetRef(Kind.STATEFUL_SET, api.namespace, "gpu")
    async with kube_of(api) as (kube, _):
        await kube.create_event(
            targets.involved(ref, made["metadata"]["uid"]), "NodesFailed", "gpu-[1-3]: " + "x" * 2000, warning=True
        )
    events = [one for one in await api.admin.list(api.path("v1", "events")) if one.get("reason") == "NodesFailed"]
    assert [one["involvedObject"]["uid"] for one in events] == [made["metadata"]["uid"]]
    assert (events[0]["type"], len(events[0]["message"])) == ("Warning", 1024)


async def test_what_is_missing_is_told_apart(api: Api) -> None:
    async with kube_of(api) as (kube, seen):
        with pytest.raises(Refused) as missing:
            await kube.get(api.sets("gpu"))
        assert (missing.value.status, missing.value.kind_missing) == (404, False)
        with pytest.raises(Refused, match="CustomResourceDefinition") as unknown:
            await kube.list(api.path("apps.kruise.io/v1alpha9", "statefulsets"))
        assert (unknown.value.status, unknown.value.kind_missing) == (404, True)
        assert seen == [("get", "404"), ("list", "404")]


async def test_a_missing_right_is_named_as_the_rule_to_add(api: Api) -> None:
    async with kube_of(api) as (kube, seen):
        with pytest.raises(Refused, match=r'\{apiGroups: \[""\], resources: \[pods\], verbs: \[get\]\}') as caught:
            await kube.get("/api/v1/namespaces/default/pods/gpu-0")
        assert (caught.value.status, caught.value.reason) == (403, "Forbidden")
        assert seen == [("get", "403")]


async def test_a_token_that_is_replaced_in_the_kubeconfig_is_read_again(api: Api) -> None:
    kubeconfig = await api.server.kubeconfig(api.namespace)
    good = kubeconfig.read_text()
    write_kubeconfig(kubeconfig, api.endpoint.url, api.endpoint.ca_file, "outdated", api.namespace)
    kube = await Kube.connect(kubeconfig=kubeconfig)
    try:
        with pytest.raises(Refused, match="token is not accepted") as caught:
            await kube.list(api.pods())
        assert caught.value.status == 401
        kubeconfig.write_text(good)
        assert await kube.list(api.pods()) is not None
    finally:
        await kube.close()


async def test_nobody_there_is_unavailable(api: Api) -> None:
    async with kube_of(api) as (kube, seen):
        write_kubeconfig(api.endpoint.kubeconfig_path.with_name("away"), "http://127.0.0.1:9", None, "x")
        away = await Kube.connect(kubeconfig=api.endpoint.kubeconfig_path.with_name("away"))
        try:
            with pytest.raises(Unavailable) as caught:
                await away.patch(api.sets("gpu"), [])
            # Nothing was sent, so nothing can have happened.
            assert (caught.value.status, caught.value.unknown) == ("network", False)
        finally:
            await away.close()
        assert seen == []
        assert kube.namespace == api.namespace
