"""Slurm's hostlists, `gpu-[0001-0010,12],n3`: expand them and fold names into them. Pure and bounded.

Whatever Slurm prints is accepted, and a suffix after the brackets too (Slurm's own parser refuses that). Where Slurm's parser guesses
(`n[1-]`, `n[1,2`, `a,,b` and blanks are read as something by `scontrol show hostnames`), this one refuses and says where.
The count is known before the first name is made, so a hostlist such as `n[0-999999999]` costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import product
from math import prod

LIMIT = 65536  # also the most that one range of Slurm's may hold
MAX_NAME = 255  # longer is no host's name; it keeps `limit` a bound for memory too
MAX_DIGITS = 9

_LITERAL = re.compile(r"[A-Za-z0-9._-]+")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_NUMBERED = re.compile(rf"(.*?)([0-9]{{1,{MAX_DIGITS}}})", re.ASCII)


class HostlistError(ValueError):
    """Not a hostlist. The message says what is wrong and where; `position` counts characters from 0."""

    def __init__(self, what: str, position: int) -> None:
        super().__init__(f"{what} at character {position + 1}")
        self.position = position


# One alternative of a bracket, or a literal: (first, last, width). A literal is a part with one fixed text.
_Range = tuple[int, int, int]
_Part = str | list[_Range]


def expand(text: str, limit: int = LIMIT) -> list[str]:
    """The names in Slurm's order, duplicates kept. HostlistError when it is malformed, empty or has more than `limit` names."""
    if not text.strip():
        raise HostlistError("an empty hostlist", 0)
    elements: list[list[_Part]] = []
    count, position, end = 0, len(text) - len(text.lstrip()), len(text.rstrip())
    while True:
        parts, stop = _element(text, position, end)
        count += prod(sum(last - first + 1 for first, last, _ in part) for part in parts if not isinstance(part, str))
        if count > limit:
            raise HostlistError(f"more than {limit} names", position)
        elements.append(parts)
        if stop == end:
            return [name for parts in elements for name in _names(parts)]
        position = stop + 1


def _element(text: str, start: int, end: int) -> tuple[list[_Part], int]:
    """Parses one element of the outer list; returns its parts and where the comma after it, or the end, is."""
    parts: list[_Part] = []
    position, length = start, 0
    while position < end and text[position] != ",":
        if text[position] == "[":
            ranges, position = _bracket(text, position, end)
            parts.append(ranges)
            length += max(max(width, len(str(last))) for _, last, width in ranges)
        elif literal := _LITERAL.match(text, position, end):
            parts.append(literal.group())
            length += len(literal.group())
            position = literal.end()
        else:
            raise HostlistError(f"{text[position]!r} cannot be part of a name,", position)
        if length > MAX_NAME:
            raise HostlistError(f"a name of more than {MAX_NAME} characters", start)
    if not parts:
        raise HostlistError("an empty name", start)
    return parts, position


def _bracket(text: str, start: int, end: int) -> tuple[list[_Range], int]:
    """Parses `[1,3-5]`; returns its ranges and the position after the bracket."""
    ranges: list[_Range] = []
    position = start + 1
    while True:
        found = _RANGE.match(text, position, end)
        if not found:
            what = "a bracket that is never closed" if position >= end else "a range that is no number and no pair of numbers"
            raise HostlistError(what, start if position >= end else position)
        first, last = found.group(1), found.group(2) or found.group(1)
        if max(len(first), len(last)) > MAX_DIGITS:
            raise HostlistError(f"a number of more than {MAX_DIGITS} digits", position)
        if int(last) < int(first):
            raise HostlistError(f"a range that runs backwards ({found.group()})", position)
        ranges.append((int(first), int(last), len(first)))
        position = found.end()
        if position >= end:
            raise HostlistError("a bracket that is never closed", start)
        if text[position] == "]":
            return ranges, position + 1
        if text[position] != ",":
            raise HostlistError(f"{text[position]!r} cannot be part of a range,", position)
        position += 1


def _names(parts: list[_Part]) -> Iterator[str]:
    """Every combination, the last bracket running fastest."""
    choices = [[part] if isinstance(part, str) else [f"{n:0{w}d}" for a, b, w in part for n in range(a, b + 1)] for part in parts]
    return ("".join(choice) for choice in product(*choices))


def fold(names: Iterable[str]) -> str:
    """One hostlist for the names, each once, in natural order: `a[01,03],n[1-3]`. Empty for no names.

    ValueError for a text that cannot be a name, so that nothing else slips into a command line.
    """
    groups: dict[str, list[tuple[int, str]]] = {}
    for name in set(names):
        if not _LITERAL.fullmatch(name):
            raise ValueError(f"{name!r} cannot be a node's name")
        numbered = _NUMBERED.fullmatch(name)
        prefix, digits = numbered.groups() if numbered else (name, "")
        groups.setdefault(prefix, []).append((int(digits or -1), digits))
    return ",".join(element for prefix in sorted(groups) for element in _fold_group(prefix, sorted(groups[prefix])))


def _fold_group(prefix: str, numbers: list[tuple[int, str]]) -> Iterator[str]:
    """The elements for the names `prefix + digits`, sorted by number; a name without number comes first."""
    runs: list[list[str]] = []
    waiting: dict[str, list[str]] = {}  # the digits that would prolong a run
    for number, digits in numbers:
        if not digits:
            yield prefix
            continue
        run = waiting.pop(digits, None)
        if run is None:
            run = [digits, digits]
            runs.append(run)
        run[1] = digits
        waiting[str(number + 1).zfill(len(run[0]))] = run
    if len(runs) == 1 and runs[0][0] == runs[0][1]:
        yield prefix + runs[0][0]
    elif runs:
        yield f"{prefix}[{','.join(first if first == last else f'{first}-{last}' for first, last in runs)}]"
