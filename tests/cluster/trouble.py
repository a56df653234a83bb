"""What tests/chaos does by a plan, done to the whole cluster: real pods, with kubectl, Slurm's commands and signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.chaos import operations as ops
from tests.chaos.operations import Operation, Sort
from tests.cluster.whole import Whole
from tests.lab.node import kubectl
from tests.lab.whole import overlay
from tests.lab.whole.overlay import NAMESPACE

# The plan's groups by those of overlays/demo: the set, and the first of its indexes that stands for one of the plan's.
GROUPS: Final = {"cpu": ("cpu", 0), "gpu": ("sparse", 0), "demo-worker-a": ("cpu", 8)}
RESOURCES: Final = {"cpu": "statefulset.apps/cpu", "sparse": "statefulsets.apps.kruise.io/sparse"}


class SkippedError(Exception):
    """The operation makes no sense at the moment; the message says why."""


@dataclass
class Stage:
    """The cluster and what was done to it. Operations run in threads; only one at a time has its hands on a part."""

    whole: Whole
    submitted: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    drained: set[str] = field(default_factory=set)
    _parts: dict[str, threading.Lock] = field(default_factory=dict)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        lock = self._parts.setdefault(name, threading.Lock())
        if not lock.acquire(blocking=False):
            raise SkippedError(f"{name} is out of order already")
        try:
            yield
        finally:
            lock.release()


def set_of(op: Operation) -> str:
    return GROUPS[op.group][0]


def names(op: Operation) -> list[str]:
    group, first = GROUPS[op.group]
    return [f"{group}-{first + index}" for index in op.nodes]


def job_name(number: int) -> str:
    return f"op{number}"


def submit(stage: Stage, op: Operation) -> None:
    count = len(op.nodes) or op.count
    where = f"-w {','.join(names(op))}" if op.nodes else f"-N {count}"
    options = f"--job-name={job_name(op.number)} -p {set_of(op)} {where} -n {count} --ntasks-per-node=1 -D /tmp -o /dev/null"
    stage.whole.head(f"sbatch {options} --wrap 'sleep {op.seconds}'")
    stage.submitted.add(job_name(op.number))


def cancel(stage: Stage, op: Operation) -> None:
    if job_name(op.about) not in stage.submitted:
        raise SkippedError("no such job yet")
    stage.whole.head(f"scancel --name={job_name(op.about)}")
    stage.cancelled.add(job_name(op.about))


def drain(stage: Stage, op: Operation) -> None:
    stage.drained.update(names(op))
    _update(stage, op, "state=drain reason=chaos")


def undrain(stage: Stage, op: Operation) -> None:
    _update(stage, op, "state=undrain")


def power_down(stage: Stage, op: Operation) -> None:
    _update(stage, op, "state=power_down")


def repeat_hook(stage: Stage, op: Operation) -> None:
    """What slurmctld has said of the node last, once more."""
    (node,) = names(op)
    off = stage.whole.node_states()[node].endswith(("~", "%"))
    stage.whole.head(f"{'/slurm-suspend.sh' if off else '/slurm-resume.sh'} {node}")


def stray_hook(stage: Stage, op: Operation) -> None:
    """A resume of a node that nobody may want."""
    stage.whole.head(f"/slurm-resume.sh {names(op)[0]}")


def edit_replicas(stage: Stage, op: Operation) -> None:
    stage.whole.kubectl("scale", RESOURCES[set_of(op)], f"--replicas={op.count}")


def delete_pod(stage: Stage, op: Operation) -> None:
    stage.whole.kubectl("delete", "pod", names(op)[0], "--wait=false")


def evict(stage: Stage, op: Operation) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": names(op)[0], "namespace": NAMESPACE}}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{names(op)[0]}/eviction"
    kubectl(stage.whole.node, "create", "--raw", path, "-f", "-", text=json.dumps(body))


def kill(pod: str, container: str, processes: str) -> Callable[[Stage, Operation], None]:
    """SIGKILL to what `pgrep` finds in the container; pod "" is the operation's node."""

    def act(stage: Stage, op: Operation) -> None:
        name = pod or names(op)[0]
        with stage.part(name + container):
            overlay.execute(stage.whole.node, name, "sh", "-c", f"kill -9 $(pgrep {processes})", container=container)

    return act


def freeze(pod: str, container: str, processes: str) -> Callable[[Stage, Operation], None]:
    def act(stage: Stage, op: Operation) -> None:
        name = pod or names(op)[0]
        script = f"p=$(pgrep {processes}); kill -STOP $p; sleep {op.seconds}; kill -CONT $p"
        with stage.part(name + container):
            overlay.execute(stage.whole.node, name, "sh", "-c", script, container=container)

    return act


def replace_head(stage: Stage, op: Operation) -> None:
    del op
    with stage.part("head"):
        stage.whole.kubectl("delete", "pod", "head-0", "--wait=true")
        stage.whole.kubectl("rollout", "status", "statefulset/head", "--timeout=180s")


def freeze_component(program: str) -> Callable[[Stage, Operation], None]:
    """A part of the control plane keeps its connections and answers nothing."""

    def act(stage: Stage, op: Operation) -> None:
        pids = list(_pids(program, stage.whole.node.plane))
        assert pids, f"{program} does not run"
        with stage.part("plane"):
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            try:
                time.sleep(op.seconds)
            finally:
                for pid in pids:
                    os.kill(pid, signal.SIGCONT)

    return act


def bad_image(stage: Stage, op: Operation) -> None:
    """Pods made meanwhile cannot start, and are replaced only when they have failed."""
    resource, path = RESOURCES[set_of(op)], "/spec/template/spec/containers/0/image"

    def put(image: str) -> None:
        patch = json.dumps([{"op": "replace", "path": path, "value": image}])
        stage.whole.kubectl("patch", resource, "--type=json", "-p", patch)

    with stage.part(resource):
        before = stage.whole.kubectl("get", resource, "-o", "jsonpath={.spec.template.spec.containers[0].image}")
        put("slurm:no-such-tag")
        try:
            time.sleep(op.seconds)
        finally:
            put(before)


def full_quota(stage: Stage, op: Operation) -> None:
    with stage.part("quota"):
        stage.whole.kubectl("create", "quota", "full", f"--hard=pods={len(stage.whole.pods())}")
        try:
            time.sleep(op.seconds)
        finally:
            stage.whole.kubectl("delete", "quota", "full")


ACTS: Final[dict[Sort, Callable[[Stage, Operation], None]]] = {
    ops.SUBMIT: submit,
    ops.CANCEL: cancel,
    ops.DRAIN: drain,
    ops.UNDRAIN: undrain,
    ops.POWER_DOWN: power_down,
    ops.REPEAT_HOOK: repeat_hook,
    ops.STRAY_HOOK: stray_hook,
    ops.EDIT_REPLICAS: edit_replicas,
    ops.DELETE_POD: delete_pod,
    ops.EVICT: evict,
    ops.BAD_IMAGE: bad_image,
    ops.FULL_QUOTA: full_quota,
    ops.KILL_SLURMD: kill("", "slurmd", "-x slurmd"),
    ops.FREEZE_SLURMD: freeze("", "slurmd", "-x 'slurmd|slurmstepd'"),
    ops.KILL_COPILOT: kill("head-0", "copilot", "-P 1"),
    ops.FREEZE_COPILOT: freeze("head-0", "copilot", "-P 1"),
    ops.FREEZE_SLURMCTLD: freeze("head-0", "slurmctld", "-x slurmctld"),
    ops.RESTART_SLURMCTLD: replace_head,
    ops.API_AWAY: freeze_component("kube-apiserver"),
    ops.ETCD_AWAY: freeze_component("etcd"),
}


def _update(stage: Stage, op: Operation, fields: str) -> None:
    stage.whole.head(f"scontrol update nodename={','.join(names(op))} {fields}")


def _pids(program: str, folder: Path) -> Iterator[int]:
    """Of this cluster alone: its arguments name files in its folder."""
    found = subprocess.run(["pgrep", "-f", f"{program} .*{folder}"], capture_output=True, text=True)
    for word in found.stdout.split():
        if Path(f"/proc/{word}/exe").readlink().name == program:
            yield int(word)


def ended_badly(states: Mapping[str, str], cancelled: Set[str]) -> dict[str, str]:
    """The jobs, with their states as sacct has them, that are neither COMPLETED nor were cancelled.

    One that is cancelled while it waits for its second start has the record of its first.
    """
    allowed = ("CANCELLED", "NODE_FAIL", "REQUEUED")
    return {
        name: state for name, state in states.items() if state != "COMPLETED" and not (name in cancelled and state in allowed)
    }
