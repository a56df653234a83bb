"""The table of the demo: what happened when, and how that compares to what it would cost without us."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stage:
    """`at`: seconds since the job was submitted. `took` and `floor` are in seconds; a stage without a floor has 0."""

    name: str
    at: float | None
    took: float | None = None
    floor: float = 0.0
    floor_name: str = ""

    @property
    def ratio(self) -> float | None:
        return self.took / self.floor if self.floor and self.took is not None else None


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"


def table(stages: Sequence[Stage]) -> str:
    """The stages as text, one a line."""
    rows = [("stage", "since submit", "took", "floor", "ratio", "floor is")]
    for one in stages:
        since = "" if one.at is None else f"{one.at:.3f} s"
        ratio = f"{one.ratio:.1f}x" if one.ratio is not None else ""
        rows.append((one.name, since, _seconds(one.took), _seconds(one.floor or None), ratio, one.floor_name))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for number, row in enumerate(rows):
        cells = [
            cell.ljust(width) if column in (0, 5) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
        if number == 0:
            lines.append("  ".join("-" * width for width in widths))
    return "\n".join(lines)
