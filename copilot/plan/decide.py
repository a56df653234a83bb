"""The decision: from the two views to what should be so and what to do once. Pure; the clock is an argument."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from copilot.model import FailureReason, Kind, Phase
from copilot.plan import causes, gate, rules, spare
from copilot.plan.advance import advance, stage_reached
from copilot.plan.breaker import Breaker
from copilot.plan.facts import Facts, facts_of, phase_of_start, steady, unannounced
from copilot.plan.pace import faster, pace_of
from copilot.plan.policy import Policy
from copilot.plan.wish import Wish
from copilot.plan.world import AT_REST, NodeUpdate, Outcome, Pace, Plan, PodDelete, Track, What, World, changed, window


def plan(world: World, policy: Policy) -> Plan:
    """What follows from `world`. Without a Slurm view nothing is decided; without a pod list groups only grow and nobody is told anything."""
    if world.slurm is None:
        return Plan({}, (), (), (), world.tracks, Pace.ACTIVE, world.breakers)
    wanted: dict[str, set[int]] = {name: set() for name in world.groups}
    looks = []
    kept: dict[str, Track] = {}
    for name in _names(world):
        member = world.members[name]
        if (track := steady(world, name)) is not None:
            kept[name] = track
            wanted[member.group.name].add(member.index)
        else:
            looks.append(facts_of(world, name, member))
    breakers = gate.breakers(world, looks)
    for facts in looks:
        if facts.wanted and gate.withheld(facts, breakers) is None:
            wanted[facts.member.group.name].add(facts.member.index)
    acts = _Acts(world, policy, breakers, kept)
    windows = {name: window(group.target.kind, frozenset(wanted[name]), world.ordinals) for name, group in world.groups.items()}
    for facts in looks:
        group = facts.member.group.name
        acts.take(facts, facts.member.index in windows[group], wanted[group])
    acts.spread()
    left_alone = {name for name in world.groups if name in world.held or _unknown(world, name)}
    desired = {name: frozenset(indexes) for name, indexes in wanted.items() if name not in left_alone}
    breakers = gate.after(breakers, acts.outcomes, world.now, policy)
    return Plan(desired, tuple(acts.deletes), acts.updates(), tuple(acts.outcomes), acts.tracks, acts.pace, breakers)


def _unknown(world: World, group: str) -> bool:
    """Before the first list of pods nothing tells which pods a SlurmCluster runs, so it is left alone: to say less than it has would end some."""
    return world.groups[group].target.kind is Kind.SLURM_CLUSTER and not world.pods.synced and not world.pods.pods


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

    def __init__(self, world: World, policy: Policy, breakers: Mapping[str, Breaker], kept: dict[str, Track]) -> None:
        self.world = world
        self.policy = policy
        self.tracks = kept
        self.deletes: list[PodDelete] = []
        self.outcomes: list[Outcome] = []
        self.pace = Pace.QUIET
        self._breakers = breakers
        # jobs that cannot have all of their nodes, and when the oldest start among those that failed began
        self._short: dict[int, float] = {}
        self._updates: dict[tuple[str, str], list[str]] = defaultdict(list)

    def updates(self) -> tuple[NodeUpdate, ...]:
        """One call of scontrol for each verb and reason."""
        return tuple(NodeUpdate(state, tuple(nodes), reason) for (state, reason), nodes in self._updates.items())

    def take(self, facts: Facts, in_window: bool, desired: set[int]) -> None:
        """Goes through the rules for one node. `desired` is completed with the node when it keeps its pod although unwanted."""
        rule = self._wanted if facts.wanted else self._unwanted
        track = rule(facts, advance(facts, self.world, in_window), desired)
        if track is not None:
            self.tracks[facts.name] = track
        self.pace = faster(self.pace, pace_of(facts, track, self.world, self.policy))

    def _wanted(self, facts: Facts, track: Track | None, desired: set[int]) -> Track | None:
        del desired  # it is in there
        assert track is not None, "what is wanted is remembered"
        track = self._tell_of_start(facts, track)
        if facts.member.group.name in self.world.held:
            return track if facts.up else replace(track, message=gate.HELD)
        if (breaker := gate.withheld(facts, self._breakers)) is not None:
            return self._withhold(facts, track, breaker)
        uid = rules.stale(facts, track, self.world, self.policy)
        if uid:
            return self._replace_pod(facts, track, uid)
        if facts.node is not None and rules.taken_down(facts):
            self._tell(facts, rules.GIVE_UP, facts.node.reason)
            return track
        if (loss := rules.lost(facts, track, self.world, self.policy)) is not None:
            return self._fail(facts, track, *loss)
        track = self._watch_start(facts, track)
        if track.failure is None and (update := spare.verb(facts, track, self.world)):
            self._tell(facts, update, spare.REASON)
        if rules.reason_is_old(facts):
            self._tell(facts, rules.CLEAR)
        return spare.settled(facts, track, self.world)

    def _tell_of_start(self, facts: Facts, track: Track) -> Track:
        """What an operator reads of every start, each said once."""
        before = facts.track
        if track.requested_at is not None and (before is None or before.requested_at != track.requested_at):
            self._say(What.REQUESTED, facts, track)
        stage = stage_reached(before, track)
        if stage is not None:
            self._say(stage, facts, track)
        if track.up_at is not None and (before is None or before.up_at is None):
            self._say(What.UP, facts, track)
            if address := rules.elsewhere(facts):
                self._say(What.ELSEWHERE, facts, track, words=address)
        if rules.missed(facts, track, self.world, self.policy):
            track = replace(track, missed_counted=True)
            self._say(What.MISSED_HOOK, facts, track)
        return track

    def _replace_pod(self, facts: Facts, track: Track, uid: str) -> Track:
        """Deletes a pod that can never register; the target's controller makes another."""
        if not track.replaced or track.stale_uid != uid:
            restarts = facts.pod.restarts if facts.pod is not None else 0
            # No job can have run in it: whatever registers is its successor, whether the list of pods has that one yet or not.
            track = replace(track, stale_uid=uid, restarts=restarts, replaced=track.replaced + 1, pod_uid="")
            track = changed(track, phase_of_start(replace(facts, track=track)), self.world.now, {})
            self._say(What.STALE, facts, track)
        self.deletes.append(PodDelete(facts.name, uid, FailureReason.STALE_POD))
        return track

    def _watch_start(self, facts: Facts, track: Track) -> Track:
        """Names what holds a start up as soon as it shows, and gives the node up when the grace is over."""
        may_fail = rules.may_fail(facts, track, self.world, self.policy)
        if track.failure is not None:
            # told already; should Slurm not have heard, it is told again
            return self._fail(facts, track, track.failure, track.message) if may_fail else track
        cause = causes.cause_of(facts, track, self.world, self.policy)
        watched = causes.remember(track, cause, self.world.now)
        if watched.trouble is not None and watched.trouble_since != track.trouble_since and cause is not None and cause.grace:
            self._say(What.TROUBLE, facts, watched, cause.reason, cause.words)
        failed = rules.never_registers(facts, watched, self.world, self.policy)
        if failed:
            return self._fail(facts, watched, *failed)
        if cause is not None and may_fail and causes.overdue(cause, watched, self.world):
            return self._fail(facts, watched, cause.reason, cause.words)
        return watched

    def _withhold(self, facts: Facts, track: Track, breaker: Breaker) -> Track:
        """A start that waits for the breaker. Slurm keeps a node powering up although its job has gone: that one goes back at once."""
        words = f"waits for the breaker of {facts.member.group.name}, open after {breaker.reason}: {breaker.message}"
        if track.message != words:
            track = replace(track, message=words)
            self._say(What.PAUSED, facts, track)
        unneeded = facts.powering_up and facts.node is not None and not facts.node.busy and rules.may_be_forced(facts.node)
        if unneeded and rules.judged(facts, track, self.world, self.policy):
            self._tell(facts, rules.GIVE_UP, f"{rules.OURS}{words}")
        return track

    def spread(self) -> None:
        """All or nothing: the other nodes that were started for a job that cannot have all of its nodes go with it."""
        if not self._short:
            return
        since = min(self._short.values())
        for name, track in self.tracks.items():
            if spare.goes_along(track, self._short, since):
                self.tracks[name] = spared = replace(track, spare_since=self.world.now)
                self.outcomes.append(Outcome(What.SPARE, name, self.world.members[name].group.name, spared))
                self.pace = Pace.FAST

    def _unwanted(self, facts: Facts, track: Track | None, desired: set[int]) -> Track | None:
        before = facts.track
        if facts.member.group.name in self.world.held:
            self._tell_of_rest(facts, before, track)
            return track
        if rules.keeps(facts, track, self.world, self.policy):
            desired.add(facts.member.index)
        elif not rules.trusted(self.world, self.policy):
            if rules.has(facts, track):
                desired.add(facts.member.index)
        elif track is not None and rules.orphan(facts, track):
            # from now on it is on its way out, and said to be so once
            track = replace(track, phase=Phase.RELEASING, since=self.world.now, release_since=self.world.now)
            self._say(What.ORPHAN, facts, track)
        self._tell_of_rest(facts, before, track)
        if rules.frees(facts, track, self.world, self.policy):
            self._tell(facts, rules.FREE)
        elif rules.at_rest_anew(facts, self.world):
            self._tell(facts, rules.POWER_DOWN)
        return track

    def _tell_of_rest(self, facts: Facts, before: Track | None, track: Track | None) -> None:
        """What an operator would ask about a node that is not wanted, each said once."""
        if facts.node is None and facts.pod is not None and before is None and track is not None:
            self._say(What.UNKNOWN, facts, track)
        if track is not None and track.failure is not None and before is not None and before.failure is None:
            self._say(What.FAILED, facts, track, track.failure, track.message)
        if before is not None and before.phase not in AT_REST and before.up_at is not None and unannounced(before):
            # it has come and goes again within the grace, and no hook ever told us
            self._say(What.MISSED_HOOK, facts, before)
        released = before is not None and before.release_since is not None and (track is None or track.release_since is None)
        if released and before is not None and facts.wish in (Wish.RELEASE, Wish.OFF):
            self._say(What.OFF, facts, before)

    def _fail(self, facts: Facts, track: Track, reason: FailureReason, words: str) -> Track:
        """Tells Slurm: `power_down_force` requeues the job at once and ends in IDLE+POWERED_DOWN on every version tried.

        But a job whose pod is lost is freed by `down` only (see `rules.taken_down`), and so is that of a draining node, whose drain would be
        lifted; the reason why it was drained is kept.
        """
        if track.failure is not None:
            reason, words = track.failure, track.message
        node = facts.node
        state, text = rules.GIVE_UP, f"{rules.OURS}{reason}: {words}"
        if node is not None and not rules.may_be_forced(node) and not facts.refused:
            state, text = rules.TAKE_DOWN, f"{text} (drained before: {node.reason})"
        elif node is not None and node.busy and not (facts.powering_up or facts.refused):
            state = rules.TAKE_DOWN
        self._tell(facts, state, text)
        if self.policy.all_or_nothing and reason in causes.CAPACITY and track.requested_at is not None:
            self._short.update(dict.fromkeys(track.jobs, track.requested_at))
        failed = replace(track, failure=reason, message=words)
        if track.failure is not reason:
            failed = replace(failed, phase=Phase.FAILED, since=self.world.now)
            self._say(What.FAILED, facts, failed, reason, words)
        return failed

    def _tell(self, facts: Facts, state: str, text: str = "") -> None:
        if rules.may_tell(facts.name, state, self.world, self.policy):
            self._updates[state, text].append(facts.name)

    def _say(self, what: What, facts: Facts, track: Track, reason: FailureReason | None = None, words: str = "") -> None:
        self.outcomes.append(Outcome(what, facts.name, facts.member.group.name, track, reason, words))
