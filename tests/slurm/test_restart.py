"""slurmctld ends and starts again: what it still knows, and that no hook is ever called twice."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from copilot.model import Node
from copilot.slurm import SlurmUnavailable
from tests.slurm.power import PowerLab, power_lab

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def lab() -> AsyncIterator[PowerLab]:
    async with power_lab(SuspendTime="600", SuspendTimeout="5", ResumeTimeout="600") as lab:
        yield lab


async def comes_up(lab: PowerLab, node: str) -> None:
    await lab.start_node(node)
    await lab.wait_for(f"{node} to be up", lambda: lab.look(node), lambda seen: seen.up)


async def maybe_look(lab: PowerLab, node: str) -> Node | None:
    try:
        return await lab.look(node)
    except SlurmUnavailable:
        return None


async def test_a_graceful_restart_keeps_powering_up_and_calls_no_hook_again(lab: PowerLab) -> None:
    job = await lab.powering_up("cpu-0")
    await lab.stop_slurmctld()
    await lab.start_slurmctld()
    assert "POWERING_UP" in (await lab.look("cpu-0")).flags
    await comes_up(lab, "cpu-0")
    assert len(lab.calls("resume", "cpu-0")) == 1
    await lab.run("scancel", str(job))


async def test_a_killed_slurmctld_may_forget_that_it_called_the_hook(lab: PowerLab) -> None:
    """Two answers are right, one is not: a node in neither, or a job that is gone."""
    job = await lab.powering_up("cpu-1")
    await lab.stop_slurmctld(kill=True)
    await lab.start_slurmctld()
    seen = await lab.look("cpu-1")
    calls = len(lab.calls("resume", "cpu-1"))
    assert calls == 1
    assert seen.flags & {"POWERING_UP", "POWERED_DOWN"}
    # Whatever it thinks, a pod that starts now makes the node usable.
    await comes_up(lab, "cpu-1")
    await lab.run("scancel", str(job))


async def test_a_reconfigure_forgets_nothing(lab: PowerLab) -> None:
    """slurmctld may be deaf for a moment after it (24.11), which is no reason to think that a node is missing."""
    job = await lab.powering_up("cpu-3")
    await lab.scontrol("reconfigure")
    seen = await lab.wait_for("a look at cpu-3", lambda: maybe_look(lab, "cpu-3"), lambda node: node is not None)
    assert seen is not None and "POWERING_UP" in seen.flags
    await comes_up(lab, "cpu-3")
    assert len(lab.calls("resume", "cpu-3")) == 1
    await lab.run("scancel", str(job))


async def test_a_busy_node_stays_busy_over_a_kill(lab: PowerLab) -> None:
    job = await lab.running("cpu-2")
    await lab.stop_slurmctld()
    await lab.start_slurmctld()
    await lab.stop_slurmctld(kill=True)
    await lab.start_slurmctld()
    assert (await lab.look("cpu-2")).busy
    assert (await lab.job(job))["JobState"] == "RUNNING"
    await lab.run("scancel", str(job))


async def test_an_undrained_node_that_is_off_is_lost_by_a_restart_until_it_is_powered_down_once_more(lab: PowerLab) -> None:
    """`undrain` (and `resume` after ResumeTimeout) leave NOT_RESPONDING on a node that is off. It does no harm before slurmctld starts anew."""
    await lab.scontrol("update", "nodename=cpu-7", "state=drain", "reason=test")
    await lab.scontrol("update", "nodename=cpu-7", "state=undrain")
    await lab.wait_node("cpu-7", "IDLE", "POWERED_DOWN", "NOT_RESPONDING", without=["DRAIN"])
    await lab.stop_slurmctld()
    await lab.start_slurmctld()
    job = await lab.sbatch("--nodelist=cpu-7")
    await lab.wait_for(
        "the job to be refused the node", lambda: lab.job(job), lambda seen: "ReqNodeNotAvail" in seen.get("Reason", "")
    )
    await lab.slurm.update("power_down", ["cpu-7"])
    await lab.wait_node("cpu-7", "POWERING_DOWN", without=["NOT_RESPONDING"])
    await lab.slurm.update("resume", ["cpu-7"])
    await lab.wait_node("cpu-7", "POWERING_UP", seconds=60)
    await lab.run("scancel", str(job))
