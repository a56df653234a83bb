"""Nodes that cannot start, for every reason that a pod or its slurmd can have: the job is requeued after the grace, the cause is told in
every place, the pod is released, and once the cause is gone the same job runs on the same node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from copilot.model import FailureReason as R
from copilot.model import Kind
from tests.e2e import pace
from tests.e2e.conftest import make
from tests.e2e.failing import failed, freed, lines_of, pod_gone, told_everywhere
from tests.lab.cluster import Cluster
from tests.lab.kubelet import GOOD, Behaviour

OPTIONS = {**pace.OPTIONS, "ResumeTimeout": "300"}
GRACES = ("unschedulable", "image_pull", "container_config", "crash_loop", "evicted", "pod_lost")
# A slurmd that starts well on a busy machine must have its time. No breaker: here all fail at once, and each for a reason of its own.
SETTINGS = {
    **pace.SETTINGS,
    **{f"{each}_grace": "2" for each in GRACES},
    "stale_grace": "2",
    "registration_timeout": "25",
    "breaker_failures": "1000",
}
pytestmark = pytest.mark.any_api
Act = Callable[[], None]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    async with make(folder, kinds={"cpu": Kind.ADVANCED_STATEFUL_SET}, options=OPTIONS, settings=SETTINGS) as made:
        yield made


async def test_every_reason_that_a_pod_can_have(lab: Cluster) -> None:
    """Side by side, since the nodes of such a set do not touch one another."""
    no_boot, mute, reports = lab.containers.without_boot, lab.containers.mute, lab.containers.reports
    no_boot.add("cpu-9")
    mute.add("cpu-7")
    reports["cpu-11"] = "CPUs=1 RealMemory=1000"
    await asyncio.gather(
        _behaves(lab, "cpu-1", Behaviour(schedulable=False), R.UNSCHEDULABLE, "1 Insufficient cpu"),
        _behaves(lab, "cpu-3", Behaviour(image_pulls=False), R.IMAGE_PULL, 'Back-off pulling image "slurm"'),
        _behaves(lab, "cpu-5", Behaviour(crashes=True), R.CRASH_LOOP, "back-off 10s restarting failed container"),
        _fails(lab, "cpu-7", R.REGISTRATION_TIMEOUT, "SlurmctldHost, munge key and port 6817", lambda: mute.discard("cpu-7")),
        _fails(lab, "cpu-9", R.STALE_POD, "start slurmd with -b", lambda: no_boot.discard("cpu-9")),
        _fails(lab, "cpu-11", R.INVALID_REGISTRATION, "Low CPUs", lambda: _forget(reports, "cpu-11")),
    )
    assert lines_of(lab, "stale_pod_replaced", "cpu-9")


async def _behaves(lab: Cluster, node: str, behaviour: Behaviour, reason: R, words: str) -> None:
    lab.kubelet.behave(node, behaviour)
    await _fails(lab, node, reason, words, lambda: lab.kubelet.behave(node, GOOD))


async def _fails(lab: Cluster, node: str, reason: R, words: str, mend: Act) -> None:
    """The job comes, is requeued once, and ends well after `mend`."""
    job = await lab.sbatch(f"--nodelist={node}")
    lab.audit.may_end(job, "COMPLETED")
    await failed(lab, node, reason)
    await pod_gone(lab, node)
    mend()
    await told_everywhere(lab, node, reason, words)
    await freed(lab, node)
    done = await lab.slurm.wait_job(job, "COMPLETED", seconds=180)
    assert (done["Restarts"], done["NodeList"]) == ("1", node)
    assert len(lines_of(lab, "node_failed", node)) == 1


def _forget(reports: dict[str, str], node: str) -> None:
    reports.pop(node)
