"""Lines for a terminal: columns, ages, colours, a width that is kept."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_CODES = {"red": "31", "green": "32", "yellow": "33", "bold": "1"}


@dataclass(frozen=True, slots=True)
class Screen:
    """Where lines go. `width` in characters, None for no limit (a pipe); `colours` only on a terminal that wants them."""

    width: int | None = None
    colours: bool = False

    def paint(self, text: str, colour: str) -> str:
        """The text in that colour, or as it is."""
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if self.colours and colour else text

    def fit(self, text: str) -> str:
        """One line that does not wrap; what is cut off is marked."""
        return text if self.width is None or len(text) <= self.width else text[: max(0, self.width - 1)] + "…"

    def wrapped(self, text: str, colour: str = "") -> list[str]:
        """The whole of a sentence, in as many lines as it takes."""
        text = " ".join(text.split())
        lines = [text] if self.width is None else textwrap.wrap(text, max(20, self.width), subsequent_indent="  ")
        return [self.paint(line, colour) for line in lines]


def table(rows: Sequence[Sequence[Any]], screen: Screen, colours: Sequence[str] = ()) -> list[str]:
    """Columns side by side, the first row bold; lines are cut at the screen's width. `colours`: one for each row, "" for none."""
    texts = [[" ".join(str(cell).split()) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    lines = []
    for number, row in enumerate(texts):
        line = screen.fit("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        colour = "bold" if number == 0 else colours[number] if number < len(colours) else ""
        lines.append(screen.paint(line, colour))
    return lines


def age(seconds: float) -> str:
    """Seconds as people say them."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{seconds:.0f}s" if seconds >= 10 else f"{seconds:.1f}s"
