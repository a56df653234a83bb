"""StatefulSets of both kinds: the window and the sparse set that a patch leaves behind."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilot import targets
from copilot.model import Kind
from tests.unit.jsonpatch import PatchTestError, apply

Object = dict[str, Any]
indexes = st.frozensets(st.integers(0, 60), max_size=20)
starts = st.none() | st.integers(0, 30)
small = st.integers(0, 60)
entries = small | small.map(str) | st.tuples(small, small).map(lambda ends: f"{ends[0]}-{ends[1]}")


def made(replicas: int | None, start: int | None = None, reserved: list[int | str] | None = None) -> Object:
    spec: Object = {"podManagementPolicy": "Parallel", "template": {"spec": {"containers": [{"name": "slurmd"}]}}}
    if replicas is not None:
        spec["replicas"] = replicas
    if start is not None:
        spec["ordinals"] = {"start": start}
    if reserved is not None:
        spec["reserveOrdinals"] = reserved
    return {"metadata": {"name": "gpu", "namespace": "hpc", "uid": "u-1", "generation": 4}, "spec": spec}


def counted(obj: Object) -> set[int]:
    """What OpenKruise's documentation says, the slow way: count up, leave out what is reserved, stop after `replicas`."""
    reserved: set[int] = set()
    for entry in obj["spec"].get("reserveOrdinals", []):
        first, _, last = str(entry).partition("-")
        reserved |= set(range(int(first), int(last or first) + 1))
    index = obj["spec"].get("ordinals", {}).get("start", 0)
    found: set[int] = set()
    while len(found) < obj["spec"].get("replicas", 1):
        if index not in reserved:
            found.add(index)
        index += 1
    return found


@given(wanted=indexes, replicas=st.none() | st.integers(0, 40), start=starts, ordinals=st.booleans())
def test_window_covers_wanted_and_no_more_than_it_must(
    wanted: frozenset[int], replicas: int | None, start: int | None, ordinals: bool
) -> None:
    obj = made(replicas, start)
    after = apply(obj, targets.patch(Kind.STATEFUL_SET, obj, {"gpu": wanted}, {}, ordinals))
    covers = targets.read(Kind.STATEFUL_SET, after).states[0].covers
    assert isinstance(covers, range)
    assert wanted <= set(covers)
    assert covers.stop == max(wanted) + 1 if wanted else len(covers) == 0
    if ordinals and wanted:
        assert covers.start == min(wanted)
    assert targets.says(Kind.STATEFUL_SET, after, {"gpu": wanted})
    assert targets.patch(Kind.STATEFUL_SET, after, {"gpu": wanted}, {}, ordinals) == []
    assert after["spec"]["template"] == obj["spec"]["template"]


@given(wanted=indexes, start=starts)
def test_a_server_without_ordinals_is_never_sent_any(wanted: frozenset[int], start: int | None) -> None:
    obj = made(5, start)
    operations = targets.patch(Kind.STATEFUL_SET, obj, {"gpu": wanted}, {}, ordinals=False)
    if start is None:
        assert not [operation for operation in operations if "ordinals" in operation["path"]]


def test_an_emptied_window_stays_where_it_is() -> None:
    obj = made(3, 7)
    after = apply(obj, targets.patch(Kind.STATEFUL_SET, obj, {"gpu": frozenset()}, {}, ordinals=True))
    assert after["spec"]["replicas"] == 0
    assert after["spec"]["ordinals"] == {"start": 7}


def test_a_dropped_window_is_seen_on_reading_back() -> None:
    # A server that does not know spec.ordinals stores the replicas alone.
    assert not targets.says(Kind.STATEFUL_SET, made(2), {"gpu": frozenset({7, 8})})


@given(replicas=st.none() | st.integers(0, 40), start=starts, reserved=st.lists(entries, max_size=12))
def test_sparse_set_is_read_as_documented(replicas: int | None, start: int | None, reserved: list[int | str]) -> None:
    obj = made(replicas, start, reserved)
    state = targets.read(Kind.ADVANCED_STATEFUL_SET, obj).states[0]
    assert set(state.covers or ()) == counted(obj)
    assert state.replicas == (1 if replicas is None else replicas)


@given(wanted=indexes, replicas=st.none() | st.integers(0, 40), start=starts, reserved=st.none() | st.lists(entries, max_size=12))
def test_sparse_set_becomes_exact(
    wanted: frozenset[int], replicas: int | None, start: int | None, reserved: list[int | str] | None
) -> None:
    obj = made(replicas, start, reserved)
    operations = targets.patch(Kind.ADVANCED_STATEFUL_SET, obj, {"gpu": wanted}, {}, ordinals=True)
    after = apply(obj, operations)
    assert counted(after) == wanted
    assert targets.says(Kind.ADVANCED_STATEFUL_SET, after, {"gpu": wanted})
    assert targets.patch(Kind.ADVANCED_STATEFUL_SET, after, {"gpu": wanted}, {}, ordinals=True) == []
    if operations:
        assert after["spec"]["replicas"] == len(wanted)
        assert all(type(entry) is int for entry in after["spec"].get("reserveOrdinals", []))


def test_entries_that_mean_nothing_are_passed_over() -> None:
    obj = made(2, None, ["1", "x", "2-", "-3", "٤"])
    assert targets.read(Kind.ADVANCED_STATEFUL_SET, obj).states[0].covers == frozenset({0, 2})


def test_reserved_range_of_any_length_costs_nothing() -> None:
    obj = made(2, None, ["1-2147483646"])
    assert targets.read(Kind.ADVANCED_STATEFUL_SET, obj).states[0].covers == frozenset({0, 2147483647})


def test_a_dropped_reserve_list_is_seen_on_reading_back() -> None:
    obj = made(1)
    after = apply(obj, targets.patch(Kind.ADVANCED_STATEFUL_SET, obj, {"gpu": frozenset({2, 7})}, {}, ordinals=True))
    del after["spec"]["reserveOrdinals"]
    assert not targets.says(Kind.ADVANCED_STATEFUL_SET, after, {"gpu": frozenset({2, 7})})


@pytest.mark.parametrize("kind", [Kind.STATEFUL_SET, Kind.ADVANCED_STATEFUL_SET])
@pytest.mark.parametrize(("field", "value"), [("uid", "u-2"), ("generation", 5)])
def test_a_patch_does_not_apply_to_another_object_or_a_later_spec(kind: Kind, field: str, value: object) -> None:
    obj = made(1)
    operations = targets.patch(kind, obj, {"gpu": frozenset({4})}, {}, ordinals=True)
    obj["metadata"][field] = value
    with pytest.raises(PatchTestError):
        apply(obj, operations)


@pytest.mark.parametrize(("field", "value"), [("replicas", 2), ("ordinals", {"start": 1}), ("reserveOrdinals", [5])])
def test_a_patch_replaces_only_the_values_that_were_read(field: str, value: object) -> None:
    kind = Kind.ADVANCED_STATEFUL_SET if field == "reserveOrdinals" else Kind.STATEFUL_SET
    obj = made(1, 3, [0])
    operations = targets.patch(kind, obj, {"gpu": frozenset({4, 6})}, {}, ordinals=True)
    obj["spec"][field] = value
    with pytest.raises(PatchTestError):
        apply(obj, operations)


@pytest.mark.parametrize("kind", [Kind.STATEFUL_SET, Kind.ADVANCED_STATEFUL_SET])
def test_a_group_that_is_not_asked_for_is_left_alone(kind: Kind) -> None:
    assert targets.patch(kind, made(3), {"cpu": frozenset()}, {}, ordinals=True) == []
    assert not targets.says(kind, made(3), {"cpu": frozenset({0, 1, 2})})


def test_what_is_read_besides() -> None:
    obj = made(3)
    target = targets.read(Kind.STATEFUL_SET, obj)
    assert (str(target.ref), target.uid, target.generation, target.deleting) == ("statefulset/hpc/gpu", "u-1", 4, False)
    assert [group.node(2) for group in target.groups] == ["gpu-2"]
    assert target.warnings == ()
    obj["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    obj["spec"]["podManagementPolicy"] = "OrderedReady"
    target = targets.read(Kind.STATEFUL_SET, obj)
    assert target.deleting
    assert ["Parallel" in warning for warning in target.warnings] == [True]
