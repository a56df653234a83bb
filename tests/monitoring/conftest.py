"""The monitoring tier: what manifests/components/monitoring ships, checked by promtool and tried with a real Prometheus on a real copilot."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.lab import prometheus
from tests.lab.controlplane import TREE

COMPONENT: Final = TREE / "manifests/components/monitoring"
RULES: Final = COMPONENT / "rules.yaml"
# So that an alert fires within seconds; everything else stays. Each must occur, so that no rule is left with its minutes unnoticed.
# The windows are far longer than the scrapes that a busy machine may lose in a row.
SHORTER: Final = {
    r"\[(15m|30m|1h)\]": "[1m]",
    r"> 120\b": "> 12",
    r"> 1200\b": "> 6",
    r"> 600\b": "> 4",
    r"> 5\b": "> 0",
}
Rule = dict[str, Any]


def rules() -> list[Rule]:
    """The alerts."""
    loaded = yaml.safe_load(RULES.read_text())
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def shortened(folder: Path) -> Path:
    """The rules with windows and thresholds of seconds, as a file in that folder."""
    loaded = yaml.safe_load(RULES.read_text())
    unused = set(SHORTER)
    for rule in (rule for group in loaded["groups"] for rule in group["rules"]):
        if "for" in rule:
            rule["for"] = "1s"
        for old, new in SHORTER.items():
            rule["expr"], count = re.subn(old, new, rule["expr"])
            unused -= {old} if count else set()
    assert not unused, f"no rule has {unused}"
    path = folder / "rules.yaml"
    path.write_text(yaml.safe_dump(loaded))
    return path


@pytest.fixture(scope="session", autouse=True)
def tools() -> Iterator[None]:
    """Nothing here runs without them."""
    if reason := prometheus.missing():
        pytest.skip(reason)
    yield
