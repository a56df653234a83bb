"""From submit to registered: when the hooks are called and how, and which slurmd Slurm believes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.slurm.power import VERSION, PowerLab, power_lab

pytestmark = pytest.mark.asyncio(loop_scope="module")
TERM_BLOCKED = 1 << 14


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def lab() -> AsyncIterator[PowerLab]:
    async with power_lab(SuspendTime="600", SuspendTimeout="5", ResumeTimeout="600") as lab:
        yield lab


async def test_the_hooks_get_one_hostlist_and_almost_no_environment(lab: PowerLab) -> None:
    job = await lab.sbatch("--nodelist=cpu-[0-1]", "-N2")
    resume = await lab.called("resume", "cpu-0")
    assert resume.words["count"] == "1"
    assert resume.words["nodes"] == "cpu-[0-1]"
    assert set(resume.words["environment"].split()) == {"SLURM_CONF", "SLURM_RESUME_FILE"}
    assert resume.words["user"] == "slurm"
    assert resume.words["closed"].split() == (["0", "1", "2"] if VERSION == "22.05" else [])
    assert bool(int(resume.words["blocked"], 16) & TERM_BLOCKED) == (VERSION == "22.05")
    file, _, content = resume.words["file"].partition(" ")
    assert file.startswith("/proc/") and "/fd/" in file
    told = json.loads(content)
    everything, nodes = ("all_nodes", "nodes") if VERSION == "22.05" else ("all_nodes_resume", "nodes_resume")
    assert told[everything] == "cpu-[0-1]"
    assert [(each["job_id"], each[nodes]) for each in told["jobs"]] == [(job, "cpu-[0-1]")]
    await lab.run("scancel", str(job))


async def test_the_prolog_starts_while_its_node_is_still_powered_down(lab: PowerLab) -> None:
    """Allocated and powered down means coming, not off. It lasts about a second, which a prolog's own look may miss on a busy machine."""
    seen = []
    for name in ("cpu-2", *(f"demo-worker-gpu-{index}" for index in range(4))):
        lab.hold()
        job = await lab.sbatch(f"--nodelist={name}", "--partition", "cpu" if name == "cpu-2" else "gpu")
        prolog = await lab.called("prolog", name)
        assert {"SLURM_JOB_ID", "SLURM_JOB_NODELIST"} <= set(prolog.words["environment"].split())
        base, *flags = prolog.words["state"].strip().split("+")
        assert base in ("ALLOCATED", "MIXED")
        seen.append(flags)
        await lab.wait_node(name, "POWERING_UP", without=["POWERED_DOWN"])
        lab.release()
        await lab.run("scancel", str(job))
        if "POWERED_DOWN" in flags:
            return
    raise AssertionError(f"no prolog saw its node allocated and powered down: {seen}")


async def test_a_job_starts_at_once_when_its_prolog_ends_after_registration(lab: PowerLab) -> None:
    job = await lab.running("cpu-3")
    node = await lab.look("cpu-3")
    assert node.busy and node.address.startswith("10.77.") and node.version.startswith(VERSION)
    await lab.run("scancel", str(job))
    await lab.wait_node("cpu-3", "IDLE", without=["COMPLETING"])


async def test_slurmd_without_boot_time_is_ignored_and_can_be_told(lab: PowerLab) -> None:
    job = await lab.powering_up("cpu-4")
    resumed = time.time()
    await lab.start_node("cpu-4", boot=False)
    seen = await lab.wait_for("slurmd's version", lambda: lab.look("cpu-4"), lambda node: bool(node.version))
    assert "POWERING_UP" in seen.flags and not seen.up
    assert seen.boot_epoch is not None and seen.slurmd_start_epoch is not None
    assert seen.boot_epoch < resumed - 60 < resumed - 2 <= seen.slurmd_start_epoch
    await lab.stop_node("cpu-4")
    await lab.start_node("cpu-4")
    await lab.wait_for("cpu-4 to be up", lambda: lab.look("cpu-4"), lambda node: node.up)
    await lab.run("scancel", str(job))


async def test_a_registration_while_powered_down_makes_the_node_idle(lab: PowerLab) -> None:
    await lab.start_node("cpu-5")
    assert (await lab.wait_for("cpu-5 to be up", lambda: lab.look("cpu-5"), lambda node: node.up)).base == "IDLE"
    assert not lab.calls("resume", "cpu-5")


async def test_a_pod_older_than_the_resume_never_registers(lab: PowerLab) -> None:
    """cpu-5's slurmd is left running over a power-down: only a fresh pod brings the node up again."""
    if not (await lab.look("cpu-5")).up:
        pytest.skip("cpu-5 did not come up before")
    await lab.scontrol("update", "nodename=cpu-5", "state=power_down_force")
    await lab.wait_node("cpu-5", "POWERING_DOWN")
    await lab.wait_node("cpu-5", "POWERED_DOWN", without=["POWERING_DOWN"])
    assert "cpu-5" in lab.nodes_running()
    job = await lab.powering_up("cpu-5")
    for _ in range(20):
        assert "POWERING_UP" in (await lab.look("cpu-5")).flags
        await asyncio.sleep(0.1)  # a slurmd that could register would have done so long before two seconds
    await lab.stop_node("cpu-5")
    await lab.start_node("cpu-5")
    await lab.wait_for("cpu-5 to be up", lambda: lab.look("cpu-5"), lambda node: node.up)
    await lab.run("scancel", str(job))


async def test_a_job_cancelled_while_its_node_powers_up_leaves_the_node_powering_up(lab: PowerLab) -> None:
    job = await lab.powering_up("cpu-6")
    await lab.run("scancel", str(job))
    state = await lab.wait_node("cpu-6", "IDLE", "POWERING_UP")
    assert "POWERED_DOWN" not in state
    assert not lab.calls("suspend", "cpu-6")


async def test_a_node_with_less_than_its_line_says_is_invalid(lab: PowerLab) -> None:
    job = await lab.powering_up("cpu-7")
    await lab.start_node("cpu-7", reports="CPUs=1 RealMemory=1000")
    seen = await lab.wait_for("INVALID_REG", lambda: lab.look("cpu-7"), lambda node: "INVALID_REG" in node.flags)
    assert "DRAIN" in seen.flags and not seen.up and seen.reason.startswith("Low ")
    await lab.run("scancel", str(job))
