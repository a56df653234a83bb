"""SlurmCluster: right under every reading of its lists, with an operator that is simulated in each."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilot import targets
from copilot.model import Kind
from tests.unit.jsonpatch import PatchTestError, apply

Object = dict[str, Any]
KIND = Kind.SLURM_CLUSTER
CPU, GPU = "demo-worker-cpu", "demo-worker-gpu-a"


def made(**cpu: Any) -> Object:
    template = {"spec": {"containers": [{"name": "slurmd", "image": "slurm:1"}]}}
    groups = [{"groupName": "gpu-a", "replicas": 1, "template": template}, {"groupName": "cpu", "template": template, **cpu}]
    meta = {"name": "demo", "namespace": "hpc", "uid": "u-1", "generation": 4}
    return {"metadata": meta, "spec": {"headGroupSpec": {"template": template}, "workerGroupSpecs": groups}}


def cpu_of(obj: Object) -> Object:
    entry = obj["spec"]["workerGroupSpecs"][1]
    assert isinstance(entry, dict)
    return entry


def patched(obj: Object, wanted: set[int], existing: set[int]) -> Object:
    return apply(obj, targets.patch(KIND, obj, {CPU: wanted}, {CPU: existing}, ordinals=True))


class Operator:
    """Does what the object says, in one reading of the lists, then makes the number of pods right: lowest missing in, highest out.

    `at_once` clears the lists when it has done them, `late` some rounds later, `never` not at all; where entries stay, each is done once, or,
    with `state`, at every round.
    """

    def __init__(self, clears: str, state: bool) -> None:
        self.pods: set[int] = set()
        self._clears = clears
        self._state = state
        self._done: set[tuple[str, object]] = set()
        self._rounds = 0

    def act(self, obj: Object) -> Object:
        obj = copy.deepcopy(obj)
        entry = cpu_of(obj)
        orders = {("+", index) for index in entry.get("podsToBeCreated") or []}
        orders |= {("-", int(name.rpartition("-")[2])) for name in entry.get("podsToBeDeleted") or []}
        for sign, index in sorted(orders if self._state else orders - self._done):
            (self.pods.add if sign == "+" else self.pods.discard)(index)
        self._done = set(orders)
        self._rounds += 1
        if self._clears == "at_once" or (self._clears == "late" and self._rounds % 3 == 0):
            entry["podsToBeCreated"], entry["podsToBeDeleted"] = [], []
            obj["metadata"]["generation"] += 1
        self._count(entry.get("replicas", 0))
        return obj

    def _count(self, replicas: int) -> None:
        while len(self.pods) > replicas:
            self.pods.discard(max(self.pods))
        while len(self.pods) < replicas:
            self.pods.add(min(set(range(len(self.pods) + 1)) - self.pods))


readings = st.builds(Operator, st.sampled_from(["at_once", "late", "never"]), st.booleans())
indexes = st.sets(st.integers(0, 12), max_size=8)


@given(operator=readings, course=st.lists(st.tuples(indexes, st.integers(0, 3)), min_size=1, max_size=8))
def test_every_reading_ends_at_what_is_wanted_and_loses_no_wanted_pod(
    operator: Operator, course: list[tuple[set[int], int]]
) -> None:
    obj = made()
    wanted: set[int] = set()
    for now_wanted, rounds in [*course, (course[-1][0], 8)]:
        for _ in range(rounds):
            kept = operator.pods & wanted & now_wanted
            wanted = now_wanted
            obj = operator.act(patched(obj, wanted, operator.pods))
            assert kept <= operator.pods, "a pod that was wanted before and after was stopped"
    assert operator.pods == wanted
    assert targets.says(KIND, obj, {CPU: wanted})
    assert targets.patch(KIND, obj, {CPU: wanted}, {CPU: operator.pods}, ordinals=True) == []


@given(
    wanted=indexes,
    existing=indexes,
    created=st.lists(st.integers(0, 12), max_size=5),
    deleted=st.lists(st.integers(0, 12), max_size=5),
)
def test_a_patch_says_all_that_is_outstanding(
    wanted: set[int], existing: set[int], created: list[int], deleted: list[int]
) -> None:
    obj = made(replicas=3, podsToBeCreated=created, podsToBeDeleted=[f"{CPU}-{index}" for index in deleted])
    after = patched(obj, wanted, existing)
    entry = cpu_of(after)
    assert entry["replicas"] == len(wanted)
    assert wanted - existing <= set(entry["podsToBeCreated"]) <= wanted
    named = {targets.split_node(name) for name in entry["podsToBeDeleted"]}
    assert {(CPU, index) for index in existing - wanted} <= named
    assert named.isdisjoint({(CPU, index) for index in wanted})
    assert patched(after, wanted, existing | wanted)["spec"]["headGroupSpec"] == obj["spec"]["headGroupSpec"]
    assert after["spec"]["workerGroupSpecs"][0] == obj["spec"]["workerGroupSpecs"][0]


def test_repeating_changes_nothing_and_zeros_are_written() -> None:
    after = patched(made(replicas=2), set(), {0, 1})
    assert cpu_of(after)["replicas"] == 0
    assert cpu_of(after)["podsToBeCreated"] == []
    assert cpu_of(after)["podsToBeDeleted"] == [f"{CPU}-0", f"{CPU}-1"]
    assert patched(after, set(), {0, 1}) == after


def test_a_thousand_nodes_are_one_patch_while_they_come_and_one_to_tidy() -> None:
    wanted = set(range(1000))
    obj = patched(made(), wanted, set())
    for seen in range(0, 1000, 50):
        assert targets.patch(KIND, obj, {CPU: wanted}, {CPU: set(range(seen))}, ordinals=True) == []
    assert cpu_of(patched(obj, wanted, wanted))["podsToBeCreated"] == []


def test_an_order_that_is_no_longer_wanted_is_taken_back_though_others_are_outstanding() -> None:
    obj = patched(made(), {1, 2}, set())
    entry = cpu_of(patched(obj, {2}, set()))
    # Pod 1 may be on its way already, unseen: it is named for deletion, or the operator might choose another to make the number right.
    assert (entry["replicas"], entry["podsToBeCreated"], entry["podsToBeDeleted"]) == (1, [2], [f"{CPU}-1"])


def test_a_contradicting_entry_is_no_reason_to_wait_for_the_others() -> None:
    # The count is right and what is outstanding is ordered already; still nobody may go on creating 5 or deleting 1.
    for wrong in ({"podsToBeCreated": [2, 5]}, {"podsToBeCreated": [2], "podsToBeDeleted": [f"{CPU}-1"]}):
        entry = cpu_of(patched(made(replicas=2, **wrong), {1, 2}, {1}))
        assert entry["podsToBeCreated"] == [2]
        assert f"{CPU}-1" not in entry["podsToBeDeleted"]


@pytest.mark.parametrize("field", ["replicas", "podsToBeCreated", "podsToBeDeleted"])
def test_a_patch_replaces_only_the_values_that_were_read(field: str) -> None:
    obj = made(replicas=2, podsToBeCreated=[1], podsToBeDeleted=[f"{CPU}-7"])
    operations = targets.patch(KIND, obj, {CPU: {3}}, {}, ordinals=True)
    cpu_of(obj)[field] = 9
    with pytest.raises(PatchTestError):
        apply(obj, operations)


def test_both_groups_go_into_one_patch_and_unknown_ones_into_none() -> None:
    operations = targets.patch(KIND, made(), {CPU: {1}, GPU: {0, 4}, "other": {1}}, {GPU: {0}}, ordinals=True)
    after = apply(made(), operations)
    assert cpu_of(after)["podsToBeCreated"] == [1]
    assert after["spec"]["workerGroupSpecs"][0]["podsToBeCreated"] == [4]
    assert not targets.says(KIND, after, {"other": {1}})


def test_a_patch_does_not_apply_when_the_groups_have_been_reordered() -> None:
    obj = made()
    operations = targets.patch(KIND, obj, {CPU: {1}}, {}, ordinals=True)
    obj["spec"]["workerGroupSpecs"].reverse()
    with pytest.raises(PatchTestError):
        apply(obj, operations)


def test_a_group_named_twice_is_never_patched_and_is_seen_twice() -> None:
    obj = made()
    obj["spec"]["workerGroupSpecs"].append({"groupName": "cpu"})
    assert targets.patch(KIND, obj, {CPU: {1}}, {}, ordinals=True) == []
    assert [group.name for group in targets.read(KIND, obj).groups] == [GPU, CPU, CPU]


def test_an_object_with_fields_missing_is_read() -> None:
    obj = made(replicas=None, podsToBeCreated=None)
    obj["spec"]["workerGroupSpecs"].append({"template": {}})
    assert [(state.group.name, state.replicas, state.covers) for state in targets.read(KIND, obj).states] == [
        (GPU, 1, None),
        (CPU, 0, None),
    ]
    assert targets.read(KIND, {"metadata": obj["metadata"], "spec": {}}).states == ()
    assert cpu_of(patched(obj, {3}, set()))["podsToBeCreated"] == [3]
