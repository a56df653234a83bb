"""The decision about nodes that end, are held, lost, stale or orphans (design: section 7)."""

from __future__ import annotations

import pytest

from copilot.model import FailureReason, Kind, Phase
from copilot.plan import Pace, Plan, Policy, What
from tests.unit.worlds import BUSY, GIVEN_UP, OFF, POWERING_DOWN, POWERING_UP, Small


def updates(made: Plan) -> dict[str, tuple[str, ...]]:
    return {update.state: update.nodes for update in made.updates}


def test_a_pod_seen_gone_frees_the_node_without_waiting_for_suspend_timeout() -> None:
    small = Small()
    small.start("a-0")
    small.slurm("a-0", POWERING_DOWN)
    made = small.look()
    assert made.updates == ()
    small.covers = frozenset()
    assert small.plan().updates == (), "the pod is still there"
    small.pods.clear()
    made = small.plan()
    assert updates(made) == {"resume": ("a-0",)}
    small.tell(made)
    assert small.plan(after=20).updates == (), "no view was taken since"


def test_a_pod_that_nobody_saw_may_still_come_for_a_moment() -> None:
    small = Small()
    small.slurm("a-0", POWERING_DOWN)
    assert small.look().updates == ()
    assert updates(small.look(after=3)) == {"resume": ("a-0",)}


@pytest.mark.parametrize(
    "state", ["IDLE+CLOUD+DRAIN+POWERING_DOWN", "DOWN+CLOUD+POWERING_DOWN", "IDLE+CLOUD+COMPLETING+POWERING_DOWN"]
)
def test_freeing_never_lifts_a_drain_or_cuts_an_epilog(state: str) -> None:
    small = Small()
    small.slurm("a-0", state)
    small.look()
    assert small.look(after=60).updates == ()


def test_early_freeing_is_a_setting() -> None:
    small = Small(policy=Policy(free_early=False))
    small.slurm("a-0", POWERING_DOWN)
    small.look()
    assert small.look(after=60).updates == ()


def test_without_a_pod_list_nothing_shrinks_and_nothing_is_freed() -> None:
    small = Small()
    small.start("a-0")
    small.slurm("a-0", POWERING_DOWN)
    small.synced = False
    small.hint("a-1")
    made = small.look()
    small.hint("a-1")
    small.plan()
    assert small.wanted() >= {0}
    assert made.updates == ()


def test_an_orphan_needs_a_grace_between_views_and_is_told_once() -> None:
    small = Small(policy=Policy(orphan_grace=90))
    small.look()
    small.pod("a-5")
    small.covers = frozenset({5})
    small.look()
    assert small.wanted() == {5}
    small.plan(after=500)
    assert small.wanted() == {5}, "time alone, without a newer view, judges nobody"
    small.look(after=1)
    assert small.wanted() == set()
    assert small.said.count((What.ORPHAN, "a-5")) == 1


def test_a_pod_that_appears_between_the_two_looks_is_no_orphan() -> None:
    small = Small()
    small.look()
    small.hint("a-5")
    small.plan()
    small.pod("a-5")
    small.slurm("a-5", POWERING_UP)
    small.look()
    assert small.wanted() == {5}
    assert (What.ORPHAN, "a-5") not in small.said


def test_a_node_held_by_the_window_is_shown_as_held_and_goes_with_it() -> None:
    small = Small(Kind.STATEFUL_SET)
    small.look()
    for name in ("a-0", "a-5"):
        small.hint(name)
    small.plan()
    small.slurm(["a-0", "a-5"], POWERING_UP)
    small.covers = frozenset(range(6))
    small.look()
    assert small.wanted() == {0, 5}
    assert small.tracks["a-3"].phase is Phase.HELD
    small.slurm("a-5", POWERING_DOWN)
    small.look()
    assert small.wanted() == {0}, "what only the window held has no grace"


def test_a_held_pod_is_replaced_when_its_node_is_resumed() -> None:
    small = Small(Kind.STATEFUL_SET)
    small.start("a-0")
    small.start("a-5")
    small.covers = frozenset(range(6))
    small.pod("a-3", uid="old")
    small.look()
    small.hint("a-3")
    assert small.plan().deletes == (), "only a view that shows POWERING_UP proves that no job runs in it"
    small.slurm("a-3", POWERING_UP)
    made = small.look()
    assert [(delete.name, delete.uid) for delete in made.deletes] == [("a-3", "old")]
    small.pod("a-3", uid="new")
    assert small.look().deletes == ()
    assert small.said.count((What.STALE, "a-3")) == 1


def test_a_pod_found_running_that_does_not_register_is_replaced_once_then_failed() -> None:
    small = Small(policy=Policy(stale_grace=20, registration_timeout=120))
    small.slurm("a-0", POWERING_UP)
    small.pod("a-0", uid="old")
    small.covers = frozenset({0})
    small.look()
    assert small.look(after=10).deletes == ()
    assert [delete.uid for delete in small.look(after=15).deletes] == ["old"]
    small.pod("a-0", uid="new")
    small.look()
    assert small.look(after=60).updates == ()
    made = small.look(after=60)
    assert updates(made) == {"power_down_force": ("a-0",)}
    assert made.updates[0].reason.startswith("copilot: registration_timeout: ")
    assert small.tracks["a-0"].phase is Phase.FAILED
    assert small.tracks["a-0"].failure is FailureReason.REGISTRATION_TIMEOUT


def test_a_failure_is_said_once_and_the_update_repeated_slowly() -> None:
    small = Small(policy=Policy(registration_timeout=30, repeat_update=10))
    small.look()
    small.start("a-0")
    small.slurm("a-0", POWERING_UP)
    small.tracks.clear()
    small.look()
    made = small.look(after=31)
    small.tell(made)
    assert small.plan().updates == ()
    assert small.look(after=1).updates == ()
    assert updates(small.look(after=10)) == {"power_down_force": ("a-0",)}
    assert [what for what, _ in small.said].count(What.FAILED) == 1


def test_a_busy_node_whose_pod_is_gone_is_told_after_one_newer_view() -> None:
    small = Small()
    small.start("a-0")
    small.slurm("a-0", BUSY)
    small.look()
    small.pods.clear()
    made = small.plan()
    assert made.updates == ()
    assert made.pace is Pace.FAST
    made = small.look(after=0.1)
    assert updates(made) == {"down": ("a-0",)}
    assert "pod_lost" in made.updates[0].reason


def test_a_node_taken_down_for_its_lost_pod_goes_on_the_ordinary_way_once_its_job_is_freed() -> None:
    small = Small()
    small.start("a-0")
    small.slurm("a-0", BUSY)
    small.look()
    small.pods.clear()
    small.plan()
    small.tell(small.look(after=0.1))
    ours = "copilot: pod_lost: its pod is gone"
    small.slurm("a-0", "DOWN+CLOUD+COMPLETING+NOT_RESPONDING", ours)
    assert small.look(after=0.1).updates == (), "the job is not freed yet"
    small.slurm("a-0", "DOWN+CLOUD+NOT_RESPONDING", ours)
    small.tracks.clear()  # and we were restarted in between
    made = small.look(after=0.1)
    assert updates(made) == {"power_down_force": ("a-0",)}
    assert made.updates[0].reason == ours


@pytest.mark.parametrize(
    ("state", "reason"), [("DOWN+CLOUD", "bad fan"), ("DOWN+CLOUD+DRAIN", "copilot: pod_lost: x (drained before: y)")]
)
def test_a_node_that_an_administrator_took_down_or_drained_is_not_forced(state: str, reason: str) -> None:
    small = Small()
    small.start("a-0")
    small.slurm("a-0", state, reason)
    small.look()
    assert small.look(after=60).updates == ()


def test_a_pod_replaced_or_restarted_under_a_job_is_told() -> None:
    for change in ({"uid": "other"}, {"restarts": 1}):
        small = Small()
        small.start("a-0")
        small.slurm("a-0", BUSY)
        small.look()
        small.pod("a-0", **change)
        small.plan()
        assert updates(small.look()) == {"down": ("a-0",)}, change


def test_a_pod_replaced_or_restarted_under_an_idle_node_is_left_to_register() -> None:
    for change in ({"uid": "other"}, {"restarts": 1}):
        small = Small()
        small.start("a-0")
        small.pod("a-0", **change)
        assert small.plan().pace is Pace.FAST
        assert small.look(after=0.2).updates == (), "only a view that is asked for after the change tells that no job was on it"
        small.slurm("a-0", BUSY)
        small.look()
        assert small.look().updates == (), change


def test_a_node_that_is_up_without_any_pod_ever_seen_is_never_told() -> None:
    small = Small()
    small.slurm("a-0", BUSY)
    for _ in range(5):
        assert small.look(after=60).updates == (), "a wrong pod list must not power a cluster down"


def test_resume_timeout_leaves_a_node_that_is_released_and_freed() -> None:
    small = Small()
    small.start("a-0")
    small.slurm("a-0", GIVEN_UP, "ResumeTimeout reached [slurm@1]")
    small.look()
    assert small.wanted() == set()
    small.covers = frozenset()
    small.pods.clear()
    assert updates(small.look()) == {"resume": ("a-0",)}


def test_a_node_that_an_administrator_set_down_is_left_alone() -> None:
    small = Small()
    small.slurm("a-0", GIVEN_UP, "broken fan [root@1]")
    small.look()
    assert small.look(after=300).updates == ()


def test_suspended_then_resumed_while_the_old_pod_still_goes() -> None:
    small = Small()
    small.start("a-0")
    small.slurm("a-0", POWERING_DOWN)
    small.look()
    small.pod("a-0", terminating=True)
    small.slurm("a-0", OFF)
    small.look()
    assert small.wanted() == set()
    small.hint("a-0")
    made = small.plan()
    assert small.wanted() == {0}
    assert made.deletes == ()
    small.slurm("a-0", POWERING_UP)
    assert small.look().deletes == ()
    phases = [small.tracks["a-0"].phase]
    small.pod("a-0", uid="u2")
    small.look()
    assert [*phases, small.tracks["a-0"].phase] == [Phase.SCALED, Phase.RUNNING]


def test_a_released_node_that_slurm_has_off_meanwhile_gets_no_orphans_grace() -> None:
    small = Small()
    small.start("a-0")
    small.slurm("a-0", POWERING_DOWN)
    small.look()
    small.slurm("a-0", OFF)
    small.look()
    assert small.wanted() == set()
    small.pods.clear()
    small.covers = frozenset()
    small.look()
    assert small.said[-1] == (What.OFF, "a-0")
    assert small.tracks == {}
