"""The decision, rule by rule (design: sections 2 and 7)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from copilot.model import Phase, Verb
from copilot.plan import Pace, Plan, What
from tests.unit.worlds import BUSY, COMING, POWERING_DOWN, POWERING_UP, UP, Small, node


def updates(made: Plan) -> dict[str, tuple[str, ...]]:
    return {update.state: update.nodes for update in made.updates}


def test_nothing_is_decided_without_a_view_of_slurm() -> None:
    small = Small()
    small.hint("a-1")
    assert small.plan().desired == {}


def test_a_resume_hint_scales_before_slurm_is_asked_again() -> None:
    small = Small()
    small.look()
    small.hint("a-3")
    small.plan(after=0.01)
    assert small.wanted() == {3}
    assert small.tracks["a-3"].phase is Phase.REQUESTED
    assert small.said == [(What.REQUESTED, "a-3")]


def test_a_view_taken_before_the_hint_cannot_overrule_it_but_a_later_one_can() -> None:
    small = Small()
    small.look()
    small.hint("a-3")
    small.plan(after=20)
    assert small.wanted() == {3}
    small.look()
    assert small.wanted() == set(), "slurmctld was killed after the hook and thinks the node is off"


def test_a_repeated_hint_changes_nothing() -> None:
    small = Small()
    small.look()
    small.hint("a-3")
    first = small.plan()
    small.now += 0.1
    small.hint("a-3")
    second = small.plan()
    assert second.desired == first.desired
    assert second.outcomes == ()
    assert small.tracks["a-3"].requested_at == 1001.0


def test_a_hint_for_a_node_that_slurm_does_not_have_scales_nothing() -> None:
    small = Small()
    del small.states["a-9"]
    small.look()
    small.hint("a-9")
    small.plan()
    assert small.wanted() == set()


def test_a_suspend_hint_removes_nothing_by_itself() -> None:
    small = Small()
    small.start("a-0")
    small.hint("a-0", Verb.SUSPEND)
    small.plan()
    assert small.wanted() == {0}
    small.slurm("a-0", POWERING_DOWN)
    small.look()
    assert small.wanted() == set()


@pytest.mark.parametrize(
    "state",
    [
        BUSY,
        "MIXED+CLOUD",
        "IDLE+CLOUD+COMPLETING+POWERING_DOWN",
        "ALLOCATED+CLOUD+POWER_DOWN",
        "IDLE+CLOUD+POWER_DOWN",
        "DOWN+CLOUD",
        "IDLE+CLOUD+DRAIN",
        "ALLOCATED+CLOUD+POWERING_DOWN",
        "DOWN+CLOUD+COMPLETING+DRAIN+POWERED_DOWN",
    ],
)
def test_nodes_that_are_busy_or_on_keep_their_pods(state: str) -> None:
    small = Small()
    small.start("a-2")
    small.slurm("a-2", state)
    for _ in range(5):
        small.look(after=60)
        assert 2 in small.wanted()


def test_a_node_that_slurm_no_longer_lists_keeps_its_pod() -> None:
    small = Small()
    small.start("a-2")
    del small.states["a-2"]
    small.look(after=300)
    small.look(after=300)
    assert small.wanted() == {2}


def test_allocated_and_powered_down_means_coming_and_starts_nothing_early() -> None:
    small = Small()
    small.slurm("a-1", COMING)
    made = small.look()
    assert small.wanted() == set()
    assert made.pace is Pace.ACTIVE


def test_a_lost_hook_is_resumed_at_the_next_look_and_counted_once() -> None:
    small = Small()
    small.look()
    small.slurm("a-1", POWERING_UP)
    small.look(after=30)
    assert small.wanted() == {1}
    for _ in range(10):
        small.look()
    assert small.said.count((What.MISSED_HOOK, "a-1")) == 1


def test_a_hook_that_is_only_late_is_not_counted_as_lost() -> None:
    small = Small()
    small.slurm("a-1", POWERING_UP)
    small.look()
    small.now += 0.2
    small.hint("a-1")
    small.plan()
    for _ in range(20):
        small.look()
    assert (What.MISSED_HOOK, "a-1") not in small.said


def test_stages_are_timed_and_the_node_is_told_up_once() -> None:
    small = Small()
    small.look()
    small.start("a-4")
    small.look()
    track = small.tracks["a-4"]
    assert small.said.count((What.UP, "a-4")) == 1
    assert None not in (track.requested_at, track.scaled_at, track.pending_at, track.scheduled_at, track.running_at, track.up_at)
    assert track.requested_at is not None
    assert track.up_at is not None
    assert track.up_at - track.requested_at == 3.0
    assert track.jobs == (7,)


def test_resume_of_a_node_that_is_up_touches_nothing() -> None:
    small = Small()
    small.start("a-4")
    small.look()
    small.hint("a-4")
    made = small.plan()
    assert (made.deletes, made.updates, made.outcomes) == ((), (), ())
    assert small.wanted() == {4}


def test_the_pace_is_fast_only_while_a_running_pod_is_about_to_register() -> None:
    small = Small()
    assert small.look().pace is Pace.QUIET
    small.hint("a-0")
    assert small.plan().pace is Pace.ACTIVE
    small.slurm("a-0", POWERING_UP)
    assert small.look().pace is Pace.ACTIVE
    small.pod("a-0", running=False)
    assert small.plan().pace is Pace.ACTIVE
    small.pod("a-0")
    assert small.plan().pace is Pace.FAST
    assert small.look(after=10).pace is Pace.ACTIVE
    small.slurm("a-0", UP)
    assert small.look().pace is Pace.QUIET


def up_without_a_hook() -> Small:
    """Node a-1 was seen powering up, its pod came, and it has registered; no hook has told of it."""
    small = Small()
    small.slurm("a-1", POWERING_UP)
    small.look()
    small.covers = frozenset({1})
    small.pod("a-1")
    small.look()
    small.slurm("a-1", UP)
    small.look()
    assert small.said.count((What.MISSED_HOOK, "a-1")) == 0
    return small


def test_a_hook_that_comes_after_its_node_has_registered_was_not_lost() -> None:
    small = up_without_a_hook()
    small.hint("a-1")
    small.look()
    small.hints.clear()
    small.look(60.0)
    assert small.said.count((What.MISSED_HOOK, "a-1")) == 0


def test_a_hook_that_never_comes_is_counted_once_although_its_node_is_up() -> None:
    small = up_without_a_hook()
    for _ in range(3):
        small.look(30.0)
    assert small.said.count((What.MISSED_HOOK, "a-1")) == 1


def test_a_node_without_a_hook_that_goes_within_the_grace_is_counted_then() -> None:
    small = up_without_a_hook()
    small.slurm("a-1", POWERING_DOWN)
    for _ in range(3):
        small.look()
    assert small.said.count((What.MISSED_HOOK, "a-1")) == 1


@pytest.mark.parametrize(("address", "told"), [("10.0.0.9", True), ("10.0.0.5", False), ("a-1", False), ("", False)])
def test_a_node_that_registers_from_elsewhere_is_told(address: str, told: bool) -> None:
    small = Small()
    small.hint("a-1")
    small.slurm("a-1", POWERING_UP)
    small.look()
    small.covers = frozenset({1})
    small.pod("a-1", ip="10.0.0.5")
    small.states["a-1"] = replace(node("a-1", UP), address=address)
    small.look()
    assert ((What.ELSEWHERE, "a-1") in small.said) is told
