"""The API server is away, slow, busy or wrong, or the target is not what it was: nothing is lost, and nothing is done twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from copilot.model import Kind
from tests.e2e import pace
from tests.e2e.conftest import KUBERNETES, make
from tests.e2e.pace import SETTINGS, looked, until_there
from tests.lab import workloads
from tests.lab.cluster import NAMESPACE, Cluster
from tests.lab.embedded import Action
from tests.lab.embedded.faults import Fault, Faults

# While the API server is away nodes stay POWERING_DOWN for as long as SuspendTimeout says.
OPTIONS = {**pace.OPTIONS, "SuspendTimeout": "600"}
# A target that is asked in vain is asked again within seconds; the embedded server serves OpenKruise's sets without more ado.
QUICKLY = {**SETTINGS, "kube_timeout": "2", "retry_max": "2", "orphan_grace": "5"}
KINDS = {"cpu": Kind.STATEFUL_SET} | ({"demo-worker-gpu": Kind.ADVANCED_STATEFUL_SET} if KUBERNETES == "embedded" else {})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    async with make(folder, kinds=KINDS, options=OPTIONS, settings=QUICKLY) as made:
        yield made


def faults(lab: Cluster) -> Faults:
    assert lab.embedded is not None
    return lab.embedded.faults


def of_patches(lab: Cluster, action: Action, **given: Any) -> Fault:
    """A fault that strikes the patches of the set `cpu`, the next one if nothing else is said."""
    return faults(lab).add(action, verb="patch", path="statefulsets/cpu$", **given)


def last(lab: Cluster, event: str, **values: Any) -> dict[str, Any]:
    return lab.copilot.log(event, **values)[-1]


async def errors(lab: Cluster) -> float:
    return await lab.copilot.metric("slurm_copilot_target_patches_total", group="cpu", outcome="error")


async def test_away_while_a_node_goes_and_another_comes(lab: Cluster) -> None:
    """slurmctld's hooks are taken. What nobody can see to be gone is not said to be gone."""
    done = lab.folder / "done"
    first = await lab.sbatch("--nodelist=cpu-0", wrap=until_there(done))
    await lab.slurm.wait_job(first, "RUNNING")
    async with lab.api_away():
        done.touch()
        await lab.slurm.wait_node("cpu-0", "POWERING_DOWN")
        await lab.copilot.until_logged("hook", action="suspend", nodes="cpu-0")
        job = await lab.sbatch("--nodelist=cpu-1")
        await lab.copilot.until_logged("hook", action="resume", nodes="cpu-1")
        await lab.copilot.until_logged("target_patch_failed", outcome="error")
        await looked(lab, 3)
        assert "POWERING_DOWN" in await lab.slurm.node("cpu-0")
        assert (await lab.copilot.get("/healthz"))[0] == 200
        code, said = await lab.copilot.status()
        assert (code, bool(said["problems"])) == (1, True)
    await lab.slurm.wait_job(job, "COMPLETED")
    await lab.settle(off=["cpu-0", "cpu-1"])
    assert [lab.containers.starts[name] for name in ("cpu-0", "cpu-1")] == [1, 1]


@pytest.mark.embedded
async def test_a_scale_down_that_fails_is_tried_until_it_is_done(lab: Cluster) -> None:
    done = lab.folder / "done"
    job = await lab.sbatch("--nodelist=cpu-2", wrap=until_there(done))
    await lab.slurm.wait_job(job, "RUNNING")
    before = await errors(lab)
    told = len(lab.copilot.log("target_patch_failed"))
    fault = of_patches(lab, Action.STATUS, status=500, times=3)
    done.touch()
    await lab.slurm.wait_job(job, "COMPLETED")
    await lab.settle(off=["cpu-2"])
    assert fault.fired == 3
    assert await errors(lab) == before + 3
    assert len(lab.copilot.log("target_patch_failed")) == told + 1, "the same trouble is told once"


@pytest.mark.embedded
async def test_a_busy_server_is_left_alone_for_as_long_as_it_asks(lab: Cluster) -> None:
    fault = of_patches(lab, Action.STATUS, status=429, retry_after=4)
    await lab.run_job("--nodelist=cpu-3")
    assert fault.fired == 1
    refused, patched = (last(lab, "target_patch_failed"), last(lab, "target_patched", wanted="cpu-3"))
    assert seconds(patched) - seconds(refused) >= 4


def seconds(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["time"]).timestamp()


@pytest.mark.embedded
async def test_a_patch_whose_answer_does_not_come(lab: Cluster) -> None:
    """Whether it was carried out is not known: the object is read, and what it says already is not said again."""
    asked = generation(await lab.target("cpu"))
    jobs, answered = [], lab.folder / "answered"
    for node, action in enumerate((Action.RESET_BEFORE, Action.RESET_AFTER, Action.HANG, Action.SLOW), start=4):
        fault = of_patches(lab, action, seconds=3.0)
        jobs.append(await lab.sbatch(f"--nodelist=cpu-{node}", wrap=until_there(answered)))
        await lab.slurm.wait_job(jobs[-1], "RUNNING")
        assert fault.fired == 1
        asked += 1
        assert generation(await lab.target("cpu")) == asked
    answered.touch()
    for job in jobs:
        await lab.slurm.wait_job(job, "COMPLETED")
    assert [lab.containers.starts[f"cpu-{node}"] for node in range(4, 8)] == [1] * 4


def generation(target: dict[str, Any]) -> int:
    found: int = target["metadata"]["generation"]
    return found


@pytest.mark.embedded
async def test_watches_that_break(lab: Cluster) -> None:
    """Cut in the middle of a line, too old from the start, refused, or without bookmarks, while nodes come and go."""
    given = [
        faults(lab).add(Action.CUT_WATCH, verb="watch", times=4),
        faults(lab).add(Action.GONE, verb="watch", times=4),
        faults(lab).add(Action.STATUS, verb="watch|list", status=503, times=4),
        faults(lab).add(Action.STATUS, verb="watch|list", status=403, times=2),
        faults(lab).add(Action.BOOKMARK_GAP, verb="watch", times=2),
    ]
    assert lab.embedded is not None
    lab.embedded.cut_connections()
    await lab.run_job("--nodes=4", "--nodelist=cpu-[16-19]", wrap="srun hostname")
    await lab.settle(off=[f"cpu-{index}" for index in range(16, 20)])
    assert [fault.fired for fault in given][:2] == [4, 4]
    faults(lab).clear()
    assert [lab.containers.starts[f"cpu-{index}"] for index in range(16, 20)] == [1] * 4


async def test_a_target_that_is_made_anew(lab: Cluster) -> None:
    """With another uid, and none of the pods of the first, while Slurm waits for a node of it."""
    lab.containers.hold("cpu-10")
    job = await lab.sbatch("--nodelist=cpu-10")
    await lab.containers.arrived["cpu-10"].wait()
    path = workloads.path_of(Kind.STATEFUL_SET, NAMESPACE, "cpu")
    first = await lab.target("cpu")
    await lab.admin.delete(path)
    await lab.copilot.until_logged("target_gone")
    lab.containers.release("cpu-10")
    await lab.admin.post(workloads.collection(Kind.STATEFUL_SET, NAMESPACE), workloads.manifest(Kind.STATEFUL_SET, "cpu"))
    await lab.slurm.wait_job(job, "COMPLETED")
    assert (await lab.target("cpu"))["metadata"]["uid"] != first["metadata"]["uid"]
    await lab.settle(off=["cpu-10"])


async def test_what_somebody_else_writes_into_the_target_is_put_right(lab: Cluster) -> None:
    """Scaled to nothing under a node that comes: the pod comes again. Scaled up: what is too much goes after its grace."""
    lab.containers.hold("cpu-12")
    lab.audit.hinted("cpu-13", "cpu-14")
    job = await lab.sbatch("--nodelist=cpu-12")
    await lab.containers.arrived["cpu-12"].wait()
    await lab.patch_target("cpu", {"spec": {"replicas": 0}})
    lab.containers.release("cpu-12")
    await lab.slurm.wait_job(job, "COMPLETED")
    await lab.settle(off=["cpu-12"])
    lab.containers.mute.update(("cpu-13", "cpu-14"))
    await lab.patch_target("cpu", {"spec": {"replicas": 2, "ordinals": {"start": 13}}})
    await lab.copilot.until_logged("orphan_removed", nodes="cpu-[13-14]")
    await lab.settle(off=["cpu-12", "cpu-13", "cpu-14"])


@pytest.mark.embedded
async def test_a_server_that_drops_reserve_ordinals(lab: Cluster) -> None:
    """The field is unknown to a version before v1beta1: seen by reading back, told with its cure, and not asked for again and again."""
    assert lab.embedded is not None
    lab.embedded.resources.pruned.add(("apps.kruise.io/v1beta1/statefulsets", "reserveOrdinals"))
    job = await lab.sbatch("--partition=gpu", "--nodelist=demo-worker-gpu-3")
    lab.audit.may_end(job, "CANCELLED")
    lab.audit.hinted("demo-worker-gpu-0")
    lab.containers.mute.add("demo-worker-gpu-0")
    [told] = await lab.copilot.until_logged("target_patch_failed", target=f"kruise/{NAMESPACE}/demo-worker-gpu")
    assert "did not keep it" in told["error"]
    assert "reserveOrdinals" in told["error"]
    await looked(lab, 4)
    rejected = await lab.copilot.metric("slurm_copilot_target_patches_total", group="demo-worker-gpu", outcome="rejected")
    assert rejected == 1
    assert "demo-worker-gpu-3" not in await lab.pods()
    lab.embedded.resources.pruned.clear()
    await lab.slurm.run("scancel", str(job))
    await lab.slurm.scontrol("update", "nodename=demo-worker-gpu-3", "state=power_down_force")
    # It would ask again by itself after half a minute.
    await lab.copilot.stop()
    await lab.copilot.start()
    await lab.settle(off=["demo-worker-gpu-0", "demo-worker-gpu-3"])
