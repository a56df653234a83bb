"""A registration that slurmctld heard and ignored: the pod is replaced within seconds, not after the registration timeout."""

from __future__ import annotations

from dataclasses import replace

from copilot.plan import What
from tests.unit.worlds import POWERING_UP, UP, Small

CREATED = 5000


def coming(slurmd_start: int | None) -> Small:
    """A resumed node whose pod runs; slurmctld knows of a slurmd that started then."""
    small = Small()
    small.look()
    small.hint("a-0")
    small.plan(after=0.01)
    small.slurm("a-0", POWERING_UP)
    small.look(after=0.1)
    small.pod("a-0", created_epoch=float(CREATED))
    heard = {"version": "22.05.8", "boot_epoch": CREATED - 1, "slurmd_start_epoch": slurmd_start} if slurmd_start else {}
    small.states["a-0"] = replace(small.states["a-0"], **heard)  # type: ignore[arg-type]
    small.look(after=0.1)
    return small


def test_it_is_replaced_after_two_seconds_and_once() -> None:
    small = coming(CREATED)
    assert small.look(after=1).deletes == ()
    assert [delete.uid for delete in small.look(after=1.5).deletes] == ["u1"]
    small.pod("a-0", uid="u2", created_epoch=CREATED + 4.0)
    assert small.look().deletes == ()
    small.slurm("a-0", UP)
    small.look()
    assert small.said.count((What.STALE, "a-0")) == 1
    assert (What.UP, "a-0") in small.said


def test_what_slurmctld_knows_of_the_slurmd_before_proves_nothing() -> None:
    small = coming(CREATED - 60)
    for _ in range(10):
        assert small.look().deletes == ()


def test_a_slurmd_that_was_not_heard_yet_is_waited_for() -> None:
    small = coming(None)
    for _ in range(10):
        assert small.look().deletes == ()
