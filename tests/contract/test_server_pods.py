"""Pods: binding, status, and the ways in which a pod goes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tests.contract.conftest import Api, cluster, pod, why
from tests.lab.endpoint import MERGE_PATCH, STRATEGIC_PATCH, Object, resource

# A scheduler that nobody plays: on the real server too the test alone binds.
NOBODY: dict[str, Any] = {"schedulerName": "nobody"}


def binding(name: str, node: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


async def bound(api: Api, name: str, **spec: Any) -> Object:
    await api.admin.post(api.pods(), pod(name, **NOBODY, **spec))
    await api.admin.post(api.pods(name, "binding"), binding(name, f"node-{api.namespace}"))
    return await api.admin.get(api.pods(name))


def _deleted_at(obj: Object) -> float:
    return datetime.fromisoformat(obj["metadata"]["deletionTimestamp"]).timestamp()


async def test_binding_sets_the_node_once(api: Api) -> None:
    made = await bound(api, "p")
    assert made["spec"]["nodeName"] == f"node-{api.namespace}"
    assert made["metadata"]["generation"] == 1
    scheduled = [(one["type"], one["status"]) for one in made["status"]["conditions"]]
    assert scheduled == [("PodScheduled", "True")]
    assert why(await api.refused("POST", api.pods("p", "binding"), binding("p", "other"))) == (409, "Conflict")
    assert why(await api.refused("POST", api.pods("q", "binding"), binding("q", "other"))) == (404, "NotFound")


async def test_a_new_pod_is_pending_and_has_defaults(api: Api) -> None:
    made = await api.admin.post(api.pods(), {**pod("p", **NOBODY), "status": {"phase": "Running"}})
    assert made["status"]["phase"] == "Pending"
    assert made["spec"]["terminationGracePeriodSeconds"] == 30
    assert "nodeName" not in made["spec"]


async def test_status_is_patched_condition_by_condition(api: Api) -> None:
    made = await bound(api, "p")
    running = {
        "phase": "Running",
        "podIP": "10.77.1.1",
        "podIPs": [{"ip": "10.77.1.1"}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    told = await api.admin.patch(api.pods("p", "status"), {"status": running}, STRATEGIC_PATCH)
    assert {one["type"] for one in told["status"]["conditions"]} == {"PodScheduled", "Ready"}
    assert (told["status"]["phase"], told["status"]["podIP"]) == ("Running", "10.77.1.1")
    assert told["metadata"]["generation"] == made["metadata"]["generation"]
    merged = await api.admin.patch(api.pods("p", "status"), {"status": {"conditions": []}}, MERGE_PATCH)
    assert not merged["status"].get("conditions")


async def test_a_pod_without_a_node_goes_at_once(api: Api) -> None:
    made = await api.admin.post(api.pods(), pod("p", **NOBODY))
    gone = await api.admin.delete(api.pods("p"))
    assert gone["metadata"]["uid"] == made["metadata"]["uid"]
    assert gone["metadata"]["deletionGracePeriodSeconds"] == 0
    assert not await api.admin.exists(api.pods("p"))


async def test_a_pod_with_a_node_stays_until_the_kubelet_confirms(api: Api) -> None:
    made = await bound(api, "p")
    dying = await api.admin.delete(api.pods("p"), {"gracePeriodSeconds": 10})
    assert dying["metadata"]["deletionGracePeriodSeconds"] == 10
    assert dying["metadata"]["generation"] == made["metadata"]["generation"] + 1
    assert await api.admin.get(api.pods("p")) == dying
    assert why(await api.refused("POST", api.pods(), pod("p"))) == (409, "AlreadyExists")
    # Asked again without a period, or with a longer one, it stays as it is; a shorter one counts.
    assert await api.admin.delete(api.pods("p")) == dying
    assert await api.admin.delete(api.pods("p"), {"gracePeriodSeconds": 60}) == dying
    sooner = await api.admin.delete(api.pods("p"), gracePeriodSeconds="2")
    assert sooner["metadata"]["deletionGracePeriodSeconds"] == 2
    assert _deleted_at(sooner) < _deleted_at(dying)
    await api.admin.delete(api.pods("p"), {"gracePeriodSeconds": 0})
    assert not await api.admin.exists(api.pods("p"))
    again = await api.admin.post(api.pods(), pod("p", **NOBODY))
    assert again["metadata"]["uid"] != made["metadata"]["uid"]


async def test_the_grace_period_is_the_pods_own_by_default(api: Api) -> None:
    await bound(api, "p", terminationGracePeriodSeconds=7)
    assert (await api.admin.delete(api.pods("p")))["metadata"]["deletionGracePeriodSeconds"] == 7


async def test_a_pod_that_has_ended_goes_at_once(api: Api) -> None:
    await bound(api, "p")
    await api.admin.patch(api.pods("p", "status"), {"status": {"phase": "Failed", "reason": "Evicted"}})
    await api.admin.delete(api.pods("p"))
    assert not await api.admin.exists(api.pods("p"))


@pytest.mark.parametrize("wrong", [{"uid": "00000000-0000-0000-0000-000000000000"}, {"resourceVersion": "1"}])
async def test_a_delete_meant_for_another_is_409(api: Api, wrong: dict[str, str]) -> None:
    await bound(api, "p")
    error = await api.refused("DELETE", api.pods("p"), {"preconditions": wrong})
    assert why(error) == (409, "Conflict")
    assert error.body["details"] == {"name": "p", "kind": "Pod"}
    assert "deletionTimestamp" not in (await api.admin.get(api.pods("p")))["metadata"]


async def test_a_delete_with_the_right_uid(api: Api) -> None:
    made = await bound(api, "p")
    dying = await api.admin.delete(api.pods("p"), {"preconditions": {"uid": made["metadata"]["uid"]}})
    assert "deletionTimestamp" in dying["metadata"]
    assert why(await api.refused("DELETE", api.pods("nope"))) == (404, "NotFound")


async def test_other_kinds_are_gone_with_the_delete(api: Api) -> None:
    made = await api.admin.post(api.clusters(), cluster("c", "cpu"))
    answer = await api.admin.delete(api.clusters("c"))
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    assert answer["details"]["uid"] == made["metadata"]["uid"]
    assert not await api.admin.exists(api.clusters("c"))


async def test_what_a_pod_may_not_change(api: Api) -> None:
    await bound(api, "p")
    patch = [{"op": "replace", "path": "/spec/nodeName", "value": "elsewhere"}]
    error = await api.refused("PATCH", api.pods("p"), patch, "application/json-patch+json")
    assert why(error) == (422, "Invalid")
    labelled = await api.admin.patch(api.pods("p"), {"metadata": {"labels": {"x": "y"}}})
    assert labelled["metadata"]["labels"]["x"] == "y"


async def test_events_are_taken(api: Api) -> None:
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "copilot-"},
        "involvedObject": {"apiVersion": "apps/v1", "kind": "StatefulSet", "namespace": api.namespace, "name": "w"},
        "reason": "Resumed",
        "message": "w-[0-3]",
        "type": "Normal",
    }
    made = await api.admin.post(api.path("v1", "events"), event)
    assert made["metadata"]["name"].startswith("copilot-")
    assert made["metadata"]["name"] != "copilot-"
    assert [one["reason"] for one in await api.admin.list(api.path("v1", "events"))] == ["Resumed"]


async def test_nodes_are_cluster_wide_and_bare(api: Api) -> None:
    name = f"node-{api.namespace}"
    made = await api.admin.post(resource("v1", "nodes"), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    assert "namespace" not in made["metadata"]
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    told = await api.admin.patch(resource("v1", "nodes", name=name, sub="status"), ready)
    assert [(one["type"], one["status"]) for one in told["status"]["conditions"]] == [("Ready", "True")]
    await api.admin.delete(resource("v1", "nodes", name=name))
