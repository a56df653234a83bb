"""When a job begins, as slurmctld tells it: never before the slurmd on which it runs, however long that was in coming.

The copilot takes a job that is older than its node's slurmd for one whose pod was replaced while nobody looked (copilot/plan/advance.py).
"""

from __future__ import annotations

import asyncio

import pytest

from tests.slurm.power import PowerLab, power_lab

pytestmark = pytest.mark.asyncio(loop_scope="module")
SLOW = 8.0  # seconds that a node takes, more than the copilot's tolerance


@pytest.mark.parametrize("prolog", [True, False], ids=["fast_start", "no_prolog"])
async def test_a_job_is_younger_than_its_slurmd(prolog: bool) -> None:
    """The second job is one that finds the node up."""
    async with power_lab(SuspendTime="600", ResumeTimeout="300") as lab:
        if not prolog:
            await lab.stop_slurmctld()
            lab.configure(PrologSlurmctld=None)
            await lab.start_slurmctld()
        lab.hold()
        job = await lab.powering_up("cpu-0", "--cpus-per-task=1")
        await asyncio.sleep(SLOW)
        assert await lab.slurm.running_since() == {}, "a job that waits for its nodes (CF) does not run"
        await lab.start_node("cpu-0")
        await lab.wait_for("cpu-0 to be up", lambda: lab.look("cpu-0"), lambda seen: seen.up)
        lab.release()
        await lab.wait_job(job, "RUNNING", seconds=60)
        await lab.sbatch("--nodelist=cpu-0", "--cpus-per-task=1", wrap="sleep 600")
        await _is_younger(lab)


async def _is_younger(lab: PowerLab) -> None:
    since, node = await lab.slurm.running_since(), await lab.look("cpu-0")
    assert node.boot_epoch is not None
    assert since.keys() == {"cpu-0"}
    assert node.boot_epoch <= since["cpu-0"] + 1, "slurmd's age is in whole seconds"
