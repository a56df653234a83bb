"""Faults of the decision that chaos on real Slurm brought to light (docs/reliability.md), each in its smallest form."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.worlds import BUSY, OFF, POWERING_DOWN, POWERING_UP, UP, Small, node


@pytest.mark.parametrize(
    ("address", "started", "lost"),
    [("10.0.0.1", 99, True), ("10.0.0.2", 99, False), ("10.0.0.1", 101, False), ("a-0", 99, False)],
)
def test_a_node_whose_earlier_pod_slurmctld_asks_in_vain_is_lost_after_a_grace(address: str, started: int, lost: bool) -> None:
    """It has heard the registrations of two pods in the wrong order. One of the two signs alone proves nothing."""
    small = Small()
    small.start("a-0")
    small.slurm("a-0", BUSY)
    small.look()
    small.states["a-0"] = replace(node("a-0", BUSY + "+NOT_RESPONDING"), address=address, slurmd_start_epoch=started)
    small.pods["a-0"] = replace(small.pods["a-0"], ip="10.0.0.2", created_epoch=100.0)
    small.look()
    assert small.look(small.policy.pod_lost_grace - 1).updates == ()
    said = [(one.state, one.nodes, one.reason) for one in small.look(2).updates]
    assert said == ([("down", ("a-0",), "copilot: pod_lost: slurmctld asks the address of an earlier pod")] if lost else [])


@pytest.mark.parametrize("gone", [False, True])
def test_a_pod_that_was_replaced_because_it_could_not_register_took_no_job_with_it(gone: bool) -> None:
    """Its successor registers and gets a job while the list of pods is late: with the old one still in it, or with none."""
    small = Small()
    small.pod("a-0")
    small.hint("a-0")
    small.slurm("a-0", POWERING_UP)
    small.look()
    assert [one.name for one in small.look(small.policy.stale_grace + 1).deletes] == ["a-0"]
    if gone:
        del small.pods["a-0"]
    small.slurm("a-0", BUSY)
    small.look()
    small.pod("a-0", uid="u2")
    for _ in range(3):
        assert small.look().updates == ()
    small.pod("a-0", uid="u3")
    small.look()
    assert [one.state for one in small.look().updates] == ["down"], "but what replaces that one did"


@pytest.mark.parametrize("reason", ["", "ResumeTimeout reached [slurm@1796101835]"])
def test_a_node_that_is_off_and_said_not_to_respond_is_powered_down_once_more_and_freed(reason: str) -> None:
    """After a restart of slurmctld no job would get it. 24.11 keeps the reason of a node that it gave up at ResumeTimeout."""
    small = Small()
    small.slurm("a-0", "IDLE+CLOUD+NOT_RESPONDING+POWERED_DOWN", reason)
    made = small.look()
    assert [(one.state, one.nodes) for one in made.updates] == [("power_down", ("a-0",))]
    small.tell(made)
    small.slurm("a-0", POWERING_DOWN, reason)
    small.look()
    made = small.look(small.policy.settle + 1)
    assert [(one.state, one.nodes) for one in made.updates] == [("resume", ("a-0",))]
    small.tell(made)
    small.slurm("a-0", OFF)
    assert small.look().updates == ()


@pytest.mark.parametrize(
    "state",
    [
        "IDLE+CLOUD+DRAIN+NOT_RESPONDING+POWERED_DOWN",
        "MIXED+CLOUD+NOT_RESPONDING+POWERED_DOWN",
        "DOWN+CLOUD+NOT_RESPONDING+POWERED_DOWN",
        "IDLE+CLOUD+NOT_RESPONDING+POWERED_DOWN+POWERING_UP",
        "IDLE+CLOUD+POWERED_DOWN",
    ],
)
def test_but_not_one_that_somebody_holds_back_or_wants(state: str) -> None:
    small = Small()
    small.slurm("a-0", state)
    assert small.look().updates == ()


def test_nor_one_whose_pod_is_there_still() -> None:
    small = Small()
    small.slurm("a-0", "IDLE+CLOUD+NOT_RESPONDING+POWERED_DOWN")
    small.pod("a-0")
    assert small.look().updates == ()


@pytest.mark.parametrize(
    ("state", "boot", "created", "started", "lost"),
    [
        (BUSY, 560, 550.0, 551.0, "its pod was replaced under a job"),
        (BUSY, 505, 550.0, 551.0, ""),  # slurmd's age is in whole seconds, and so is the job's start
        (BUSY, 560, 400.0, 551.0, "its container restarted under a job"),
        (BUSY, 560, 400.0, 401.0, ""),  # in the same container slurmd alone was started again, and told of its jobs
        (BUSY, None, 550.0, 551.0, ""),
        (UP, 560, 550.0, 551.0, ""),
    ],
)
def test_a_job_that_is_older_than_its_pod_was_lost_while_nobody_looked(
    state: str, boot: int | None, created: float, started: float, lost: str
) -> None:
    """Found by taking head and pod away at once: Slurm showed the job RUNNING and the node well."""
    small = Small()
    small.states["a-0"] = replace(node("a-0", state), boot_epoch=boot)
    small.states["a-1"] = replace(node("a-1", BUSY), boot_epoch=560)
    small.running_since = {"a-0": 500} if state == BUSY else {}
    small.pod("a-0", created_epoch=created, started_epoch=started, restarts=1)
    small.pod("a-1", created_epoch=550.0, started_epoch=551.0, restarts=1)
    assert small.look().updates == (), "only a view that was asked for after the loss was seen counts"
    said = [(one.state, one.nodes, one.reason) for one in small.look().updates]
    assert said == ([("down", ("a-0",), f"copilot: pod_lost: {lost}")] if lost else [])
