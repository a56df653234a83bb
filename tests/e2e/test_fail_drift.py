"""What is left behind by a failure or by somebody: old Reasons, pods that do not go, a group that is taken out of its target."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from copilot.model import FailureReason as R
from copilot.model import Kind
from tests.e2e import pace
from tests.e2e.conftest import SLURM, make
from tests.e2e.failing import failed, lines_of, told_everywhere
from tests.e2e.pace import looked, until_there
from tests.lab.cluster import Cluster
from tests.lab.kubelet import GOOD, Behaviour

pytestmark = pytest.mark.any_api
GPU = "demo-worker-gpu"
OPTIONS = {**pace.OPTIONS, "ResumeTimeout": "300"}
SETTINGS = {**pace.SETTINGS, "pod_lost_grace": "2"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    kinds = {"cpu": Kind.ADVANCED_STATEFUL_SET, GPU: Kind.SLURM_CLUSTER}
    async with make(folder, kinds=kinds, options=OPTIONS, settings=SETTINGS) as made:
        yield made


@pytest.mark.skipif(SLURM == "22.05", reason="22.05 shows no Reason of a healthy node")
async def test_our_old_reason_on_a_healthy_node_goes_and_an_administrators_stays(lab: Cluster) -> None:
    end = lab.folder / "end"
    job = await lab.sbatch("--nodes=2", "--nodelist=cpu-[1,3]", wrap=until_there(end))
    await lab.slurm.wait_job(job, "RUNNING")
    await lab.slurm.scontrol("update", "nodename=cpu-3", "reason=fan is loud")
    await lab.slurm.scontrol("update", "nodename=cpu-1", "reason=copilot: quota: exceeded quota: few")
    await lab.copilot.until("the old Reason to go", lambda: _without(lab, "cpu-1", "copilot:"))
    await looked(lab, 2)
    assert "Reason=fan is loud" in await lab.slurm.scontrol("show", "node", "cpu-3")
    assert (await lab.slurm.job(job))["JobState"] == "RUNNING"
    assert not lines_of(lab, "slurm_updated", "cpu-3")
    end.touch()
    await lab.slurm.wait_job(job, "COMPLETED")


async def _without(lab: Cluster, node: str, words: str) -> bool:
    return words not in await lab.slurm.scontrol("show", "node", node)


async def test_an_old_pod_that_does_not_go_fails_the_next_start_until_it_is_gone(lab: Cluster) -> None:
    """Its host is gone. Slurm has the node off after SuspendTimeout and gives it to the next job, for which no pod can be made."""
    template = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1}}}}
    await lab.patch_target("cpu", template)
    lab.kubelet.behave("cpu-5", Behaviour(terminates=False))
    await lab.run_job("--nodelist=cpu-5")
    await lab.slurm.wait_node("cpu-5", "POWERED_DOWN", without=["POWERING_DOWN"])
    job = await lab.sbatch("--nodelist=cpu-5")
    lab.audit.may_end(job, "COMPLETED")
    await failed(lab, "cpu-5", R.POD_LOST)
    lab.kubelet.behave("cpu-5", GOOD)
    await told_everywhere(lab, "cpu-5", R.POD_LOST, "its old pod is Terminating past its grace: is its host gone?")
    done = await lab.slurm.wait_job(job, "COMPLETED", seconds=180)
    assert done["Restarts"] == "1"


async def test_a_group_that_is_taken_out_of_its_target_and_put_back(lab: Cluster) -> None:
    """Its nodes are nobody's meanwhile, which is told to the hook; the other group goes on. When it is back, all is as before."""
    await lab.run_job("-p", "gpu", f"--nodelist={GPU}-1")
    await lab.settle(off=[f"{GPU}-1"])
    entry = (await lab.target(GPU))["spec"]["workerGroupSpecs"][0]
    await lab.patch_target(GPU, {"spec": {"workerGroupSpecs": []}})
    await lab.copilot.until("the group to be gone", lambda: _groups_are(lab, {"cpu"}))
    code, said = await lab.hook("slurm-resume.sh", f"{GPU}-1")
    assert (code, f"no worker group {GPU} in this namespace" in said) == (1, True)
    await lab.run_job("--nodelist=cpu-7")
    await lab.patch_target(GPU, {"spec": {"workerGroupSpecs": [entry]}})
    await lab.copilot.until("the group to be back", lambda: _groups_are(lab, {"cpu", GPU}))
    await lab.run_job("-p", "gpu", f"--nodelist={GPU}-2")


async def _groups_are(lab: Cluster, names: set[str]) -> bool:
    _, said = await lab.copilot.status()
    return {group["name"] for group in said.get("groups", [])} == names
