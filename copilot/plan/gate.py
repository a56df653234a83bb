"""What stands between a wish and the target: an operator's hold, and the breaker of a group that fails."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from copilot.model import Phase
from copilot.plan.breaker import CLOSED, Breaker, failed, turned
from copilot.plan.facts import Facts
from copilot.plan.policy import Policy
from copilot.plan.world import AT_REST, Outcome, Track, What, World

_BEING_CLEANED = frozenset({Phase.FAILED, Phase.RELEASING})
HELD = "held: an operator holds the group by the annotation slurmctld-copilot/hold on its target"


def _untouched(facts: Facts) -> bool:
    """Wanted, and nothing has been done for it yet: there is neither a pod nor a target that asks for one."""
    return facts.wanted and not facts.covered and facts.pod is None and not facts.up


def waits_for_scaling(facts: Facts) -> bool:
    """A start for which nothing has been done yet."""
    return _untouched(facts) and (facts.powering_up or facts.overruled) and not _has_failed(facts)


def _goes_back(facts: Facts) -> bool:
    """Given back before anything was done for it: POWER_DOWN, which stands for up to 11 s before slurmctld calls SuspendProgram (24.11)."""
    if not _untouched(facts) or facts.node is None:
        return False
    return "POWER_DOWN" in facts.node.flags and not facts.node.busy and not facts.overruled


def _has_failed(facts: Facts) -> bool:
    """This start has, and Slurm is being told. A hook that came since is about the next one."""
    track, hint = facts.track, facts.hint
    if track is None or track.phase is not Phase.FAILED:
        return False
    return hint is None or hint.received_at <= track.since


def breakers(world: World, looks: Sequence[Facts]) -> dict[str, Breaker]:
    """The breakers with which this decision begins, perhaps half-open. Closed ones without a failure are left out."""
    found = {group: breaker for group, breaker in world.breakers.items() if breaker != CLOSED and group in world.groups}
    opened = {group for group, breaker in found.items() if breaker.open}
    if not opened:
        return found
    mine: dict[str, list[Facts]] = {group: [] for group in opened}
    for facts in looks:
        if (group := facts.member.group.name) in opened:
            mine[group].append(facts)
    unclean = {
        world.members[name].group.name
        for name, track in world.tracks.items()
        if track.failure is not None and track.phase in _BEING_CLEANED and name in world.members
    }
    for group, of_group in mine.items():
        breaker = found[group]
        waiting = sorted((facts for facts in of_group if waits_for_scaling(facts)), key=lambda facts: facts.member.index)
        found[group] = turned(
            breaker,
            (facts.name for facts in waiting),
            trying=any(facts.name == breaker.probe and facts.wanted and not _has_failed(facts) for facts in of_group),
            unclean=group in unclean,
            now=world.now,
        )
    return found


def withheld(facts: Facts, now: Mapping[str, Breaker]) -> Breaker | None:
    """The open breaker that a node's start waits for."""
    breaker = now.get(facts.member.group.name)
    if breaker is None or not breaker.open or breaker.probe == facts.name:
        return None
    return breaker if waits_for_scaling(facts) or _goes_back(facts) else None


def after(now: Mapping[str, Breaker], outcomes: Iterable[Outcome], at: float, policy: Policy) -> dict[str, Breaker]:
    """The breakers after what happened in this decision: a success closes, failed starts are counted."""
    found = dict(now)
    lost: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.what is What.UP:
            found.pop(outcome.group, None)
        elif outcome.what is What.FAILED and outcome.reason is not None and _of_a_start(outcome.track):
            lost.setdefault(outcome.group, []).append(outcome)
    for group, failures in lost.items():
        last = failures[-1]
        assert last.reason is not None
        names = [outcome.node for outcome in failures]
        found[group] = failed(found.get(group, CLOSED), names, last.reason, last.message, at, policy)
    return found


def _of_a_start(track: Track) -> bool:
    """Not the loss of a node that was up. What ResumeTimeout ended is at rest already."""
    return track.phase in AT_REST or (track.requested_at is not None and track.up_at is None)
