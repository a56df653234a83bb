"""The annotation by which an operator holds groups."""

from __future__ import annotations

import pytest

from copilot import targets
from copilot.model import Kind
from tests.lab.objects import stateful_set


@pytest.mark.parametrize("text", ["true", "maintenance", "gpu, other"])
def test_a_set_is_held_by_any_text(text: str) -> None:
    obj = stateful_set("gpu", 1)
    obj["metadata"] |= {"namespace": "ns", "uid": "u", "annotations": {targets.HOLD: text}}
    assert targets.read(Kind.STATEFUL_SET, obj).held == {"gpu"}


@pytest.mark.parametrize("text", ["", "false", "False"])
def test_a_set_is_not_held_by_a_no(text: str) -> None:
    obj = stateful_set("gpu", 1)
    obj["metadata"] |= {"namespace": "ns", "uid": "u", "annotations": {targets.HOLD: text}}
    assert targets.read(Kind.STATEFUL_SET, obj).held == frozenset()


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("cpu", {"demo-worker-cpu"}),
        ("demo-worker-gpu", {"demo-worker-gpu"}),
        ("cpu,gpu", {"demo-worker-cpu", "demo-worker-gpu"}),
        ("true", {"demo-worker-cpu", "demo-worker-gpu"}),
    ],
)
def test_of_a_slurm_cluster_some_groups_can_be_held(text: str, held: set[str]) -> None:
    groups = [{"groupName": name, "replicas": 0} for name in ("cpu", "gpu")]
    meta = {"namespace": "ns", "name": "demo", "uid": "u", "annotations": {targets.HOLD: text}}
    assert targets.read(Kind.SLURM_CLUSTER, {"metadata": meta, "spec": {"workerGroupSpecs": groups}}).held == held
