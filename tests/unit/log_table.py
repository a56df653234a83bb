"""What docs/logs.md says of every event: its levels and its fields."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.documents import blocks, read, table, words

TEXT = read("docs/logs.md")
# Fields that are told once for all, or stand only where they are known.
COMMON = frozenset({"request_id", "jobs", "exc_info", "exception"})
_EVERY_LINE = frozenset({"event", "level", "time"})


def told() -> dict[str, tuple[set[str], set[str]]]:
    """Levels and fields by event."""
    return {words(row[0])[0]: (set(row[1].split(", ")), set(words(row[2]))) for row in table(TEXT, "event")}


def story() -> list[dict[str, Any]]:
    """The lines of a cold start, as the document shows them."""
    [block] = blocks(TEXT, "json")
    return [json.loads(line) for line in block.splitlines()]


def surprise(line: dict[str, Any]) -> str:
    """What a line of a real log has that the document does not tell; "" when all is told. Lines for developers (debug) are not told."""
    if line.get("level") == "debug":
        return ""
    event = line.get("event", "")
    levels, fields = told().get(event, (set(), set()))
    if not levels:
        return f"no event {event!r}: {line}"
    if "any" not in levels and line["level"] not in levels:
        return f"{event} has level {line['level']}, told are {sorted(levels)}"
    more = line.keys() - fields - COMMON - _EVERY_LINE
    return f"{event} has {sorted(more)}, which is not told" if more else ""
