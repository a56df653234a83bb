"""What must hold at all times, as pure functions of a history: each returns what was seen and should not have been."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tests.chaos.history import Asked, History, Looked, index_of, on, runs_job
from tests.lab.workloads import window

# How old the copilot's decision may be when the target shows it: its view, an answer that is slow or lost, a freeze in between.
MEMORY: Final = 25.0
# A node that Slurm powers up is asked for within so much time in which nothing is out of order, hook or no hook.
PATIENCE: Final = 45.0
# Looks at Slurm further apart than this say nothing about what was between them.
GAP: Final = 10.0


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    """`nodes` may be empty: it is about everything."""

    at: float
    words: str
    nodes: frozenset[str] = frozenset()


def violations(history: History) -> list[Violation]:
    """All of them, the earliest first."""
    return sorted(found for rule in RULES for found in rule(history))


def jobs_keep_their_pods(history: History) -> Iterator[Violation]:
    """No change of a target and no deletion of the copilot's takes the pod of a node that runs a job before and after."""
    takings = [(one.at, one.node) for one in history.deleted if not one.by_hand]
    for before, now in _changes(history):
        if not now.by_hand:
            takings += [(now.at, f"{now.group}-{index}") for index in sorted(_taken(before, now))]
    ends = [look.ended for look in history.looks]
    for at, node in sorted(takings):
        place = bisect_right(ends, at)
        around = [look for look in history.looks[max(place - 1, 0) : place + 2] if look.ended <= at or look.begun >= at][:2]
        enough = len(around) == 2 and around[0].ended <= at <= around[1].begun and around[1].ended - around[0].begun <= GAP
        if enough and all(runs_job(look.states.get(node, frozenset())) for look in around):
            yield Violation(at, f"the copilot took the pod of {node}, which ran a job", frozenset({node}))


def containers_end_without_jobs(history: History) -> Iterator[Violation]:
    """A container with a job's steps in it is ended by our operations alone, or after slurmctld has forgotten the job."""
    causes = [(one.at, one.node, one.by_hand) for one in history.deleted]
    for before, now in _changes(history):
        causes += [(now.at, f"{now.group}-{index}", now.by_hand) for index in _taken(before, now)]
    causes.sort()
    for stop in history.stopped:
        mine = [by_hand for at, node, by_hand in causes if node == stop.node and at <= stop.at]
        spans = [span for span in history.spans if span.harm and span.begun <= stop.at <= span.ended + MEMORY]
        # Fewer replicas, written by us, end whichever pods the controller likes.
        names = {stop.node, stop.node.rpartition("-")[0]}
        excused = not mine or mine[-1] or any(span.forgets or names & set(span.what.split()) for span in spans)
        if stop.steps and not excused:
            words = f"the container of {stop.node} was ended by the copilot with {stop.steps} job steps in it"
            yield Violation(stop.at, words, frozenset({stop.node}))


def targets_ask_for_no_more_than_wanted(history: History) -> Iterator[Violation]:
    """What the copilot newly asks for was wanted by Slurm or a hook of late, or lies between such nodes of a StatefulSet.

    Or it is there, or the target itself asked for it of late: what Slurm has given up while nobody looked may stay for a grace, and what somebody
    else has lowered may come back.
    """
    for before, now in _changes(history):
        if now.replicas < 0:
            yield Violation(now.at, f"{now.group} asked for {now.replicas} replicas")
        if now.by_hand:
            continue
        wanted = _wanted(history, now.group, now.at - MEMORY, now.at) | _running(history, now.group, now.at)
        late = [before, *(one for one in history.asked if one.group == now.group and now.at - MEMORY <= one.at < now.at)]
        if now.asks is None:
            if now.replicas > max(len(wanted), *(one.replicas for one in late)):
                words = f"{now.group} asked for {now.replicas} replicas when {sorted(wanted)} were wanted"
                yield Violation(now.at, words, _names(now.group, wanted))
            continue
        stays = {index for one in late for index in one.asks or ()}
        too_much = now.asks - stays - window(now.kind, wanted | stays)
        if too_much:
            words = f"{now.group} asked for {sorted(too_much)} too, when {sorted(wanted)} were wanted"
            yield Violation(now.at, words, _names(now.group, too_much))


def power_up_is_obeyed(history: History) -> Iterator[Violation]:
    """Whatever became of the hook: a node that Slurm powers up is soon asked for, once nothing is out of order any more."""
    late: dict[str, float] = {}
    told: set[str] = set()
    for earlier, look in zip(history.looks, history.looks[1:], strict=False):
        calm = not any(span.begun < look.ended and span.ended > earlier.begun for span in history.spans)
        for group in history.groups:
            asks = _asked_at(history, group, look.ended)
            for name, words in look.states.items():
                index = index_of(name, group)
                if index is None:
                    continue
                missing = "POWERING_UP" in words and asks is not None and asks.asks is not None and index not in asks.asks
                step = look.ended - earlier.ended if calm and look.ended - earlier.ended < GAP else 0.0
                late[name] = late.get(name, 0.0) + step if missing else 0.0
                if late[name] > PATIENCE and name not in told:
                    told.add(name)
                    words_ = f"{name} is POWERING_UP and was not asked for within {PATIENCE:g} calm seconds"
                    yield Violation(look.ended, words_, frozenset({name}))


def jobs_end_well(history: History) -> Iterator[Violation]:
    """COMPLETED; or CANCELLED because we did. Started again, or unknown to Slurm, only for a fault that explains it."""
    for job in history.jobs:
        life = [span for span in history.spans if span.ended >= job.submitted and span.harm]
        near = [span for span in life if span.forgets and span.begun - MEMORY <= job.submitted <= span.ended]
        good = job.state == "COMPLETED" or (job.state == "CANCELLED" and job.cancelled) or (not job.state and near)
        if not good:
            yield Violation(history.ended, f"job {job.name} is {job.state or 'unknown to Slurm'}")
        elif job.restarts and not life:
            yield Violation(history.ended, f"job {job.name} was started {job.restarts + 1} times, and no fault explains it")


def the_copilot_lives(history: History) -> Iterator[Violation]:
    """It never ends by itself, and says nothing that is not a line of its log."""
    for at, words in history.faults:
        yield Violation(at, words)


RULES: Final[tuple[Callable[[History], Iterator[Violation]], ...]] = (
    jobs_keep_their_pods,
    containers_end_without_jobs,
    targets_ask_for_no_more_than_wanted,
    power_up_is_obeyed,
    jobs_end_well,
    the_copilot_lives,
)


def _changes(history: History) -> Iterator[tuple[Asked, Asked]]:
    """Each change of a target with what it was before; before the first it asked for nothing."""
    last: dict[str, Asked] = {}
    for now in history.asked:
        yield last.get(now.group, Asked(0.0, now.group, now.kind, 0, frozenset())), now
        last[now.group] = now


def _taken(before: Asked, now: Asked) -> frozenset[int]:
    """The indexes whose pods the change takes away."""
    if now.asks is None:
        return now.deletes - before.deletes
    return (before.asks or frozenset()) - now.asks


def _wanted(history: History, group: str, since: float, until: float) -> set[int]:
    """The indexes that Slurm had on, or a hook named, at some time from `since` to the first look after `until`."""
    looks = history.looks
    first = max(bisect_left(looks, since, key=_ended) - 1, 0)
    last = bisect_right(looks, until, key=_begun) + 1
    names = {name for look in looks[first:last] for name, words in look.states.items() if on(words)}
    names |= {name for hook in history.hooks if hook.verb == "resume" and since <= hook.at <= until + 1 for name in hook.nodes}
    return {index for name in names if (index := index_of(name, group)) is not None}


def _running(history: History, group: str, at: float) -> set[int]:
    """The indexes whose containers ran when Slurm was last looked at."""
    place = bisect_right(history.looks, at, key=_ended)
    running = history.looks[place - 1].running if place else ()
    return {index for name in running if (index := index_of(name, group)) is not None}


def _asked_at(history: History, group: str, at: float) -> Asked | None:
    return next((one for one in reversed(history.asked) if one.group == group and one.at <= at), None)


def _names(group: str, indexes: set[int] | frozenset[int]) -> frozenset[str]:
    return frozenset(f"{group}-{index}" for index in indexes)


def _begun(look: Looked) -> float:
    return look.begun


def _ended(look: Looked) -> float:
    return look.ended
