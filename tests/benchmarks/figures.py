"""The figures of one run: a table on the terminal, and docs/performance.{json,md} when COPILOT_BENCH_WRITE=1."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs"
_BEGIN, _END = "<!-- figures: written by COPILOT_BENCH_WRITE=1 make bench -->", "<!-- end of figures -->"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value. `goal` is its upper bound, None where it is a floor or for information only."""

    value: float
    unit: str
    what: str
    goal: float | None
    date: str
    load: float  # of the machine, over the last minute, per core

    @property
    def verdict(self) -> str:
        return "" if self.goal is None else f"<= {self.goal:g}: {'met' if self.value <= self.goal else 'MISSED'}"


@dataclass(slots=True)
class Figures:
    """By name, in the order in which they were measured."""

    by_name: dict[str, Figure] = field(default_factory=dict)

    def add(self, name: str, value: float, unit: str, what: str, goal: float | None = None) -> None:
        """`what` says in a few words what was measured."""
        load = round(os.getloadavg()[0] / (os.cpu_count() or 1), 2)
        self.by_name[name] = Figure(_rounded(value), unit, what, goal, datetime.now(UTC).strftime("%Y-%m-%d"), load)

    def lines(self) -> list[str]:
        """The table for the terminal."""
        rows = [(name, f"{one.value:g} {one.unit}".strip(), one.verdict, one.what) for name, one in self.by_name.items()]
        widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
        return ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows]

    def write(self) -> None:
        """Into the documentation; a figure that was not measured in this run stays as it was."""
        path = DOCS / "performance.json"
        known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        details = known.get("details", {})
        for name, one in self.by_name.items():
            details[name] = {
                "unit": one.unit,
                "goal": one.goal,
                "what": one.what,
                "date": one.date,
                "load_per_core": one.load,
            }
        values = {name: value for name, value in known.items() if name in details}
        values |= {name: one.value for name, one in self.by_name.items()}
        path.write_text(json.dumps({**values, "machine": machine(), "details": details}, indent=1) + "\n")
        self._write_table(values, details)

    def _write_table(self, values: dict[str, Any], details: dict[str, Any]) -> None:
        path = DOCS / "performance.md"
        text = path.read_text()
        rows = ["| figure | value | goal | load | what |", "| --- | --- | --- | --- | --- |"]
        for name, value in values.items():
            one = details[name]
            goal = "" if one["goal"] is None else f"{'' if value <= one['goal'] else '**missed** '}<= {one['goal']:g}"
            shown = f"{value:g} {one['unit']}".strip()
            rows.append(f"| `{name}` | {shown} | {goal} | {one['load_per_core']:g} | {one['what']} |")
        words = "\n".join([_BEGIN, f"Machine: {machine()}.\n", *rows, _END])
        path.write_text(re.sub(re.escape(_BEGIN) + ".*" + re.escape(_END), lambda _: words, text, flags=re.DOTALL))


def median(values: Sequence[float], times: float = 1.0) -> float:
    return statistics.median(values) * times


def machine() -> str:
    """What it ran on, in one line."""
    model = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    kib = re.search(r"^MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)
    slurm = subprocess.run(["slurmd", "-V"], capture_output=True, text=True).stdout.split()
    words = [f"{os.cpu_count()} cores", model[1] if model else "", f"{int(kib[1]) >> 20 if kib else 0} GiB"]
    return ", ".join([*words, f"Linux {os.uname().release}", f"Slurm {slurm[-1] if slurm else '?'}"])


def _rounded(value: float) -> float:
    """Three digits that count; what is exact stays so."""
    return float(f"{value:.3g}") if value < 1000 else float(round(value))
