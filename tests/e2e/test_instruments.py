"""The tier's own instruments: an audit and a settling that see nothing would make every other test pass."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.e2e.conftest import make
from tests.e2e.pace import until_there
from tests.lab.audit import steps_in
from tests.lab.cluster import NAMESPACE, Cluster
from tests.lab.endpoint import resource

pytestmark = [pytest.mark.any_api, pytest.mark.any_slurm]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    async with make(folder) as made:
        yield made


async def test_a_pod_taken_from_under_a_job_is_seen(lab: Cluster) -> None:
    job = await lab.sbatch("--nodelist=cpu-0", wrap="sleep 600")
    await lab.slurm.wait_job(job, "RUNNING")
    await lab.copilot.until("the job's step", lambda: steps_in(lab.slurm.node_pid("cpu-0") or 0))
    await lab.admin.delete(resource("v1", "pods", NAMESPACE, "cpu-0"))
    await lab.slurm.wait_for("the job to be requeued", lambda: lab.slurm.job(job), lambda seen: seen.get("Restarts") == "1")
    await lab.slurm.run("scancel", str(job))
    await lab.slurm.wait_job(job, "CANCELLED")
    with pytest.raises(AssertionError) as caught:
        await lab.audit.assert_clean()
    # slurmstepd forks before it becomes what it runs: for a moment there are two.
    assert re.search(r"the container of cpu-0 was ended with [1-9]\d* slurmstepd in it", str(caught.value))
    assert f"job {job} is CANCELLED after 1 restarts, not COMPLETED" in str(caught.value)


async def test_replicas_beyond_what_slurm_wants_are_seen(lab: Cluster) -> None:
    lab.containers.mute.update({"cpu-7", "cpu-8"})
    await lab.patch_target("cpu", {"spec": {"replicas": 2, "ordinals": {"start": 7}}})
    await lab.copilot.until("the audit to see it", lambda: lab.audit.violations)
    with pytest.raises(AssertionError, match=r"cpu asked for \[7, 8\] when Slurm wanted .*: \[7, 8\] too much"):
        await lab.audit.assert_clean()
    await lab.settle(off=["cpu-7", "cpu-8"])


async def test_what_does_not_agree_is_named(lab: Cluster) -> None:
    done = lab.folder / "done"
    job = await lab.sbatch("--nodelist=cpu-2", wrap=until_there(done))
    await lab.slurm.wait_job(job, "RUNNING")
    await lab.settle(up=["cpu-2"])
    with pytest.raises(AssertionError, match=r"cpu-2 is (ALLOCATED\+CLOUD|CLOUD\+MIXED), wanted off"):
        await lab.settle(off=["cpu-2"], seconds=1)
    lab.copilot.freeze()
    try:
        await lab.slurm.start_node("cpu-5")
        await lab.slurm.wait_node("cpu-5", "IDLE", without=["POWERED_DOWN", "NOT_RESPONDING"])
        with pytest.raises(AssertionError) as caught:
            await lab.settle(seconds=1)
    finally:
        await lab.slurm.stop_node("cpu-5")
        lab.copilot.thaw()
    assert "cpu: pods [2], nodes that are up [2, 5]" in str(caught.value)
    assert "a slurmd of cpu-5 runs without a pod" in str(caught.value)
    await lab.slurm.scontrol("update", "nodename=cpu-5", "state=power_down_force", "reason=over")
    done.touch()
    await lab.slurm.wait_job(job, "COMPLETED")


async def test_a_broken_cluster_is_made_anew(lab: Cluster) -> None:
    """What the fixture `lab` does after a test that failed: the next finds nothing of it."""
    await lab.slurm.wait_job(await lab.sbatch("--nodelist=cpu-3", wrap="sleep 600"), "RUNNING")
    lab.containers.hold("cpu-4")
    await lab.sbatch("--nodelist=cpu-4")
    await lab.containers.arrived["cpu-4"].wait()
    lab.copilot.freeze()
    await lab.slurm.stop_slurmctld(kill=True)
    await lab.anew()
    assert (await lab.pods(), lab.slurm.nodes_running(), lab.containers.starts) == ({}, [], {})
    await lab.run_job("--nodes=2", "--nodelist=cpu-[3-4]")
