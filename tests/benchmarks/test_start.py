"""From a submitted job to its first line, on a cluster that is powered down: the copilot with and without fast start, and Slurm's own floor.

The floor has no Kubernetes and no copilot: slurmd is started by hand the moment that ResumeProgram is called, once as Slurm is and once
with a prolog that asks scontrol until the node is there.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest

from copilot.model import Kind
from tests.benchmarks.figures import Figures, median
from tests.lab.cluster import Cluster
from tests.lab.slurm import SlurmLab, Workers

HERE = Path(__file__).resolve().parent
WORKERS = (Workers("cpu", 20, "cpu"),)
OPTIONS = {"SuspendTime": "3600", "ResumeTimeout": "120"}
QUICK, SLOW = 9, 3  # jobs with a prolog that waits, and without: these take half a minute each


@dataclass(frozen=True, slots=True)
class Times:
    """Unix times of one job: submitted, its node registered according to slurmctld's log, the first line of its script."""

    submitted: float
    registered: float
    running: float


async def test_the_floor(folder: Path, figures: Figures) -> None:
    async with _by_hand(folder / "plain", {}) as lab:
        plain = [await _job(lab, index) for index in range(SLOW)]
    async with _by_hand(folder / "prolog", {"PrologSlurmctld": HERE / "waiting_prolog.sh"}) as lab:
        prolog = [await _job(lab, index) for index in range(QUICK)]
    _add(figures, "floor_submit_to_running_s", plain, "floor: slurmd started by hand at ResumeProgram, no prolog")
    _add(figures, "floor_prolog_submit_to_running_s", prolog, "floor: the same with a prolog that asks scontrol for the one node")


@pytest.mark.parametrize("fast", [True, False], ids=["fast_start", "no_fast_start"])
async def test_with_the_copilot(folder: Path, figures: Figures, fast: bool) -> None:
    settings = {"log_level": "info"}
    kinds = {"cpu": Kind.STATEFUL_SET}
    cluster = Cluster("22.05", folder, kinds=kinds, workers=WORKERS, options=OPTIONS, settings=settings, fast_start=fast)
    async with cluster:
        jobs = [await _job(cluster.slurm, index) for index in range(QUICK if fast else SLOW)]
    if not fast:
        _add(figures, "submit_to_running_without_fast_start_s", jobs, "the whole way without slurm-prolog.sh")
        return
    _add(figures, "submit_to_running_s", jobs, "the whole way with slurm-prolog.sh: hook, patch, pod, slurmd, prolog")
    floor = figures.by_name.get("floor_prolog_submit_to_running_s")
    if floor is not None:
        ratio = median([job.running - job.submitted for job in jobs]) / floor.value
        figures.add("submit_to_running_vs_floor_ratio", ratio, "", "the same as a ratio to the floor with a prolog")
    waits = [job.running - job.registered for job in jobs]
    figures.add(
        "registered_to_running_s", median(waits), "s", f"node registered to job's first line, median of {QUICK}", goal=0.5
    )
    figures.add("registered_to_running_worst_s", max(waits), "s", "the slowest of them")


def _add(figures: Figures, name: str, jobs: list[Times], what: str) -> None:
    figures.add(name, median([job.running - job.submitted for job in jobs]), "s", f"{what}; median of {len(jobs)}")


async def _job(lab: SlurmLab, index: int) -> Times:
    """One job on a node that has not been used yet."""
    node, script = f"cpu-{index}", lab.folder / "run/first-line"
    script.unlink(missing_ok=True)
    submitted = time.time()
    job = await lab.sbatch(f"--nodelist={node}", wrap=f"date +%s.%N >{script}")
    await lab.wait_job(job, "COMPLETED", seconds=120)
    return Times(submitted, _registered(lab, node), float(script.read_text()))


def _registered(lab: SlurmLab, node: str) -> float:
    """slurmctld's own word, to the millisecond."""
    log = (lab.folder / "log/slurmctld.log").read_text()
    found = re.findall(rf"^\[(\S+?)\] Node {node} now responding", log, re.MULTILINE)
    assert found, f"slurmctld's log tells of no registration of {node}"
    return datetime.fromisoformat(found[0]).timestamp()


@asynccontextmanager
async def _by_hand(folder: Path, hooks: Mapping[str, Path]) -> AsyncIterator[SlurmLab]:
    hooks = {"ResumeProgram": HERE / "by_hand.sh", "SuspendProgram": HERE / "by_hand.sh", **hooks}
    lab = SlurmLab("22.05", folder, workers=WORKERS, options=OPTIONS, hooks=hooks)
    await lab.start()
    starting = asyncio.create_task(_start_what_is_resumed(lab))
    try:
        yield lab
    finally:
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await starting
        await lab.stop()


async def _start_what_is_resumed(lab: SlurmLab) -> None:
    """For ever; 5 ms after the hook at the latest."""
    told, done = lab.folder / "run/resumed", 0
    while True:
        lines = told.read_text().split() if told.exists() else []
        for node in lines[done:]:
            await lab.start_node(node)
        done = len(lines)
        await asyncio.sleep(0.005)
