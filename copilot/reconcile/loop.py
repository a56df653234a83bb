"""The loop: observe, plan, act. Wakes on a hint, a view of Slurm, a change of a pod or a target, or a timer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from copilot import logs
from copilot.config import Settings
from copilot.hints import Hints
from copilot.hostlist import fold
from copilot.model import Pod, PodView, SlurmView, Verb
from copilot.plan import Breaker, Pace, Plan, Policy, Track, World, active, plan
from copilot.reconcile import picture, report
from copilot.reconcile.acts import Announcer, Deleter, Notice, Teller
from copilot.reconcile.events import Index
from copilot.reconcile.groups import Groups
from copilot.reconcile.looks import Looks
from copilot.reconcile.waits import Waits
from copilot.server import Health, HookAnswer, WaitAnswer
from copilot.slurm import Saving
from copilot.targets import split_node
from copilot.telemetry import Metrics

# The loop ticks at least this often, so that a health probe can tell a stalled loop from a quiet one.
_HEARTBEAT = 5.0
_STALLED = 30.0
# So many nodes of the last hook are shown by name.
_SHOWN = 100
# Gauges are for scrapes many seconds apart: while things move they are set no more often than this.
_GAUGES = 1.0
# After a decision that took t seconds the next waits for a multiple of t, at least this long: a storm of pod events costs a share, not all.
_MIN_GAP = 0.01
_GAP_FACTOR = 4


def policy_of(settings: Settings) -> Policy:
    """The waits of a decision, from the settings of the same names."""
    return Policy(**{row.name: getattr(settings, row.name) for row in fields(Policy) if hasattr(settings, row.name)})


class Loop:
    """Holds both views and the memory; implements the server's `Core`. Everything it does not decide it hands on."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        groups: Groups,
        teller: Teller,
        deleter: Deleter,
        announcer: Announcer,
        clock: Callable[[], float],
        ordinals: Callable[[], bool],
    ) -> None:
        self.metrics = metrics
        self.groups = groups
        self.problems: dict[str, str] = {}
        self.looks: Looks | None = None
        self._policy = policy_of(settings)
        self._teller = teller
        self._deleter = deleter
        self._announcer = announcer
        self._clock = clock
        self._ordinals = ordinals
        self._hints = Hints()
        self._view: SlurmView | None = None
        self._active: frozenset[str] = frozenset()
        self._pods = PodView(synced=False)
        self._pods_listed = False
        self._targets_synced = False
        self._group_names: frozenset[str] = frozenset()
        self._tracks: Mapping[str, Track] = {}
        self._made: Plan | None = None
        self._breakers: Mapping[str, Breaker] = {}
        self._running_since: Mapping[str, int] = {}
        self._saving = Saving(time=float("inf"))  # nothing is known yet to keep a node up
        self._last_hook: dict[str, Any] | None = None
        self._hooked_at = clock()
        self._events: Callable[[], Index] = dict
        self._waits = Waits(clock, self._look_now)
        self._wake = asyncio.Event()
        self._ticked_at = clock()
        self._gauged_at = float("-inf")

    # What comes in

    def on_view(self, view: SlurmView) -> None:
        """A new view of Slurm."""
        if self._view is None or self._view.nodes.keys() != view.nodes.keys():
            self.groups.place(view.nodes, anew=True)
        self._view, self._active = view, active(view)
        self.metrics.viewed()
        self.problems.pop("slurm", None)
        self._wake.set()

    def on_pods(self, pods: Mapping[str, Pod], *, synced: bool) -> None:
        """A new list of the namespace's pods."""
        self._pods = PodView(synced, pods)
        self._pods_listed = self._pods_listed or synced
        self._deleter.forget({pod.uid for pod in pods.values()})
        self._wake.set()

    def on_events(self, events: Callable[[], Index]) -> None:
        """Kubernetes told something of pods or targets; asked for with the next decision, since Events come in storms."""
        self._events = events
        self._wake.set()

    def on_jobs(self, running_since: Mapping[str, int]) -> None:
        """The jobs that ran when we came: before the first view, and never again, since from then on we see what becomes of their pods."""
        self._running_since = running_since

    def on_saving(self, saving: Saving) -> None:
        """What slurm.conf says of power saving."""
        self._saving = saving

    def on_targets(self, *, synced: bool) -> None:
        """The groups have changed, or their targets have."""
        self._targets_synced = synced
        for gone in self._group_names - self.groups.groups.keys():
            self.metrics.forget(gone)
        self._group_names = frozenset(self.groups.groups)
        claimed = "; ".join(f"group {name} is claimed by {targets}" for name, targets in self.groups.doubly_claimed.items())
        if claimed:
            self.problems["groups"] = f"{claimed}: rename one of each; neither is scaled until then"
        else:
            self.problems.pop("groups", None)
        self._hints.retain(self.groups.members.keys())
        self._wake.set()

    def hook(self, verb: Verb, nodes: Sequence[str], request_id: str, jobs: Mapping[str, tuple[int, ...]]) -> HookAnswer:
        """See `Core.hook`. Every hook asks for a fresh look; a resume is acted on before that."""
        accepted: list[str] = []
        ignored: dict[str, list[str]] = {}
        for name in nodes:
            if reason := self._stranger(name):
                ignored.setdefault(reason, []).append(name)
            else:
                accepted.append(name)
        self._hints.add(verb, accepted, self._clock(), request_id, jobs)
        self._hooked_at = self._clock()
        self._last_hook = {
            "action": str(verb),
            "request_id": request_id,
            "accepted": len(accepted),
            "nodes": fold(accepted[:_SHOWN]),
        }
        self._look_now()
        self._wake.set()
        return HookAnswer(accepted, [(names, reason) for reason, names in ignored.items()])

    def _stranger(self, name: str) -> str:
        """Why a name is none of ours, or "". Until both sides have been listed once, nothing is known to be foreign."""
        split = split_node(name)
        if split is None:
            return "cannot be a pod of a worker group: expected <group>-<index> without leading zeros"
        if not self._targets_synced or self._view is None:
            return ""
        if split[0] in self.groups.doubly_claimed:
            return f"group {split[0]} is claimed by {self.groups.doubly_claimed[split[0]]}"
        if split[0] not in self.groups.groups:
            return f"no worker group {split[0]} in this namespace"
        return "" if name in self._view.nodes else "slurmctld lists no such node: add it to slurm.conf"

    async def wait(self, nodes: Sequence[str], deadline: float) -> WaitAnswer:
        """See `Core.wait`."""
        return await self._waits.wait(nodes, deadline, self._view, self._tracks)

    # What it does

    async def run(self) -> None:
        """Never returns."""
        while True:
            try:
                async with asyncio.timeout(_HEARTBEAT):
                    await self._wake.wait()
            except TimeoutError:
                self._ticked_at = self._clock()
                continue
            self._wake.clear()
            began = time.perf_counter()
            self.tick()
            taken = time.perf_counter() - began
            self.metrics.reconciled(taken, ok=self._made is not None)
            await asyncio.sleep(max(_MIN_GAP, taken * _GAP_FACTOR))

    def tick(self) -> None:
        """One decision, and its acts handed on. Nothing is decided before slurmctld, targets and pods have been listed once."""
        self._ticked_at = self._clock()
        if self._view is None or not self._targets_synced or not self._pods_listed:
            return
        world = self._world()
        made = self._made = plan(world, self._policy)
        self._running_since = {}
        self._tracks = made.tracks
        self._announce(report.breakers(self._breakers, made.breakers))
        if made.breakers != self._breakers:
            self._breakers = made.breakers
            self._wake.set()  # it takes effect with the next decision
        self._hints.confirm(self._view)
        self.groups.want(made.desired, world.pods.pods)
        self._teller.tell(made.updates)
        self._teller.forget(made.tracks)
        self._deleter.delete(made.deletes)
        self._waits.settle(self._view, made.tracks)
        if self.looks is not None:
            self.looks.pace(made.pace)
        self._announce(report.tell(made.outcomes, self.metrics))
        if made.pace is Pace.QUIET or self._ticked_at - self._gauged_at >= _GAUGES:
            self._gauged_at = self._ticked_at
            report.gauges(replace(world, tracks=made.tracks, breakers=made.breakers), made.desired, self.metrics)

    def _announce(self, notices: Iterable[tuple[str, str, str]]) -> None:
        for group, reason, message in notices:
            target = self.groups.target(group)
            if target is not None:
                self._announcer.announce([Notice(target, reason, message, warning=reason not in report.GOOD_NEWS)])

    def _world(self) -> World:
        pods = report.owned_pods(self._pods, self.groups)
        covers = self.groups.covers()
        self.groups.meet(self.groups.groups[name].node(index) for name, indexes in covers.items() for index in indexes)
        return World(
            now=self._clock(),
            slurm=self._view,
            pods=pods,
            groups=self.groups.groups,
            members=self.groups.members,
            active=self._active,
            running_since=self._running_since,
            covers=covers,
            hints=self._hints.wanted(float("-inf")),
            told=self._teller.told,
            tracks={name: track for name, track in self._tracks.items() if name in self.groups.members},
            ordinals=self._ordinals(),
            events=self._events(),
            held=self.groups.held(),
            unpatched=self.groups.unpatched(),
            breakers=self._breakers,
        )

    def _look_now(self) -> None:
        if self.looks is not None:
            self.looks.request()

    # What it tells

    def snapshot(self) -> dict[str, Any]:
        """See `Core.snapshot`."""
        return picture.snapshot(self._world(), self.groups, self.problems, self._saving) | {
            "last_hook": self._last_hook and self._last_hook | {"age": round(self._clock() - self._hooked_at, 1)},
            "last_error": logs.last_error(),
        }

    def node(self, name: str) -> dict[str, Any] | None:
        """See `Core.node`."""
        return picture.story(self._world(), self._policy, name, self._saving)

    def health(self) -> Health:
        """See `Core.health`. That the API server or slurmctld is away is told, but is no reason to restart us."""
        idle = self._clock() - self._ticked_at
        missing = [
            what
            for what, there in (
                ("no answer of slurmctld yet", self._view),
                ("targets not listed yet", self._targets_synced),
                ("pods not listed yet", self._pods.synced),
            )
            if not there
        ]
        why = "; ".join([*missing, *(f"{what}: {words}" for what, words in sorted(self.problems.items()))])
        return Health(alive=idle < _STALLED, ready=not missing, why=why or "ok")

    @property
    def waiting(self) -> int:
        """How many prologs wait now."""
        return len(self._waits)

    def stop(self) -> None:
        """Answers all waits; their hooks ask again, which reaches our successor."""
        self._waits.stop()
