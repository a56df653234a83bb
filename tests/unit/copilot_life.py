"""The copilot's loop around the pure decision, in simulated time: hooks, views and pod lists that are late, lost or old; acts that take time.

Every decision made on the way is checked against the principles that hold at every moment (`_check`); test_plan_properties lets it live.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from copilot.hints import Hints
from copilot.model import Kind, Node, Phase, Pod, PodView, SlurmView, Verb
from copilot.plan import Breaker, Member, Pace, Plan, Policy, Told, Track, World, active, plan
from tests.unit.cluster_life import Cluster
from tests.unit.slurm_life import Daemon, Job, Slurm

TICK = 0.5
POLICY = Policy(
    missed_hook_grace=4,
    orphan_grace=12,
    stale_grace=4,
    registration_timeout=25,
    repeat_update=6,
    breaker_failures=3,
    breaker_pause=8,
    breaker_pause_max=16,
)
INTERVALS = {Pace.QUIET: 6.0, Pace.ACTIVE: 1.0, Pace.FAST: TICK}


@dataclass(slots=True)
class Faults:
    """What goes wrong, as long as it does. Chances are 0 to 1, delays are seconds."""

    hooks_lost: float = 0.0
    hooks_doubled: float = 0.0
    hooks_late: float = 0.0
    looks_fail: bool = False
    looks_late: float = 0.0
    pods_stale: bool = False
    patches_fail: bool = False
    acts_late: float = 0.0


class Life:
    """slurmctld, a cluster and the copilot, half a second at a time."""

    def __init__(self, kind: Kind, seed: int, clears: str = "at once", size: int = 4) -> None:
        self.now = 1000.0
        self.chance = random.Random(seed)
        self.faults = Faults()
        self.cluster = Cluster(kind, self.chance, clears)
        self.group = self.cluster.target.groups[0]
        self.members = {self.group.node(index): Member(self.group, index) for index in range(size)}
        self.slurm = Slurm(self.members)
        self.made: Plan | None = None
        self.said_updates: list[tuple[str, str]] = []
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._heard: set[Daemon] = set()
        self.forget()

    def forget(self) -> None:
        """The copilot is killed and starts anew: what it had in memory or under way is lost."""
        self.hints = Hints()
        self.view: SlurmView | None = None
        self.healthy: frozenset[str] = frozenset()
        self.pods: dict[str, Pod] = {}
        self.synced = False
        self.told: dict[str, Told] = {}
        self.tracks: dict[str, Track] = {}
        self.breakers: dict[str, Breaker] = {}
        self.said: frozenset[int] = frozenset()
        self.witnessed: set[tuple[str, int]] = set()
        # by node whose pod was replaced: since when one of the sides had not been looked at
        self._unseen: dict[str, float] = {}
        self._watched, self._listed = self.now, dict.fromkeys(self.members, 0.0)
        self._before: frozenset[int] = frozenset()
        self._asked, self._look_now = self.now, True
        self._looking = self._patching = False
        self._life = object()

    def detectable(self, job: Job) -> bool:
        """Whether every slurmd that the job started in, or else its absence, was seen by this life of the copilot while its node was up."""
        return all((home.uid, home.restarts) in self.witnessed for home in job.homes.values())

    def later(self, seconds: float, act: Callable[[], None], ours: bool = True) -> None:
        """An act that takes time. One of ours is lost when the copilot is killed meanwhile."""
        life = self._life
        self._later.append((self.now + seconds, (lambda: act() if self._life is life else None) if ours else act))

    def run(self, seconds: float) -> None:
        """Time passes."""
        for _ in range(round(seconds / TICK)):
            self.now += TICK
            self.cluster.step(self.now)
            self._register()
            self.slurm.step(self.now, self.cluster.alive(self.now))
            self._hooks()
            due = [act for at, act in self._later if at <= self.now]
            self._later = [(at, act) for at, act in self._later if at > self.now]
            for act in due:
                act()
            self._watch()
            self._look()
            self._decide()

    def _register(self) -> None:
        for name, daemon in self.cluster.alive(self.now).items():
            self.slurm.heard(name, daemon, self.now, first=daemon not in self._heard)
            self._heard.add(daemon)

    def _hooks(self) -> None:
        hooks, self.slurm.hooks = self.slurm.hooks, []
        for verb, names in hooks:
            for _ in range(1 + (self.chance.random() < self.faults.hooks_doubled)):
                if self.chance.random() >= self.faults.hooks_lost:
                    self.later(self.chance.uniform(0, self.faults.hooks_late), partial(self._hook, verb, names), ours=False)

    def _hook(self, verb: Verb, names: tuple[str, ...]) -> None:
        self.hints.add(verb, names, self.now, "r", {})
        self._look_now = True

    def _watch(self) -> None:
        if not self.faults.pods_stale:
            self.pods, self.synced = self.cluster.seen(self.now, self.pods), True
        elif self.chance.random() < 0.1:
            self.synced = False

    def _look(self) -> None:
        """Slurm is asked now, answers at some moment after, and the answer reaches the copilot later still."""
        due = self._asked + INTERVALS[self.made.pace if self.made else Pace.ACTIVE]
        if self._looking or not (self._look_now or self.now >= due):
            return
        asked = self._asked = self.now
        self._look_now, self._looking = False, True
        if self.faults.looks_fail:
            self.later(3.0, self._look_failed)
            return
        answered, delivered = sorted(self.chance.uniform(0, self.faults.looks_late) for _ in range(2))
        # a fast look is answered within this very moment
        self.later(answered, lambda: self._answer(asked, delivered - answered)) if answered >= TICK else self._answer(
            asked, delivered
        )

    def _look_failed(self) -> None:
        self._looking = False

    def _answer(self, asked: float, delay: float) -> None:
        view, healthy = SlurmView(asked, self.slurm.view(self.now)), self.slurm.healthy(self.cluster.alive(self.now))
        if delay >= TICK:
            self.later(delay, lambda: self._deliver(view, healthy))
        else:
            self._deliver(view, healthy)

    def _deliver(self, view: SlurmView, healthy: frozenset[str]) -> None:
        self.view, self.healthy, self._looking = view, healthy, False

    def world(self) -> World:
        covers = self.cluster.target.states[0].covers
        return World(
            now=self.now,
            slurm=self.view,
            pods=PodView(self.synced, self.pods),
            groups={self.group.name: self.group},
            members=self.members,
            active=active(self.view) if self.view else frozenset(),
            covers={self.group.name: self.said if covers is None else frozenset(covers)},
            hints=self.hints.wanted(float("-inf")),
            told=self.told,
            tracks=self.tracks,
            breakers=self.breakers,
        )

    def _decide(self) -> None:
        world = self.world()
        made = self.made = plan(world, POLICY)
        if self.view is None or self.group.name not in made.desired:
            return
        self._check(world, made)
        self.tracks, self.breakers = dict(made.tracks), dict(made.breakers)
        for name, track in made.tracks.items():
            if track.missing_since == self.now:
                self._unseen[name] = min(self._listed.get(name, 0.0), self._watched)
        self._listed.update(dict.fromkeys(self.view.nodes, self.view.taken_at))
        self._watched = self.now if not self.faults.pods_stale else self._watched
        self.witnessed.update((track.pod_uid, track.restarts) for track in made.tracks.values() if track.phase is Phase.UP)
        self._before = made.desired[self.group.name]
        self.hints.confirm(self.view)
        self._patch(made)
        for update in made.updates:
            for name in update.nodes:
                self.told[name] = Told(update.state, self.now, done=False)
                self.said_updates.append((update.state, name))
                self.later(self._delay(), partial(self._update, update.state, name, update.reason))
        for delete in made.deletes:
            self.later(self._delay(), partial(self._delete, delete.name, delete.uid))

    def _delay(self) -> float:
        return self.chance.uniform(0, self.faults.acts_late)

    def _delete(self, name: str, uid: str) -> None:
        self.cluster.delete(name, uid, self.now)

    def _update(self, state: str, name: str, reason: str) -> None:
        self.slurm.update(state, name, reason, self.now)
        self.told[name] = Told(state, self.now)

    def _patch(self, made: Plan) -> None:
        """The writer: one patch at a time, computed from what is wanted when it begins."""
        if self._patching or self.group.name not in made.desired:
            return
        self._patching = True
        wanted, existing = made.desired[self.group.name], frozenset(self.members[name].index for name in self.pods)
        fails = self.faults.patches_fail and self.chance.random() < 0.8
        self.later(self._delay(), lambda: self._patched(wanted, existing, fails))

    def _patched(self, wanted: frozenset[int], existing: frozenset[int], fails: bool) -> None:
        self._patching = False
        if not fails:
            self.cluster.patch(wanted, existing)
            self.said = wanted

    def _check_neighbours(self, world: World, made: Plan) -> None:
        """Garbage in one node changes nothing for the others, except which of them a StatefulSet's window holds."""
        assert world.slurm is not None
        odd = self.chance.choice(sorted(self.members))
        nodes = {
            **world.slurm.nodes,
            odd: Node(odd, self.chance.choice(["", "ERROR", "DOWN"]), frozenset({"", "BLOCKED", "POWERING_UP"}), "="),
        }
        pods = {**world.pods.pods, odd: Pod(odd, "", -1.0, phase="Unknown", restarts=-1)}
        view = replace(world.slurm, nodes=nodes)
        other = plan(replace(world, slurm=view, active=active(view), pods=replace(world.pods, pods=pods)), POLICY)

        def of_others(plan: Plan) -> object:
            kept = (
                {}
                if self.cluster.kind is Kind.STATEFUL_SET
                else {name: track for name, track in plan.tracks.items() if name != odd}
            )
            updates = sorted((update.state, name) for update in plan.updates for name in update.nodes if name != odd)
            return kept, updates, [delete for delete in plan.deletes if delete.name != odd]

        assert of_others(other) == of_others(made), f"garbage in {odd} changes its neighbours"

    def _ambiguous(self, name: str) -> bool:
        """The pod was replaced, and the new one got a job, before both sides were looked at: that looks like a job whose pod was replaced.

        Told all the same: a job that has just begun is requeued, while the other kind would be RUNNING for ever.
        """
        home = self.cluster.alive(self.now).get(name)
        return name in self._unseen and home is not None and home.boot >= self._unseen[name]

    def _paused(self, made: Plan) -> bool:
        """Scaling up is stopped after failures: a hint alone starts nothing."""
        return self.group.name in made.breakers and made.breakers[self.group.name].open

    def _check(self, world: World, made: Plan) -> None:
        """What must be true of every decision, whatever went wrong before."""
        assert world.slurm is not None
        again = plan(replace(world, tracks=made.tracks, breakers=made.breakers), POLICY)
        # a breaker that opened or closed takes effect with the next decision, which the loop makes at once
        if made.breakers == world.breakers:
            assert again == replace(made, outcomes=()), "deciding twice is deciding once"
        if self.chance.random() < 0.1:
            self._check_neighbours(world, made)
        nodes, desired = world.slurm.nodes, made.desired[self.group.name]
        deleted = {delete.name for delete in made.deletes}
        # to empty the Reason of a healthy node is no harm to its job
        updates = {name: update.state for update in made.updates for name in update.nodes if update.state}
        for name, member in self.members.items():
            node, hint = nodes.get(name), world.hints.get(name)
            # a pod that somebody else has ended already is none that we let go
            pod, covered = world.pods.pods.get(name), member.index in world.covers[self.group.name]
            there = covered or (pod is not None and not pod.terminating)
            if name in self.healthy:
                assert member.index in desired or not there, f"{name} runs a job and is let go"
                assert name not in deleted, f"{name} runs a job and its pod is deleted"
                assert name not in updates or self._ambiguous(name), (
                    f"{name} runs a job in good health and is told {updates[name]}"
                )
            if node is None:
                assert name not in updates
                assert name not in deleted
                continue
            if hint is not None and hint.received_at >= world.slurm.taken_at:
                assert member.index in desired or self._paused(made), f"{name}: a view older than the hint overruled it"
                assert name not in updates, f"{name}: told {updates[name]} on a view older than the hint"
            if "DRAIN" in node.flags or (node.base == "DOWN" and not node.reason.startswith(("ResumeTimeout", "copilot: "))):
                assert name not in updates or updates[name] == "down", f"{name}: {updates[name]} lifts what an administrator did"
        if not world.pods.synced:
            assert desired >= self._before & world.covers[self.group.name], "let go without a pod list"
        assert updates.keys() <= self.members.keys()
