"""Each reason of the closed list: how it shows, that nothing is told within its grace, and what is told after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from copilot.model import FailureReason, KubeEvent, Phase
from copilot.plan import Policy, What
from copilot.plan.world import Unpatched
from tests.unit.worlds import COMING, POWERING_UP, UP, Small

POLICY: Final = Policy()
Show = Callable[[Small], None]
R = FailureReason


def pod(trouble: str, message: str = "", *, scheduled: bool = True, phase: str = "Pending") -> Show:
    return lambda small: small.pod("a-1", running=False, trouble=trouble, message=message, scheduled=scheduled, phase=phase)


def nothing(small: Small) -> None:
    """Eleven seconds pass without a pod."""
    small.look(11.0)


def event(about: str, reason: str, message: str) -> Show:
    return lambda small: small.events.setdefault(about, {}).update({reason: KubeEvent(about, reason, message, small.now)})


def both(*shows: Show) -> Show:
    def show(small: Small) -> None:
        for each in shows:
            each(small)

    return show


def refused(words: str, *, admission: bool) -> Show:
    def show(small: Small) -> None:
        small.covers = frozenset()
        small.unpatched["a"] = Unpatched(small.now, words, admission)

    return show


QUOTA: Final = (
    'create Pod a-1 in StatefulSet a failed error: pods "a-1" is forbidden: exceeded quota: pods, used: pods=2, limited: pods=2'
)
WEBHOOK: Final = 'create Pod a-1 in StatefulSet a failed error: admission webhook "x.y" denied the request: no'
CASES: Final[dict[str, tuple[Show, FailureReason, float, str]]] = {
    "no room": (
        pod("Unschedulable", "0/3 nodes are available: 3 Insufficient cpu.", scheduled=False),
        R.UNSCHEDULABLE,
        60,
        "3 Insufficient cpu",
    ),
    "a machine comes": (
        both(pod("Unschedulable", "0/3 nodes", scheduled=False), event("Pod/a-1", "TriggeredScaleUp", "pod triggered scale-up")),
        R.UNSCHEDULABLE,
        900,
        "0/3 nodes",
    ),
    "no machine comes": (
        both(
            pod("Unschedulable", "0/3 nodes", scheduled=False),
            event("Pod/a-1", "NotTriggerScaleUp", "max node group size reached"),
        ),
        R.UNSCHEDULABLE,
        10,
        "max node group size reached",
    ),
    "nobody schedules": (both(pod("", scheduled=False), nothing), R.UNSCHEDULABLE, 60, "does kube-scheduler run"),
    "quota": (event("StatefulSet/a", "FailedCreate", QUOTA), R.QUOTA, 30, "exceeded quota: pods"),
    "webhook": (event("StatefulSet/a", "FailedCreate", WEBHOOK), R.REJECTED, 10, "denied the request"),
    "controller": (event("StatefulSet/a", "FailedCreate", "etcdserver: request timed out"), R.API_ERROR, 60, "timed out"),
    "no controller": (nothing, R.API_ERROR, 50, "does the controller of kruise/ns/a run?"),
    "policy on the target": (refused("ValidatingAdmissionPolicy denied", admission=True), R.REJECTED, 10, "denied"),
    "patch refused": (refused("Forbidden: cannot patch", admission=False), R.API_ERROR, 60, "cannot patch"),
    "image": (pod("ErrImagePull", 'failed to pull "x:1"'), R.IMAGE_PULL, 30, 'failed to pull "x:1"'),
    "image name": (pod("InvalidImageName", ""), R.IMAGE_PULL, 30, "InvalidImageName"),
    "secret": (pod("CreateContainerConfigError", 'secret "s" not found'), R.CONTAINER_CONFIG, 20, "not found"),
    "volume": (
        both(pod(""), event("Pod/a-1", "FailedMount", 'configmap "c" not found')),
        R.CONTAINER_CONFIG,
        20,
        'FailedMount: configmap "c" not found',
    ),
    "crash": (pod("CrashLoopBackOff", "exit code 1"), R.CRASH_LOOP, 30, "exit code 1"),
    "evicted": (pod("Evicted", "low on memory", phase="Failed"), R.EVICTED, 30, "low on memory"),
}


def starting(show: Show) -> Small:
    """Node a-1 is powering up for a job, its target asks for its pod, and the trouble shows."""
    small = Small()
    small.slurm("a-1", COMING)
    small.look()
    small.hint("a-1")
    small.plan()
    small.slurm("a-1", POWERING_UP)
    small.covers = frozenset({1})
    small.look()
    show(small)
    small.look(0.5)
    return small


def updates(small: Small) -> list[tuple[str, tuple[str, ...], str]]:
    assert small.last is not None
    return [(update.state, update.nodes, update.reason) for update in small.last.updates]


@pytest.mark.parametrize("case", CASES)
def test_a_cause_is_named_at_once_and_ends_the_start_after_its_grace(case: str) -> None:
    show, reason, grace, words = CASES[case]
    small = starting(show)
    assert (What.TROUBLE, "a-1") in small.said
    track = small.tracks["a-1"]
    assert (track.trouble, track.failure) == (reason, None)
    assert words in track.message
    small.look(grace - 1.0)
    assert updates(small) == []
    made = small.look(2.0)
    [(state, nodes, told)] = updates(small)
    assert (state, nodes) == ("power_down_force", ("a-1",))
    assert told.startswith(f"copilot: {reason}: ")
    assert words in told
    assert [(outcome.reason, words in outcome.message) for outcome in made.outcomes if outcome.what is What.FAILED] == [
        (reason, True)
    ]
    assert small.said.count((What.TROUBLE, "a-1")) == 1
    assert small.tracks["a-1"].phase is Phase.FAILED


def test_every_reason_has_a_case_here_or_in_another_test() -> None:
    elsewhere = {R.REGISTRATION_TIMEOUT, R.STALE_POD, R.INVALID_REGISTRATION, R.POD_LOST}
    assert {case[1] for case in CASES.values()} | elsewhere == set(R)


@pytest.mark.parametrize(
    "state", ["IDLE+CLOUD+DRAIN+INVALID_REG", "IDLE+CLOUD+COMPLETING+DRAIN+INVALID_REG"], ids=["24.11", "22.05"]
)
def test_too_little_in_the_pod_fails_at_once_though_slurmctld_drained_the_node(state: str) -> None:
    """slurmctld waits no more; 22.05 has its job COMPLETING until the node is forced down."""
    small = starting(lambda small: small.pod("a-1"))
    small.slurm("a-1", state, "Low RealMemory")
    small.look()
    [(state, _, told)] = updates(small)
    assert (state, told) == ("power_down_force", "copilot: invalid_registration: Low RealMemory")


def test_a_drain_of_an_administrator_is_not_lifted_by_a_failure() -> None:
    small = starting(CASES["image"][0])
    small.slurm("a-1", f"{POWERING_UP}+DRAIN", "disk")
    small.look(500.0)
    assert updates(small) == []


def test_an_old_pod_that_is_terminating_for_ever_is_a_lost_host() -> None:
    small = starting(lambda small: small.pod("a-1", terminating=True, ends_at=small.now + 30.0))
    small.look(34.0)
    assert (What.TROUBLE, "a-1") not in small.said
    small.look(1.0)
    assert (What.TROUBLE, "a-1") in small.said
    small.look(19.0)
    assert updates(small) == []
    small.look(2.0)
    [(_, _, told)] = updates(small)
    assert told.startswith("copilot: pod_lost: its old pod is Terminating past its grace")


def test_a_pod_that_is_evicted_again_and_again_fails_though_it_goes_and_comes_in_between() -> None:
    """Seen end to end: each face of it began a grace and a line of its own, and none was ever over."""
    small = starting(CASES["evicted"][0])
    for _ in range(3):
        small.pod("a-1", running=False, terminating=True, ends_at=small.now - 6.0)
        small.look(4.0)
        small.pods.pop("a-1")
        small.look(4.0)
        assert updates(small) == []
        CASES["evicted"][0](small)
        small.look(4.0)
    assert [state for state, _, _ in updates(small)] == ["power_down_force"]
    assert small.said.count((What.TROUBLE, "a-1")) == 1


def test_a_trouble_that_ends_in_time_leaves_nothing() -> None:
    small = starting(CASES["image"][0])
    small.pod("a-1")
    small.look(1.0)
    assert (small.tracks["a-1"].trouble, small.tracks["a-1"].message) == (None, "")
    small.slurm("a-1", UP)
    small.look(200.0)
    assert updates(small) == []
    assert small.tracks["a-1"].phase is Phase.UP


def test_a_crash_between_two_runs_is_the_same_trouble() -> None:
    small = starting(CASES["crash"][0])
    small.pod("a-1", restarts=1)
    small.look(20.0)
    CASES["crash"][0](small)
    small.look(15.0)
    assert [state for state, _, _ in updates(small)] == ["power_down_force"]
    assert small.said.count((What.TROUBLE, "a-1")) == 1


def test_a_node_that_slurm_did_not_hear_of_is_told_again_in_the_same_words() -> None:
    small = starting(CASES["image"][0])
    small.tell(small.look(40.0))
    CASES["secret"][0](small)
    small.look(5.0)
    assert updates(small) == []
    small.look(20.0)
    [(_, _, told)] = updates(small)
    assert told.startswith("copilot: image_pull: ")
    assert small.said.count((What.FAILED, "a-1")) == 1


def test_a_node_that_registers_after_its_failure_was_told_is_up() -> None:
    small = starting(CASES["image"][0])
    small.tell(small.look(40.0))
    small.pod("a-1")
    small.slurm("a-1", UP, "copilot: image_pull: x")
    made = small.look(1.0)
    assert small.tracks["a-1"].phase is Phase.UP
    assert [(update.state, update.reason) for update in made.updates] == [("", "")]


def test_words_do_not_tell_one_node_from_another() -> None:
    small = starting(nothing)
    for name in ("a-1", "a-2"):
        small.hint(name)
        small.slurm(name, POWERING_UP)
        small.pod(
            name, f"uid-{name}", running=False, scheduled=True, trouble="CrashLoopBackOff", message=f"{name}(uid-{name}) ended"
        )
    small.covers = frozenset({1, 2})
    small.look(1.0)
    small.look(40.0)
    [(_, nodes, told)] = updates(small)
    assert nodes == ("a-1", "a-2")
    assert "the pod() ended" in told
