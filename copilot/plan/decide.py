"""The decision: from the two views to what should be so and what to do once. Pure; the clock is an argument."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from copilot.model import FailureReason, Phase
from copilot.plan import rules
from copilot.plan.advance import advance
from copilot.plan.facts import Facts, facts_of
from copilot.plan.wish import Wish
from copilot.plan.world import NodeUpdate, Outcome, Pace, Plan, PodDelete, Policy, Track, What, World, window_forced


def plan(world: World, policy: Policy) -> Plan:
    """What follows from `world`. Without a Slurm view or a pod list nothing is decided: `desired` is empty and nobody is told anything."""
    if world.slurm is None:
        return Plan({}, (), (), (), world.tracks, Pace.ACTIVE)
    looks = [facts_of(world, name, world.members[name]) for name in _names(world)]
    wanted: dict[str, set[int]] = {name: set() for name in world.groups}
    for facts in looks:
        if facts.wanted:
            wanted[facts.member.group.name].add(facts.member.index)
    core = {name: frozenset(indexes) for name, indexes in wanted.items()}
    acts = _Acts(world, policy)
    for facts in looks:
        acts.take(facts, core[facts.member.group.name], wanted[facts.member.group.name])
    desired = {name: frozenset(indexes) for name, indexes in wanted.items()}
    return Plan(desired, tuple(acts.deletes), acts.updates(), tuple(acts.outcomes), acts.tracks, acts.pace)


def _names(world: World) -> Iterable[str]:
    """The nodes that a decision can concern: all but those that are quietly off without pod, cover, hint or memory."""
    names = set(world.active)
    names.update(world.pods.pods, world.hints, world.tracks)
    for group, indexes in world.covers.items():
        if group in world.groups:
            names.update(map(world.groups[group].node, indexes))
    return sorted(names & world.members.keys())


class _Acts:
    """Collects what one decision says, node by node."""

    def __init__(self, world: World, policy: Policy) -> None:
        self.world = world
        self.policy = policy
        self.tracks: dict[str, Track] = {}
        self.deletes: list[PodDelete] = []
        self.outcomes: list[Outcome] = []
        self.pace = Pace.QUIET
        self._updates: dict[tuple[str, str], list[str]] = defaultdict(list)

    def updates(self) -> tuple[NodeUpdate, ...]:
        """One call of scontrol for each verb and reason."""
        return tuple(NodeUpdate(state, tuple(nodes), reason) for (state, reason), nodes in self._updates.items())

    def take(self, facts: Facts, core: frozenset[int], desired: set[int]) -> None:
        """Goes through the rules for one node. `desired` is completed with the node when it keeps its pod although unwanted."""
        forced = window_forced(facts.member.group.target.kind, core, facts.member.index, self.world.ordinals)
        before, track = facts.track, advance(facts, self.world, forced)
        if facts.wanted and track is not None:
            track = self._wanted(facts, before, track)
        else:
            self._unwanted(facts, track, desired)
        if track is not None:
            self.tracks[facts.name] = track
        self._hurry(facts, track)

    def _wanted(self, facts: Facts, before: Track | None, track: Track) -> Track:
        if track.requested_at is not None and (before is None or before.requested_at != track.requested_at):
            self._say(What.REQUESTED, facts, track)
        if track.up_at is not None and (before is None or before.up_at is None):
            self._say(What.UP, facts, track)
        if rules.missed(facts, track, self.world, self.policy):
            track = replace(track, missed_counted=True)
            self._say(What.MISSED_HOOK, facts, track)
        uid = rules.stale(facts, track, self.world, self.policy)
        if uid:
            first = not track.replaced or track.stale_uid != uid
            if first:
                track = replace(track, stale_uid=uid, replaced=track.replaced + 1)
                self._say(What.STALE, facts, track)
            self.deletes.append(PodDelete(facts.name, uid, FailureReason.STALE_POD))
            return track
        words = rules.lost(facts, track, self.world)
        if words:
            return self._fail(facts, track, FailureReason.POD_LOST, words)
        failed = rules.never_registers(facts, track, self.world, self.policy)
        return self._fail(facts, track, *failed) if failed else track

    def _unwanted(self, facts: Facts, track: Track | None, desired: set[int]) -> None:
        before = facts.track
        if rules.keeps(facts, track, self.world, self.policy) or not self._sure():
            if facts.pod is not None or facts.covered:
                desired.add(facts.member.index)
        elif track is not None and track.orphan_since is not None and facts.pod is not None and not facts.pod.terminating:
            self._say(What.ORPHAN, facts, track)
        if facts.node is None and facts.pod is not None and before is None and track is not None:
            self._say(What.UNKNOWN, facts, track)
        if facts.wish in (Wish.RELEASE, Wish.OFF) and before is not None and before.release_since is not None and track is None:
            self._say(What.OFF, facts, before)
        if rules.frees(facts, track, self.world, self.policy) and rules.may_tell(facts.name, rules.FREE, self.world, self.policy):
            self._updates[rules.FREE, ""].append(facts.name)

    def _sure(self) -> bool:
        """Without a synchronised pod list groups only grow."""
        return self.world.pods.synced

    def _fail(self, facts: Facts, track: Track, reason: FailureReason, words: str) -> Track:
        """Tells Slurm: `power_down_force` requeues the job at once and ends in IDLE+POWERED_DOWN on every version tried."""
        if rules.may_tell(facts.name, rules.GIVE_UP, self.world, self.policy):
            self._updates[rules.GIVE_UP, f"copilot: {reason}: {words}"].append(facts.name)
        failed = replace(track, failure=reason, message=words)
        if track.failure is not reason:
            failed = replace(failed, phase=Phase.FAILED, since=self.world.now)
            self._say(What.FAILED, facts, failed, reason, words)
        return failed

    def _say(self, what: What, facts: Facts, track: Track, reason: FailureReason | None = None, words: str = "") -> None:
        self.outcomes.append(Outcome(what, facts.name, facts.member.group.name, track, reason, words))

    def _hurry(self, facts: Facts, track: Track | None) -> None:
        """Moments count while a running pod is about to register, or while a loss waits for the view that confirms it."""
        if track is not None and (self._registering(facts, track) or self._unconfirmed(track)):
            self.pace = Pace.FAST
        elif self.pace is Pace.QUIET and (facts.powering_up or facts.coming or facts.wish is Wish.RELEASE or self._hinted(facts)):
            self.pace = Pace.ACTIVE

    def _registering(self, facts: Facts, track: Track) -> bool:
        if facts.up or not facts.wanted or track.running_at is None or track.requested_at is None:
            return False
        return self.world.now - track.running_at < self.policy.fast_for

    def _unconfirmed(self, track: Track) -> bool:
        return (
            track.missing_since is not None and self.world.slurm is not None and self.world.slurm.taken_at <= track.missing_since
        )

    def _hinted(self, facts: Facts) -> bool:
        return facts.wanted and facts.hint is not None and not facts.up
