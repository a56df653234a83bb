"""What the steps cost without the copilot, measured on the same machine in the same minute."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.lab.cluster import Cluster

_REPEATS = 10


@dataclass(frozen=True, slots=True)
class Floors:
    """Seconds: medians, but for the registration, which is measured once. `hook` is ours, the others are floors."""

    hook: float
    curl: float
    patch: float
    registration: float


async def measure(cluster: Cluster, node: str, nodes: str) -> Floors:
    """`node`: one that no target runs, for the registration. `nodes`: powered-down ones, of which a suspend hook changes nothing."""
    curl = [
        "curl",
        "-sS",
        "-o",
        "/dev/null",
        "--unix-socket",
        str(cluster.copilot.socket),
        "-H",
        "Content-Type: application/json",
    ]
    curl += ["--data-raw", f'{{"nodes": "{nodes}", "resume_file": null}}', "http://copilot/v1/suspend"]
    hook = [str(cluster.slurm.folder / "hooks/slurm-suspend.sh"), nodes]
    # In turns, so that whatever else the machine does meets both alike.
    pairs = [(await _process(curl), await _process(hook)) for _ in range(_REPEATS)]
    return Floors(
        hook=statistics.median(pair[1] for pair in pairs),
        curl=statistics.median(pair[0] for pair in pairs),
        patch=await _patch(cluster),
        registration=await _registration(cluster, node),
    )


async def _timed(call: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await call()
    return time.perf_counter() - began


async def _process(argv: list[str]) -> float:
    async def run() -> None:
        process = await asyncio.create_subprocess_exec(*argv, env={}, stdin=asyncio.subprocess.DEVNULL)
        assert await process.wait() == 0, f"{argv} failed"

    return await _timed(run)


async def _patch(cluster: Cluster) -> float:
    """One PATCH of the target that changes no spec, by a client that does nothing else."""
    group = next(iter(cluster.kinds))
    taken = []
    for number in range(_REPEATS):
        body = {"metadata": {"annotations": {"demo/floor": str(number)}}}
        taken.append(await _timed(lambda: cluster.patch_target(group, body)))  # noqa: B023 - awaited within the iteration
    return statistics.median(taken)


async def _registration(cluster: Cluster, node: str) -> float:
    """A slurmd started by hand until slurmctld has the node idle."""

    async def run() -> None:
        await cluster.slurm.start_node(node)
        await cluster.slurm.wait_node(node, "IDLE", without=("POWERED_DOWN", "NOT_RESPONDING"))

    taken = await _timed(run)
    await cluster.slurm.stop_node(node)
    return taken
