"""Nodes that come: from a submitted job to registered nodes, once each, with one patch where one will do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.e2e.begun import begun_with, ready
from tests.e2e.conftest import make
from tests.e2e.pace import looked, until_there
from tests.lab.cluster import Cluster
from tests.lab.daemon import Line
from tests.unit.log_table import story

# A SuspendTimeout that no test can wait for: that nodes are free again after each test shows that they are freed early.
OPTIONS = {"SuspendTimeout": "600"}
PARTITIONS = ("PartitionName=also Nodes=cpu-[0-29] State=UP", "PartitionName=too Nodes=cpu-[0-29] State=UP")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    async with make(folder, options=OPTIONS, lines=PARTITIONS) as made:
        yield made


async def test_one_node_from_cold(lab: Cluster) -> None:
    """The log tells the stages; the prolog let the job go when the node was up."""
    job = await lab.run_job("--nodelist=cpu-0", wrap="hostname")
    assert job["NodeList"] == "cpu-0"
    (up,) = lab.copilot.log("node_up", nodes="cpu-0")
    assert up["jobs"] == [int(job["JobId"])]
    # A node may have registered before its pod is seen at each of the stages between.
    assert {"scaled", "up"} <= up["stages"].keys() <= {"scaled", "pending", "scheduled", "running", "up"}
    (wait,) = lab.copilot.log("wait", nodes="cpu-0")
    assert wait["state"] == "up"
    assert await lab.copilot.metric("slurm_copilot_node_ready_seconds_count", group="cpu") == 1


async def test_a_cold_start_reads_as_the_document_tells(lab: Cluster) -> None:
    """At the default level, line by line, with the fields of the document's example and no line more.

    A look that shows the node before its hook arrives makes another story of it, also a good one: then the next node tells.
    """
    told = _shape(story())
    stories: list[list[tuple[str, str, set[str]]]] = []
    async with begun_with(lab, log_level="info", poll_quiet="60"):
        await lab.copilot.until("it to be ready", lambda: ready(lab))
        while told not in stories and len(stories) < 4:
            stories.append(_shape(await _cold_start(lab, f"cpu-{10 + len(stories)}")))
    assert told in stories, stories


def _shape(lines: list[Line]) -> list[tuple[str, str, set[str]]]:
    return [(line["event"], line["level"], set(line) - {"time"}) for line in lines]


async def _cold_start(lab: Cluster, node: str) -> list[Line]:
    """What the log has of one, of the events of the document's story."""
    before = len(lab.copilot.log())
    lab.containers.hold(node)
    job = await lab.sbatch(f"--nodelist={node}")
    await lab.containers.arrived[node].wait()
    await lab.copilot.until_logged("node_scheduled", nodes=node)
    lab.containers.release(node)
    await lab.slurm.wait_job(job, "COMPLETED")
    events = {line["event"] for line in story()}
    return [line for line in lab.copilot.log()[before:] if line["event"] in events]


async def test_eight_nodes_are_one_patch(lab: Cluster) -> None:
    await lab.run_job("--nodes=8", "--nodelist=cpu-[1-8]", wrap="srun hostname")
    assert [lab.containers.starts[f"cpu-{index}"] for index in range(1, 9)] == [1] * 8
    first = next(patch for patch in lab.copilot.log("target_patched") if "8" in patch["wanted"])
    assert first["wanted"] in ("cpu-[1-8]", "cpu-[0-8]"), "those that came with one hook went out with one patch"


async def test_two_jobs_share_a_node(lab: Cluster) -> None:
    """The second job finds the node on its way, and waits for the same pod."""
    lab.containers.hold("cpu-9")
    jobs = [await lab.sbatch("--nodelist=cpu-9", "--cpus-per-task=1", wrap="sleep 1") for _ in range(2)]
    await lab.containers.arrived["cpu-9"].wait()
    await lab.copilot.until("both prologs to wait", lambda: _waiting(lab, 2))
    lab.containers.release("cpu-9")
    for job in jobs:
        await lab.slurm.wait_job(job, "COMPLETED")
    assert lab.containers.starts["cpu-9"] == 1
    assert len(lab.copilot.log("wait", nodes="cpu-9", state="up")) == 2


async def _waiting(lab: Cluster, prologs: int) -> bool:
    return await lab.copilot.metric("slurm_copilot_waits") == prologs


async def test_job_array(lab: Cluster) -> None:
    """Five tasks of which four run at a time."""
    array = await lab.sbatch("--array=0-4", "--exclude=cpu-[0-9,12-29]", "--cpus-per-task=1", wrap="true")
    done = await lab.slurm.wait_for("the array", lambda: _ended_tasks(lab, array), lambda ends: len(ends) == 5)
    assert set(done) == {"COMPLETED"}
    assert {lab.containers.starts.get(name, 0) for name in ("cpu-10", "cpu-11")} <= {0, 1}


async def _ended_tasks(lab: Cluster, array: int) -> list[str]:
    done = await lab.slurm.run("squeue", "-h", "-r", "-t", "all", "-o", "%T", "-j", str(array))
    return [state for state in done.out.split() if state not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")]


async def test_srun_and_salloc_wait_for_their_nodes_too(lab: Cluster) -> None:
    done = await lab.slurm.run("srun", "--nodelist=cpu-[12-13]", "--nodes=2", "hostname", seconds=60)
    assert sorted(done.out.split()) == ["cpu-12", "cpu-13"], done


async def test_a_node_of_three_partitions_is_scaled_once(lab: Cluster) -> None:
    """One job keeps it, or it might be suspended before the last begins."""
    done = lab.folder / "done"
    keeps = await lab.sbatch("--partition=cpu", "--nodelist=cpu-14", "--oversubscribe", wrap=until_there(done))
    jobs = [await lab.sbatch(f"--partition={name}", "--nodelist=cpu-14", "--oversubscribe") for name in ("also", "too")]
    for job in jobs:
        await lab.slurm.wait_job(job, "COMPLETED")
    done.touch()
    await lab.slurm.wait_job(keeps, "COMPLETED")
    assert lab.containers.starts["cpu-14"] == 1


async def test_a_resume_of_nodes_that_are_up_changes_nothing(lab: Cluster) -> None:
    done = lab.folder / "done"
    job = await lab.sbatch("--nodelist=cpu-[15-16]", "--nodes=2", wrap=until_there(done))
    await lab.slurm.wait_job(job, "RUNNING")
    asked, patches = (await lab.target("cpu"))["metadata"]["generation"], len(lab.copilot.log("target_patched"))
    code, said = await lab.hook("slurm-resume.sh", "cpu-[15-16]")
    assert (code, '"accepted": "cpu-[15-16]"' in said) == (0, True)
    await looked(lab)
    assert (await lab.target("cpu"))["metadata"]["generation"] == asked
    assert len(lab.copilot.log("target_patched")) == patches
    done.touch()
    await lab.slurm.wait_job(job, "COMPLETED")
    assert [lab.containers.starts[name] for name in ("cpu-15", "cpu-16")] == [1, 1]


async def test_a_job_cancelled_while_its_node_powers_up_ends_the_waits(lab: Cluster) -> None:
    """Whoever waits for the node is answered once nobody has it. The node comes up all the same, and is suspended."""
    lab.containers.hold("cpu-17")
    job = await lab.sbatch("--nodelist=cpu-17")
    lab.audit.may_end(job, "CANCELLED")
    await lab.containers.arrived["cpu-17"].wait()
    # slurmctld's own prolog, and one of ours: slurmctld may end its own when the job is cancelled, nobody ends ours.
    prolog = asyncio.create_task(lab.hook("slurm-prolog.sh", "", {"SLURM_JOB_ID": str(job), "SLURM_JOB_NODELIST": "cpu-17"}))
    await lab.copilot.until("both prologs to wait", lambda: _waiting(lab, 2))
    await lab.slurm.run("scancel", str(job))
    assert (await prolog)[0] == 0
    await lab.copilot.until_logged("wait", nodes="cpu-17", state="gone")
    await lab.copilot.until("no prolog to wait", lambda: _waiting(lab, 0))
    lab.containers.release("cpu-17")
    await lab.settle(off=["cpu-17"])
