"""Sparse sets on an Advanced StatefulSet and on a SlurmCluster, whose operator reads its lists in one way or another, slowly, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from copilot.model import Kind
from tests.e2e.conftest import make
from tests.e2e.pace import OPTIONS, SETTINGS, looked, until_there
from tests.lab import workloads
from tests.lab.cluster import WORKERS, Cluster
from tests.lab.operator import Reading
from tests.lab.slurm import Workers

GPU, BIG = "demo-worker-gpu", "big-worker-n"
KINDS = {"cpu": Kind.ADVANCED_STATEFUL_SET, GPU: Kind.SLURM_CLUSTER, BIG: Kind.SLURM_CLUSTER}
WORKERS_TOO = (*WORKERS, Workers(BIG, 1000, "big"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    async with make(folder, kinds=KINDS, workers=WORKERS_TOO, options=OPTIONS, settings=SETTINGS) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def operator_as_it_should_be(lab: Cluster) -> AsyncIterator[None]:
    """Before `lab` waits for the cluster to come to rest."""
    yield
    assert lab.operator is not None
    lab.operator.delay, lab.operator.alive = 0.0, True


def patches(lab: Cluster, target: str) -> int:
    return len(lab.copilot.log("target_patched", target=target))


async def sparse_set_that_shrinks(lab: Cluster, group: str, first: int) -> None:
    """Three nodes with gaps between them; the one in the middle goes, and the others do not notice."""
    left, middle, right = (f"{group}-{index}" for index in (first, first + 2, first + 4))
    partition = group.rpartition("-")[2]
    go = lab.folder / f"go-{group}"
    job = await lab.sbatch(f"--partition={partition}", "--nodes=2", f"--nodelist={left},{right}", wrap=until_there(go))
    await lab.run_job(f"--partition={partition}", f"--nodelist={middle}")
    await lab.slurm.wait_job(job, "RUNNING")
    before = await lab.pods()
    assert {left, right} <= before.keys()
    await lab.settle(up=[left, right], off=[middle])
    after = await lab.pods()
    assert after.keys() == {left, right}
    assert [after[name]["metadata"]["uid"] for name in (left, right)] == [
        before[name]["metadata"]["uid"] for name in (left, right)
    ]
    go.touch()
    await lab.slurm.wait_job(job, "COMPLETED")
    await lab.settle(off=[left, right])
    assert await lab.replicas(group) == 0


async def test_three_of_ten_by_openkruise(lab: Cluster) -> None:
    job = await lab.sbatch("--nodes=3", "--nodelist=cpu-[1,4,8]", wrap="srun hostname")
    await lab.slurm.wait_job(job, "RUNNING", "COMPLETED")
    assert set(lab.containers.starts) == {"cpu-1", "cpu-4", "cpu-8"}
    await lab.slurm.wait_job(job, "COMPLETED")
    await lab.settle(off=["cpu-1", "cpu-4", "cpu-8"])
    assert workloads.asked(Kind.ADVANCED_STATEFUL_SET, await lab.target("cpu")) == set()
    await sparse_set_that_shrinks(lab, "cpu", 3)


@pytest.mark.parametrize("reading", list(Reading))
async def test_slurmcluster(lab: Cluster, reading: Reading) -> None:
    """Whatever becomes of the lists: the right pods, and no patch without need."""
    assert lab.operator is not None
    lab.operator.reading = reading
    before = patches(lab, "slurmcluster/slurm/demo")
    await sparse_set_that_shrinks(lab, GPU, 1)
    # Two that come, three that go, and as many to tidy up lists that nobody clears.
    assert patches(lab, "slurmcluster/slurm/demo") - before <= 10


async def test_an_operator_that_is_slow(lab: Cluster) -> None:
    """It acts seconds after it was told, which is no reason to tell it again."""
    assert lab.operator is not None
    lab.operator.reading, lab.operator.delay = Reading.CLEARS_AT_ONCE, 2.0
    before = patches(lab, "slurmcluster/slurm/demo")
    done = lab.folder / "done"
    job = await lab.sbatch("--partition=gpu", "--nodes=3", f"--nodelist={GPU}-[2-4]", wrap=f"srun hostname; {until_there(done)}")
    await lab.slurm.wait_job(job, "RUNNING")
    # Three nodes that come, and what tidies up after them.
    assert patches(lab, "slurmcluster/slurm/demo") - before <= 2
    assert [lab.containers.starts[f"{GPU}-{index}"] for index in (2, 3, 4)] == [1, 1, 1]
    done.touch()
    await lab.slurm.wait_job(job, "COMPLETED")
    await lab.settle(off=[f"{GPU}-{index}" for index in (2, 3, 4)])


async def test_an_operator_that_is_dead(lab: Cluster) -> None:
    """Nothing happens, which status shows; it is told once and not again and again. When it lives, all goes on."""
    assert lab.operator is not None
    lab.operator.reading, lab.operator.alive = Reading.CLEARS_AT_ONCE, False
    before = patches(lab, "slurmcluster/slurm/demo")
    job = await lab.sbatch("--partition=gpu", f"--nodelist={GPU}-7")
    await lab.copilot.until("the order", lambda: patches(lab, "slurmcluster/slurm/demo") > before)
    await looked(lab, 4)
    assert patches(lab, "slurmcluster/slurm/demo") == before + 1
    node = await lab.status_of(f"{GPU}-7")
    assert (node["phase"], node["pod"]) == ("scaled", "")
    lab.operator.alive = True
    await lab.slurm.wait_job(job, "COMPLETED")


async def test_a_thousand_nodes_are_one_patch(lab: Cluster) -> None:
    """There and back. Nobody makes the pods, which would be a test of the machine."""
    assert lab.operator is not None
    lab.operator.alive = False
    job = await lab.sbatch("--partition=big", "--nodes=1000")
    lab.audit.may_end(job, "CANCELLED")
    await lab.copilot.until_logged("node_requested", group=BIG, count=1000)
    await lab.admin.until(workloads.path_of(KINDS[BIG], "slurm", BIG), lambda seen: _order(seen) == (1000, 1000))
    await looked(lab, 3)
    assert patches(lab, "slurmcluster/slurm/big") == 1
    await lab.slurm.run("scancel", str(job))
    await lab.slurm.scontrol("update", f"nodename={BIG}-[0-999]", "state=power_down_force")
    await lab.slurm.wait_node(f"{BIG}-999", "IDLE", "POWERED_DOWN", without=["POWERING_DOWN", "POWERING_UP"])
    await lab.admin.until(workloads.path_of(KINDS[BIG], "slurm", BIG), lambda seen: _order(seen) == (0, 0))
    assert patches(lab, "slurmcluster/slurm/big") <= 3


def _order(cluster: dict[str, object]) -> tuple[int, int]:
    entry = workloads.entry_of(cluster, BIG)
    return entry["replicas"], len(entry["podsToBeCreated"])


async def test_one_call_for_nodes_of_two_kinds(lab: Cluster) -> None:
    both = f"cpu-2,{GPU}-5"
    await lab.slurm.scontrol("update", f"nodename={both}", "state=power_up")
    await lab.copilot.until_logged("hook", action="resume", nodes=both)
    for name in both.split(","):
        await lab.copilot.until_logged("node_up", nodes=name)
    await lab.settle(off=both.split(","))
