"""Clusters in which nodes come and go within seconds, and waiting for looks at Slurm, which have no event of their own."""

from __future__ import annotations

from tests.e2e.conftest import SLURM
from tests.lab.cluster import Cluster

_OF_VERSION = ",cloud_reg_addrs" if SLURM == "22.05" else ""
# slurmctld looks for nodes to suspend every 10 s by default.
LEFT_AS_THEY_ARE = f"power_save_interval=1{_OF_VERSION}"
MADE_IDLE = f"idle_on_node_suspend,{LEFT_AS_THEY_ARE}"
OPTIONS = {"SuspendTime": "1", "SlurmctldParameters": MADE_IDLE}
# On a busy machine each look takes long, and few would fit into the usual share.
SETTINGS = {"poll_quiet": "1", "poll_share": "0.5"}


async def looked(lab: Cluster, times: int = 2) -> None:
    """Waits until the copilot has looked at Slurm so many times more. The first may have begun before the call."""
    before = await looks(lab)

    async def enough() -> bool:
        return await looks(lab) >= before + times

    await lab.copilot.until(f"{times} more looks at Slurm", enough, seconds=60)


async def looks(lab: Cluster) -> float:
    return await lab.copilot.metric("slurm_copilot_scontrol_duration_seconds_count", command="show_nodes")
