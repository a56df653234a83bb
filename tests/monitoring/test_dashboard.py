"""The dashboard as a file: of Grafana's schema, laid out without gaps or overlaps, and shipped as it is."""

from __future__ import annotations

import re
import subprocess
from itertools import combinations
from pathlib import Path

import pytest

from tests.lab.controlplane import cache
from tests.monitoring.dashboard import DASHBOARD, Panel, expressions, load


def checker() -> Path:
    found = sorted(cache().glob("dashboard-v*/dashboard-check"), reverse=True)
    if not found:
        pytest.skip("not installed: the check of dashboards (tests/lab/install dashboard)")
    return found[0]


def complaints(text: str) -> str:
    """What the types of Grafana's own SDK find fault with, read strictly."""
    done = subprocess.run([checker()], input=text, capture_output=True, text=True, timeout=60)
    assert (done.returncode == 0) is (done.stderr == ""), done.stderr
    return done.stderr


def test_it_is_of_grafanas_schema() -> None:
    assert complaints(DASHBOARD.read_text()) == ""


@pytest.mark.parametrize(
    ("right", "wrong"), [('"gridPos"', '"gridPosition"'), ('"timeseries"', "7"), ('"templating"', '"template"')]
)
def test_the_check_of_the_schema_sees_what_is_wrong(right: str, wrong: str) -> None:
    text = DASHBOARD.read_text()
    assert right in text
    assert complaints(text.replace(right, wrong)) != ""


def overlap(one: Panel, other: Panel) -> bool:
    return one.x < other.x + other.w and other.x < one.x + one.w and one.y < other.y + other.h and other.y < one.y + one.h


def test_the_panels_cover_the_page() -> None:
    panels = load()
    assert not [(one.title, other.title) for one, other in combinations(panels, 2) if overlap(one, other)]
    area = sum(panel.w * panel.h for panel in panels)
    assert area == 24 * max(panel.y + panel.h for panel in panels)
    assert len({panel.id for panel in panels}) == len({panel.title for panel in panels}) == len(panels)


def test_every_panel_says_what_it_shows() -> None:
    assert all(len(panel.description) > 10 for panel in load() if panel.title != "Decisions")


def test_every_expression_is_narrowed_to_what_was_chosen() -> None:
    """A selector that ignores the namespace would mix two clusters. The process's own metrics are narrowed by what they are joined with."""
    for expression in expressions():
        selectors = re.findall(r"\b(?:slurm_copilot|process)_\w+(\{[^}]*\})?", expression)
        assert selectors
        assert all('namespace=~"$namespace"' in one for one in selectors if one), expression
        assert sum(1 for one in selectors if not one) == expression.count("and on (namespace, job, instance)"), expression
