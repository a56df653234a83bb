"""Any part may end at any moment. Each test has nodes at every stage at once, ends one part, and wants all of it put right."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from copilot.model import Kind
from tests.e2e.begun import begun_with
from tests.e2e.conftest import make
from tests.e2e.pace import until_there
from tests.lab.cluster import Cluster
from tests.lab.embedded import Action
from tests.lab.kubelet import GOOD, Behaviour

# The stages wait for the test, not for Slurm.
OPTIONS = {"ResumeTimeout": "600", "SuspendTimeout": "600"}
SETTINGS = {"registration_timeout": "500"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    # Exactly the nodes that are wanted: in the window of a StatefulSet others would come along, and their pods be old when wanted.
    async with make(folder, kinds={"cpu": Kind.ADVANCED_STATEFUL_SET}, options=OPTIONS, settings=SETTINGS) as made:
        yield made


@dataclass(frozen=True, slots=True)
class Stages:
    """A node at each stage, and the jobs on them. `uid`: the pod under the running job."""

    busy: str
    held: str
    mute: str
    going: str
    running: int
    coming: tuple[int, ...]
    go: Path
    uid: str


async def reach(lab: Cluster, first: int) -> Stages:
    """`busy` runs a job, `held` has a pod whose container does not start yet, `mute` one that does not register yet, `going` a pod that
    stays Terminating. Returns when all have got there."""
    busy, held, mute, going = (f"cpu-{first + number}" for number in range(4))
    lab.containers.hold(held)
    lab.containers.mute.add(mute)
    lab.kubelet.behave(going, Behaviour(terminates=False))
    go = lab.folder / f"go-{first}"
    await lab.run_job(f"--nodelist={going}")
    await lab.slurm.scontrol("update", f"nodename={going}", "state=power_down")
    running = await lab.sbatch(f"--nodelist={busy}", wrap=until_there(go))
    coming = (await lab.sbatch(f"--nodelist={held}"), await lab.sbatch(f"--nodelist={mute}"))
    await lab.slurm.wait_job(running, "RUNNING")
    await lab.containers.arrived[held].wait()
    await lab.slurm.wait_for("the container of the mute node", lambda: _starts(lab, mute), bool)
    await lab.slurm.wait_node(going, "POWERING_DOWN")
    await _until_terminating(lab, going)
    return Stages(busy, held, mute, going, running, coming, go, (await lab.pods())[busy]["metadata"]["uid"])


async def _starts(lab: Cluster, name: str) -> int:
    return lab.containers.starts.get(name, 0)


async def _until_terminating(lab: Cluster, name: str) -> None:
    async def marked() -> bool:
        pod = (await lab.pods()).get(name)
        return pod is not None and "deletionTimestamp" in pod["metadata"]

    await lab.slurm.wait_for(f"{name} to be Terminating", marked, bool)


async def _until_saved(lab: Cluster) -> None:
    """A slurmctld that is killed comes back with what it last wrote; what it had not written is its own loss, not ours to test."""
    state = lab.slurm.folder / "state"
    marker = lab.folder / "saved"
    marker.touch()
    since = marker.stat().st_mtime

    async def written() -> list[str]:
        return [name for name in ("job_state", "node_state") if (state / name).stat().st_mtime <= since]

    # Any change makes it write; it does so within seconds.
    await lab.slurm.scontrol("update", "partitionname=gpu", "maxnodes=8")
    await lab.slurm.scontrol("update", "nodename=demo-worker-gpu-7", "comment=saved")
    done = await lab.slurm.run("sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=true")
    await lab.slurm.run("scancel", done.out.strip())
    await lab.slurm.wait_for("slurmctld to save its state", written, lambda missing: not missing)


async def finish(lab: Cluster, at: Stages) -> None:
    """Lets everything go on, and sees that it ends well: each container started once, the busy node's pod the same."""
    lab.containers.release(at.held)
    await lab.containers.speak(at.mute)
    lab.kubelet.behave(at.going, GOOD)
    assert (await lab.pods())[at.busy]["metadata"]["uid"] == at.uid
    at.go.touch()
    for job in (at.running, *at.coming):
        await lab.slurm.wait_job(job, "COMPLETED")
    assert [lab.containers.starts[name] for name in (at.busy, at.held, at.mute)] == [1, 1, 1]
    await lab.settle(off=[at.going])


async def restart_slurmctld(lab: Cluster) -> None:
    await lab.slurm.stop_slurmctld()
    await lab.slurm.start_slurmctld()


async def kill_slurmctld(lab: Cluster) -> None:
    await _until_saved(lab)
    await lab.slurm.stop_slurmctld(kill=True)
    await lab.slurm.start_slurmctld()


async def restart_copilot(lab: Cluster) -> None:
    assert await lab.copilot.stop() == 0
    await lab.copilot.start()


async def kill_copilot(lab: Cluster) -> None:
    """Also the first start that finds pods running and nodes allocated: nothing is remembered between two runs."""
    await lab.copilot.stop(kill=True)
    await lab.copilot.start()


async def take_the_api_away(lab: Cluster) -> None:
    async with lab.api_away():
        await lab.copilot.until_logged("watch_state", state="broken", path="/api/v1/namespaces/slurm/pods")


ENDS: list[Callable[[Cluster], Awaitable[None]]] = [
    restart_slurmctld,
    kill_slurmctld,
    restart_copilot,
    kill_copilot,
    take_the_api_away,
]


@pytest.mark.parametrize("number", range(len(ENDS)), ids=[end.__name__ for end in ENDS])
async def test_at_every_stage(lab: Cluster, number: int) -> None:
    stages = await reach(lab, 4 * number)
    await ENDS[number](lab)
    await finish(lab, stages)


async def test_slurmctld_killed_just_after_the_hook(lab: Cluster) -> None:
    """It may come back not knowing that it asked for the node, or not knowing the job: whatever it knows then is made true."""
    job = await lab.slurm.sbatch("--nodelist=cpu-20")
    lab.audit.hinted("cpu-20")
    await lab.copilot.until_logged("hook", action="resume", nodes="cpu-20")
    await lab.slurm.stop_slurmctld(kill=True)
    await lab.slurm.start_slurmctld()
    ends = ("COMPLETED", "CANCELLED", None)
    await lab.slurm.wait_for("the job's end", lambda: lab.slurm.job(job), lambda seen: seen.get("JobState") in ends)


async def test_hooks_that_nobody_heard(lab: Cluster) -> None:
    """The copilot is down while slurmctld calls it, which slurmctld never repeats."""
    before = await lab.copilot.metric("slurm_copilot_missed_hooks_total")
    await lab.copilot.stop(kill=True)
    job = await lab.sbatch("--nodelist=cpu-21")
    await lab.slurm.wait_for("the hook to give up", lambda: _hook_log(lab), lambda text: "nothing was accepted" in text)
    await lab.copilot.start()
    await lab.slurm.wait_job(job, "COMPLETED")
    await lab.copilot.until_logged("missed_hook", nodes="cpu-21")
    assert await lab.copilot.metric("slurm_copilot_missed_hooks_total") + before >= 1


async def _hook_log(lab: Cluster) -> str:
    log = lab.slurm.folder / "log/hooks.log"
    return log.read_text() if log.exists() else ""


@pytest.mark.any_slurm
async def test_the_api_server_is_away_for_half_a_minute(lab: Cluster) -> None:
    """A job comes meanwhile: the hook is taken, and the nodes come when the API server does."""
    back = lab.folder / "back"
    busy = await lab.sbatch("--nodelist=cpu-22", wrap=until_there(back))
    await lab.slurm.wait_job(busy, "RUNNING")
    async with lab.api_away():
        away = asyncio.create_task(asyncio.sleep(30))  # so long it is away; nothing is hoped for from the time
        job = await lab.sbatch("--nodelist=cpu-23")
        await lab.copilot.until_logged("hook", action="resume", nodes="cpu-23")
        await away
        assert (await lab.copilot.get("/healthz"))[0] == 200
        assert (await lab.slurm.job(busy))["JobState"] == "RUNNING"
    back.touch()
    for one in (job, busy):
        await lab.slurm.wait_job(one, "COMPLETED")
    assert lab.containers.starts["cpu-22"] == lab.containers.starts["cpu-23"] == 1


@pytest.mark.embedded
async def test_killed_between_the_patch_and_its_answer(lab: Cluster) -> None:
    """The patch was carried out, and nobody was told."""
    assert lab.embedded is not None
    fault = lab.embedded.faults.add(Action.RESET_AFTER, verb="patch", path="statefulsets/cpu$")
    job = await lab.sbatch("--nodelist=cpu-24")
    await lab.copilot.until("the patch", lambda: fault.fired)
    await kill_copilot(lab)
    await lab.slurm.wait_job(job, "COMPLETED")
    assert lab.containers.starts["cpu-24"] == 1


@pytest.mark.any_api
async def test_slurmctld_frozen_while_nodes_come_and_go(lab: Cluster) -> None:
    """scontrol hangs until its timeout: nobody is judged on what was not seen, nothing is removed, and all goes on afterwards."""
    stages = await reach(lab, 25)
    lab.slurm.freeze()
    async with begun_with(lab, scontrol_timeout="2") as so_far:
        told = len([line for line in so_far if line.get("event") == "slurm_unavailable"])
        await lab.copilot.until_logged("slurm_unavailable", times=told + 1)
        assert set(await lab.pods()) >= {stages.busy, stages.held, stages.mute}
        lab.slurm.thaw()
    await finish(lab, stages)


@pytest.mark.any_api
async def test_reconfigured_while_nodes_come(lab: Cluster) -> None:
    job = await lab.sbatch("--nodes=4", "--nodelist=cpu-[0-3]", wrap="srun hostname")
    await lab.copilot.until_logged("node_requested", nodes="cpu-[0-3]")
    await lab.slurm.scontrol("reconfigure")
    await lab.slurm.wait_job(job, "COMPLETED")
