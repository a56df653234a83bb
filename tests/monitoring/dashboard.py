"""The dashboard's panels, and its expressions as Grafana would send them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from tests.monitoring.conftest import COMPONENT

DASHBOARD: Final = COMPONENT / "dashboard/dashboard.json"


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel with its place in columns and rows of Grafana's grid. `targets` are expressions with the form of their legends."""

    id: int
    kind: str
    title: str
    description: str
    x: int
    y: int
    w: int
    h: int
    targets: tuple[tuple[str, str], ...]
    unit: str
    stacked: bool
    bars: bool
    steps: tuple[tuple[float, str], ...]
    words: dict[str, str]


def _panel(raw: dict[str, Any]) -> Panel:
    defaults = raw["fieldConfig"]["defaults"]
    custom = defaults.get("custom", {})
    words = {value: said["text"] for one in defaults["mappings"] for value, said in one["options"].items()}
    return Panel(
        raw["id"],
        raw["type"],
        raw["title"],
        raw["description"],
        **raw["gridPos"],
        targets=tuple((one["expr"], one["legendFormat"]) for one in raw["targets"]),
        unit=defaults["unit"],
        stacked=custom.get("stacking", {}).get("mode") == "normal",
        bars=custom.get("drawStyle") == "bars",
        steps=tuple(
            (float("-inf") if one["value"] is None else one["value"], one["color"]) for one in defaults["thresholds"]["steps"]
        ),
        words=words,
    )


def load() -> list[Panel]:
    """All panels, in their order."""
    return [_panel(raw) for raw in json.loads(DASHBOARD.read_text())["panels"]]


def expressions() -> list[str]:
    """As they are in the file."""
    return [expression for panel in load() for expression, _ in panel.targets]


def filled(expression: str, *, window: str) -> str:
    """With all namespaces and groups chosen, and rates over `window`."""
    return expression.replace("$__rate_interval", window).replace("$namespace", ".*").replace("$group", ".*")
