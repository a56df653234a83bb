"""From sbatch to the job's first line in real pods on a real node, all powered down: 1, 3 and 20 nodes, with and without fast start.

Run outside tests/lab/isolated it would add a veth to the machine's own network, as `make cluster` does. Submitted in the login pod; the clock
is the same in all pods.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.benchmarks.figures import Figures, median
from tests.lab import images
from tests.lab.node import Node, State, kubectl, missing
from tests.lab.whole import overlay
from tests.lab.whole.steps import fill

# Jobs on nodes that were not used since all were down, by the number of their nodes; then all twenty, `TWENTIES` times.
FAST = {1: ("cpu-0", "cpu-1", "cpu-2"), 3: ("cpu-[3-5]", "cpu-[6-8]", "cpu-[9-11]")}
PLAIN = {1: ("cpu-0", "cpu-1"), 3: ("cpu-[3-5]", "cpu-[6-8]")}
TWENTIES = 2


@pytest.fixture
def cluster(folder: Path) -> Iterator[State]:
    """overlays/demo on a node of its own."""
    if why := missing(folder) or ([images.missing()] if images.missing() else []):
        pytest.skip("; ".join(why))
    node = Node(folder / "node")
    asyncio.run(node.start())
    try:
        fill(node.state)
        yield node.state
    finally:
        asyncio.run(node.stop())


def test_cold_start(cluster: State, figures: Figures) -> None:
    for name, jobs, what in (("", FAST, "with"), ("_without_fast_start", PLAIN, "without")):
        if name:
            _end_fast_start(cluster)
        for count, lists in jobs.items():
            _all_down(cluster)
            _add(figures, count, name, what, [_job(cluster, nodes) for nodes in lists])
        twenty = []
        for _ in range(TWENTIES):
            _all_down(cluster)
            twenty.append(_job(cluster, "cpu-[0-19]"))
        _add(figures, 20, name, what, twenty)


def _add(figures: Figures, count: int, name: str, what: str, seconds: list[float]) -> None:
    said = f"real pods: sbatch to first line, {count} powered-down node{'s' * (count > 1)}, {what} slurm-prolog.sh; median of {len(seconds)}"
    figures.add(f"pods_{count}_submit_to_running{name}_s", median(seconds), "s", said)


def _job(cluster: State, nodes: str, within: float = 300.0) -> float:
    """Seconds from sbatch to the first line of the job's script."""
    output = f"/home/{time.monotonic_ns()}"
    submit = f"date +%s.%N; sbatch --parsable -o {output} -D / -w '{nodes}' --wrap 'date +%s.%N; srun hostname'"
    submitted, job = overlay.execute(cluster, "deployment/login", "sh", "-c", submit).split()
    show = f"scontrol show job {job} | grep -o 'JobState=[A-Z]*'"
    _until(lambda: _slurm(cluster, show) == "JobState=COMPLETED", f"job {job} on {nodes}", within)
    running = overlay.execute(cluster, "deployment/login", "head", "-n1", output)
    return float(running) - float(submitted)


def _all_down(cluster: State) -> None:
    """SuspendTimeout (45 s) after the last node was told to go."""
    _slurm(cluster, "scontrol update nodename=cpu-[0-19],sparse-[0-9] state=power_down_force")
    _until(
        lambda: set(_slurm(cluster, "sinfo -h -N -o %t").split()) == {"idle~"} and not _workers(cluster),
        "all nodes to be down",
        180,
    )


def _workers(cluster: State) -> str:
    return kubectl(cluster, "get", "pods", "-n", overlay.NAMESPACE, "-l", "app.kubernetes.io/component=slurmd", "-o", "name")


def _end_fast_start(cluster: State) -> None:
    here = ("-n", overlay.NAMESPACE)
    conf = json.loads(kubectl(cluster, "get", "configmap", "slurm-conf", *here, "-o", "json"))["data"]["power.conf"]
    without = "".join(line for line in conf.splitlines(keepends=True) if not line.startswith("PrologSlurmctld"))
    assert without != conf
    patch = json.dumps({"data": {"power.conf": without}})
    kubectl(cluster, "patch", "configmap", "slurm-conf", *here, "--type=merge", "-p", patch)
    kubectl(cluster, "delete", "pod", "head-0", *here, "--wait=true")
    kubectl(cluster, "rollout", "status", "statefulset/head", *here, "--timeout=120s")


def _slurm(cluster: State, script: str) -> str:
    return overlay.execute(cluster, "head-0", "sh", "-c", script, container="slurmctld").strip()


def _until(question: Callable[[], bool], what: str, within: float) -> None:
    deadline = time.monotonic() + within
    while not question():
        assert time.monotonic() < deadline, f"waited {within} s for {what}"
        time.sleep(0.2)
