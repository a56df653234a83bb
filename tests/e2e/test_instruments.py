"""The tier's own instruments: an audit and a settling that see nothing would make every other test pass."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.e2e.conftest import make
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
    await lab.admin.delete(resource("v1", "pods", NAMESPACE, "cpu-0"))
    await lab.slurm.wait_for("the job to be requeued", lambda: lab.slurm.job(job), lambda seen: seen.get("Restarts") == "1")
    await lab.slurm.run("scancel", str(job))
    with pytest.raises(AssertionError) as caught:
        await lab.audit.assert_clean()
    assert "the container of cpu-0 was ended with 1 slurmstepd in it" in str(caught.value)
    assert f"job {job} is CANCELLED after 1 restarts, not COMPLETED" in str(caught.value)


async def test_replicas_beyond_what_slurm_wants_are_seen(lab: Cluster) -> None:
    lab.containers.mute.update({"cpu-7", "cpu-8"})
    await lab.patch_target("cpu", {"spec": {"replicas": 2, "ordinals": {"start": 7}}})
    await lab.copilot.until("the audit to see it", lambda: lab.audit.violations)
    with pytest.raises(AssertionError, match=r"cpu asked for \[7, 8\] when Slurm wanted .*: \[7, 8\] too much"):
        await lab.audit.assert_clean()
    await lab.settle(off=["cpu-7", "cpu-8"])
    lab.containers.mute.clear()


async def test_what_does_not_agree_is_named(lab: Cluster) -> None:
    job = await lab.sbatch("--nodelist=cpu-2", wrap=f"while [ ! -e {lab.folder}/enough ]; do sleep 0.1; done")
    await lab.slurm.wait_job(job, "RUNNING")
    await lab.settle(up=["cpu-2"])
    with pytest.raises(AssertionError, match=r"cpu-2 is (ALLOCATED\+CLOUD|CLOUD\+MIXED), wanted off"):
        await lab.settle(off=["cpu-2"], seconds=1)
    lab.copilot.freeze()
    try:
        await lab.slurm.start_node("cpu-5")
        with pytest.raises(AssertionError) as caught:
            await lab.settle(seconds=3)
    finally:
        await lab.slurm.stop_node("cpu-5")
        lab.copilot.thaw()
    assert "cpu: pods [2], nodes that are up [2, 5]" in str(caught.value)
    assert "a slurmd of cpu-5 runs without a pod" in str(caught.value)
    await lab.slurm.scontrol("update", "nodename=cpu-5", "state=power_down_force", "reason=over")
    (lab.folder / "enough").touch()
    await lab.slurm.wait_job(job, "COMPLETED")
