"""Clusters in which nodes come and go within seconds, and waiting for looks at Slurm, which have no event of their own."""

from __future__ import annotations

from pathlib import Path

from tests.lab.cluster import Cluster

OPTIONS = {"SuspendTime": "1"}
# On a busy machine each look takes long, and few would fit into the usual share.
SETTINGS = {"poll_quiet": "1", "poll_share": "0.5"}


def until_there(file: Path) -> str:
    """The script of a job that ends when the file is there: what a test does meanwhile it does while the job runs, however long it takes."""
    file.unlink(missing_ok=True)
    return f"while [ ! -e {file} ]; do sleep 0.1; done"


async def looked(lab: Cluster, times: int = 2) -> None:
    """Waits until the copilot has looked at Slurm so many times more. The first may have begun before the call."""
    before = await looks(lab)

    async def enough() -> bool:
        return await looks(lab) >= before + times

    await lab.copilot.until(f"{times} more looks at Slurm", enough)


async def looks(lab: Cluster) -> float:
    return await lab.copilot.metric("slurm_copilot_scontrol_duration_seconds_count", command="show_nodes")
