"""Reads the tree's documents: fenced blocks, tables, links."""

from __future__ import annotations

import re
from pathlib import Path

TREE = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def read(name: str) -> str:
    """A document's text."""
    return (TREE / name).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    """The content of every fenced block of one language."""
    return [body for found, body in _BLOCK.findall(text) if found == language]


def examples(text: str) -> list[tuple[str, str]]:
    """Command and what is shown below it, of every `console` block."""
    found = []
    for block in blocks(text, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            found.append((command, shown))
    return found


def commands(text: str) -> list[str]:
    """The commands of every `console` block, without what is shown below them."""
    return [command for command, _ in examples(text)]


def table(text: str, first: str) -> list[list[str]]:
    """The rows, without the head, of the one table whose head begins with `first`. AssertionError when there is none."""
    lines = text.splitlines()
    (start,) = [number for number, line in enumerate(lines) if line.startswith(f"| {first} |")]
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    assert rows
    return rows


def words(cell: str) -> list[str]:
    """Everything in a cell that is set as code."""
    return re.findall(r"`([^`]+)`", cell)


def links(text: str) -> list[str]:
    """Targets of all links."""
    return _LINK.findall(text)


def anchor(heading: str) -> str:
    """The fragment under which GitHub shows a heading."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """The fragments of all headings."""
    return {anchor(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
