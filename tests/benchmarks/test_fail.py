"""From the first word that a pod cannot start to its job being requeued, beyond the grace: what an impatient user waits more than he must."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path

import pytest

from copilot.model import Kind
from tests.benchmarks.figures import Figures, median
from tests.e2e.failing import lines_of
from tests.lab.cluster import Cluster
from tests.lab.kubelet import GOOD, Behaviour
from tests.lab.slurm import Workers

GRACE = 5.0
REASONS = {
    "unschedulable": Behaviour(schedulable=False),
    "image_pull": Behaviour(image_pulls=False),
    "container_config": Behaviour(configured=False),
    "crash_loop": Behaviour(crashes=True),
}
# A good size for the breaker never to open: here all starts fail on purpose.
SETTINGS = {**{f"{reason}_grace": f"{GRACE:g}" for reason in REASONS}, "breaker_failures": "1000"}
TIMES = 4


@pytest.mark.parametrize("slurm", ["22.05", "24.11"])
async def test_requeued_after_the_grace(folder: Path, figures: Figures, slurm: str) -> None:
    options = {"SuspendTime": "3600", "ResumeTimeout": "300"}
    workers = (Workers("cpu", 20, "cpu"),)
    cluster = Cluster(
        slurm, folder, kinds={"cpu": Kind.ADVANCED_STATEFUL_SET}, workers=workers, options=options, settings=SETTINGS
    )
    async with cluster:
        for number, (reason, behaviour) in enumerate(REASONS.items()):
            nodes = [f"cpu-{number * TIMES + each}" for each in range(TIMES)]
            late = [await _late(cluster, node, reason, behaviour) for node in nodes]
            figures.add(
                f"requeued_after_{reason}_{slurm}_s",
                median(late),
                "s",
                f"Slurm {slurm}: told that it cannot start ({reason}) to job requeued, less the grace of {GRACE:g} s; median of {TIMES}, worst {max(late):.2g}",
                goal=5.0,
            )


async def _late(cluster: Cluster, node: str, reason: str, behaviour: Behaviour) -> float:
    cluster.kubelet.behave(node, behaviour)
    job = await cluster.slurm.sbatch(f"--nodelist={node}", wrap="true")
    await cluster.slurm.wait_for(
        "the job to be requeued", lambda: cluster.slurm.job(job), lambda seen: seen.get("Restarts") == "1"
    )
    requeued = time.time()
    [told] = lines_of(cluster, "node_cannot_start", node, reason=reason)
    await cluster.slurm.run("scancel", str(job))
    cluster.kubelet.behave(node, GOOD)
    return requeued - datetime.fromisoformat(told["time"]).timestamp() - GRACE
