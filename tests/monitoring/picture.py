"""Draws the dashboard as SVG from what its expressions gave: the panels' places, kinds and units as in Grafana, without Grafana."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from tests.monitoring.dashboard import Panel

COLUMN, ROW, GAP = 50, 30, 6
MARGIN_LEFT, MARGIN_RIGHT, HEAD, FOOT = 46, 10, 26, 20
# Told apart also by those who see red and green alike.
COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a8a00", "#555555", "#7a3db8", "#a05a2c")
STATE: Final = {"green": "#2e7d4f", "yellow": "#b7791f", "red": "#b83232"}
Found = Sequence[Sequence[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Series:
    """One line: its name in the legend, and values by time in Unix seconds; gaps are left out."""

    name: str
    values: dict[float, float]


def draw(panels: Sequence[tuple[Panel, Found]], start: float, end: float) -> str:
    """The whole page. With each panel, what each of its expressions gave over the time from `start` to `end`."""
    width = 24 * COLUMN + GAP
    height = max(panel.y + panel.h for panel, _ in panels) * ROW + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="DejaVu Sans, Helvetica, Arial, sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#f4f5f5"/>',
    ]
    for panel, found in panels:
        series = list(_series(panel, found))
        parts += _stat(panel, series) if panel.kind == "stat" else _chart(panel, series, start, end)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _series(panel: Panel, found: Found) -> Iterator[Series]:
    for (_, legend), results in zip(panel.targets, found, strict=True):
        for one in results:
            name = re.sub(r"{{(\w+)}}", r"{\1}", legend).format_map(defaultdict(str, one["metric"]))
            values = {at: float(value) for at, value in one["values"] if not math.isnan(float(value))}
            # What never was above 0 says nothing on a page for the whole of which there is room only once.
            if panel.kind == "stat" or any(values.values()):
                yield Series(re.sub(r"\s+", " ", name).strip() or "none", values)


def _frame(panel: Panel, fill: str, ink: str) -> tuple[float, float, float, float, list[str]]:
    x, y = panel.x * COLUMN + GAP, panel.y * ROW + GAP
    w, h = panel.w * COLUMN - GAP, panel.h * ROW - GAP
    return (
        x,
        y,
        w,
        h,
        [
            f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="3" fill="{fill}" stroke="#d5d7db"/>',
            f'<text x="{x + 8}" y="{y + 17}" font-weight="bold" fill="{ink}">{escape(panel.title)}</text>',
        ],
    )


def _stat(panel: Panel, series: Sequence[Series]) -> list[str]:
    """The last value, on the colour of its threshold."""
    value = next((one.values[max(one.values)] for one in series if one.values), math.nan)
    colour = [name for at, name in panel.steps if value >= at][-1:] or ["red"]
    x, y, w, h, parts = _frame(panel, STATE[colour[0]], "white")
    words = panel.words.get(f"{value:g}") or text(value, panel.unit)
    parts.append(
        f'<text x="{x + w / 2}" y="{y + h / 2 + 22}" font-size="34" text-anchor="middle" fill="white">{escape(words)}</text>'
    )
    return parts


@dataclass(frozen=True, slots=True)
class Plot:
    """Where the lines of a panel are drawn: a rectangle on the page, for times from `start` to `end` and values from 0 to `most`."""

    left: float
    top: float
    right: float
    bottom: float
    start: float
    end: float
    most: float

    def x(self, at: float) -> float:
        return self.left + (at - self.start) / (self.end - self.start) * (self.right - self.left)

    def y(self, value: float) -> float:
        return self.bottom - value / self.most * (self.bottom - self.top)


def _chart(panel: Panel, series: Sequence[Series], start: float, end: float) -> list[str]:
    x, y, w, h, parts = _frame(panel, "white", "#24292e")
    legend = _legend(series, w)
    bottom = y + h - FOOT - 14 * len(legend)
    plot = Plot(x + MARGIN_LEFT, y + HEAD, x + w - MARGIN_RIGHT, bottom, start, end, nice(_highest(panel, series)))
    parts += _axes(plot, panel.unit)
    below: dict[float, float] = {}
    for index, one in enumerate(series):
        colour = COLOURS[index % len(COLOURS)]
        if panel.stacked:
            parts.append(_stack(one, below, colour, plot))
            below.update({at: below.get(at, 0.0) + value for at, value in one.values.items()})
        else:
            parts.append(_line(one, colour, plot))
    for row, entries in enumerate(legend):
        for offset, index in entries:
            at = bottom + FOOT + 11 + 14 * row
            colour = COLOURS[index % len(COLOURS)]
            parts.append(f'<rect x="{x + 10 + offset:.1f}" y="{at - 4:.1f}" width="12" height="4" fill="{colour}"/>')
            parts.append(f'<text x="{x + 26 + offset:.1f}" y="{at + 2:.1f}" fill="#24292e">{escape(series[index].name)}</text>')
    return parts


def _highest(panel: Panel, series: Sequence[Series]) -> float:
    """What the axis must reach: the highest line, or the highest sum of those that are stacked."""
    totals: dict[float, float] = {}
    for at, value in (item for one in series for item in one.values.items()):
        totals[at] = totals.get(at, 0.0) + value if panel.stacked else max(totals.get(at, 0.0), value)
    return max(totals.values(), default=1.0)


def _axes(plot: Plot, unit: str) -> list[str]:
    parts = []
    for share in (0, 0.5, 1):
        level, words = plot.y(plot.most * share), escape(text(plot.most * share, unit))
        parts.append(f'<line x1="{plot.left}" x2="{plot.right}" y1="{level:.1f}" y2="{level:.1f}" stroke="#e4e6e9"/>')
        parts.append(f'<text x="{plot.left - 5}" y="{level + 4:.1f}" text-anchor="end" fill="#6a737d">{words}</text>')
    step = nice((plot.end - plot.start) / 5)
    for number in range(int((plot.end - plot.start) / step) + 1):
        at = min(plot.x(plot.start + number * step), plot.right - 14)
        parts.append(
            f'<text x="{at:.1f}" y="{plot.bottom + 14:.1f}" text-anchor="middle" fill="#6a737d">{number * step:g} s</text>'
        )
    return parts


def _legend(series: Sequence[Series], width: float) -> list[list[tuple[float, int]]]:
    """Rows of offset and index, as many as are needed (four at the most)."""
    rows: list[list[tuple[float, int]]] = [[]]
    used = 0.0
    for index, one in enumerate(series):
        need = 28 + 6.3 * len(one.name)
        if used + need > width - 10 and rows[-1]:
            rows.append([])
            used = 0.0
        rows[-1].append((used, index))
        used += need
    return rows[:4]


def _line(one: Series, colour: str, plot: Plot) -> str:
    """Broken where a scrape is missing."""
    path, before = [], -math.inf
    for at, value in sorted(one.values.items()):
        path.append(f"{'L' if at - before < 2 else 'M'}{plot.x(at):.1f} {plot.y(value):.1f}")
        before = at
    return f'<path d="{" ".join(path)}" fill="none" stroke="{colour}" stroke-width="1.6" stroke-linejoin="round" stroke-linecap="round"/>'


def _stack(one: Series, below: Mapping[float, float], colour: str, plot: Plot) -> str:
    """A column for each second that has a value, so that gaps are gaps."""
    width = plot.x(1.0) - plot.x(0.0) + 0.3
    cells = [
        f"M{plot.x(at):.1f} {plot.y(base):.1f}h{width:.1f}V{plot.y(base + value):.1f}h{-width:.1f}Z"
        for at, value in sorted(one.values.items())
        if value and (base := below.get(at, 0.0)) is not None
    ]
    return f'<path d="{" ".join(cells)}" fill="{colour}" fill-opacity="0.8"/>'


def nice(value: float) -> float:
    """The next of 1, 2, 2.5, 5, 10 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10 ** math.floor(math.log10(value))
    return float(next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value * 0.999))


def text(value: float, unit: str) -> str:
    """A value with its unit, as short as may be."""
    if math.isnan(value):
        return "no data"
    if unit == "s" and value >= 60:
        return f"{value / 60:.3g} min"
    if unit == "s" and 0 < value < 1:
        return f"{value * 1000:.3g} ms"
    if value >= 1e6:
        return f"{value / 2**20:.3g} Mi"
    return f"{value:.3g}" + {"s": " s"}.get(unit, "")
