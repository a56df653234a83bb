"""Puts the daemon together and takes it apart: one TaskGroup, every root task guarded, a stop that is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import signal
from collections.abc import Coroutine
from typing import Any

import structlog

from copilot import __version__, targets
from copilot.config import Settings
from copilot.kube import Kube, KubeError, NotConfigured, Reflector, Selection, State
from copilot.model import Kind, Pod, SlurmView, TargetRef
from copilot.reconcile.acts import Announcer, Deleter, Teller
from copilot.reconcile.events import Events
from copilot.reconcile.groups import Groups
from copilot.reconcile.learn import follow_saving, patiently
from copilot.reconcile.looks import Looks
from copilot.reconcile.loop import Loop
from copilot.reconcile.pods import pod_of
from copilot.reconcile.writer import Writer
from copilot.server import Server, ServerError
from copilot.slurm import Slurm, SlurmRefused, SlurmUnavailable
from copilot.telemetry import Metrics

_log = structlog.get_logger()
# A patch in flight and what hooks have just asked for get this long when we are told to stop; all of the stop is to take less than 5 s.
_FINISH = 2.5
# spec.ordinals of a StatefulSet: beta, on by default, since 1.27.
_ORDINALS_SINCE = (1, 27)
Object = dict[str, Any]


async def run(settings: Settings) -> int:
    """Runs the daemon until SIGTERM or SIGINT; returns the exit code. What waiting does not mend ends it with one line and 1."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    metrics = Metrics()
    try:
        kube = await Kube.connect(settings.kubeconfig, settings.namespace, settings.kube_timeout, metrics.kube)
    except NotConfigured as error:
        _log.error("not_configured", error=str(error))
        return 1
    # What is imported by now stays. Without this the garbage collector walks through all of it again and again: stalls of 50 ms.
    gc.collect()
    gc.freeze()
    try:
        return await _Daemon(settings, kube, metrics).run(stop)
    except ServerError as error:
        _log.error("cannot_listen", error=str(error))
        return 1
    finally:
        await kube.close()


class _Daemon:
    """All parts and how they call one another."""

    def __init__(self, settings: Settings, kube: Kube, metrics: Metrics) -> None:
        clock = asyncio.get_running_loop().time
        self._settings = settings
        self._kube = kube
        self._metrics = metrics
        self._ordinals = True
        self._knows_jobs = False
        self._writing: dict[TargetRef, asyncio.Task[None]] = {}
        self._starting = asyncio.Event()
        self._slurm = Slurm(
            settings.scontrol, settings.slurm_conf, timeout=settings.scontrol_timeout, clock=clock, observe=metrics.scontrol
        )
        self._groups = Groups(lambda ref: Writer(ref, kube, settings, clock, metrics, lambda: self._ordinals))
        self._teller = Teller(self._slurm, clock, self._look_now)
        self._deleter = Deleter(kube, kube.namespace)
        self._announcer = Announcer(kube)
        self._loop = Loop(
            settings, metrics, self._groups, self._teller, self._deleter, self._announcer, clock, lambda: self._ordinals
        )
        failures = (SlurmUnavailable, SlurmRefused)
        self._looks = self._loop.looks = Looks(self._look, failures, settings, clock, self._loop.on_view, self._no_view)
        self._pods: Reflector[Pod] = Reflector(
            kube,
            f"/api/v1/namespaces/{kube.namespace}/pods",
            lambda raw, before: pod_of(raw, before, clock(), listed=self._pods.state is not State.SYNCED),
            on_change=self._pods_changed,
        )
        self._events = Events(kube, clock, self._events_changed)
        self._targets = {kind: self._target_reflector(kind) for kind in map(Kind, settings.targets)}
        metrics.watch("pods", functools.partial(_is_open, self._pods))
        for kind, reflector in self._targets.items():
            metrics.watch(kind, functools.partial(_is_open, reflector))

    def _target_reflector(self, kind: Kind) -> Reflector[Object]:
        return Reflector(
            self._kube,
            targets.collection(kind, self._kube.namespace),
            lambda raw, _before: raw,
            selection=Selection(labels="" if kind is Kind.SLURM_CLUSTER else self._settings.worker_label),
            on_change=lambda: self._targets_changed(kind),
        )

    # Between the parts

    async def _look(self) -> SlurmView:
        """The first one that is answered brings the jobs too; without squeue we go on, and judge nobody by them."""
        jobs: dict[str, int] = {}
        if not self._knows_jobs:
            with contextlib.suppress(SlurmUnavailable):
                jobs = await self._slurm.running_since()
        view = await self._slurm.nodes()
        if not self._knows_jobs:
            self._loop.on_jobs(jobs)
            self._knows_jobs = True
        return view

    def _look_now(self) -> None:
        self._looks.request()

    def _no_view(self, error: Exception) -> None:
        """Said once for each new cause; nobody is judged on what was not seen."""
        if self._loop.problems.get("slurm") != str(error):
            _log.error("slurm_unavailable", error=str(error))
        self._loop.problems["slurm"] = str(error)

    def _pods_changed(self) -> None:
        self._problem("pods", self._pods.problem)
        self._loop.on_pods(self._pods.items, synced=self._pods.synced)

    def _events_changed(self) -> None:
        reflector = self._events.reflector
        words = (
            f"{reflector.problem}; without Events nobody learns why a pod was not made"
            if reflector.state is State.REFUSED
            else ""
        )
        self._problem("events", words)
        self._loop.on_events(lambda: self._events.index)

    def _targets_changed(self, kind: Kind) -> None:
        reflector = self._targets[kind]
        # A kind that the cluster does not have is no problem, as long as another kind is there.
        self._problem(kind, reflector.problem if reflector.state is not State.ABSENT else "")
        new, gone = self._groups.observe(kind, self._kube.namespace, reflector.items)
        for ref in gone:
            _log.warning("target_gone", target=str(ref))
            self._writing.pop(ref).cancel()
        for ref in new:
            writer = self._groups.writers[ref]
            _log.info(
                "target_found", target=str(ref), groups=[group.name for group in writer.target.groups] if writer.target else []
            )
            self._starting.set()
        settled = all(each.settled for each in self._targets.values())
        if settled and not self._groups.groups:
            where = f"{', '.join(self._settings.targets)} in namespace {self._kube.namespace}"
            self._problem(
                "targets", f"no worker group found: looked for {where}, sets with the label {self._settings.worker_label}"
            )
        else:
            self._problem("targets", "")
        self._loop.on_targets(synced=settled)

    def _problem(self, what: str, words: str) -> None:
        if words and self._loop.problems.get(what) != words:
            _log.warning("problem", what=what, problem=words)
        if words:
            self._loop.problems[what] = words
        else:
            self._loop.problems.pop(what, None)

    # Root tasks

    async def run(self, stop: asyncio.Event) -> int:
        """Until `stop` is set. An error in any root task ends the process, so that a whole one takes its place."""
        server = Server(self._loop, self._settings)
        await server.start()
        self._metrics.build(__version__, "")
        _log.info("started", version=__version__, namespace=self._kube.namespace, targets=list(self._settings.targets))
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(work, name=name) for name, work in self._roots(group).items()]
                await stop.wait()
                await self._graceful(server)
                for task in (*tasks, *self._writing.values()):
                    task.cancel()
        finally:
            await server.stop()
        _log.info("stopped")
        return 0

    def _roots(self, group: asyncio.TaskGroup) -> dict[str, Coroutine[Any, Any, None]]:
        return {
            "versions": self._versions(),
            "saving": follow_saving(self._slurm, self._loop.on_saving),
            "looks": self._looks.run(),
            "pods": self._pods.run(),
            "events": self._events.reflector.run(),
            **{f"targets-{kind}": reflector.run() for kind, reflector in self._targets.items()},
            "writers": self._start_writers(group),
            "teller": self._teller.run(),
            "deleter": self._deleter.run(),
            "announcer": self._announcer.run(),
            "freshness": self._freshness(),
            "loop": self._loop.run(),
        }

    async def _start_writers(self, group: asyncio.TaskGroup) -> None:
        """Each target has a task of its own, so that one that hangs holds up no other."""
        while True:
            await self._starting.wait()
            self._starting.clear()
            for ref, writer in self._groups.writers.items():
                if ref not in self._writing:
                    self._writing[ref] = group.create_task(writer.run(), name=f"writer-{ref}")

    async def _freshness(self) -> None:
        """A watch that stays broken makes the pod list unreliable without any event of its own."""
        synced = False
        while True:
            await asyncio.sleep(5.0)
            if self._pods.synced is not synced:
                synced = self._pods.synced
                self._pods_changed()

    async def _versions(self) -> None:
        """Learns both sides' versions, once each has answered."""
        version = await patiently(self._kube.version, KubeError)
        self._ordinals = version >= _ORDINALS_SINCE or version == (0, 0)
        slurm = await patiently(self._slurm.version, SlurmUnavailable)
        self._metrics.build(__version__, slurm)
        _log.info("versions", kubernetes=".".join(map(str, version)), slurm=slurm)

    async def _graceful(self, server: Server) -> None:
        """Answers the waits, takes no more requests, lets the writers send what hooks have asked for."""
        _log.info("stopping", waits=self._loop.waiting)
        self._loop.stop()
        await server.stop()
        self._loop.tick()
        try:
            async with asyncio.timeout(_FINISH):
                await asyncio.gather(
                    *(self._groups.writers[ref].finish() for ref in self._writing if ref in self._groups.writers)
                )
        except TimeoutError:
            _log.warning("stopped_before_target_was_patched", cure="the next start finds the nodes in Slurm's state")


def _is_open(reflector: Reflector[Any]) -> bool:
    """Also of a kind that the cluster does not have: there is nothing to be missed."""
    return reflector.state in (State.SYNCED, State.ABSENT)
