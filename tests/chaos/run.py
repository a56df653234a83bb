"""One run: a fresh cluster, the operations, then calm, in which everything must come to rest; and the verdict."""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import aiohttp

from tests.chaos.faults import FAULTS, revive
from tests.chaos.history import History
from tests.chaos.invariants import Violation, violations
from tests.chaos.observer import ENDED, Observer
from tests.chaos.operations import GROUPS, KILL_SLURMCTLD, LONGEST_JOB, RESTART_SLURMCTLD, Operation
from tests.chaos.scene import Done, Scene, SkippedError
from tests.chaos.uses import KINDS, USES
from tests.lab.audit import node_states
from tests.lab.cluster import Cluster
from tests.lab.endpoint import ApiError
from tests.lab.settled import differences
from tests.lab.slurm import LabError, Workers

# What must be over so many seconds after the last fault and the last drain: every job's end, and then rest.
JOBS_END: Final = 180.0
REST: Final = 120.0
PATIENCE: Final = 90.0  # seconds after which a command is given up
_AT_ONCE: Final = 8  # commands of users under way at once
ACTS: Final = USES | FAULTS
# Slurm knows more nodes than the operations name: replicas that are edited by hand may go beyond those.
SIZES: Final = {group: 3 * count for group, _, count in GROUPS}
ALL: Final = tuple(f"{group}-{index}" for group, count in SIZES.items() for index in range(count))
# Nodes go after seconds, so that a life fits into a run; a job that Slurm gives back starts again within seconds; no job is forgotten. A
# slurmctld that was killed may come back with the address of a pod that is no more: then Slurm itself gives the node up, after SlurmdTimeout.
OPTIONS: Final = {
    "SuspendTime": "2",
    "SlurmdTimeout": "30",
    "ResumeTimeout": "120",
    "MinJobAge": "3600",
    "SchedulerParameters": "bf_interval=2,sched_interval=3,batch_sched_delay=1",
}
# What waits for seconds by default waits for fewer; what does not answer is asked again soon.
SETTINGS: Final = {
    "poll_quiet": "1",
    "poll_share": "0.3",
    "kube_timeout": "2",
    "retry_max": "2",
    "scontrol_timeout": "5",
    "unschedulable_grace": "15",
    "image_pull_grace": "3",
    "crash_loop_grace": "3",
    "evicted_grace": "3",
    "breaker_pause": "5",
    "breaker_pause_max": "10",
}


@dataclass(slots=True)
class Report:
    """What a run found. `lab`: the lab itself failed, so that nothing is known of the product."""

    violations: list[Violation] = field(default_factory=list)
    done: list[Done] = field(default_factory=list)
    began: float = 0.0
    jobs: Counter[str] = field(default_factory=Counter)
    restarts: int = 0
    forgotten: int = 0
    seconds_to_end: float = 0.0
    seconds_to_rest: float = 0.0
    looks: int = 0
    lab: str = ""

    @property
    def failed(self) -> bool:
        return bool(self.violations)


def cluster_of(slurm: str, folder: Path, kubernetes: Literal["embedded", "real"]) -> Cluster:
    parameters = "idle_on_node_suspend,power_save_interval=1" + (",cloud_reg_addrs" if slurm == "22.05" else "")
    return Cluster(
        slurm,
        folder,
        kubernetes=kubernetes,
        kinds=KINDS,
        workers=[Workers(group, count, group) for group, count in SIZES.items()],
        options={**OPTIONS, "SlurmctldParameters": parameters},
        settings=SETTINGS,
        steppable=True,
    )


async def run(plan: Sequence[Operation], slurm: str, kubernetes: Literal["embedded", "real"], keep: Path | None = None) -> Report:
    """Does the operations to a fresh cluster. `keep`: where its folder goes if it fails."""
    folder = Path(tempfile.mkdtemp(prefix="copilot-chaos-", dir="/tmp"))
    report = Report()
    try:
        async with cluster_of(slurm, folder, kubernetes) as cluster:
            await _play(cluster, plan, report)
    except (LabError, ApiError, aiohttp.ClientError, TimeoutError, ExceptionGroup) as error:
        report.lab = f"{type(error).__name__}: {error}" + "".join(f"; {one!r}" for one in getattr(error, "exceptions", ()))
    finally:
        if keep is not None and (report.failed or report.lab):
            shutil.rmtree(keep, ignore_errors=True)
            shutil.copytree(
                folder,
                keep,
                ignore=shutil.ignore_patterns("munge", "run", "pki", "spool", "state"),
                ignore_dangling_symlinks=True,
            )
        shutil.rmtree(folder, ignore_errors=True)
    return report


async def _play(cluster: Cluster, plan: Sequence[Operation], report: Report) -> None:
    scene = Scene(cluster, History(dict(KINDS)))
    report.began = scene.now
    async with Observer(scene) as observer:
        await _do_all(scene, plan, report)
        calm = scene.now
        if not cluster.copilot.running:
            await cluster.copilot.start(ready=False)
        await _jobs_end(scene, observer, report)
        report.seconds_to_end = scene.now - calm
        rested = scene.now
        left = await _rest(cluster, rested)
        report.seconds_to_rest = scene.now - rested
        await observer.finish()
    found = violations(scene.history)
    if left:
        words = f"not at rest {REST:g} s after the last job: " + "; ".join(left)
        found.append(Violation(scene.now, words, frozenset(re.findall(r"[a-z][a-z-]*-\d+", words)) & frozenset(ALL)))
    if found:
        await _write_end(cluster)
    report.violations = found
    report.looks = len(scene.history.looks)
    report.jobs = Counter(job.state for job in scene.history.jobs)
    report.restarts = sum(job.restarts for job in scene.history.jobs)


async def _write_end(cluster: Cluster) -> None:
    """What Slurm and the copilot say in the end, for whoever looks into the failure."""
    told = [(await cluster.slurm.run("scontrol", "-o", "show", what)).out for what in ("nodes", "jobs")]
    (cluster.folder / "end.txt").write_text("\n".join([*told, str(await cluster.copilot.status())]))


async def _do_all(scene: Scene, plan: Sequence[Operation], report: Report) -> None:
    limit = asyncio.Semaphore(_AT_ONCE)

    async def do(operation: Operation) -> None:
        place = len(report.done)
        at = scene.now - report.began
        report.done.append(Done(at, operation))
        try:
            async with asyncio.timeout(operation.seconds + PATIENCE), nullcontext() if operation.sort in FAULTS else limit:
                await ACTS[operation.sort](scene, operation)
        except SkippedError as why:
            report.done[place] = Done(at, operation, f"skipped: {why}")
        except (LabError, ApiError, aiohttp.ClientError, OSError, TimeoutError) as error:
            # A command or request that met one of the faults, as an administrator's would.
            report.done[place] = Done(at, operation, f"refused: {type(error).__name__} {error}"[:200].replace("\n", " "))

    async with asyncio.TaskGroup() as group:
        for operation in plan:
            await asyncio.sleep(max(report.began + operation.at - scene.now, 0.0))
            group.create_task(do(operation))
        # The last faults have their time too.
        group.create_task(_calm_down(scene, max((op.seconds for op in plan[-5:] if op.sort in FAULTS), default=0.0)))


async def _calm_down(scene: Scene, seconds: float) -> None:
    await asyncio.sleep(seconds)
    scene.calm.set()


async def _mend(scene: Scene) -> None:
    """Takes back what only an administrator may: drains. Everything else must mend itself."""
    revive(scene)
    for name, words in (await node_states(scene.cluster.slurm)).items():
        # slurmctld drains a node itself when it was killed and gives the number of a job that it has forgotten a second time.
        if "DRAIN" in words and (
            name in scene.drained or (await scene.cluster.slurm.fields("node", name))["Reason"] == "Duplicate"
        ):
            await scene.cluster.slurm.run("scontrol", "update", f"nodename={name}", "state=undrain")


async def _jobs_end(scene: Scene, observer: Observer, report: Report) -> None:
    """Returns when all jobs have ended, or their time is up: then the invariants will tell."""
    calm = scene.now
    while scene.now < calm + JOBS_END:
        await _mend(scene)
        told = await observer.jobs()
        if told and all(fields["JobState"] in ENDED for fields in told.values()):
            return
        if scene.now > calm + 5 * LONGEST_JOB:
            for name, fields in told.items():
                await _give_up_if_forgotten(scene, report, name, fields)
        await asyncio.sleep(0.5)


async def _give_up_if_forgotten(scene: Scene, report: Report, name: str, fields: Mapping[str, str]) -> None:
    """A slurmctld that ends between a job's start and its launch never launches it; one that is killed just after a job's end has forgotten
    the end. Such a job is shown RUNNING until its node registers again, many minutes later. And one that gives a number twice holds the
    job when the node refuses it.

    It is nothing that anybody outside could know or mend: the job is cancelled, and counted.
    """
    ended = any(word in span.what for span in scene.history.spans for word in (KILL_SLURMCTLD.word, RESTART_SLURMCTLD.word))
    log = scene.cluster.slurm.folder / "log" / f"{fields.get('BatchHost')}.log"
    if not ended or scene.jobs[name].cancelled or fields["JobState"] in ENDED:
        return
    number, text = fields["JobId"], log.read_text(errors="replace") if log.exists() else ""
    _, launched, since = text.rpartition(f"Launching batch job {number} ")
    lost = fields["JobState"] == "RUNNING" and (not launched or f"[{number}.batch] done with" in since)
    if lost or fields.get("Reason") == "launch_failed_requeued_held":
        report.forgotten += 1
        scene.jobs[name].cancelled = True
        await scene.cluster.slurm.run("scancel", number)


async def _rest(cluster: Cluster, since: float) -> list[str]:
    """Waits until all sides agree that every node is off; what does not fit together when the time is up."""
    while left := await _differences(cluster):
        if time.monotonic() > since + REST:
            return left
        await asyncio.sleep(0.5)
    return []


async def _differences(cluster: Cluster) -> list[str]:
    drained = [f"{name} is drained" for name, words in (await node_states(cluster.slurm)).items() if words & {"DRAIN", "FAIL"}]
    return drained + await differences(cluster, frozenset(), frozenset(ALL))
