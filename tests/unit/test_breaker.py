"""The breaker of a group: opens after failures in a row, tries one node after a pause, closes on a success; nothing that runs is touched."""

from __future__ import annotations

from copilot.model import Phase
from copilot.plan import Policy, What
from copilot.plan.breaker import FORGET
from tests.unit.worlds import OFF, POWERING_DOWN, POWERING_UP, UP, Small

POLICY = Policy(breaker_failures=3, breaker_pause=30.0, breaker_pause_max=100.0, image_pull_grace=5.0)


def resume(small: Small, *names: str) -> None:
    for name in names:
        small.hint(name)
        small.slurm(name, POWERING_UP)
    small.look()
    small.covers = frozenset(small.wanted())


def fail(small: Small, *names: str) -> None:
    """Their images cannot be pulled; Slurm takes them down, their pods go, and they are idle again."""
    for name in names:
        small.pod(name, f"uid-{small.now}", running=False, scheduled=True, trouble="ErrImagePull", message="no such tag")
    small.look()
    small.tell(small.look(6.0))
    small.slurm(names, POWERING_DOWN)
    small.look()
    small.covers = frozenset(small.wanted())
    for name in names:
        del small.pods[name]
        small.hints.pop(name, None)
    small.look()
    small.slurm(names, OFF)
    small.look()
    small.told.clear()


def opened() -> Small:
    small = Small(policy=POLICY)
    resume(small, "a-1", "a-2", "a-3")
    fail(small, "a-1", "a-2", "a-3")
    return small


def test_it_opens_after_failures_in_a_row_and_new_nodes_wait() -> None:
    small = opened()
    assert small.breakers["a"].open
    resume(small, "a-4", "a-5")
    assert small.wanted() == set()
    assert small.said.count((What.PAUSED, "a-4")) == 1
    assert "no such tag" in small.tracks["a-4"].message
    small.look(5.0)
    assert small.said.count((What.PAUSED, "a-4")) == 1


def test_a_success_in_between_begins_the_count_anew() -> None:
    small = Small(policy=POLICY)
    resume(small, "a-1", "a-2")
    fail(small, "a-1", "a-2")
    small.start("a-5")
    resume(small, "a-3")
    fail(small, "a-3")
    assert not small.breakers["a"].open


def test_after_the_pause_one_node_tries_and_its_success_lets_all_start() -> None:
    small = opened()
    resume(small, "a-4", "a-5")
    small.look(31.0)
    assert small.wanted() == {4}
    small.look(1.0)
    assert small.wanted() == {4}
    small.covers = frozenset({4})
    small.pod("a-4")
    small.look()
    small.slurm("a-4", UP)
    small.look()
    small.look()
    assert "a" not in small.breakers
    assert small.wanted() == {4, 5}


def test_a_probe_that_fails_doubles_the_pause_up_to_its_limit() -> None:
    small = opened()
    pauses = []
    for _ in range(3):
        resume(small, "a-4", "a-5")
        small.look(150.0)
        assert small.wanted() == {4}
        small.covers = frozenset({4})
        fail(small, "a-4")
        pauses.append(small.breakers["a"].pause)
    assert pauses == [60.0, 100.0, 100.0]


def test_a_probe_whose_job_was_cancelled_makes_room_for_another() -> None:
    small = opened()
    resume(small, "a-4", "a-5")
    small.look(31.0)
    small.hints.clear()
    small.slurm("a-4", OFF)
    small.look()
    assert small.wanted() == {5}


def test_no_probe_starts_while_failed_nodes_still_hold_what_they_had() -> None:
    small = Small(policy=POLICY)
    resume(small, "a-1", "a-2", "a-3")
    for name in ("a-1", "a-2", "a-3"):
        small.pod(name, running=False, scheduled=True, trouble="ErrImagePull")
    small.look()
    small.tell(small.look(6.0))
    small.slurm(["a-1", "a-2", "a-3"], POWERING_DOWN)
    small.look()
    resume(small, "a-4")
    small.look(60.0)
    assert small.wanted() == set()
    assert small.tracks["a-1"].phase is Phase.RELEASING


def test_what_runs_or_has_its_pod_ordered_is_not_touched() -> None:
    small = Small(policy=POLICY)
    small.start("a-7")
    resume(small, "a-1", "a-2", "a-3", "a-8")
    fail(small, "a-1", "a-2", "a-3")
    assert small.breakers["a"].open
    assert small.wanted() == {7, 8}


def test_a_waiting_node_whose_job_has_gone_is_given_back() -> None:
    small = opened()
    resume(small, "a-4")
    assert small.last is not None
    assert not small.last.updates
    small.slurm("a-4", POWERING_UP.replace("MIXED", "IDLE"))
    made = small.look()
    assert [(update.state, update.nodes) for update in made.updates] == [("power_down_force", ("a-4",))]
    small.tell(made)
    # Measured on 22.05 (0.4 s) and 24.11 (10.6 s), before POWERING_DOWN: a pod that is started for it then would close the breaker.
    small.hints.clear()
    small.slurm("a-4", "IDLE+CLOUD+POWER_DOWN+NOT_RESPONDING")
    for _ in range(3):
        made = small.look()
        assert (small.wanted(), made.updates) == (set(), ())
    small.slurm("a-4", POWERING_DOWN)
    small.look()
    assert small.wanted() == set()
    assert small.breakers["a"].open


def test_it_is_forgotten_when_nobody_wants_a_node_for_long() -> None:
    small = opened()
    small.look(FORGET)
    assert small.breakers["a"].open
    small.look(POLICY.breaker_pause)
    assert not small.breakers.get("a") or not small.breakers["a"].open
