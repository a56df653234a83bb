"""docs/logs.md tells every event that the code can log, and no other, with its level and its fields."""

from __future__ import annotations

import ast
from collections import defaultdict

from copilot.plan import What
from tests.unit.documents import TREE
from tests.unit.log_table import COMMON, story, surprise, told

LEVELS = {"debug", "info", "warning", "error", "exception"}


def logged() -> dict[str, tuple[set[str], set[str]]]:
    """Levels and named fields of every call with a constant event name."""
    found: dict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for source in sorted((TREE / "copilot").rglob("*.py")):
        for node in ast.walk(ast.parse(source.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in LEVELS:
                continue
            if node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
                levels, fields = found[node.args[0].value]
                levels.add(node.func.attr)
                fields |= {word.arg for word in node.keywords if word.arg is not None}
    return found


def test_every_event_is_told_and_no_other() -> None:
    events = set(logged()) | {what.value for what in What} | {"library"}
    assert len(events) > 40
    assert set(told()) == events


def test_levels_and_fields_are_those_of_the_code() -> None:
    documented = told()
    for event, (levels, fields) in logged().items():
        assert documented[event][0] == levels, event
        assert fields - COMMON <= documented[event][1], f"{event}: {fields - COMMON - documented[event][1]} is not told"


def test_an_error_names_its_cure_or_carries_a_sentence_that_does() -> None:
    """Errors of our own exceptions are sentences for an operator; everything else needs a `cure`."""
    sentences = {"not_configured", "cannot_listen", "slurm_unavailable", "request_failed"}
    assert {event for event, (levels, fields) in logged().items() if "error" in levels and "cure" not in fields} == sentences


def test_the_story_of_a_cold_start_is_made_of_real_events() -> None:
    lines = story()
    assert [line["event"] for line in lines] == [
        "hook",
        "node_requested",
        "target_patched",
        "node_scheduled",
        "node_running",
        "node_up",
        "wait",
    ]
    assert [surprise(line) for line in lines] == [""] * len(lines)


def test_what_is_not_told_is_found() -> None:
    """By this the end-to-end tests judge every line that the copilot really wrote."""
    good = {
        "event": "node_up",
        "level": "info",
        "time": "t",
        "group": "cpu",
        "nodes": "cpu-1",
        "count": 1,
        "seconds": 1.0,
        "stages": {},
    }
    assert surprise(good) == ""
    assert "level" in surprise(good | {"level": "error"})
    assert "colour" in surprise(good | {"colour": 1})
    assert "no event" in surprise(good | {"event": "node_flew"})
    assert "no event" in surprise({"raw": "Traceback"})
