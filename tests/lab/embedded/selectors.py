"""Label and field selectors: from the query's text to a predicate over objects."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.lab.embedded import status
from tests.lab.endpoint import Object

Predicate = Callable[[Object], bool]

_SET = re.compile(r"^(?P<key>[\w./-]+)\s+(?P<verb>in|notin)\s*\((?P<values>[^()]*)\)$")
_EQUAL = re.compile(r"^(?P<key>[\w./-]+)\s*(?P<verb>==|=|!=)\s*(?P<value>[\w.-]*)$")
_EXISTS = re.compile(r"^(?P<not>!?)\s*(?P<key>[\w./-]+)$")
_FIELDS = frozenset({"metadata.name", "metadata.namespace", "spec.nodeName", "status.phase"})
_OF_EVENTS = frozenset({"reason", "type", "involvedObject.kind", "involvedObject.name", "involvedObject.uid"})


def labels(text: str) -> Predicate:
    """All requirements of the text must hold; StatusError 400 when one is not of the grammar."""
    requirements = [_label(part.strip()) for part in re.split(r",(?![^(]*\))", text) if part.strip()]
    return lambda obj: all(holds(obj["metadata"].get("labels") or {}) for holds in requirements)


def _label(part: str) -> Callable[[dict[str, str]], bool]:
    if found := _SET.match(part):
        key, values = found["key"], {value.strip() for value in found["values"].split(",")}
        if found["verb"] == "in":
            return lambda have: have.get(key) in values
        return lambda have: have.get(key) not in values
    if found := _EQUAL.match(part):
        key, value = found["key"], found["value"]
        if found["verb"] == "!=":
            return lambda have: have.get(key) != value
        return lambda have: have.get(key) == value
    if found := _EXISTS.match(part):
        key, wanted = found["key"], not found["not"]
        return lambda have: (key in have) == wanted
    raise status.bad_request(f"unable to parse requirement: {part}")


def fields(text: str, plural: str) -> Predicate:
    """`metadata.name=x,reason!=y`; StatusError 400 for any field but the few that every server has for the kind."""
    known = _FIELDS | _OF_EVENTS if plural == "events" else _FIELDS
    requirements = [_field(part, known) for part in text.split(",") if part]
    return lambda obj: all(holds(obj) for holds in requirements)


def _field(part: str, known: frozenset[str]) -> Predicate:
    key, negative, value = re.match(r"([^!=]*)(!?)={1,2}(.*)", part).groups() if "=" in part else (part, "", "")  # type: ignore[union-attr]
    if key not in known:
        raise status.bad_request(f"field label not supported: {key}")

    def holds(obj: Object) -> bool:
        found: Any = obj
        for name in key.split("."):
            found = (found or {}).get(name)
        return ((found or "") == value) != bool(negative)

    return holds
