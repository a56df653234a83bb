"""Operations of users and administrators, and of things that happen to single nodes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

from copilot.model import Kind
from tests.chaos import operations as ops
from tests.chaos.history import on
from tests.chaos.operations import GROUPS, Operation, Sort
from tests.chaos.scene import EDITED, Scene, SkippedError, Submitted
from tests.lab.audit import node_states
from tests.lab.cluster import NAMESPACE
from tests.lab.endpoint import resource
from tests.lab.kubelet import GOOD, Behaviour

Act = Callable[[Scene, Operation], Awaitable[None]]
KINDS: Final = {group: kind for group, kind, _ in GROUPS}


def job_name(number: int) -> str:
    """Jobs are known by name: an id is not told by an sbatch that is cut off, and may be given twice by a slurmctld that was killed."""
    return f"op{number}"


async def submit(scene: Scene, op: Operation) -> None:
    where = [f"--nodelist={','.join(op.names)}"] if op.nodes else [f"--nodes={op.count}"]
    count = len(op.nodes) or op.count
    name = job_name(op.number)
    scene.jobs[name] = job = Submitted(scene.now, named=bool(op.nodes))
    argv = [f"--job-name={name}", f"--partition={op.group}", f"--ntasks={count}", "--ntasks-per-node=1", *where]
    await scene.cluster.slurm.sbatch(*argv, wrap=f"sleep {op.seconds}")
    job.taken = True


async def cancel(scene: Scene, op: Operation) -> None:
    job = scene.jobs.get(job_name(op.about))
    if job is None:
        raise SkippedError("no such job yet")
    job.cancelled = True
    await _run(scene, "scancel", f"--name={job_name(op.about)}")


async def resize(scene: Scene, op: Operation) -> None:
    """Of a job that waits; Slurm refuses it for one that runs, unless it is to shrink. Fewer nodes than are named would never start."""
    job = scene.jobs.get(job_name(op.about))
    if job is None or job.named:
        raise SkippedError("no such job, or one whose nodes are named")
    # All three, since each alone would contradict the others, and the job wait for ever (BadConstraints).
    size = (f"numcpus={op.count}", f"numnodes={op.count}-{op.count}", f"numtasks={op.count}")
    await _run(scene, "scontrol", "update", f"jobname={job_name(op.about)}", *size)


async def drain(scene: Scene, op: Operation) -> None:
    scene.drained.update(op.names)
    with scene.trouble(op):  # a node that is powering up gives its job back when it is drained
        await _update(scene, op, "state=drain", "reason=chaos")


async def undrain(scene: Scene, op: Operation) -> None:
    if "DRAIN" not in await _state(scene, op):
        raise SkippedError("it is not drained")
    await _update(scene, op, "state=undrain")


async def power_down(scene: Scene, op: Operation) -> None:
    if not on(await _state(scene, op)):
        raise SkippedError("it is off already")
    await _update(scene, op, "state=power_down")


async def repeat_hook(scene: Scene, op: Operation) -> None:
    """What slurmctld has said of the node last, once more."""
    name = "slurm-resume.sh" if on(await _state(scene, op)) else "slurm-suspend.sh"
    await _hook(scene, op, name)


async def stray_hook(scene: Scene, op: Operation) -> None:
    await _hook(scene, op, "slurm-resume.sh")


async def edit_replicas(scene: Scene, op: Operation) -> None:
    """The annotation comes with it, so that whoever watches knows whose change it was."""
    mark = {EDITED: str(op.number)}
    if KINDS[op.group] is Kind.SLURM_CLUSTER:
        replicas = {"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": op.count}
        body: object = [{"op": "add", "path": "/metadata/annotations", "value": mark}, replicas]
    else:
        body = {"metadata": {"annotations": mark}, "spec": {"replicas": op.count}}
    with scene.trouble(op):
        await scene.cluster.patch_target(op.group, body)


async def delete_pod(scene: Scene, op: Operation) -> None:
    await _must_run(scene, op)
    with scene.trouble(op):
        scene.by_hand(op.names[0])
        await scene.cluster.admin.delete(resource("v1", "pods", NAMESPACE, op.names[0]))


async def evict(scene: Scene, op: Operation) -> None:
    await _must_run(scene, op)
    with scene.trouble(op):
        scene.by_hand(op.names[0])
        await scene.cluster.kubelet.evict(op.names[0])


async def kill_slurmd(scene: Scene, op: Operation) -> None:
    """A container whose first process dies is started again, as the same pod."""
    await _must_run(scene, op)
    with scene.trouble(op):
        scene.by_hand(op.names[0])
        await scene.cluster.kubelet.restart_container(op.names[0])


async def freeze_slurmd(scene: Scene, op: Operation) -> None:
    pid = scene.cluster.slurm.node_pid(op.names[0])
    if pid is None:
        raise SkippedError("it does not run")
    with scene.trouble(op):
        frozen = list(_tree(pid))
        try:
            _signal(frozen, signal.SIGSTOP)
            await scene.last(op.seconds)
        finally:
            _signal(frozen, signal.SIGCONT)


def misbehaving(behaviour: Behaviour) -> Act:
    """An act after which pods of these nodes that begin within `seconds` fail; those that have failed stay so until they are replaced."""

    async def act(scene: Scene, op: Operation) -> None:
        with scene.trouble(op, "kubelet"):
            for name in op.names:
                scene.cluster.kubelet.behave(name, behaviour)
            try:
                await scene.last(op.seconds)
            finally:
                for name in op.names:
                    scene.cluster.kubelet.behave(name, GOOD)

    return act


USES: Final[dict[Sort, Act]] = {
    ops.SUBMIT: submit,
    ops.CANCEL: cancel,
    ops.RESIZE: resize,
    ops.DRAIN: drain,
    ops.UNDRAIN: undrain,
    ops.POWER_DOWN: power_down,
    ops.REPEAT_HOOK: repeat_hook,
    ops.STRAY_HOOK: stray_hook,
    ops.EDIT_REPLICAS: edit_replicas,
    ops.DELETE_POD: delete_pod,
    ops.EVICT: evict,
    ops.KILL_SLURMD: kill_slurmd,
    ops.FREEZE_SLURMD: freeze_slurmd,
    ops.BAD_IMAGE: misbehaving(Behaviour(image_pulls=False)),
    ops.CRASHES: misbehaving(Behaviour(crashes=True)),
    ops.NO_ROOM: misbehaving(Behaviour(schedulable=False)),
}


async def _run(scene: Scene, *argv: str) -> None:
    done = await scene.cluster.slurm.run(*argv)
    if done.rc:
        raise SkippedError(f"{argv[0]} says: {(done.err or done.out).strip()[:120]}")


async def _update(scene: Scene, op: Operation, *fields: str) -> None:
    await _run(scene, "scontrol", "update", f"nodename={','.join(op.names)}", *fields)


async def _state(scene: Scene, op: Operation) -> frozenset[str]:
    states = await node_states(scene.cluster.slurm)
    if op.names[0] not in states:
        raise SkippedError("slurmctld does not answer")
    return states[op.names[0]]


async def _hook(scene: Scene, op: Operation, name: str) -> None:
    if scene.touched("hooks"):
        raise SkippedError("the hooks are out of order already")
    code, _ = await scene.cluster.hook(name, op.names[0])
    if code:
        raise SkippedError(f"{name} was not heard")


async def _must_run(scene: Scene, op: Operation) -> None:
    """The API server's word, and the lab's own: between them the container may still be on its way."""
    await asyncio.sleep(0)
    if not scene.cluster.kubelet.runs(op.names[0]):
        raise SkippedError("it has no running pod")


def _tree(pid: int) -> Iterator[int]:
    """A process and all below it."""
    todo = [pid]
    while todo:
        yield (one := todo.pop())
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{one}").glob("task/*/children"):
                todo += [int(word) for word in task.read_text().split()]


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
