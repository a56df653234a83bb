"""Nodes that die under a job, hosts that are not heard any more, and pods that come when their failure has been declared."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from copilot.model import FailureReason as R
from copilot.model import Kind
from tests.e2e import pace
from tests.e2e.conftest import make
from tests.e2e.failing import failed, freed, lines_of, pod_gone, told_everywhere
from tests.e2e.pace import until_there
from tests.lab.cluster import NAMESPACE, Cluster
from tests.lab.endpoint import resource
from tests.lab.kubelet import GOOD, Behaviour

pytestmark = pytest.mark.any_api
# slurmctld notices within half a minute that a slurmd is silent; it would give the node up after a minute.
OPTIONS = {**pace.OPTIONS, "ResumeTimeout": "300", "SlurmdTimeout": "60"}
GRACES = {
    "evicted_grace": "2",
    # longer than a busy machine takes to let a pod go that hung in Terminating until the next start was asked for
    "pod_lost_grace": "10",
    "container_config_grace": "2",
    "unschedulable_grace": "3000",
    "scale_up_grace": "5",
}
SETTINGS = {**pace.SETTINGS, **GRACES, "registration_timeout": "25", "breaker_failures": "1000"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    async with make(folder, kinds={"cpu": Kind.ADVANCED_STATEFUL_SET}, options=OPTIONS, settings=SETTINGS) as made:
        yield made


async def test_nodes_that_die_and_pods_that_never_come_right(lab: Cluster) -> None:
    """Side by side, as the slowest waits for slurmctld to miss a host."""
    await asyncio.gather(
        _killed_for_memory(lab, "cpu-1"),
        _host_lost(lab, "cpu-3"),
        _evicted_before_it_registered(lab, "cpu-5"),
        _secret_missing(lab, "cpu-7"),
        _volume_missing(lab, "cpu-9"),
        _no_machine_will_come(lab, "cpu-11"),
        _comes_too_late(lab, "cpu-13"),
        _a_machine_is_to_come(lab, "cpu-15"),
    )


async def test_pods_and_containers_that_were_replaced_while_nobody_looked(lab: Cluster) -> None:
    """The head was away, copilot and slurmctld. Slurm then shows the jobs RUNNING, for half an hour or more."""
    replaced, restarted = "cpu-17", "cpu-21"
    jobs = [await _running(lab, node) for node in (replaced, restarted)]
    other = await lab.sbatch("--nodelist=cpu-19", wrap=until_there(lab.folder / "over"))
    await lab.slurm.wait_job(other, "RUNNING")
    # slurmd tells its age in whole seconds: jobs that began just before their pods were replaced are not told apart
    began = max([int((await lab.slurm.job(job))["StartTime"]) for job in jobs])
    await lab.copilot.stop(kill=True)
    await lab.slurm.wait_for("the job to be old enough", _now, lambda now: now > began + 8)
    await lab.slurm.stop_slurmctld()
    await _replaced(lab, replaced)
    await lab.kubelet.restart_container(restarted)
    await lab.slurm.start_slurmctld()
    for node in (replaced, restarted):
        await lab.slurm.wait_for(f"{node} to register", partial(lab.slurm.fields, "node", node), partial(_younger, began))
    await lab.copilot.start()
    for job, node, what in zip(jobs, (replaced, restarted), ("pod was replaced", "container restarted"), strict=True):
        assert f"its {what} under a job" in (await failed(lab, node, R.POD_LOST))["message"]
        await freed(lab, node)
        done = await lab.slurm.wait_job(job, "COMPLETED", seconds=180)
        assert (done["Restarts"], done["NodeList"], len(lines_of(lab, "node_failed", node))) == ("1", node, 1)
    (lab.folder / "over").touch()
    done = await lab.slurm.wait_job(other, "COMPLETED")
    assert done["Restarts"] == "0", "its pod is the one in which it began"


async def _now() -> float:
    return time.time()


def _younger(began: int, node: dict[str, str]) -> bool:
    return node["BootTime"].isdigit() and int(node["BootTime"]) > began + 5


async def _replaced(lab: Cluster, node: str) -> None:
    """Its controller makes another pod, whose container runs."""
    before = lab.containers.starts[node]
    await lab.admin.delete(resource("v1", "pods", NAMESPACE, node))
    await lab.slurm.wait_for(f"the next container of {node}", lambda: _starts(lab, node), lambda starts: starts > before)


async def _starts(lab: Cluster, node: str) -> int:
    return lab.containers.starts[node]


async def _killed_for_memory(lab: Cluster, node: str) -> None:
    job = await _running(lab, node)
    await lab.kubelet.restart_container(node, oom=True)
    await _runs_again(lab, job, node, R.POD_LOST, "its container restarted under a job")


async def _host_lost(lab: Cluster, node: str) -> None:
    """Its pod stays as it is, not Ready: only both sides together tell. What hangs in Terminating then is deleted by force."""
    job = await _running(lab, node)
    lab.slurm.freeze_node(node)
    await lab.kubelet.lose_host(node)
    await _runs_again(lab, job, node, R.POD_LOST, "neither its host nor its slurmd answers")


async def _evicted_before_it_registered(lab: Cluster, node: str) -> None:
    """Its controller makes another pod, which has the same fate: one start of the node all the same."""
    lab.containers.mute.add(node)
    job = await _submitted(lab, node)
    while not lines_of(lab, "node_failed", node):
        await lab.copilot.until(
            "its pod to run or it to fail", lambda: lab.kubelet.runs(node) or lines_of(lab, "node_failed", node)
        )
        if lab.kubelet.runs(node):
            await lab.kubelet.evict(node)
    await pod_gone(lab, node)
    lab.containers.mute.discard(node)
    await _runs_again(lab, job, node, R.EVICTED, "The node was low on resource: memory.")


async def _secret_missing(lab: Cluster, node: str) -> None:
    lab.kubelet.behave(node, Behaviour(configured=False))
    job = await _submitted(lab, node)
    await failed(lab, node, R.CONTAINER_CONFIG)
    await pod_gone(lab, node)
    lab.kubelet.behave(node, GOOD)
    await _runs_again(lab, job, node, R.CONTAINER_CONFIG, 'CreateContainerConfigError: secret "munge-key" not found')


async def _volume_missing(lab: Cluster, node: str) -> None:
    """The pod's status is silent about it, an Event is not."""
    lab.kubelet.behave(node, Behaviour(start_seconds=3600))
    job = await _submitted(lab, node)
    await lab.copilot.until("its pod to be there", lambda: _has_host(lab, node))
    await _event(lab, node, "FailedMount", 'MountVolume.SetUp failed for volume "munge" : secret "munge-key" not found')
    await failed(lab, node, R.CONTAINER_CONFIG)
    await pod_gone(lab, node)
    lab.kubelet.behave(node, GOOD)
    await _runs_again(lab, job, node, R.CONTAINER_CONFIG, 'FailedMount: MountVolume.SetUp failed for volume "munge"')


async def _has_host(lab: Cluster, node: str) -> bool:
    pod = (await lab.pods()).get(node)
    return pod is not None and bool(pod["spec"].get("nodeName"))


async def _no_machine_will_come(lab: Cluster, node: str) -> None:
    """A cluster autoscaler's word shortens a grace of fifty minutes."""
    words = "pod didn't trigger scale-up: 1 max node group size reached"
    await _finds_no_room(lab, node, "NotTriggerScaleUp", words, f"(cluster autoscaler: {words})")


async def _a_machine_is_to_come(lab: Cluster, node: str) -> None:
    """A cluster autoscaler's promise begins a grace of its own, here a shorter one; when that is over no machine has come."""
    promise = "pod triggered scale-up: [{workers 1->2 (max: 4)}]"
    await _finds_no_room(lab, node, "TriggeredScaleUp", promise, "nodes are available")


async def _finds_no_room(lab: Cluster, node: str, reason: str, message: str, told: str) -> None:
    """No machine has room for the pod, and a cluster autoscaler says something about it."""
    lab.kubelet.behave(node, Behaviour(schedulable=False))
    job = await _submitted(lab, node)
    await lab.copilot.until("the cause to be told", lambda: lines_of(lab, "node_cannot_start", node))
    await _event(lab, node, reason, message)
    await failed(lab, node, R.UNSCHEDULABLE)
    await pod_gone(lab, node)
    lab.kubelet.behave(node, GOOD)
    await _runs_again(lab, job, node, R.UNSCHEDULABLE, told)


async def _comes_too_late(lab: Cluster, node: str) -> None:
    """slurmd speaks up when its node has been given up, and its pod does not end: the job runs there or in the next, and nothing fails again."""
    lab.containers.mute.add(node)
    lab.kubelet.behave(node, Behaviour(terminates=False))
    job = await _submitted(lab, node)
    await failed(lab, node, R.REGISTRATION_TIMEOUT)
    await lab.containers.speak(node)
    await lab.copilot.until("the next start, or the job's end in the old pod", lambda: _goes_on(lab, job, node))
    lab.kubelet.behave(node, GOOD)
    await lab.slurm.wait_job(job, "COMPLETED", seconds=180)
    assert len(lines_of(lab, "node_failed", node)) == 1


async def _goes_on(lab: Cluster, job: int, node: str) -> bool:
    return len(lines_of(lab, "node_requested", node)) > 1 or (await lab.slurm.job(job)).get("JobState") == "COMPLETED"


async def _event(lab: Cluster, node: str, reason: str, message: str) -> None:
    """As kubelet or a cluster autoscaler would write it, about the pod."""
    involved = {"kind": "Pod", "apiVersion": "v1", "namespace": NAMESPACE, "name": node}
    now = (await lab.pods())[node]["metadata"]["creationTimestamp"]
    times = {"firstTimestamp": now, "lastTimestamp": now, "count": 1, "type": "Warning", "source": {"component": "kubelet"}}
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{node}."},
        "involvedObject": involved,
        "reason": reason,
        "message": message,
        **times,
    }
    await lab.admin.post(resource("v1", "events", NAMESPACE), body)


async def _submitted(lab: Cluster, node: str, wrap: str = "true") -> int:
    job = await lab.sbatch(f"--nodelist={node}", wrap=wrap)
    lab.audit.may_end(job, "COMPLETED")
    return job


async def _running(lab: Cluster, node: str) -> int:
    """A job on the node that ends only at its second start."""
    job = await _submitted(lab, node, 'while [ "${SLURM_RESTART_COUNT:-0}" = 0 ]; do sleep 0.2; done')
    await lab.slurm.wait_job(job, "RUNNING")
    lab.audit.excuse(node)
    return job


async def _runs_again(lab: Cluster, job: int, node: str, reason: R, words: str) -> None:
    await failed(lab, node, reason)
    await told_everywhere(lab, node, reason, words)
    await freed(lab, node)
    done = await lab.slurm.wait_job(job, "COMPLETED", seconds=180)
    assert (done["Restarts"], done["NodeList"], len(lines_of(lab, "node_failed", node))) == ("1", node, 1)
