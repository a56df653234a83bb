"""What failures do beyond their node: the other nodes of a job that cannot have all, the breaker of a group, and an operator's hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from copilot.hostlist import expand
from copilot.model import FailureReason as R
from copilot.model import Kind
from tests.e2e import pace
from tests.e2e.conftest import make
from tests.e2e.failing import events, failed, freed, lines_of, told_everywhere
from tests.e2e.pace import looked, until_there
from tests.lab.cluster import Cluster
from tests.lab.daemon import Line
from tests.lab.kubelet import GOOD, Behaviour

# An idle node stays for longer than any test: whatever goes was sent.
OPTIONS = {"SuspendTime": "600", "ResumeTimeout": "300"}
SETTINGS = {
    **pace.SETTINGS,
    "unschedulable_grace": "3",
    "image_pull_grace": "2",
    "breaker_failures": "5",
    "breaker_pause": "4",
    "breaker_pause_max": "60",
}
pytestmark = pytest.mark.any_api
HOLD = "slurmctld-copilot/hold"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    async with make(folder, kinds={"cpu": Kind.ADVANCED_STATEFUL_SET}, options=OPTIONS, settings=SETTINGS) as made:
        yield made


async def test_a_job_that_cannot_have_all_of_its_nodes_gives_the_others_back(lab: Cluster) -> None:
    """Of ten nodes six can be scheduled. Decided once; another job's node is not touched; with room the same job runs."""
    end = lab.folder / "end-other"
    other = await lab.sbatch("--nodelist=cpu-20", wrap=until_there(end))
    await lab.slurm.wait_job(other, "RUNNING")
    uid = (await lab.pods())["cpu-20"]["metadata"]["uid"]
    lab.kubelet.behave("cpu-[6-9]", Behaviour(schedulable=False))
    job = await lab.sbatch("--nodes=10", "--nodelist=cpu-[0-9]")
    lab.audit.may_end(job, "COMPLETED")
    line = await failed(lab, "cpu-6", R.UNSCHEDULABLE)
    lab.kubelet.behave("cpu-[6-9]", GOOD)
    assert (line["nodes"], line["jobs"]) == ("cpu-[6-9]", [job])
    await told_everywhere(lab, "cpu-6", R.UNSCHEDULABLE, "1 Insufficient cpu")
    await asyncio.gather(*(_goes_with_its_job(lab, f"cpu-{index}") for index in range(6)))
    assert await events(lab, "NodeReleased", "cpu")
    done = await lab.slurm.wait_job(job, "COMPLETED", seconds=180)
    assert done["Restarts"] == "1"
    released = [name for one in lab.copilot.log("node_released_with_job") for name in expand(one["nodes"], 100)]
    assert sorted(released) == [f"cpu-{index}" for index in range(6)]
    assert (await lab.pods())["cpu-20"]["metadata"]["uid"] == uid
    end.touch()
    await lab.slurm.wait_job(other, "COMPLETED")


async def _goes_with_its_job(lab: Cluster, node: str) -> None:
    await lab.copilot.until(f"{node} to go with its job", lambda: lines_of(lab, "node_released_with_job", node))
    await freed(lab, node)


async def test_the_breaker_of_a_group_that_fails(lab: Cluster) -> None:
    """Five failures open it; one node tries after each pause; the first success lets all start."""
    lab.kubelet.behave("cpu-1[0-4]", Behaviour(image_pulls=False))
    jobs = [await lab.sbatch(f"--nodelist=cpu-{index}") for index in range(10, 15)]
    for job in jobs:
        lab.audit.may_end(job, "COMPLETED")
    opened, *_ = await lab.copilot.until_logged("breaker_open", group="cpu")
    assert (opened["failures"], opened["pause"], opened["reason"]) == (5, 4.0, "image_pull")
    # The jobs come back: one of their nodes tries, the others wait without a pod.
    await lab.copilot.until("a node to wait", lambda: lab.copilot.log("node_waits_for_breaker"))
    await lab.copilot.until("status to say so", lambda: _one_says(lab, "waits for the breaker of cpu, open after image_pull"))
    await lab.copilot.until("a probe", lambda: lab.copilot.log("breaker_half_open"))
    await lab.copilot.until_logged("breaker_open", times=2, group="cpu")
    assert await lab.copilot.metric("slurm_copilot_breaker_open", group="cpu") == 1
    words = "no new node of cpu is started for 4 s after 5 failures in a row, last: image_pull: "
    assert any(each.startswith(words) for each in await events(lab, "ScaleUpPaused", "cpu"))
    lab.kubelet.behave("cpu-1[0-4]", GOOD)
    [closed] = await lab.copilot.until_logged("breaker_closed", group="cpu")
    for job in jobs:
        await lab.slurm.wait_job(job, "COMPLETED", seconds=180)
    await lab.copilot.until("the Event that all may start", lambda: events(lab, "ScaleUpResumed", "cpu"))
    assert await lab.copilot.metric("slurm_copilot_breaker_open", group="cpu") == 0
    pauses = [one["pause"] for one in lab.copilot.log("breaker_open")]
    assert pauses == [4.0 * 2**times for times in range(len(pauses))]
    _only_probes_started(lab, opened, closed)


def _only_probes_started(lab: Cluster, opened: Line, closed: Line) -> None:
    """Between these lines of the log no other node was newly asked for."""
    log = lab.copilot.log()
    between = log[log.index(opened) : log.index(closed)]
    probes = {line["probe"] for line in between if line["event"] == "breaker_half_open"}
    before = set(expand("cpu-[10-14]", 100))
    for line in between:
        if line["event"] == "target_patched":
            wanted = set(expand(line["wanted"], 100)) if line["wanted"] else set()
            assert wanted - before <= probes, line
            before = wanted


async def test_a_group_that_is_held(lab: Cluster) -> None:
    """Nothing new is started, nothing that runs is touched, not even what Slurm gives up meanwhile; and it shows."""
    end = lab.folder / "end-held"
    before = await lab.sbatch("--nodelist=cpu-22", wrap=until_there(end))
    await lab.slurm.wait_job(before, "RUNNING")
    uid = (await lab.pods())["cpu-22"]["metadata"]["uid"]
    await lab.patch_target("cpu", {"metadata": {"annotations": {HOLD: "maintenance"}}})
    await lab.copilot.until("the hold to be seen", lambda: _held(lab))
    job = await lab.sbatch("--nodelist=cpu-24")
    await lab.slurm.wait_node("cpu-24", "POWERING_UP")
    await lab.copilot.until(
        "status to say why it waits", lambda: _says(lab, "cpu-24", f"held: an operator holds the group by the annotation {HOLD}")
    )
    end.touch()
    await lab.slurm.wait_job(before, "COMPLETED")
    await lab.slurm.scontrol("update", "nodename=cpu-22", "state=power_down")
    await lab.slurm.wait_node("cpu-22", "IDLE", "POWERED_DOWN", without=["POWERING_DOWN"])
    await looked(lab, 3)
    pods = await lab.pods()
    assert (pods["cpu-22"]["metadata"]["uid"], "cpu-24" in pods) == (uid, False)
    await lab.patch_target("cpu", {"metadata": {"annotations": {HOLD: None}}})
    await lab.slurm.wait_job(job, "COMPLETED")
    await lab.copilot.until("the pod of the node that is off to go", lambda: _gone(lab, "cpu-22"))
    assert not await _held(lab)


async def _held(lab: Cluster) -> bool:
    return await lab.copilot.metric("slurm_copilot_held", group="cpu") == 1


async def _one_says(lab: Cluster, words: str) -> bool:
    return any(words in node["reason"] for node in (await lab.copilot.status())[1].get("nodes", []))


async def _says(lab: Cluster, node: str, words: str) -> bool:
    return words in (await lab.status_of(node)).get("reason", "")


async def _gone(lab: Cluster, name: str) -> bool:
    return name not in await lab.pods()
