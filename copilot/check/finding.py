"""What a check found: frozen values, without I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """OK, worth a look, or broken: only an error makes the command fail."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """`name` is one of those of docs/check.md, `seen` what was there, `why` what follows from it, `cure` the exact line to change."""

    name: str
    level: Level
    seen: str
    why: str = ""
    cure: str = ""


def ok(name: str, seen: str) -> Finding:
    """All is as it should be."""
    return Finding(name, Level.OK, seen)


def warning(name: str, seen: str, why: str, cure: str) -> Finding:
    """It works, but worse than it could, or only by luck."""
    return Finding(name, Level.WARNING, seen, why, cure)


def error(name: str, seen: str, why: str, cure: str) -> Finding:
    """It does not work."""
    return Finding(name, Level.ERROR, seen, why, cure)
