"""The real loop in a small world that never moves: what docs/api.md tells is asked of it. Nothing of it runs, no API server, no Slurm."""

from __future__ import annotations

import asyncio

from copilot.config import Settings
from copilot.kube import Kube
from copilot.logs import forget_error
from copilot.model import Kind, Node, Pod, SlurmView, TargetRef, Verb
from copilot.reconcile.acts import Announcer, Deleter, Teller
from copilot.reconcile.groups import Groups
from copilot.reconcile.loop import Loop
from copilot.reconcile.writer import Writer
from copilot.slurm import Slurm
from copilot.telemetry import Metrics
from tests.lab.objects import stateful_set

NAMESPACE = "slurm"
OFF = "IDLE+CLOUD+POWERED_DOWN"
STATES = {
    "cpu-0": "ALLOCATED+CLOUD",
    "cpu-1": "ALLOCATED+CLOUD",
    "cpu-2": "MIXED+CLOUD+NOT_RESPONDING+POWERING_UP",
    **{f"cpu-{index}": OFF for index in range(3, 10)},
}


class _NoKube(Kube):
    """Takes the place of an API server that nobody asks."""

    def __init__(self) -> None:
        pass


def _view(now: float) -> SlurmView:
    split = {name: state.split("+") for name, state in STATES.items()}
    return SlurmView(now, {name: Node(name, words[0], frozenset(words[1:])) for name, words in split.items()})


def _pods(now: float) -> dict[str, Pod]:
    up = {
        name: Pod(name, f"uid-{name}", now, phase="Running", scheduled=True, ready=True, running=True, owner="cpu")
        for name in ("cpu-0", "cpu-1")
    }
    coming = Pod("cpu-2", "uid-2", now, scheduled=True, owner="cpu", trouble="ImagePullBackOff", message="Back-off pulling image")
    return {**up, "cpu-2": coming}


def known_world(settings: Settings) -> Loop:
    """Group `cpu` of ten nodes behind a StatefulSet with three replicas: two up with a job, one whose image cannot be pulled."""
    clock, metrics, kube = asyncio.get_running_loop().time, Metrics(), _NoKube()

    def writer(ref: TargetRef) -> Writer:
        return Writer(ref, kube, settings, clock, metrics, lambda: True)

    groups = Groups(writer)
    teller = Teller(Slurm(), clock, lambda: None)
    forget_error()
    loop = Loop(settings, metrics, groups, teller, Deleter(kube, NAMESPACE), Announcer(kube), clock=clock, ordinals=lambda: True)
    target = stateful_set("cpu", 3)
    target["metadata"] |= {"namespace": NAMESPACE, "uid": "uid-cpu", "generation": 1}
    groups.observe(Kind.STATEFUL_SET, NAMESPACE, {"cpu": target})
    loop.on_targets(synced=True)
    loop.hook(Verb.RESUME, ["cpu-2"], "1f6b3d55", {"cpu-2": (7,)})
    loop.on_pods(_pods(clock()), synced=True)
    loop.on_view(_view(clock()))
    loop.tick()
    return loop
