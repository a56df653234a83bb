"""A cluster between two tests: no jobs, every node off, and nothing remembered of the test before."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.lab.audit import node_states
from tests.lab.settled import is_off
from tests.lab.slurm_commands import LabError

if TYPE_CHECKING:  # as in settled
    from tests.lab.cluster import Cluster

_AGAIN = 20.0  # seconds after which a node that did not go is told to go once more


async def rest(cluster: Cluster, seconds: float = 120) -> None:
    """Cancels all jobs, powers all nodes down without waiting for SuspendTime, and waits until all sides agree.

    A test may then count on every node, and count what is done to it. AssertionError or LabError with what is left after `seconds`.
    """
    await cluster.slurm.run("scancel", "--user=root")
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    told: dict[str, float] = {}
    while awake := {name: words for name, words in (await node_states(cluster.slurm)).items() if not is_off(words)}:
        now = loop.time()
        if now > deadline:
            left = ", ".join(f"{name} is {'+'.join(sorted(words))}" for name, words in awake.items())
            raise LabError(f"not at rest after {seconds} s: {left}\n{cluster.slurm.tail('slurmctld.log')}")
        # One that goes already would be unusable for SuspendTimeout if it were told again.
        to_tell = [
            name for name, words in awake.items() if "POWERING_DOWN" not in words and now - told.get(name, -_AGAIN) >= _AGAIN
        ]
        if to_tell:
            await cluster.slurm.run("scontrol", "update", f"nodename={','.join(to_tell)}", "state=power_down_force")
            told |= dict.fromkeys(to_tell, now)
        await asyncio.sleep(0.1)
    await cluster.settle(seconds=seconds)
    cluster.audit.forget()
    cluster.containers.starts.clear()
