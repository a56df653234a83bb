"""How the jobs of a run on the real node are judged, and that every operation there is one of the plan."""

from __future__ import annotations

import pytest

from tests.chaos.operations import SORTS
from tests.cluster.trouble import ACTS, ended_badly


@pytest.mark.parametrize(
    ("state", "cancelled", "bad"),
    [
        ("COMPLETED", False, False),
        ("COMPLETED", True, False),
        ("CANCELLED", True, False),
        ("CANCELLED", False, True),
        ("NODE_FAIL", False, True),
        ("NODE_FAIL", True, False),
        ("REQUEUED", False, True),
        ("FAILED", True, True),
        ("PENDING", True, True),
    ],
)
def test_a_job_that_ended_otherwise_is_told(state: str, cancelled: bool, bad: bool) -> None:
    assert ended_badly({"op1": state, "op2": "COMPLETED"}, {"op1"} if cancelled else set()) == ({"op1": state} if bad else {})


def test_what_is_done_to_real_pods_is_of_the_plan() -> None:
    assert ACTS.keys() <= set(SORTS)
    assert len(ACTS) > 15
