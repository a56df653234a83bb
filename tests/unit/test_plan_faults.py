"""Faults of the decision that the simulated worlds of test_plan_properties (or a close reading) brought to light, each in its smallest form."""

from __future__ import annotations

import pytest

from copilot.model import FailureReason, Kind, Phase
from copilot.plan import Pace, Plan, Policy, What
from tests.unit.worlds import BUSY, COMING, GIVEN_UP, OFF, POWERING_DOWN, POWERING_UP, UP, Small

DRAINING = "ALLOCATED+CLOUD+DRAIN"


def told(made: Plan) -> list[tuple[str, tuple[str, ...]]]:
    return [(update.state, update.nodes) for update in made.updates]


def busy(small: Small, state: str = BUSY, reason: str = "") -> None:
    """`a-0` up and running a job, as the copilot has seen it."""
    small.start("a-0")
    small.slurm("a-0", state, reason)
    small.look()


# Losses


def test_a_loss_is_said_once_although_slurm_has_not_acted_on_it_yet() -> None:
    small = Small()
    busy(small)
    small.pods.clear()
    small.plan()
    for _ in range(5):
        small.tell(small.look())
    assert small.said.count((What.FAILED, "a-0")) == 1
    assert small.tracks["a-0"].phase is Phase.FAILED


def test_a_container_that_crashed_before_it_registered_took_no_job_with_it() -> None:
    small = Small()
    small.hint("a-0")
    small.look()
    small.slurm("a-0", POWERING_UP)
    small.pod("a-0")
    small.look()
    small.pod("a-0", restarts=1)
    small.slurm("a-0", BUSY)
    for _ in range(3):
        assert small.look().updates == ()


def test_a_pod_that_does_not_run_yet_is_not_the_one_that_registered() -> None:
    small = Small()
    small.hint("a-0")
    small.look()
    small.slurm("a-0", POWERING_UP)
    small.pod("a-0")
    small.look()
    small.pod("a-0", uid="u2", running=False)
    small.slurm("a-0", BUSY)
    small.look()
    assert told(small.look()) == [("down", ("a-0",))]


def test_a_pod_that_is_replaced_while_its_node_does_not_respond_is_a_loss_too() -> None:
    small = Small()
    busy(small, BUSY + "+NOT_RESPONDING")
    small.pod("a-0", uid="u2")
    small.look()
    assert told(small.look()) == [("down", ("a-0",))]


def test_a_job_that_started_since_the_last_view_is_lost_with_its_pod() -> None:
    small = Small()
    small.start("a-0")
    small.slurm("a-0", BUSY)
    small.now += 20
    small.pod("a-0", uid="u2", running=False)
    assert small.plan().pace is Pace.FAST, "the view says idle, but it is old"
    assert told(small.look(after=0.2)) == [("down", ("a-0",))]


# What administrators did


def test_a_job_lost_on_a_draining_node_is_requeued_without_lifting_the_drain() -> None:
    small = Small()
    busy(small, DRAINING, "broken fan [root@1]")
    small.pods.clear()
    small.plan()
    made = small.look()
    assert told(made) == [("down", ("a-0",))]
    assert made.updates[0].reason == "copilot: pod_lost: its pod is gone (drained before: broken fan [root@1])"


@pytest.mark.parametrize("state", ["IDLE+CLOUD+DRAIN", "IDLE+CLOUD+FAIL", "DOWN+CLOUD", "DOWN+CLOUD+COMPLETING"])
def test_a_node_that_slurm_does_not_use_anyway_is_not_told_lost(state: str) -> None:
    small = Small()
    busy(small, state, "broken fan [root@1]")
    small.pods.clear()
    small.plan()
    assert small.look().updates == ()
    assert small.wanted() == {0}


@pytest.mark.parametrize("state", ["IDLE+CLOUD+DRAIN+NOT_RESPONDING+POWERING_UP", "DOWN+CLOUD+NOT_RESPONDING+POWERING_UP"])
def test_a_node_that_was_drained_or_set_down_while_powering_up_is_left_to_resume_timeout(state: str) -> None:
    small = Small(policy=Policy(registration_timeout=30))
    small.hint("a-0")
    small.look()
    small.slurm("a-0", state, "broken fan [root@1]")
    small.pod("a-0")
    small.look()
    assert small.look(after=100).updates == ()


# Starts


@pytest.mark.parametrize("known", [True, False], ids=["started by us", "found up"])
def test_a_node_that_was_off_and_is_resumed_while_nobody_looked_starts_anew(known: bool) -> None:
    small = Small(policy=Policy(stale_grace=20))
    if known:
        small.start("a-0")
        small.hints.clear()
    else:
        small.slurm("a-0", UP)
        small.pod("a-0")
        small.look()
    small.covers = frozenset({0})
    small.slurm("a-0", POWERING_UP)
    small.look(after=100)
    assert small.tracks["a-0"].requested_at == small.now
    assert [delete.uid for delete in small.look(after=25).deletes] == ["u1"], "that pod is older than the resume request"


def test_a_hook_after_a_failure_begins_anew() -> None:
    small = Small(policy=Policy(registration_timeout=30))
    small.hint("a-0")
    small.look()
    small.slurm("a-0", POWERING_UP)
    small.pod("a-0")
    small.look()
    small.hints.clear()
    small.tell(small.look(after=31))
    assert small.tracks["a-0"].phase is Phase.FAILED
    small.now += 60
    small.hint("a-0")
    small.pod("a-0", uid="u2")
    small.look()
    assert (small.tracks["a-0"].phase, small.tracks["a-0"].failure) == (Phase.RUNNING, None)


def test_a_pod_found_while_slurmctld_has_forgotten_the_resume_is_replaced_when_it_resumes_again() -> None:
    small = Small()
    small.look()
    small.hint("a-0")
    small.plan()
    small.covers = frozenset({0})
    small.pod("a-0")
    small.hints.clear()
    small.slurm("a-0", COMING)
    small.look()
    small.slurm("a-0", POWERING_UP)
    assert [delete.uid for delete in small.look().deletes] == ["u1"]


def test_a_pod_that_may_have_started_after_the_resume_request_is_given_time_to_register() -> None:
    small = Small(Kind.STATEFUL_SET, policy=Policy(stale_grace=20))
    small.start("a-0")
    small.start("a-5")
    small.covers = frozenset(range(6))
    small.pod("a-3", uid="slow", running=False)
    small.look()
    small.slurm("a-3", POWERING_UP)
    small.now += 3
    small.pod("a-3", uid="slow")
    assert small.look().deletes == (), "its hook was lost, and the window's pod started only now"


def test_a_stale_pod_whose_container_restarts_boots_anew_and_may_register() -> None:
    small = Small(Kind.STATEFUL_SET, policy=Policy(stale_grace=20))
    small.start("a-0")
    small.start("a-5")
    small.covers = frozenset(range(6))
    small.pod("a-3", uid="old")
    small.look()
    small.hint("a-3")
    small.plan()
    small.slurm("a-3", POWERING_UP)
    small.pod("a-3", uid="old", restarts=1)
    assert small.look().deletes == ()
    assert small.tracks["a-3"].phase is Phase.RUNNING


def test_a_node_that_is_found_silent_is_no_start() -> None:
    small = Small()
    small.slurm("a-0", BUSY + "+NOT_RESPONDING")
    small.pod("a-0")
    small.look()
    assert small.said == []
    assert small.tracks["a-0"].requested_at is None


def test_a_view_older_than_a_hook_fails_nobody() -> None:
    small = Small(policy=Policy(registration_timeout=30))
    small.hint("a-0")
    small.look()
    small.slurm("a-0", POWERING_UP)
    small.pod("a-0")
    small.look()
    small.hints.clear()
    small.now += 31
    small.hint("a-0")
    assert small.look(after=0).updates == (), "the hook came when the question had been asked already"


def test_a_node_given_up_by_slurm_is_said_to_have_failed() -> None:
    small = Small()
    small.hint("a-0")
    small.look()
    small.slurm("a-0", POWERING_UP)
    small.look()
    small.slurm("a-0", GIVEN_UP, "ResumeTimeout reached [slurm@1]")
    small.look()
    small.look()
    assert small.said.count((What.FAILED, "a-0")) == 1
    assert small.tracks["a-0"].failure is FailureReason.REGISTRATION_TIMEOUT


# What is let go


def test_an_orphan_is_said_once_although_it_takes_time_to_go() -> None:
    small = Small(policy=Policy(orphan_grace=10))
    small.pod("a-5")
    small.covers = frozenset({5})
    small.look()
    for _ in range(4):
        small.look(after=20)
    assert small.said.count((What.ORPHAN, "a-5")) == 1


def test_a_pod_that_goes_in_the_ordinary_way_is_no_orphan() -> None:
    small = Small(policy=Policy(orphan_grace=10))
    small.start("a-0")
    small.slurm("a-0", POWERING_DOWN)
    small.look()
    small.slurm("a-0", OFF)
    for _ in range(4):
        small.look(after=20)
    assert (What.ORPHAN, "a-0") not in small.said
    assert small.wanted() == set()


def test_a_pod_on_its_way_out_is_not_ordered_again_before_the_next_start() -> None:
    small = Small()
    small.start("a-0")
    small.slurm("a-0", POWERING_DOWN)
    small.look()
    small.covers = frozenset()
    small.pod("a-0", terminating=True)
    small.slurm("a-0", COMING)
    small.look()
    assert small.wanted() == set(), "a pod made before ResumeProgram is called can never register"


def test_an_old_view_lets_nothing_go_and_tells_nobody() -> None:
    small = Small(policy=Policy(trust_view=120))
    small.start("a-0")
    small.slurm("a-0", POWERING_DOWN)
    small.look()
    assert small.wanted() == set()
    small.covers = frozenset({0})
    small.plan(after=121)
    assert small.wanted() == {0}
    small.pods.clear()
    small.covers = frozenset()
    assert small.plan().updates == ()


def test_before_the_first_list_of_pods_a_slurmcluster_is_left_alone() -> None:
    small = Small(Kind.SLURM_CLUSTER)
    small.synced = False
    small.slurm(["a-0", "a-1"], BUSY)
    small.slurm("a-1", "ALLOCATED+CLOUD+POWERING_DOWN")
    assert small.look().desired == {}, "two pods run, and to want one only would end the other"


def test_without_a_list_of_pods_nobody_is_given_up() -> None:
    small = Small(policy=Policy(registration_timeout=30))
    small.hint("a-0")
    small.look()
    small.slurm("a-0", POWERING_UP)
    small.pod("a-0")
    small.look()
    small.synced = False
    assert small.look(after=31).updates == ()
