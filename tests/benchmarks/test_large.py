"""10,000 configured nodes on a real slurmctld: the copilot at rest, with 1,000 nodes in flight, and with 1,000 prologs that wait for them.

The nodes are three groups, one of each kind of target. Pods are bound and told to be Running, but no slurmd is in them: a thousand
real ones would measure the machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from functools import partial
from pathlib import Path

from copilot.model import Kind
from tests.benchmarks.figures import Figures
from tests.benchmarks.process import cpu, descendants, pss, rss
from tests.lab.cluster import Cluster
from tests.lab.slurm import Workers

WORKERS = (Workers("cpu", 4000, "cpu"), Workers("kru", 3000, "kru"), Workers("demo-worker-gpu", 3000, "gpu"))
KINDS = {"cpu": Kind.STATEFUL_SET, "kru": Kind.ADVANCED_STATEFUL_SET, "demo-worker-gpu": Kind.SLURM_CLUSTER}
ALL = "PartitionName=all State=UP Nodes=" + ",".join(group.hostlist for group in WORKERS)
RESUMED = "cpu-[0-333],kru-[0-332],demo-worker-gpu-[0-332]"
# A sleeping cluster with the copilot's own waits, not the short ones of the tests.
SETTINGS = {
    "poll_quiet": "30",
    "orphan_grace": "90",
    "stale_grace": "20",
    "missed_hook_grace": "5",
    "registration_timeout": "3600",
    "log_level": "info",
}
_KIND_OF = {"/apis/apps/v1/": "StatefulSet", "/apps.kruise.io/": "Advanced StatefulSet", "/kai.alibabacloud.com/": "SlurmCluster"}
OPTIONS = {"ResumeTimeout": "3600", "SuspendTime": "3600", "SuspendTimeout": "60"}
QUIET = float(os.environ.get("COPILOT_BENCH_QUIET", "150"))  # seconds at rest
IN_FLIGHT = 40.0  # seconds watched with 1,000 nodes in flight
WAITS = 1000
AT_ONCE = 50  # prologs that are started at the same moment; the next follow when their requests are in


async def test_large(folder: Path, figures: Figures, stalls: Path) -> None:
    cluster = Cluster("22.05", folder, kinds=KINDS, workers=WORKERS, lines=[ALL], options=OPTIONS, settings=SETTINGS)
    async with cluster:
        cluster.containers.mute.update(name for group in WORKERS for name in group.nodes)
        await _quiet(cluster, figures, stalls)
        job = await _in_flight(cluster, figures, stalls)
        await _waits(cluster, figures, stalls, job)


def _longest(stalls: Path, since: float) -> tuple[float, float]:
    """Milliseconds: the longest stall's work, and the longest on the clock; 5 ms is the least that is noted."""
    lines = [json.loads(line) for line in stalls.read_text().splitlines()]
    recent = [line for line in lines if line["at"] >= since]
    print("    longest stalls (ms of work, on the clock, of garbage collection):", flush=True)
    for line in sorted(recent, key=lambda line: -line["work"])[:5]:
        print("       ", *(f"{line[key] * 1e3:.0f}" for key in ("work", "wall", "gc")), flush=True)
    return tuple(max((line[key] for line in recent), default=0.005) * 1e3 for key in ("work", "wall"))  # type: ignore[return-value]


async def _quiet(cluster: Cluster, figures: Figures, stalls: Path) -> None:
    """Scraped every 15 s, as Prometheus would, and asked for its health."""
    await cluster.copilot.until("a second look at Slurm", lambda: _looks(cluster, 2), 60)
    pid, before, began = cluster.copilot.pid, cpu(cluster.copilot.pid), time.monotonic()
    while (left := began + QUIET - time.monotonic()) > 0:
        await asyncio.sleep(min(15.0, left))
        await cluster.copilot.get("/metrics")
        await cluster.copilot.get("/healthz")
    used, took = cpu(pid).since(before), time.monotonic() - began
    work, wall = _longest(stalls, began)
    what = f"10,000 configured nodes, all off, {QUIET:.0f} s at rest, scraped every 15 s"
    figures.add("quiet_cpu_core_fraction", used.all / took, "", f"{what}: part of one core, scontrol included", goal=0.01)
    figures.add("quiet_cpu_own_core_fraction", used.own / took, "", "the same without scontrol")
    figures.add("rss_mib", rss(pid), "MiB", f"{what}: resident memory", goal=110)
    figures.add("loop_stall_quiet_ms", work, "ms", f"{what}: longest stall of the loop", goal=50)
    figures.add("loop_stall_quiet_wall_ms", wall, "ms", "the same with what other processes took")


async def _looks(cluster: Cluster, times: int) -> bool:
    return await cluster.copilot.metric("slurm_copilot_scontrol_duration_seconds_count", command="show_nodes") >= times


async def _in_flight(cluster: Cluster, figures: Figures, stalls: Path) -> int:
    """One job for 1,000 nodes of all three kinds; scraped and asked for its status all the while."""
    pid, before, began = cluster.copilot.pid, cpu(cluster.copilot.pid), time.monotonic()
    job = await cluster.slurm.sbatch("--partition=all", "--nodes=1000", f"--nodelist={RESUMED}")
    await cluster.slurm.wait_for("1,000 pods", cluster.pods, lambda pods: len(pods) == 1000, seconds=300)
    complete = time.monotonic()
    hooks = cluster.copilot.log("hook", action="resume")
    assert [hook["node_count"] for hook in hooks] == [1000], hooks
    while time.monotonic() < began + IN_FLIGHT:
        await asyncio.sleep(5)
        await cluster.copilot.get("/metrics")
        await cluster.copilot.status()
    used, took = cpu(pid).since(before), time.monotonic() - began
    work, wall = _longest(stalls, began)
    orders, tidying = _patches(cluster)
    assert orders.keys() == set(_KIND_OF.values()), orders
    words = ", ".join(f"{name} {count}" for name, count in orders.items())
    figures.add("patches_for_1000_nodes", max(orders.values()), "", f"patches per target that order nodes ({words})", goal=1)
    figures.add("tidying_patches_for_1000_nodes", tidying, "", "patches later that empty a SlurmCluster's list of done orders")
    figures.add("pods_for_1000_nodes_s", complete - began, "s", "submit to the last of 1,000 pods of the tests' own API server")
    figures.add("loop_stall_ms", work, "ms", "10,000 nodes, 1,000 in flight, scraped, status asked: longest stall", goal=50)
    figures.add("loop_stall_wall_ms", wall, "ms", "the same with what other processes took")
    figures.add("in_flight_cpu_core_fraction", used.all / took, "", f"part of a core over those {took:.0f} s, scontrol included")
    figures.add("rss_in_flight_mib", rss(pid, "VmHWM"), "MiB", "the most memory until then", goal=110)
    return job


def _patches(cluster: Cluster) -> tuple[Counter[str], int]:
    """What the API server has accepted from the copilot: patches that order something, by kind, and those that only empty lists."""
    assert cluster.embedded is not None
    orders: Counter[str] = Counter()
    tidying = 0
    for request in cluster.embedded.account:
        if request.verb != "patch" or "slurmctld-copilot" not in request.user or request.status != 200:
            continue
        if all(operation["value"] == [] for operation in request.body if operation["op"] != "test"):
            tidying += 1
        else:
            orders[next(name for part, name in _KIND_OF.items() if part in request.path)] += 1
    return orders, tidying


async def _waits(cluster: Cluster, figures: Figures, stalls: Path, job: int) -> None:
    """As many prologs as nodes wait for one node each; they end when the job is cancelled, each with 0."""
    pid, resident, before, began = cluster.copilot.pid, rss(cluster.copilot.pid), cpu(cluster.copilot.pid), time.monotonic()
    waiting = int(await cluster.copilot.metric("slurm_copilot_waits"))
    prologs: list[asyncio.subprocess.Process] = []
    while len(prologs) < WAITS:
        prologs += await asyncio.gather(*(_prolog(cluster, len(prologs) + index) for index in range(AT_ONCE)))
        await cluster.copilot.until("the prologs to wait", partial(_waiting, cluster, waiting + len(prologs)), 120)
    start = cpu(pid).since(before)
    held = [pss(each) for prolog in prologs for each in descendants(prolog.pid)]
    processes = len(held) / WAITS
    before, calm = cpu(pid), time.monotonic()
    await asyncio.sleep(20)
    used, took = cpu(pid).since(before), time.monotonic() - calm
    figures.add(
        "waits_hooks_mib", sum(held), "MiB", f"{WAITS} waiting prologs, {processes:g} processes each: all their memory (PSS)"
    )
    figures.add("waits_copilot_mib", rss(pid) - resident, "MiB", "what they add to the copilot's memory")
    figures.add("waits_start_ms", start.own / WAITS * 1e3, "ms", "the copilot's CPU time to take in one of them")
    figures.add(
        "waits_cpu_core_fraction", used.own / took, "", "the copilot's part of a core while they wait, 1,000 nodes in flight"
    )
    cancelled = time.monotonic()
    await cluster.slurm.run("scancel", str(job))
    codes = await asyncio.wait_for(asyncio.gather(*(prolog.wait() for prolog in prologs)), 120)
    assert set(codes) == {0}, "a prolog that fails requeues its job"
    figures.add("waits_release_s", time.monotonic() - cancelled, "s", "scancel to the end of the last of them")
    work, _ = _longest(stalls, began)
    figures.add("loop_stall_waits_ms", work, "ms", "longest stall while they came, waited and went", goal=50)


async def _waiting(cluster: Cluster, prologs: int) -> bool:
    return await cluster.copilot.metric("slurm_copilot_waits") >= prologs


async def _prolog(cluster: Cluster, number: int) -> asyncio.subprocess.Process:
    nodes = [f"{group}-{index}" for group in KINDS for index in range(333)]
    environment = {"SLURM_JOB_ID": str(number), "SLURM_JOB_NODELIST": nodes[number % len(nodes)]}
    script = str(cluster.slurm.folder / "hooks/slurm-prolog.sh")
    return await asyncio.create_subprocess_exec(script, env=environment, stdin=asyncio.subprocess.DEVNULL)
