"""Label and field selectors: from the query's text to a predicate over objects."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.lab.embedded import status
from tests.lab.endpoint import Object

Predicate = Callable[[Object], bool]

_SET = re.compile(r"^(?P<key>[\w./-]+)\s+(?P<verb>in|notin)\s*\((?P<values>[^()]*)\)$")
_EQUAL = re.compile(r"^(?P<key>[\w./-]+)\s*(?P<verb>==|=|!=)\s*(?P<value>[\w.-]*)$")
_EXISTS = re.compile(r"^(?P<not>!?)\s*(?P<key>[\w./-]+)$")
_FIELDS = {
    "metadata.name": ("metadata", "name"),
    "metadata.namespace": ("metadata", "namespace"),
    "spec.nodeName": ("spec", "nodeName"),
    "status.phase": ("status", "phase"),
}


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


def fields(text: str) -> Predicate:
    """`metadata.name=x,spec.nodeName!=y`; StatusError 400 for any field but the few that every server has."""
    requirements = [_field(part) for part in text.split(",") if part]
    return lambda obj: all(holds(obj) for holds in requirements)


def _field(part: str) -> Predicate:
    key, negative, value = re.match(r"([^!=]*)(!?)={1,2}(.*)", part).groups() if "=" in part else (part, "", "")  # type: ignore[union-attr]
    if key not in _FIELDS:
        raise status.bad_request(f"field label not supported: {key}")
    outer, inner = _FIELDS[key]
    return lambda obj: (((obj.get(outer) or {}).get(inner, "") or "") == value) != bool(negative)
