"""The story that the demo tells, and the judgement at its end."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from copilot.model import Kind
from tests.demo.floors import Floors, measure
from tests.demo.recorder import Recorder, moment
from tests.demo.timeline import Stage, table
from tests.lab.cluster import Cluster
from tests.lab.slurm import Workers

NODES = ("cpu-0", "cpu-1", "cpu-2")
HOSTLIST = "cpu-[0-2]"
FLOOR_NODE = "floor-0"
SECONDS = 150  # longest wait for any one step; each takes a few


class DemoError(Exception):
    """The demo did not show what it promises; the text says what it saw instead."""


@dataclass(frozen=True, slots=True)
class Times:
    """Unix times at which the batch script began and ended, written by itself."""

    began: float
    ended: float
    hosts: frozenset[str]


def say(text: str) -> None:
    print(f"\n==> {text}", flush=True)


def cluster_of(folder: Path, kubernetes: Literal["embedded", "real"], *, namespaces: bool) -> Cluster:
    """Six nodes behind one StatefulSet, and one that nobody scales, to measure against."""
    workers = (Workers("cpu", 6, "cpu"), Workers("floor", 1, "floor"))
    return Cluster(
        "22.05",
        folder,
        kubernetes=kubernetes,
        kinds={"cpu": Kind.STATEFUL_SET},
        workers=workers,
        options={"SuspendTime": "4", "SuspendExcNodes": FLOOR_NODE},
        settings={"log_level": "info"},
        namespaces=namespaces,
    )


async def tell(cluster: Cluster) -> None:
    """From a submitted job to the last pod's end. DemoError, LabError or AssertionError when it does not go as it should."""
    say("Measuring floors: curl to the copilot's socket, one PATCH, one slurmd started by hand")
    floors = await measure(cluster, FLOOR_NODE, HOSTLIST)
    recorder = Recorder(cluster)
    tasks = [asyncio.create_task(recorder.watch_pods()), asyncio.create_task(recorder.follow_log())]
    try:
        await _job_and_back(cluster, recorder, floors)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _job_and_back(cluster: Cluster, recorder: Recorder, floors: Floors) -> None:
    slurm = cluster.slurm
    for node in NODES:
        if "POWERED_DOWN" not in (state := await slurm.node(node)):
            raise DemoError(f"{node} is {state}, not powered down, before the job")
    say(f"{HOSTLIST} are powered down (idle~) and there are no pods. Submitting a job for three nodes:")
    script, times = cluster.slurm.folder / "run/job.sh", cluster.slurm.folder / "run/job.times"
    script.write_text(f"#!/bin/sh\ndate +%s.%N >{times}\nsrun hostname -s >>{times}\ndate +%s.%N >>{times}\n")
    script.chmod(0o755)
    print(f"    $ sbatch --nodes=3 --nodelist={HOSTLIST} --wrap 'srun hostname -s'", flush=True)
    submitted = time.time()
    job = await cluster.sbatch("--nodes=3", f"--nodelist={HOSTLIST}", wrap=str(script))
    await slurm.wait_job(job, "COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED", seconds=SECONDS)
    ran = _times(times)
    recorder.print_log()
    print("    " + "  ".join(f"{key}={value}" for key, value in (await slurm.job(job)).items() if key in _SHOWN), flush=True)
    say("The job is done. After SuspendTime (4 s idle) slurmctld calls SuspendProgram, and the pods go:")
    await cluster.settle(off=NODES, seconds=SECONDS)
    ended = time.time()
    await cluster.audit.assert_clean()
    recorder.print_log()
    _judge(cluster, recorder, ran)
    say("Timeline")
    print(table(_stages(cluster, recorder, floors, submitted, ran, ended)), flush=True)


_SHOWN = ("JobState", "NodeList", "RunTime", "Restarts")


def _times(path: Path) -> Times:
    lines = path.read_text().split() if path.exists() else []
    if len(lines) < 3:
        raise DemoError(f"the batch script did not write its times: {lines}")
    return Times(float(lines[0]), float(lines[-1]), frozenset(lines[1:-1]))


def _judge(cluster: Cluster, recorder: Recorder, ran: Times) -> None:
    expected = set(NODES) if cluster.slurm.namespaces else ran.hosts  # without namespaces all nodes have the machine's name
    if ran.hosts != expected:
        raise DemoError(f"the job ran on {sorted(ran.hosts)}, not on {sorted(expected)}")
    if missing := set(NODES) - recorder.gone.keys():
        raise DemoError(f"no pod of {sorted(missing)} was seen to come and go")
    if left := cluster.slurm.nodes_running():
        raise DemoError(f"slurmds of {left} still run")


def _stages(cluster: Cluster, recorder: Recorder, floors: Floors, submitted: float, ran: Times, ended: float) -> list[Stage]:
    """Everything on one clock, the machine's."""
    log = cluster.copilot.log()
    hooks = {word: _first(log, submitted, event="hook", action=word) for word in ("resume", "suspend")}
    patched = _first(log, submitted, event="target_patched")
    up = max((moment(line) for line in log if line.get("event") == "node_up"), default=None)
    called = _called(cluster, "waking|resum", submitted)
    exist, run, gone = (max(seen[name] for name in NODES) for seen in (recorder.exist, recorder.run, recorder.gone))

    def at(when: float | None) -> float | None:
        return None if when is None else when - submitted

    def since(later: float | None, earlier: float | None) -> float | None:
        return None if later is None or earlier is None else later - earlier

    whole = (called - submitted if called else 0.0) + floors.patch + floors.registration
    return [
        Stage("slurmctld calls ResumeProgram", at(called)),
        Stage("copilot has the hook", at(hooks["resume"]), since(hooks["resume"], called)),
        Stage("  (a hook process, whole)", None, floors.hook, floors.curl, "curl to a unix socket"),
        Stage("patch accepted", at(patched), since(patched, hooks["resume"]), floors.patch, "one PATCH"),
        Stage("pods exist", at(exist), since(exist, patched)),
        Stage("containers run", at(run), since(run, exist)),
        Stage("nodes registered", at(up), since(up, run), floors.registration, "one slurmd started by hand"),
        Stage("job runs", at(ran.began), since(ran.began, up)),
        Stage("  (submit to running)", None, ran.began - submitted, whole, "Slurm's own time, a PATCH, a slurmd"),
        Stage("job completed", at(ran.ended), ran.ended - ran.began),
        Stage("SuspendProgram is called", at(hooks["suspend"]), since(hooks["suspend"], ran.ended)),
        Stage("pods gone", at(gone), since(gone, hooks["suspend"])),
        Stage("nodes idle~ again", at(ended), since(ended, gone)),
    ]


def _first(log: list[dict[str, object]], after: float, **values: object) -> float | None:
    found = (moment(line) for line in log if values.items() <= line.items())
    return next((when for when in found if when >= after), None)


def _called(cluster: Cluster, words: str, after: float) -> float | None:
    """When slurmctld says that it started the program, by its own log."""
    log = (cluster.slurm.folder / "log/slurmctld.log").read_text(errors="replace")
    for stamp, _text in re.findall(rf"^\[(\S+)\].*power_save: pid \d+ ({words}).*$", log, re.MULTILINE):
        with contextlib.suppress(ValueError):
            when = time.mktime(time.strptime(stamp.split(".")[0], "%Y-%m-%dT%H:%M:%S")) + float("0." + stamp.split(".")[1])
            if when >= after:
                return when
    return None
