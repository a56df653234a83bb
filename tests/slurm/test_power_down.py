"""From busy or stuck to powered down: what each verb does, and what a lost pod or a timeout leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from copilot.slurm import SlurmRefused
from tests.slurm.power import PowerLab, power_lab

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def lab() -> AsyncIterator[PowerLab]:
    async with power_lab(SuspendTime="600", SuspendTimeout="10", ResumeTimeout="8") as lab:
        yield lab


async def off(lab: PowerLab, node: str) -> str:
    return await lab.wait_node(node, "IDLE", "POWERED_DOWN", without=["POWERING_DOWN", "DOWN", "DRAIN"], seconds=45)


async def test_a_node_that_never_came_is_lost_until_it_is_forced_down(lab: PowerLab) -> None:
    """After ResumeTimeout: DOWN and POWERED_DOWN, ResumeFailProgram once, no SuspendProgram; two ways out, one of which leaks the pod."""
    jobs = [await lab.powering_up("cpu-0"), await lab.powering_up("cpu-1")]
    for node in ("cpu-0", "cpu-1"):
        await lab.wait_node(node, "DOWN", "POWERED_DOWN", seconds=40)
        await lab.called("fail", node)
        assert not lab.calls("suspend", node)
    await lab.run("scancel", *map(str, jobs))
    await lab.slurm.update("power_down_force", ["cpu-0"])
    await lab.called("suspend", "cpu-0", seconds=20)
    await lab.slurm.update("resume", ["cpu-1"])
    await off(lab, "cpu-1")
    assert not lab.calls("suspend", "cpu-1")
    await off(lab, "cpu-0")
    assert len(lab.calls("fail", "cpu-0")) == 1


async def test_power_down_force_while_powering_up_requeues_at_once(lab: PowerLab) -> None:
    job = await lab.powering_up("cpu-2")
    await lab.slurm.update("power_down_force", ["cpu-2"], "copilot: image_pull: no such image, State=DOWN a=b")
    assert (await lab.wait_job(job, "PENDING", seconds=5))["Restarts"] == "1"
    await lab.run("scancel", str(job))
    assert (await lab.look("cpu-2")).reason == "copilot: image_pull: no such image, State=DOWN a=b"
    await lab.called("suspend", "cpu-2", seconds=20)
    await off(lab, "cpu-2")
    assert not lab.calls("fail", "cpu-2")


async def test_resume_ends_the_wait_for_suspend_timeout(lab: PowerLab) -> None:
    """SuspendTimeout is 10 s here; the node is free within two."""
    job = await lab.running("cpu-3")
    await lab.run("scancel", str(job))
    await lab.wait_node("cpu-3", "IDLE", without=["COMPLETING"])
    await lab.slurm.update("power_down_force", ["cpu-3"])
    await lab.called("suspend", "cpu-3", seconds=20)
    await lab.wait_node("cpu-3", "POWERING_DOWN")
    await lab.stop_node("cpu-3")
    await lab.scontrol("update", "nodename=cpu-3", "state=power_up")  # ignored, with rc 0
    assert "POWERING_DOWN" in (await lab.look("cpu-3")).flags
    await lab.slurm.update("resume", ["cpu-3"])
    await lab.wait_node("cpu-3", "IDLE", "POWERED_DOWN", without=["POWERING_DOWN"], seconds=2)
    with pytest.raises(SlurmRefused, match="Invalid node state"):
        await lab.slurm.update("resume", ["cpu-3"])
    await lab.powering_up("cpu-3")


async def test_a_registration_while_powering_down_is_ignored(lab: PowerLab) -> None:
    await lab.start_node("cpu-4")
    await lab.wait_for("cpu-4 to be up", lambda: lab.look("cpu-4"), lambda node: node.up)
    await lab.slurm.update("power_down_force", ["cpu-4"])
    await lab.wait_node("cpu-4", "POWERING_DOWN", seconds=20)
    await lab.stop_node("cpu-4")
    before = (await lab.look("cpu-4")).slurmd_start_epoch
    await asyncio.sleep(1.1)  # SlurmdStartTime has whole seconds: the next slurmd must be told from the last
    await lab.start_node("cpu-4")
    log = lab.folder / "log/cpu-4.log"
    await lab.wait_for("slurmd's second start", lambda: _count(log.read_text(), "started on"), lambda count: count >= 2)
    assert "POWERING_DOWN" in (await lab.look("cpu-4")).flags
    assert before is not None
    await lab.stop_node("cpu-4")
    await lab.slurm.update("resume", ["cpu-4"])


async def _count(text: str, what: str) -> int:
    return text.count(what)


async def test_a_plain_power_down_is_a_wish_while_a_job_runs(lab: PowerLab) -> None:
    job = await lab.running("cpu-5", "--exclusive")
    await lab.slurm.update("power_down", ["cpu-5"])
    node = await lab.wait_for("the wish", lambda: lab.look("cpu-5"), lambda node: "POWER_DOWN" in node.flags)
    assert node.busy and not lab.calls("suspend", "cpu-5")
    assert (await lab.job(job))["JobState"] == "RUNNING"
    await lab.run("scancel", str(job))
    await lab.called("suspend", "cpu-5", seconds=30)


async def test_a_restarted_pod_under_a_job_stays_unnoticed(lab: PowerLab) -> None:
    """ReturnToService=2: Slurm believes in the job; the copilot must tell it."""
    job = await lab.running("cpu-6")
    began = (await lab.look("cpu-6")).slurmd_start_epoch
    await lab.stop_node("cpu-6")
    await asyncio.sleep(1.1)  # SlurmdStartTime has whole seconds
    await lab.start_node("cpu-6")
    await lab.wait_for("the new slurmd", lambda: lab.look("cpu-6"), lambda node: node.slurmd_start_epoch not in (None, began))
    assert (await lab.job(job))["JobState"] == "RUNNING"
    await lab.slurm.update("power_down_force", ["cpu-6"], "copilot: pod_lost: restarted")
    assert (await lab.wait_job(job, "PENDING", seconds=10))["Restarts"] == "1"
    await lab.run("scancel", str(job))


async def test_a_job_on_a_lost_pod_is_freed_by_down_and_not_by_power_down_force(lab: PowerLab) -> None:
    """Forced down alone, the job stays COMPLETING and SuspendProgram is not called until SlurmdTimeout; `down` first frees both."""
    job = await lab.running("cpu-7")
    await lab.stop_node("cpu-7")
    await lab.slurm.update("power_down_force", ["cpu-7"], "copilot: pod_lost: gone")
    await lab.wait_job(job, "COMPLETING", seconds=5)
    seen = await lab.look("cpu-7")
    assert {"COMPLETING", "POWER_DOWN"} <= seen.flags and seen.busy
    assert not lab.calls("suspend", "cpu-7")
    await lab.slurm.update("down", ["cpu-7"], "copilot: pod_lost: gone")
    assert (await lab.wait_job(job, "PENDING", seconds=10))["Restarts"] == "1"
    await lab.run("scancel", str(job))
    await lab.slurm.update("power_down_force", ["cpu-7"])
    await lab.called("suspend", "cpu-7", seconds=20)
    await off(lab, "cpu-7")
