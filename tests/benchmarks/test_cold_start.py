"""From sbatch to the job's first line in real pods on a real node, all powered down: 1, 3 and 20 nodes, with and without fast start.

The floor is measured in the same cluster: a ResumeProgram that does no more than one PATCH, and a prolog that asks scontrol, in place of the
hooks, while the group is held, so that the copilot leaves it alone. Run outside tests/lab/isolated it would add a veth to the machine's own
network, as `make cluster` does. Submitted in the login pod; the clock is the same in all pods.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest

from copilot.targets.kinds import HOLD
from tests.benchmarks.figures import Figures, median
from tests.lab import images
from tests.lab.node import Node, State, kubectl, missing
from tests.lab.whole import overlay
from tests.lab.whole.steps import fill

HERE = Path(__file__).resolve().parent
# Jobs by the number of their nodes.
LISTS = {
    1: ("cpu-0", "cpu-1", "cpu-2", "cpu-3", "cpu-4"),
    3: ("cpu-[3-5]", "cpu-[6-8]", "cpu-[9-11]"),
    20: ("cpu-[0-19]", "cpu-[0-19]"),
}
SLOW = {1: LISTS[1][:2], 3: LISTS[3][:2], 20: LISTS[20]}  # without fast start each takes half a minute
FLOOR = "/var/spool/slurmctld/floor"  # on slurmctld's volume, so that it outlives the pod
HEAD = ("-n", overlay.NAMESPACE)


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
    programs = _programs(cluster)
    _put_floor(cluster)
    _configure(cluster, programs | {"ResumeProgram": f"{FLOOR}/pods_resume.sh", "PrologSlurmctld": f"{FLOOR}/pods_prolog.sh"})
    floor = _measure(cluster, LISTS, lambda: _held(cluster))
    _configure(cluster, programs)
    fast = _measure(cluster, LISTS)
    _configure(cluster, {name: value for name, value in programs.items() if name != "PrologSlurmctld"})
    plain = _measure(cluster, SLOW)
    for count in LISTS:
        what = f"real pods: sbatch to first line, {count} powered-down node{'s' * (count > 1)}"
        _add(figures, f"floor_pods_{count}_submit_to_running_s", floor[count], f"floor of {what}: a hook of one PATCH, a prolog")
        _add(figures, f"pods_{count}_submit_to_running_s", fast[count], f"{what}, with slurm-prolog.sh")
        figures.add(
            f"pods_{count}_above_floor_s", median(fast[count]) - median(floor[count]), "s", "the same above its floor", 0.3
        )
        _add(figures, f"pods_{count}_submit_to_running_without_fast_start_s", plain[count], f"{what}, without slurm-prolog.sh")


def _add(figures: Figures, name: str, seconds: list[float], what: str) -> None:
    figures.add(name, median(seconds), "s", f"{what}; median of {len(seconds)}")


def _measure(
    cluster: State, lists: dict[int, tuple[str, ...]], around: Callable[[], AbstractContextManager[None]] = nullcontext
) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for count, jobs in lists.items():
        found[count] = []
        for nodes in jobs:
            _all_down(cluster)
            with around():
                found[count].append(_job(cluster, nodes))
    return found


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
    """SuspendTimeout (45 s) after the last node was told to go at the latest."""
    _slurm(cluster, "scontrol update nodename=cpu-[0-19],sparse-[0-9] state=power_down_force")
    _until(
        lambda: set(_slurm(cluster, "sinfo -h -N -o %t").split()) == {"idle~"} and not _workers(cluster),
        "all nodes to be down",
        180,
    )


def _workers(cluster: State) -> str:
    return kubectl(cluster, "get", "pods", *HEAD, "-l", "app.kubernetes.io/component=slurmd", "-o", "name")


@contextmanager
def _held(cluster: State) -> Iterator[None]:
    """The copilot starts nothing in the group meanwhile."""
    kubectl(cluster, "annotate", "statefulset", "cpu", *HEAD, f"{HOLD}=floor")
    try:
        yield
    finally:
        kubectl(cluster, "annotate", "statefulset", "cpu", *HEAD, f"{HOLD}-")


def _put_floor(cluster: State) -> None:
    """The floor's scripts and a token of the copilot's account where slurmctld runs them."""
    token = kubectl(cluster, "create", "token", "slurmctld-copilot", *HEAD).strip()
    url = f"https://kubernetes.default.svc/apis/apps/v1/namespaces/{overlay.NAMESPACE}/statefulsets/cpu"
    files = {"api": f"URL={url}\nTOKEN={token}\n"} | {
        name: (HERE / name).read_text() for name in ("pods_resume.sh", "pods_prolog.sh")
    }
    for name, text in files.items():
        put = f"mkdir -p {FLOOR} && cat >{FLOOR}/{name} && chmod 755 {FLOOR}/{name}"
        kubectl(cluster, "exec", "-i", *HEAD, "head-0", "-c", "slurmctld", "--", "sh", "-c", put, text=text)


def _programs(cluster: State) -> dict[str, str]:
    """The hooks of power.conf."""
    lines = (line.partition("=") for line in _power_conf(cluster).splitlines())
    return {key: value for key, _, value in lines if key in ("ResumeProgram", "PrologSlurmctld")}


def _power_conf(cluster: State) -> str:
    data: dict[str, str] = json.loads(kubectl(cluster, "get", "configmap", "slurm-conf", *HEAD, "-o", "json"))["data"]
    return data["power.conf"]


def _configure(cluster: State, programs: dict[str, str]) -> None:
    """slurmctld anew with these hooks."""
    kept = [line for line in _power_conf(cluster).splitlines() if not line.startswith(("ResumeProgram=", "PrologSlurmctld="))]
    text = "\n".join([*kept, *(f"{key}={value}" for key, value in programs.items())]) + "\n"
    patch = json.dumps({"data": {"power.conf": text}})
    kubectl(cluster, "patch", "configmap", "slurm-conf", *HEAD, "--type=merge", "-p", patch)
    kubectl(cluster, "delete", "pod", "head-0", *HEAD, "--wait=true")
    kubectl(cluster, "rollout", "status", "statefulset/head", *HEAD, "--timeout=120s")


def _slurm(cluster: State, script: str) -> str:
    return overlay.execute(cluster, "head-0", "sh", "-c", script, container="slurmctld").strip()


def _until(question: Callable[[], bool], what: str, within: float) -> None:
    deadline = time.monotonic() + within
    while not question():
        assert time.monotonic() < deadline, f"waited {within} s for {what}"
        time.sleep(0.2)
