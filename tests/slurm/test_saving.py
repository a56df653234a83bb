"""Idle nodes that slurmctld never powers down are told with the reason, those that it does power down are not: as it really does."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from copilot.slurm import saving_of
from tests.slurm.power import VERSION, PowerLab, power_lab

pytestmark = pytest.mark.asyncio(loop_scope="module")
WORDS = {
    "cpu-0": "SuspendExcNodes has it",
    "cpu-1": "SuspendExcParts has its partition kept",
    "cpu-2": "its partition endless has SuspendTime=INFINITE",
}
LINES = ("PartitionName=kept Nodes=cpu-1", "PartitionName=endless Nodes=cpu-2 SuspendTime=INFINITE")
OPTIONS = {"SuspendTime": "5", "SuspendExcNodes": "cpu-0,cpu-9,gpu-[0-3]:2", "SuspendExcParts": "kept"}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def lab() -> AsyncIterator[PowerLab]:
    async with power_lab(SuspendTime="600", SuspendTimeout="10", ResumeTimeout="300") as lab:
        await lab.stop_slurmctld()
        lab.lines = LINES
        # 22.05 takes names alone
        lab.configure(**(OPTIONS if VERSION != "22.05" else OPTIONS | {"SuspendExcNodes": "cpu-0,cpu-9"}))
        await lab.start_slurmctld()
        yield lab


async def test_what_is_never_suspended_is_told(lab: PowerLab) -> None:
    job = await lab.sbatch("--nodelist=cpu-[0-3]", wrap="true")
    for node in (*WORDS, "cpu-3"):
        await lab.called("resume", node)
        await lab.start_node(node)
    await lab.wait_job(job, "COMPLETED", seconds=90)
    saving = saving_of(await lab.slurm.config(), await lab.slurm.partitions())
    seen = (await lab.slurm.nodes()).nodes
    assert {name: saving.why(seen[name], time.time()) for name in (*WORDS, "cpu-3")} == WORDS | {"cpu-3": ""}
    # it comes last in slurmctld's own order, so the others were passed over
    await lab.called("suspend", "cpu-3", seconds=60)
    assert not any(lab.calls("suspend", node) for node in WORDS)
    busy = seen["cpu-3"].last_busy_epoch
    assert busy is not None
    assert abs(time.time() - busy) < 120


async def test_what_should_have_been_suspended_is_told(lab: PowerLab) -> None:
    """LastBusyTime is slurmctld's own; had the node stayed up, this is what would be said."""
    saving = saving_of(await lab.slurm.config(), await lab.slurm.partitions())
    node = (await lab.slurm.nodes()).nodes["cpu-3"]
    assert node.last_busy_epoch is not None
    assert saving.why(node, node.last_busy_epoch + 5.0) == ""
    assert saving.why(node, node.last_busy_epoch + 600.0).startswith("SuspendTime is 5 s, but slurmctld has not suspended it")
