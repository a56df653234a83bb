"""What a hook costs slurmctld, and how soon its nodes are ordered: real scripts, a real API server, and floors in turns with them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from copilot.model import Kind
from tests.benchmarks.figures import Figures, median
from tests.lab import controlplane, workloads
from tests.lab.cluster import NAMESPACE, Cluster
from tests.lab.slurm import Workers

HOOKS = 60  # of each kind, in turns
RESUMES = 40
WORKERS = (Workers("cpu", RESUMES + 5, "cpu"), Workers("still", 3, "still"))
# Slurm's state tells of a resume as well as the hook does. Here the hook is to be the first, so that it is what is measured: the copilot
# looks at Slurm when a hook asks for it, and hardly ever else; slurmctld's own calls do nothing.
SETTINGS = {"poll_quiet": "600", "poll_active": "60", "poll_fast": "10", "registration_timeout": "3600", "log_level": "info"}
OPTIONS = {"ResumeProgram": "/bin/true", "ResumeTimeout": "3600"}


@pytest.mark.skipif(bool(controlplane.missing()), reason=controlplane.missing())
async def test_hook(folder: Path, figures: Figures) -> None:
    kinds = {"cpu": Kind.STATEFUL_SET, "still": Kind.STATEFUL_SET}
    cluster = Cluster(
        "22.05", folder, kubernetes="real", kinds=kinds, workers=WORKERS, options=OPTIONS, settings=SETTINGS, fast_start=False
    )
    async with cluster:
        cluster.containers.mute.update(name for group in WORKERS for name in group.nodes)
        await _against_curl(cluster, figures)
        await _to_patch(cluster, figures)


async def _against_curl(cluster: Cluster, figures: Figures) -> None:
    """A suspend of nodes that are off changes nothing, so that all calls are alike."""
    body = '{"nodes": "still-[0-2]", "resume_file": null}'
    header = ["-H", "Content-Type: application/json"]
    curl = ["/usr/bin/curl", "-sS", "-o", "/dev/null", "--unix-socket", str(cluster.copilot.socket), *header]
    curl += ["--data-raw", body, "http://copilot/v1/suspend"]
    hook = [str(cluster.slurm.folder / "hooks/slurm-suspend.sh"), "still-[0-2]"]
    nothing = ["/bin/bash", "-c", "exit 0"]
    runs = [[await _at_rest(argv) for argv in (curl, hook, nothing)] for _ in range(HOOKS)]
    floor, ours, bash = (median([run[place] for run in runs]) for place in range(3))
    figures.add("curl_ms", floor * 1e3, "ms", f"floor: bare curl that posts the same body, median of {HOOKS}")
    figures.add("bash_ms", bash * 1e3, "ms", "floor: a bash that does nothing, median of the same run")
    figures.add("hook_ms", ours * 1e3, "ms", "hook script, from fork to exit, median of the same run", goal=15)
    figures.add("hook_vs_curl_ratio", ours / floor, "", "hook script against bare curl to the same unix socket", goal=1.5)


async def _to_patch(cluster: Cluster, figures: Figures) -> None:
    """Each resume names one node more. The end is when a watch of the target, another client's, shows the new replicas."""
    path, seen = workloads.collection(Kind.STATEFUL_SET, NAMESPACE), asyncio.Event()
    wanted, told_at = 0, 0.0

    async def watch() -> None:
        nonlocal told_at
        async with aclosing(cluster.admin.watch(path, fieldSelector="metadata.name=cpu")) as events:
            async for event in events:
                if event["object"]["spec"]["replicas"] == wanted and wanted:
                    told_at = time.perf_counter()
                    seen.set()

    watching = asyncio.create_task(watch())
    ours, floor = [], []
    try:
        for index in range(RESUMES):
            wanted = index + 1
            seen.clear()
            await cluster.slurm.scontrol("update", f"nodename=cpu-{index}", "state=power_up")
            await cluster.slurm.wait_node(f"cpu-{index}", "POWERING_UP", without=("POWERED_DOWN",))
            began = time.perf_counter()
            await _process([str(cluster.slurm.folder / "hooks/slurm-resume.sh"), f"cpu-{index}"])
            await asyncio.wait_for(seen.wait(), 30)
            ours.append(told_at - began)
            await asyncio.sleep(0.3)  # longer than the copilot puts hints together
            floor.append(await _timed(lambda: _bare_patch(cluster)))
    finally:
        watching.cancel()
    figures.add("bare_patch_ms", median(floor, 1e3), "ms", "floor: one PATCH of a StatefulSet by a client that does nothing else")
    figures.add("hook_to_patch_ms", median(ours, 1e3), "ms", f"hook start to patch accepted, median of {RESUMES}", goal=40)
    figures.add("hook_to_patch_worst_ms", max(ours) * 1e3, "ms", "the slowest of them")
    figures.add("hook_to_patch_vs_patch_ratio", median(ours) / median(floor), "", "the same as a ratio to the bare PATCH")


async def _bare_patch(cluster: Cluster) -> None:
    """Of the other set, so that the copilot's own guard on the generation does not meet it."""
    await cluster.patch_target("still", {"spec": {"minReadySeconds": time.monotonic_ns() % 1000}})


async def _timed(call: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await call()
    return time.perf_counter() - began


async def _at_rest(argv: list[str]) -> float:
    """Each call makes the copilot look at Slurm: the next one must not have that look beside it, or the one who is called first gains."""
    await asyncio.sleep(0.1)
    return await _process(argv)


async def _process(argv: list[str]) -> float:
    async def run() -> None:
        process = await asyncio.create_subprocess_exec(*argv, env={}, stdin=asyncio.subprocess.DEVNULL)
        assert await process.wait() == 0, f"{argv} failed"

    return await _timed(run)
