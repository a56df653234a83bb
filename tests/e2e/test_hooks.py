"""What hooks may say: many at once, again and again, out of turn, or with names among the nodes that nobody can serve."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.e2e.conftest import make
from tests.e2e.hook_script import instead
from tests.e2e.pace import OPTIONS, SETTINGS, looked, until_there
from tests.lab.cluster import Cluster
from tests.lab.endpoint import Object


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    async with make(folder, options=OPTIONS, settings=SETTINGS) as made:
        yield made


# What the copilot has by default, in seconds.
COALESCE = 0.2


def growth(patches: list[dict[str, Any]]) -> int:
    """How many of these patches asked for more nodes than the one before."""
    counts = [0, *(patch["count"] for patch in patches)]
    return sum(later > before for before, later in pairwise(counts))


async def test_sixteen_hooks_at_once(lab: Cluster) -> None:
    """slurmctld's one call becomes sixteen at the same moment, each for a node: none is lost, and those that come close together share a
    patch. How close they come the machine decides."""
    patches = len(lab.copilot.log("target_patched"))
    each = 'for node in $(scontrol show hostnames "$1"); do "$real" "$node" & done; wait'
    with instead(lab, "slurm-resume.sh", each):
        job = await lab.run_job("--nodes=16", "--nodelist=cpu-[0-15]", wrap="srun hostname")
    hooks = lab.copilot.log("hook", action="resume")
    assert sorted(hook["nodes"] for hook in hooks) == sorted(f"cpu-{index}" for index in range(16))
    first, last = (datetime.fromisoformat(hook["time"]) for hook in (hooks[0], hooks[-1]))
    assert growth(lab.copilot.log("target_patched")[patches:]) <= 2 + (last - first).total_seconds() / COALESCE
    assert [lab.containers.starts[f"cpu-{index}"] for index in range(16)] == [1] * 16
    answers = [line for line in (lab.slurm.folder / "log/hooks.log").read_text().splitlines() if "slurm-resume.sh" in line]
    assert len([line for line in answers if '"accepted": "cpu-' in line]) == len(answers) == 16
    assert job["NumNodes"] == "16"


async def test_names_that_cannot_be_served_spoil_nothing(lab: Cluster) -> None:
    """Unknown, foreign, padded, out of range, and what is no pod's name at all, in one list with two good ones."""
    bad = "cpu-007,nope-[3-4],cpu-[30-32],cpu-99999999999,Login,demo-worker-gpu-1,cpu-20-1"
    with instead(lab, "slurm-resume.sh", f'exec "$real" "{bad},$1"'):
        await lab.run_job("--nodes=2", "--nodelist=cpu-[20-21]", wrap="srun hostname")
    [hook] = [line for line in lab.copilot.log("hook", action="resume") if "ignored" in line]
    assert hook["nodes"] == "cpu-[20-21]"
    reasons = {entry["reason"]: entry["nodes"] for entry in hook["ignored"]}
    assert reasons == {
        "cannot be a pod of a worker group: expected <group>-<index> without leading zeros": "Login,cpu-007,cpu-99999999999",
        "no worker group nope in this namespace": "nope-[3-4]",
        "no worker group demo-worker-gpu in this namespace": "demo-worker-gpu-1",
        "no worker group cpu-20 in this namespace": "cpu-20-1",
        "slurmctld lists no such node: add it to slurm.conf": "cpu-[30-32]",
    }
    assert set(lab.containers.starts) == {"cpu-20", "cpu-21"}
    assert await lab.copilot.metric("slurm_copilot_hook_requests_total", action="resume", outcome="partly") == 1


async def test_a_list_of_nothing_but_bad_names_is_told_to_the_hook(lab: Cluster) -> None:
    before = await lab.target("cpu")
    code, said = await lab.hook("slurm-resume.sh", "nope-[0-3],cpu-[30-40],cpu-01")
    assert code == 1
    assert "nothing was accepted, status 422" in said
    assert "no worker group nope" in said
    assert generation(await lab.target("cpu")) == generation(before)


def generation(target: Object) -> int:
    found: int = target["metadata"]["generation"]
    return found


async def test_a_hook_that_is_called_again_changes_nothing(lab: Cluster) -> None:
    """While the node comes, when it is up, and by several at once."""
    lab.containers.hold("cpu-22")
    done = lab.folder / "done"
    job = await lab.sbatch("--nodelist=cpu-22", wrap=until_there(done))
    await lab.containers.arrived["cpu-22"].wait()
    target, uid = await lab.target("cpu"), (await lab.pods())["cpu-22"]["metadata"]["uid"]

    async def again() -> None:
        codes = await asyncio.gather(*(lab.hook("slurm-resume.sh", "cpu-22") for _ in range(5)))
        assert [code for code, _ in codes] == [0] * 5
        await looked(lab)
        assert generation(await lab.target("cpu")) == generation(target)
        assert (await lab.pods())["cpu-22"]["metadata"]["uid"] == uid

    await again()
    lab.containers.release("cpu-22")
    await lab.slurm.wait_job(job, "RUNNING")
    await again()
    done.touch()
    await lab.slurm.wait_job(job, "COMPLETED")
    assert lab.containers.starts["cpu-22"] == 1
    assert len(lab.copilot.log("node_up", nodes="cpu-22")) == 1


async def test_hooks_that_say_what_is_not_so_take_nothing_away(lab: Cluster) -> None:
    """A suspend or resume-fail that overtakes the resume, comes late, or was meant for another: Slurm's state is the truth."""
    lab.containers.hold("cpu-23")
    done = lab.folder / "done"
    job = await lab.sbatch("--nodelist=cpu-23", wrap=until_there(done))
    await lab.containers.arrived["cpu-23"].wait()
    uid = (await lab.pods())["cpu-23"]["metadata"]["uid"]
    for _ in range(2):
        for name in ("slurm-suspend.sh", "slurm-resume-fail.sh"):
            assert (await lab.hook(name, "cpu-[0-29]"))[0] == 0
            await looked(lab)
            pod = (await lab.pods())["cpu-23"]["metadata"]
            assert (pod["uid"], "deletionTimestamp" in pod) == (uid, False)
        if "cpu-23" not in lab.slurm.nodes_running():
            lab.containers.release("cpu-23")
            await lab.slurm.wait_job(job, "RUNNING")
    done.touch()
    await lab.slurm.wait_job(job, "COMPLETED")


async def test_a_resume_of_nodes_that_slurm_does_not_want_is_taken_back(lab: Cluster) -> None:
    """Somebody calls the hook by hand: the node is served until Slurm's table says that it is off."""
    lab.audit.hinted("cpu-24")
    code, said = await lab.hook("slurm-resume.sh", "cpu-24")
    assert (code, '"accepted": "cpu-24"' in said) == (0, True)
    await looked(lab)
    await lab.settle(off=["cpu-24"])


@pytest.mark.any_api
async def test_a_copilot_that_hangs_holds_no_hook_for_long_and_loses_no_node(lab: Cluster) -> None:
    log = lab.slurm.folder / "log/hooks.log"
    lab.copilot.freeze()
    try:
        job = await lab.sbatch("--nodelist=cpu-25")
        await lab.copilot.until("the hook to give up", lambda: "nothing was accepted, status 000" in log.read_text())
        assert lab.containers.starts.get("cpu-25", 0) == 0
    finally:
        lab.copilot.thaw()
    await lab.slurm.wait_job(job, "COMPLETED")
    assert lab.containers.starts["cpu-25"] == 1
