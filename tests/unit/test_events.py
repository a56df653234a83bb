"""Events of the API, as real servers write them, to what the decision reads of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from copilot.model import KubeEvent
from copilot.reconcile.events import RELEVANT, SELECTION, event_of

WALL = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC).timestamp()
NOW = 5000.0


def raw(reason: str = "FailedCreate", **fields: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "cpu.1", "creationTimestamp": "2026-01-01T11:00:00Z"},
        "involvedObject": {"kind": "StatefulSet", "name": "cpu"},
        "reason": reason,
        "message": "no",
        "source": {"component": "statefulset-controller"},
        **fields,
    }


@pytest.mark.parametrize(
    ("fields", "seen_at"),
    [
        ({"lastTimestamp": "2026-01-01T11:59:30Z", "count": 7}, NOW - 30),
        ({"lastTimestamp": None, "eventTime": "2026-01-01T11:59:59.500000Z"}, NOW - 0.5),
        ({"eventTime": "2026-01-01T11:00:00.000000Z", "series": {"lastObservedTime": "2026-01-01T11:59:50.000000Z"}}, NOW - 10),
        ({}, NOW - 3600),
        ({"lastTimestamp": "2026-01-01T12:00:05Z"}, NOW),
    ],
    ids=["count", "new form", "series", "no time", "a clock ahead of ours"],
)
def test_when_it_last_happened_is_on_our_clock(fields: dict[str, Any], seen_at: float) -> None:
    assert event_of(raw(**fields), NOW, WALL) == KubeEvent("StatefulSet/cpu", "FailedCreate", "no", seen_at)


def test_what_matters_nothing_is_left_out() -> None:
    assert event_of(raw("LeaderElection"), NOW, WALL) is None
    assert event_of(raw(source={"component": "slurmctld-copilot"}), NOW, WALL) is None
    assert event_of(raw(involvedObject={}), NOW, WALL) is None


def test_the_server_is_not_asked_to_leave_out_what_matters() -> None:
    excluded = {part.removeprefix("reason!=") for part in SELECTION.fields.split(",")}
    assert len(excluded) > 5
    assert not excluded & RELEVANT
