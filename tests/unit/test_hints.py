"""Hints: what a view can and cannot overrule; and the resume file in every shape that is met in the field."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilot.hints import Hints, jobs_by_node
from copilot.model import SlurmView, Verb


def view(taken_at: float) -> SlurmView:
    return SlurmView(taken_at, {})


def test_a_resume_is_wanted_until_a_view_asked_for_later() -> None:
    hints = Hints()
    hints.add(Verb.RESUME, ["a", "b"], 10.0, "r1", {"a": (7,)})
    for taken_at in (9.0, 10.0):
        assert set(hints.wanted(taken_at)) == {"a", "b"}, "asked before, or at that moment: the view cannot know"
        assert hints.confirm(view(taken_at)) == {}
    assert hints.wanted(10.1) == {}
    seen = hints.confirm(view(10.1))
    assert {node: hint.jobs for node, hint in seen.items()} == {"a": (7,), "b": ()}
    assert len(hints) == 0
    assert hints.wanted(0.0) == {}


def test_a_second_hint_lives_on_when_the_first_is_confirmed() -> None:
    hints = Hints()
    hints.add(Verb.RESUME, ["a", "b"], 10.0, "r1", {})
    hints.add(Verb.RESUME, ["a"], 12.0, "r2", {})
    assert set(hints.confirm(view(11.0))) == {"b"}
    assert {node: hint.request_id for node, hint in hints.wanted(11.0).items()} == {"a": "r2"}


@pytest.mark.parametrize("verb", [Verb.SUSPEND, Verb.RESUME_FAIL])
def test_other_verbs_decide_nothing_in_any_order_but_are_remembered(verb: Verb) -> None:
    hints = Hints()
    hints.add(verb, ["a"], 10.0, "r0", {})
    assert len(hints) == 0
    hints.add(Verb.RESUME, ["a"], 11.0, "r1", {})
    hints.add(verb, ["a"], 12.0, "r2", {})
    assert set(hints.wanted(0.0)) == {"a"}, "a suspend that arrives late must not undo a resume"
    last = hints.last("a")
    assert last is not None
    assert (last.verb, last.received_at, last.request_id) == (verb, 12.0, "r2")
    assert hints.last("b") is None


def test_nodes_of_groups_that_are_gone_are_forgotten() -> None:
    hints = Hints()
    hints.add(Verb.RESUME, ["a", "b"], 10.0, "r1", {})
    hints.retain({"b"})
    assert set(hints.wanted(0.0)) == {"b"}
    assert hints.last("a") is None


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(list(Verb)), st.floats(0, 100)), max_size=20), st.floats(0, 100)
)
def test_wanted_is_what_confirm_leaves(calls: list[tuple[str, Verb, float]], taken_at: float) -> None:
    hints = Hints()
    for node, verb, now in sorted(calls, key=lambda call: call[2]):
        hints.add(verb, [node], now, "r", {})
    before = dict(hints.wanted(taken_at))
    seen = hints.confirm(view(taken_at))
    assert dict(hints.wanted(0.0)) == before
    resumed = {node for node, verb, _ in calls if verb is Verb.RESUME}
    assert before.keys() | seen.keys() == resumed
    assert not before.keys() & seen.keys()


V22 = {"all_nodes": "n[1-3]", "jobs": [{"extra": None, "features": "a", "job_id": 5, "nodes": "n[1-2]", "oversubscribe": "OK"}]}
V23 = {
    "all_nodes_resume": "n[1-3]",
    "jobs": [
        {"job_id": 5, "nodes_alloc": "n[0-2]", "nodes_resume": "n[1-2]", "partition": "p", "reservation": None},
        {"job_id": 6, "nodes_alloc": "n2", "nodes_resume": "n2", "priority": 4294901757, "exclusive": "", "newest": {"x": [1]}},
    ],
}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (V22, {"n1": (5,), "n2": (5,)}),
        (V23, {"n1": (5,), "n2": (5, 6)}),
        (None, {}),
        ({}, {}),
        ([], {}),
        ("text", {}),
        ({"jobs": None}, {}),
        ({"jobs": []}, {}),
        ({"jobs": {"job_id": 5}}, {}),
        ({"jobs": [None, 3, "x", {}]}, {}),
        ({"jobs": [{"job_id": "5", "nodes": "n1"}, {"job_id": 6, "nodes": ["n1"]}, {"nodes": "n1"}, {"job_id": 7}]}, {}),
        ({"jobs": [{"job_id": 5, "nodes": "n[1-"}, {"job_id": 6, "nodes": "n1"}]}, {"n1": (6,)}),
        ({"jobs": [{"job_id": 5, "nodes": "n1"}, {"job_id": 5, "nodes": "n1"}]}, {"n1": (5,)}),
    ],
)
def test_the_resume_file_in_every_shape(content: Any, expected: dict[str, tuple[int, ...]]) -> None:
    assert jobs_by_node(content) == expected


def test_the_resume_file_is_read_within_a_bound() -> None:
    many = {"jobs": [{"job_id": i, "nodes": "n[0-9]"} for i in range(100)]}
    pairs = jobs_by_node(many, limit=30)
    assert sum(len(ids) for ids in pairs.values()) == 30
    assert jobs_by_node({"jobs": [{"job_id": 1, "nodes": "n[0-99999999]"}, {"job_id": 2, "nodes": "n1"}]}, limit=30) == {
        "n1": (2,)
    }
