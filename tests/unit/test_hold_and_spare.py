"""A group that an operator holds, and the nodes of a job that cannot have all of its nodes."""

from __future__ import annotations

from dataclasses import replace

from copilot.model import Phase
from copilot.plan import Policy, What
from tests.unit.worlds import BUSY, OFF, POWERING_DOWN, POWERING_UP, UP, Small

IDLE_COMING = POWERING_UP.replace("MIXED", "IDLE")


def no_room(small: Small, name: str) -> None:
    small.pod(name, running=False, trouble="Unschedulable", message="0/1 nodes are available")


def resume(small: Small, *names: str, job: int = 7) -> None:
    for name in names:
        small.hint(name)
        small.hints[name] = replace(small.hints[name], jobs=(job,))
        small.slurm(name, POWERING_UP)
    small.look()
    small.covers = frozenset(small.wanted())


def test_of_a_held_group_nothing_is_started_stopped_or_told() -> None:
    small = Small()
    small.start("a-1")
    small.held = frozenset({"a"})
    small.hint("a-2")
    small.slurm("a-2", POWERING_UP)
    small.slurm("a-1", POWERING_DOWN)
    made = small.look()
    assert dict(made.desired) == {}
    made = small.look(500.0)
    assert (dict(made.desired), made.updates, made.deletes) == ({}, (), ())
    assert small.tracks["a-2"].message.startswith("held: ")


def test_a_released_group_goes_on_where_slurm_is() -> None:
    small = Small()
    small.start("a-1")
    small.held = frozenset({"a"})
    small.slurm("a-1", POWERING_DOWN)
    small.hint("a-2")
    small.slurm("a-2", POWERING_UP)
    small.look()
    small.held = frozenset()
    small.look()
    assert small.wanted() == {2}


def test_the_other_nodes_of_a_job_that_lacks_room_go_with_it() -> None:
    small = Small()
    resume(small, "a-1", "a-2", "a-3")
    resume(small, "a-4", job=8)
    for name in ("a-1", "a-2", "a-4"):
        small.pod(name)
    small.slurm("a-1", BUSY)
    no_room(small, "a-3")
    small.look()
    made = small.look(61.0)
    assert {outcome.node for outcome in made.outcomes if outcome.what is What.SPARE} == {"a-1", "a-2"}
    small.tell(made)
    # the job is requeued: what has no job any more is given back, each by the verb that works in its state
    small.slurm("a-1", UP)
    small.slurm("a-2", IDLE_COMING)
    small.slurm("a-3", POWERING_DOWN)
    made = small.look()
    assert {update.state: update.nodes for update in made.updates} == {"power_down": ("a-1",), "power_down_force": ("a-2",)}
    assert small.said.count((What.SPARE, "a-1")) == 1


def test_a_node_that_another_job_has_taken_stays() -> None:
    small = Small()
    resume(small, "a-1", "a-3")
    small.pod("a-1")
    small.slurm("a-1", BUSY)
    no_room(small, "a-3")
    small.look()
    small.tell(small.look(61.0))
    small.slurm("a-3", POWERING_DOWN)
    for _ in range(15):
        assert not small.look().updates
    small.slurm("a-1", UP)
    assert not small.look().updates
    assert small.tracks["a-1"].phase is Phase.UP


def test_other_reasons_and_a_switched_off_rule_spare_the_rest() -> None:
    for policy, trouble in ((Policy(), "ErrImagePull"), (Policy(all_or_nothing=False), "Unschedulable")):
        small = Small(policy=policy)
        resume(small, "a-1", "a-3")
        small.pod("a-3", running=False, scheduled=True, trouble=trouble)
        small.pod("a-1")
        small.look()
        made = small.look(61.0)
        assert {outcome.what for outcome in made.outcomes} == {What.FAILED}


def test_nodes_of_an_earlier_start_of_the_job_stay() -> None:
    small = Small()
    small.start("a-1")
    small.look(100.0)
    resume(small, "a-3")
    no_room(small, "a-3")
    small.look()
    made = small.look(61.0)
    assert {outcome.node for outcome in made.outcomes if outcome.what is What.SPARE} == set()
    small.slurm("a-1", OFF)
    small.look()
