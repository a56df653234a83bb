"""Nodes that go, and nodes whose pod is not what Slurm waits for: old, mute, without -b, or wanted by nobody."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.e2e.begun import begun_with, ready
from tests.e2e.conftest import make
from tests.e2e.pace import until_there
from tests.lab.cluster import Cluster
from tests.lab.kubelet import GOOD, Behaviour

SETTINGS = {"stale_grace": "3", "orphan_grace": "5"}
# Nodes go when a test says so. Some of the tests wait until SuspendTimeout is over.
OPTIONS = {"SuspendTime": "600", "SuspendTimeout": "4"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    async with make(folder, options=OPTIONS, settings=SETTINGS) as made:
        yield made


async def uid_of(lab: Cluster, name: str) -> str:
    uid: str = (await lab.pods())[name]["metadata"]["uid"]
    return uid


async def power_down(lab: Cluster, name: str) -> None:
    """What SuspendTime brings about. The node may be free again before anybody sees it POWERING_DOWN."""
    await lab.slurm.scontrol("update", f"nodename={name}", "state=power_down")
    await lab.slurm.wait_for(
        f"{name} to go", lambda: lab.slurm.node(name), lambda state: "POWERING_DOWN" in state or "POWERED_DOWN" in state
    )


async def is_terminating(lab: Cluster, name: str) -> bool:
    return "deletionTimestamp" in (await lab.pods())[name]["metadata"]


async def test_a_node_that_is_resumed_while_its_pod_terminates_gets_a_fresh_one(lab: Cluster) -> None:
    """Slurm may call ResumeProgram when SuspendTimeout is over, whether or not the machine is gone."""
    lab.kubelet.behave("cpu-0", Behaviour(terminates=False))
    await lab.run_job("--nodelist=cpu-0")
    old = await uid_of(lab, "cpu-0")
    await power_down(lab, "cpu-0")
    await lab.copilot.until("the old pod to be Terminating", lambda: is_terminating(lab, "cpu-0"))
    job = await lab.sbatch("--nodelist=cpu-0")
    await lab.slurm.wait_node("cpu-0", "POWERING_UP")
    assert await is_terminating(lab, "cpu-0")
    lab.kubelet.behave("cpu-0", GOOD)
    await lab.slurm.wait_job(job, "COMPLETED")
    assert await uid_of(lab, "cpu-0") != old


async def test_a_node_that_is_suspended_seconds_after_it_registered(lab: Cluster) -> None:
    await lab.run_job("--nodelist=cpu-1")
    await power_down(lab, "cpu-1")
    await lab.settle(off=["cpu-1"])
    await lab.run_job("--nodelist=cpu-1")
    assert lab.containers.starts["cpu-1"] == 2


@pytest.mark.any_api
async def test_a_pod_stays_as_long_as_power_down_is_only_a_wish(lab: Cluster) -> None:
    """POWER_DOWN and DRAIN on an allocated node: the job ends first."""
    done = lab.folder / "done"
    job = await lab.sbatch("--nodelist=cpu-2", wrap=until_there(done))
    await lab.slurm.wait_job(job, "RUNNING")
    await lab.slurm.scontrol("update", "nodename=cpu-2", "state=drain", "reason=maintenance")
    await lab.slurm.scontrol("update", "nodename=cpu-2", "state=power_down_asap")
    code, _ = await lab.hook("slurm-suspend.sh", "cpu-2")
    assert code == 0
    done.touch()
    await lab.slurm.wait_job(job, "COMPLETED")
    await lab.settle(off=["cpu-2"])


async def test_a_pod_whose_node_is_off_is_an_orphan(lab: Cluster) -> None:
    """Somebody scaled the set by hand; the pod never registers, so Slurm has the node off for good."""
    lab.containers.mute.add("cpu-0")
    lab.audit.hinted("cpu-0")
    before = await lab.copilot.metric("slurm_copilot_orphans_removed_total")
    await lab.patch_target("cpu", {"spec": {"replicas": 1, "ordinals": {"start": 0}}})
    await lab.copilot.until_logged("orphan_removed", nodes="cpu-0")
    await lab.settle(off=["cpu-0"])
    assert await lab.copilot.metric("slurm_copilot_orphans_removed_total") == before + 1


async def test_a_pod_that_runs_before_the_resume_is_replaced(lab: Cluster) -> None:
    """The window of the set keeps the pod of a node that nobody wants; when Slurm wants it again, that pod can never register."""
    go = lab.folder / "go"
    jobs = [await lab.sbatch(f"--nodelist={name}", wrap=until_there(go)) for name in ("cpu-4", "cpu-6")]
    for job in jobs:
        await lab.slurm.wait_job(job, "RUNNING")
    # It registers, which makes it idle, is suspended like any other, and its pod stays although the node is off.
    await lab.slurm.wait_node("cpu-5", "IDLE", without=["POWERED_DOWN", "POWERING_DOWN"])
    await power_down(lab, "cpu-5")
    await lab.slurm.wait_node("cpu-5", "IDLE", "POWERED_DOWN", without=["POWERING_DOWN"])
    held = await uid_of(lab, "cpu-5")
    await lab.copilot.until("cpu-5 to be held", lambda: _phase_is(lab, "cpu-5", "held"))
    await lab.run_job("--nodelist=cpu-5")
    assert await uid_of(lab, "cpu-5") != held
    assert lab.copilot.log("pod_deleted", node="cpu-5", reason="stale_pod")
    go.touch()
    for job in jobs:
        await lab.slurm.wait_job(job, "COMPLETED")


async def _phase_is(lab: Cluster, name: str, phase: str) -> bool:
    return (await lab.status_of(name)).get("phase") == phase


@pytest.mark.any_api
async def test_a_slurmd_without_b_fails_with_that_reason(lab: Cluster) -> None:
    """Its pod is replaced once; then the job is requeued with the cause, and runs when the cause is mended."""
    lab.containers.without_boot.add("cpu-8")
    job = await lab.sbatch("--nodelist=cpu-8")
    lab.audit.may_end(job, "COMPLETED")
    [failed] = await lab.copilot.until_logged("node_failed", nodes="cpu-8", reason="stale_pod")
    assert "-b" in failed["message"]
    lab.containers.without_boot.discard("cpu-8")
    await lab.slurm.wait_job(job, "COMPLETED")
    assert await lab.copilot.metric("slurm_copilot_node_failures_total", group="cpu", reason="stale_pod") == 1


@pytest.mark.any_api
async def test_a_node_that_never_registers_is_given_up_in_time(lab: Cluster) -> None:
    """Long before ResumeTimeout: the job is requeued, and the node is idle~ again."""
    lab.containers.mute.add("cpu-10")
    # Here alone: under load a good start may take as long.
    async with begun_with(lab, registration_timeout="6"):
        await lab.copilot.until("it to be ready", lambda: ready(lab))
        job = await lab.sbatch("--nodelist=cpu-10")
        lab.audit.may_end(job, "CANCELLED")
        await lab.copilot.until_logged("node_failed", nodes="cpu-10", reason="registration_timeout")
        await lab.slurm.wait_for("the requeue", lambda: lab.slurm.job(job), lambda seen: int(seen.get("Restarts", "0")) >= 1)
        await lab.slurm.run("scancel", str(job))
        # In the log: as soon as the node is free again its reason is gone.
        log = (lab.slurm.folder / "log/slurmctld.log").read_text()
        assert "update_node: node cpu-10 reason set to: copilot: registration_timeout" in log
        await lab.settle(off=["cpu-10"])
    lab.containers.mute.discard("cpu-10")
    await lab.run_job("--nodelist=cpu-10")


@pytest.mark.any_api
async def test_free_text_of_one_node_does_not_touch_the_others(lab: Cluster) -> None:
    done = lab.folder / "done"
    job = await lab.sbatch("--nodelist=cpu-[12-13]", "--nodes=2", wrap=until_there(done))
    await lab.slurm.wait_job(job, "RUNNING")
    await lab.slurm.scontrol(
        "update", "nodename=cpu-12", "state=drain", 'reason=it says "a=b" State=DOWN+POWERED_DOWN NodeName=cpu-13'
    )
    done.touch()
    await lab.slurm.wait_job(job, "COMPLETED")
    # idle_on_node_suspend takes the drain away when slurmctld suspends the node, but the reason is an administrator's.
    for name in ("cpu-12", "cpu-13"):
        await lab.slurm.scontrol("update", f"nodename={name}", "state=power_down")
    await lab.settle(off=["cpu-12", "cpu-13"])
    assert "State=DOWN+POWERED_DOWN" in (await lab.slurm.run("scontrol", "-o", "show", "node", "cpu-12")).out
