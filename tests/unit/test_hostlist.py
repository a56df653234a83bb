"""Hostlists: what Slurm prints is understood, what is malformed is refused with its place, and folding loses nothing."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilot.hostlist import LIMIT, HostlistError, expand, fold

names = st.from_regex(r"[a-z]([a-z0-9.-]{0,8}[a-z-])?(0{0,3}[0-9]{0,4})", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n1", ["n1"]),
        ("a[01,03],n[1-3]", ["a01", "a03", "n1", "n2", "n3"]),
        ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
        ("n[1-2]-ib", ["n1-ib", "n2-ib"]),
        ("n[1-3,2],n1", ["n1", "n2", "n3", "n2", "n1"]),
        ("n[001-3]", ["n001", "n002", "n003"]),
        ("n[1-03]", ["n1", "n2", "n3"]),
        ("n[98-101]", ["n98", "n99", "n100", "n101"]),
        ("[1-2]", ["1", "2"]),
        (" n1,n2\n", ["n1", "n2"]),
    ],
)
def test_expand(text: str, expected: list[str]) -> None:
    assert expand(text) == expected


@pytest.mark.parametrize(
    ("text", "what", "position"),
    [
        ("", "empty hostlist", 0),
        ("  ", "empty hostlist", 0),
        ("a,,b", "empty name", 2),
        (",a", "empty name", 0),
        ("a,", "empty name", 2),
        ("n[]", "no number", 2),
        ("n[1-]", "'-' cannot be part of a range", 3),
        ("n[-3]", "no number", 2),
        ("n[1,,2]", "no number", 4),
        ("n[3-1]", "runs backwards (3-1)", 2),
        ("n[1,2", "never closed", 1),
        ("n[", "never closed", 1),
        ("n[1,", "never closed", 1),
        ("n]", "']' cannot be part of a name", 1),
        ("n[1[2]]", "'[' cannot be part of a range", 3),
        ("a b", "' ' cannot be part of a name", 1),
        ("n$(id)", "'$' cannot be part of a name", 1),
        ("n[0-9999999999]", "more than 9 digits", 2),
        ("n[٣]", "no number", 2),
        ("a,n[0-999999999]", f"more than {LIMIT} names", 2),
        ("a[0-999]b[0-999]", f"more than {LIMIT} names", 0),
        ("x" * 300, "more than 255 characters", 0),
    ],
)
def test_a_malformed_hostlist_is_refused_with_its_place(text: str, what: str, position: int) -> None:
    with pytest.raises(HostlistError) as caught:
        expand(text)
    assert what in str(caught.value)
    assert str(caught.value).endswith(f" at character {position + 1}")
    assert caught.value.position == position


def test_the_limit_is_exact() -> None:
    assert len(expand("n[0-65535]")) == LIMIT
    assert expand("n[1-2],m", limit=3) == ["n1", "n2", "m"]
    with pytest.raises(HostlistError, match="more than 2 names"):
        expand("n[1-2],m", limit=2)


def test_an_unbounded_hostlist_costs_no_memory() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(HostlistError):
            expand("n[0-999999999]" + "x[0-999999999]" * 50)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("given_names", "expected"),
    [
        ([], ""),
        (["n3"], "n3"),
        (["n10", "n9", "n2", "n1"], "n[1-2,9-10]"),
        (["n09", "n10", "n11"], "n[09-11]"),
        (["n1", "n01", "n2", "n02"], "n[01-02,1-2]"),
        (["b", "a1", "a-1", "a", "b"], "a,a1,a-1,b"),
        (["demo-worker-gpu-0", "demo-worker-gpu-1"], "demo-worker-gpu-[0-1]"),
        (["n1x", "n2x"], "n1x,n2x"),
    ],
)
def test_fold(given_names: list[str], expected: str) -> None:
    assert fold(given_names) == expected


@pytest.mark.parametrize("name", ["", "a,b", "n[1-2]", "a b", "a=b", "a\n"])
def test_fold_refuses_what_cannot_be_a_name(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be a node's name"):
        fold([name])


@given(st.lists(names, max_size=60))
def test_folding_loses_and_adds_nothing(some: list[str]) -> None:
    folded = fold(some)
    assert sorted(expand(folded) if folded else []) == sorted(set(some))
    assert fold(reversed(some)) == folded


@given(st.text(alphabet="an0195[]-, ", max_size=24))
def test_anything_is_either_names_or_a_hostlist_error(text: str) -> None:
    try:
        found = expand(text, limit=1000)
    except HostlistError as problem:
        assert 0 <= problem.position <= len(text)
    else:
        assert 0 < len(found) <= 1000
        assert set(expand(fold(found), limit=1000)) == set(found)
