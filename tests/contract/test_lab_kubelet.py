"""The lab's kubelet and StatefulSet controllers: on the embedded server the lab's own, on the real one kube-controller-manager's."""

from __future__ import annotations

import pytest

from tests.contract.conftest import Api, stateful_set
from tests.contract.workers import Workers, ready_names, until_ready
from tests.lab.controllers import ready, terminating
from tests.lab.endpoint import ApiError, Object
from tests.lab.kubelet import Behaviour


def local(name: str, replicas: int, start: int = 0) -> Object:
    """A set whose pods the lab's kubelet alone binds, on the real server too: other tests' Nodes are not theirs."""
    made = stateful_set(name, replicas, ordinals={"start": start})
    made["spec"]["template"]["spec"]["schedulerName"] = "nobody"
    return made


async def scale(api: Api, name: str, replicas: int, start: int = 0) -> Object:
    return await api.admin.patch(
        api.sets(name),
        [
            {"op": "replace", "path": "/spec/replicas", "value": replicas},
            {"op": "replace", "path": "/spec/ordinals", "value": {"start": start}},
        ],
    )


async def test_pods_follow_the_replicas(api: Api, workers: Workers) -> None:
    await api.admin.post(api.sets(), local("w", 3))
    pods = await until_ready(api, "w-0", "w-1", "w-2")
    owner = pods["w-1"]["metadata"]["ownerReferences"][0]
    made = await api.admin.get(api.sets("w"))
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("StatefulSet", made["metadata"]["uid"], True)
    assert pods["w-1"]["metadata"]["labels"]["app"] == "w"
    assert pods["w-1"]["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "1"
    assert pods["w-1"]["status"]["podIP"].startswith("10.77.1.")
    await api.admin.until(api.sets("w"), lambda obj: obj["status"].get("readyReplicas") == 3)
    await scale(api, "w", 1)
    await until_ready(api, "w-0")
    assert list(workers.running) == ["w-0"]
    await scale(api, "w", 0)
    await until_ready(api)
    assert sorted(workers.starts) == ["w-0", "w-1", "w-2"]


async def test_a_moved_window_restarts_none_of_the_pods_that_stay(api: Api, workers: Workers) -> None:
    await api.admin.post(api.sets(), local("w", 4))
    before = await until_ready(api, "w-0", "w-1", "w-2", "w-3")
    await scale(api, "w", 3, start=2)
    after = await until_ready(api, "w-2", "w-3", "w-4")
    assert [after[name]["metadata"]["uid"] for name in ("w-2", "w-3")] == [
        before[name]["metadata"]["uid"] for name in ("w-2", "w-3")
    ]
    assert sorted(workers.starts) == ["w-0", "w-1", "w-2", "w-3", "w-4"]


async def test_a_terminating_pod_counts_and_keeps_its_name(api: Api, workers: Workers) -> None:
    await api.admin.post(api.sets(), local("w", 2))
    before = await until_ready(api, "w-0", "w-1")
    workers.kubelet.behave("w-1", Behaviour(terminates=False))
    await scale(api, "w", 1)
    await api.admin.until(api.pods("w-1"), terminating)
    await api.admin.until(
        api.sets("w"), lambda obj: obj["status"].get("readyReplicas") is not None and obj["status"]["replicas"] == 2
    )
    # Wanted again: the name is taken until the old pod is gone.
    await scale(api, "w", 2)
    await api.admin.until(api.sets("w"), lambda obj: obj["status"]["observedGeneration"] == obj["metadata"]["generation"])
    assert (await api.admin.get(api.pods("w-1")))["metadata"]["uid"] == before["w-1"]["metadata"]["uid"]
    workers.kubelet.behave("w-1", Behaviour())
    after = await until_ready(api, "w-0", "w-1")
    assert after["w-1"]["metadata"]["uid"] != before["w-1"]["metadata"]["uid"]
    assert workers.running["w-1"] == after["w-1"]["metadata"]["uid"]
    assert workers.starts.count("w-1") == 2


async def test_a_deleted_pod_is_replaced(api: Api, workers: Workers) -> None:
    await api.admin.post(api.sets(), local("w", 1))
    before = await until_ready(api, "w-0")
    await api.admin.delete(api.pods("w-0"), {"preconditions": {"uid": before["w-0"]["metadata"]["uid"]}})
    page = await api.admin.until(
        api.pods(),
        lambda page: (
            [pod["metadata"]["uid"] for pod in page["items"] if ready(pod)] != [before["w-0"]["metadata"]["uid"]]
            and bool(ready_names(page))
        ),
    )
    assert ready_names(page) == ["w-0"]
    assert workers.starts == ["w-0", "w-0"]


async def test_the_pods_of_a_deleted_set_go(api: Api, workers: Workers) -> None:
    await api.admin.post(api.sets(), local("w", 2))
    await until_ready(api, "w-0", "w-1")
    await api.admin.delete(api.sets("w"))
    await until_ready(api)
    assert workers.running == {}


async def test_an_evicted_pod_is_replaced(api: Api, workers: Workers) -> None:
    await api.admin.post(api.sets(), local("w", 1))
    before = await until_ready(api, "w-0")
    await workers.kubelet.evict("w-0")
    await api.admin.until(
        api.pods(),
        lambda page: any(ready(pod) and pod["metadata"]["uid"] != before["w-0"]["metadata"]["uid"] for pod in page["items"]),
    )
    assert workers.starts == ["w-0", "w-0"]


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [(Behaviour(image_pulls=False), "ImagePullBackOff"), (Behaviour(crashes=True), "CrashLoopBackOff")],
)
async def test_containers_that_cannot_start(api: Api, workers: Workers, behaviour: Behaviour, reason: str) -> None:
    workers.kubelet.behave("w-*", behaviour)
    await api.admin.post(api.sets(), local("w", 1))

    def waits(pod: Object) -> bool:
        containers = pod.get("status", {}).get("containerStatuses") or [{"state": {}}]
        return bool(containers[0]["state"].get("waiting", {}).get("reason") == reason)

    pod = await api.admin.until(api.pods("w-0"), waits)
    assert not ready(pod)
    assert pod["spec"]["nodeName"] == workers.node
    assert workers.starts == []
    await scale(api, "w", 0)
    await until_ready(api)


async def test_a_pod_that_fits_nowhere(api: Api, workers: Workers) -> None:
    workers.kubelet.behave("w-0", Behaviour(schedulable=False))
    await api.admin.post(api.sets(), local("w", 2))
    await api.admin.until(api.pods("w-1"), lambda pod: bool(pod) and ready(pod))

    def unschedulable(pod: Object) -> bool:
        conditions = pod.get("status", {}).get("conditions") or []
        return any(
            (one["type"], one["status"], one.get("reason")) == ("PodScheduled", "False", "Unschedulable") for one in conditions
        )

    pod = await api.admin.until(api.pods("w-0"), unschedulable)
    assert "nodeName" not in pod["spec"]
    workers.kubelet.behave("w-0", Behaviour())
    await until_ready(api, "w-0", "w-1")


async def test_a_container_restarts_in_its_pod(api: Api, workers: Workers) -> None:
    await api.admin.post(api.sets(), local("w", 1))
    before = await until_ready(api, "w-0")
    await workers.kubelet.restart_container("w-0")
    pod = await api.admin.get(api.pods("w-0"))
    assert pod["metadata"]["uid"] == before["w-0"]["metadata"]["uid"]
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 1
    assert ready(pod)
    assert workers.starts == ["w-0", "w-0"]


async def test_the_scheduler_binds_where_there_is_one(api: Api, workers: Workers) -> None:
    made = stateful_set("w", 2)
    made["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": workers.node}
    workers.kubelet.binds = not api.real
    await api.admin.post(api.sets(), made)
    pods = await until_ready(api, "w-0", "w-1")
    assert {pod["spec"]["nodeName"] for pod in pods.values()} == {workers.node}


async def test_a_slow_start_is_given_up_when_the_pod_must_go(api: Api, workers: Workers) -> None:
    workers.kubelet.behave("w-0", Behaviour(start_seconds=3600))
    await api.admin.post(api.sets(), local("w", 1))
    await api.admin.until(api.pods("w-0"), lambda pod: bool(pod.get("spec", {}).get("nodeName")))
    await scale(api, "w", 0)
    await until_ready(api)
    assert workers.starts == []


async def test_the_lab_comes_back_after_the_server_was_away(api: Api, workers: Workers) -> None:
    await api.admin.post(api.sets(), local("w", 1))
    await until_ready(api, "w-0")
    if api.real:
        await api.server.restart_component("apiserver")  # type: ignore[union-attr]
    else:
        async with api.server.away():  # type: ignore[union-attr]
            with pytest.raises((OSError, ApiError)):
                await api.admin.get("/readyz")
    await scale(api, "w", 3)
    await until_ready(api, "w-0", "w-1", "w-2")
    assert sorted(workers.starts) == ["w-0", "w-1", "w-2"]
