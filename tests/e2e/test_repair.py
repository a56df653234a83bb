"""What drifts is put right: lost hooks, lost pods, nodes that Slurm gave up, pods that others made; and what administrators set is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from copilot.hostlist import expand
from copilot.model import Kind
from tests.e2e import pace
from tests.e2e.begun import begun_with, ready
from tests.e2e.conftest import LEFT_AS_THEY_ARE, MADE_IDLE, make
from tests.e2e.hook_script import instead
from tests.e2e.pace import looked, until_there
from tests.lab.cluster import WORKERS, Cluster
from tests.lab.kubelet import GOOD, Behaviour
from tests.lab.slurm import Workers

# Sets of any shape, so that nodes do not touch one another. No test can wait for this SuspendTimeout; one waits for ResumeTimeout.
# cpu-29 is only suspended by hand.
OPTIONS = {**pace.OPTIONS, "SuspendTimeout": "600", "ResumeTimeout": "30", "SuspendExcNodes": "cpu-29"}
SETTINGS = {**pace.SETTINGS, "registration_timeout": "200", "orphan_grace": "5"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    async with make(folder, kinds={"cpu": Kind.ADVANCED_STATEFUL_SET}, options=OPTIONS, settings=SETTINGS) as made:
        yield made


async def test_a_hook_that_fails_while_the_copilot_is_there(lab: Cluster) -> None:
    """It finds out by itself what it was not told, and counts it."""
    heard = len(lab.copilot.log("hook"))
    with instead(lab, "slurm-resume.sh", "exit 1"), instead(lab, "slurm-suspend.sh", "exit 1"):
        await lab.run_job("--nodelist=cpu-0")
        await lab.copilot.until_logged("missed_hook", nodes="cpu-0")
        assert await lab.copilot.metric("slurm_copilot_missed_hooks_total") == 1
        await lab.settle(off=["cpu-0"])
    assert len(lab.copilot.log("hook")) == heard


async def test_a_node_is_free_again_when_its_pod_is_gone_and_not_before(lab: Cluster) -> None:
    """SuspendTimeout would keep it for ten minutes, which is right as long as the pod is there."""
    lab.kubelet.behave("cpu-1", Behaviour(terminates=False))
    await lab.run_job("--nodelist=cpu-1")
    await lab.slurm.wait_node("cpu-1", "POWERING_DOWN")
    await lab.copilot.until("its pod to be Terminating", lambda: _terminating(lab, "cpu-1"))
    await looked(lab, 4)
    assert "POWERING_DOWN" in await lab.slurm.node("cpu-1")
    assert not lab.copilot.log("slurm_updated", state="resume", nodes="cpu-1")
    lab.kubelet.behave("cpu-1", GOOD)
    await lab.slurm.wait_node("cpu-1", "IDLE", "POWERED_DOWN", without=["POWERING_DOWN"])
    assert "cpu-1" not in await lab.pods()
    await lab.copilot.until_logged("slurm_updated", state="resume", nodes="cpu-1")


async def _terminating(lab: Cluster, name: str) -> bool:
    pod = (await lab.pods()).get(name)
    return pod is not None and "deletionTimestamp" in pod["metadata"]


async def test_jobs_whose_pods_are_lost_run_again(lab: Cluster) -> None:
    """Deleted by hand, its container restarted, evicted, or never started: each job is requeued, with the cause in the log."""
    await asyncio.gather(_deleted(lab, "cpu-3"), _restarted(lab, "cpu-5"), _evicted(lab, "cpu-7"), _never_started(lab, "cpu-9"))
    # Whether an evicted pod is seen before its successor is a matter of moments.
    lost = [
        await lab.copilot.metric("slurm_copilot_node_failures_total", group="cpu", reason=why) for why in ("pod_lost", "evicted")
    ]
    assert sum(lost) == 3


async def _deleted(lab: Cluster, node: str) -> None:
    job = await _running(lab, node)
    await lab.admin.delete(f"/api/v1/namespaces/slurm/pods/{node}")
    await _runs_again(lab, job, node, "its pod is gone", "its pod was replaced under a job")


async def _restarted(lab: Cluster, node: str) -> None:
    """Slurm itself would leave the dead job RUNNING for ever."""
    job = await _running(lab, node)
    await lab.kubelet.restart_container(node)
    await _runs_again(lab, job, node, "its container restarted under a job")


async def _evicted(lab: Cluster, node: str) -> None:
    job = await _running(lab, node)
    await lab.kubelet.evict(node)
    await _runs_again(lab, job, node, "its pod ended", "its pod is gone", "its pod was replaced under a job")


async def _never_started(lab: Cluster, node: str) -> None:
    """ResumeTimeout passes: the node would stay DOWN for ever, and SuspendProgram is not called for it."""
    lab.containers.hold(node)
    job = await lab.sbatch(f"--nodelist={node}")
    lab.audit.may_end(job, "COMPLETED")
    await lab.copilot.until("the node to be given up", lambda: _causes(lab, node))
    assert _causes(lab, node) == {"slurmctld gave the node up at ResumeTimeout"}
    lab.containers.release(node)
    await lab.slurm.wait_node(node, "IDLE", "POWERED_DOWN", without=["DOWN", "POWERING_DOWN"])
    await lab.slurm.wait_job(job, "COMPLETED", seconds=120)


async def _running(lab: Cluster, node: str) -> int:
    """A job on the node that ends only at its second start."""
    wait = 'while [ "${SLURM_RESTART_COUNT:-0}" = 0 ]; do sleep 0.2; done'
    job = await lab.sbatch(f"--nodelist={node}", wrap=wait)
    lab.audit.may_end(job, "COMPLETED")
    await lab.slurm.wait_job(job, "RUNNING")
    lab.audit.excuse(node)
    return job


async def _runs_again(lab: Cluster, job: int, node: str, *causes: str) -> None:
    """The log has one cause, which begins with one of these: how much is known by then differs."""
    await lab.slurm.wait_for("the requeue", lambda: lab.slurm.job(job), lambda seen: seen.get("Restarts") == "1")
    [found] = _causes(lab, node)
    assert found.startswith(causes)
    await lab.slurm.wait_job(job, "COMPLETED", seconds=120)


def _causes(lab: Cluster, node: str) -> set[str]:
    """Why the node failed, as the log has it; nodes that fail together share a line."""
    return {line["message"] for line in lab.copilot.log("node_failed") if node in expand(line["nodes"], 100)}


async def test_a_good_worker_that_somebody_else_started(lab: Cluster) -> None:
    """It registers, which makes its node usable, and is suspended like any other."""
    lab.audit.hinted("cpu-29")
    # Registering may take longer than the grace that the other tests wait for.
    async with begun_with(lab, orphan_grace="90"):
        await lab.copilot.until("it to be ready", lambda: ready(lab))
        await lab.patch_target("cpu", {"spec": {"replicas": 1, "reserveOrdinals": list(range(29))}})
        await lab.slurm.wait_node("cpu-29", "IDLE", without=["POWERED_DOWN", "POWERING_DOWN"])
        await lab.slurm.scontrol("update", "nodename=cpu-29", "state=power_down")
        await lab.settle(off=["cpu-29"])
        assert await lab.copilot.metric("slurm_copilot_orphans_removed_total") == 0


@pytest.mark.any_api
async def test_a_node_that_slurm_no_longer_lists_keeps_its_pod(lab: Cluster) -> None:
    """Taken out of slurm.conf by mistake, say: unknown is not off, however long it lasts. When it is back, and off, its pod goes."""
    await lab.run_job("--nodelist=cpu-29")
    uid = (await lab.pods())["cpu-29"]["metadata"]["uid"]
    await _begun_again(lab, (Workers("cpu", 29, "cpu"), *WORKERS[1:]), SuspendExcNodes=None)
    # Well over orphan_grace: while nothing moves a look comes every second.
    await looked(lab, 8)
    assert (await lab.pods())["cpu-29"]["metadata"]["uid"] == uid
    assert (await lab.status_of("cpu-29"))["state"] == "unknown to Slurm"
    await lab.run_job("--nodelist=cpu-2")
    assert (await lab.pods())["cpu-29"]["metadata"]["uid"] == uid
    await _begun_again(lab, WORKERS, SuspendExcNodes="cpu-29")
    await lab.settle(off=["cpu-29"])


async def _begun_again(lab: Cluster, workers: tuple[Workers, ...] = WORKERS, **options: str | None) -> None:
    """slurmctld, with these nodes in slurm.conf and these options."""
    await lab.slurm.stop_slurmctld()
    lab.slurm.workers = workers
    lab.slurm.configure(**options)
    await lab.slurm.start_slurmctld()


@pytest.mark.any_api
async def test_a_drain_outlives_the_suspend(lab: Cluster) -> None:
    """Where slurmctld is not told to make suspended nodes idle: freeing the node early would lift an administrator's drain."""
    await _begun_again(lab, SlurmctldParameters=LEFT_AS_THEY_ARE)
    done = lab.folder / "done"
    job = await lab.sbatch("--nodelist=cpu-11", wrap=until_there(done))
    await lab.slurm.wait_job(job, "RUNNING")
    await lab.slurm.scontrol("update", "nodename=cpu-11", "state=drain", "reason=fan broken")
    done.touch()
    await lab.slurm.wait_job(job, "COMPLETED")
    await lab.slurm.wait_node("cpu-11", "DRAIN", "POWERING_DOWN")
    await lab.copilot.until("its pod to be gone", lambda: _gone(lab, "cpu-11"))
    await looked(lab, 3)
    assert (await lab.slurm.node("cpu-11")).split("+") == ["IDLE", "CLOUD", "DRAIN", "POWERING_DOWN"]
    assert "Reason=fan broken" in await lab.slurm.scontrol("show", "node", "cpu-11")
    await lab.slurm.scontrol("update", "nodename=cpu-11", "state=resume")
    await lab.settle(off=["cpu-11"])
    await _begun_again(lab, SlurmctldParameters=MADE_IDLE)


async def _gone(lab: Cluster, name: str) -> bool:
    return name not in await lab.pods()
