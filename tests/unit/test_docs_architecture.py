"""docs/architecture.md names what is there: modules, wishes, phases, settings."""

from __future__ import annotations

import re

from copilot import config
from copilot.model import Phase
from copilot.plan import Policy, Wish
from tests.unit.documents import TREE, read, table, words

TEXT = read("docs/architecture.md")


def firsts(head: str) -> list[str]:
    return [words(row[0])[0] for row in table(TEXT, head)]


def test_modules_are_those_of_the_package() -> None:
    there = {path.stem for path in (TREE / "copilot").iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert set(firsts("module")) == there - {"__init__"}


def test_modules_stand_in_the_order_in_which_they_may_import() -> None:
    layers = re.findall(r'^    "(copilot\.[^"]+)",$', read("pyproject.toml"), re.MULTILINE)
    level = {name.removeprefix("copilot."): number for number, layer in enumerate(layers) for name in layer.split(" | ")}
    order = [level[name] for name in firsts("module")]
    assert order == sorted(order)


def test_wishes_and_phases_are_those_of_the_code() -> None:
    assert firsts("wish") == [wish.value for wish in Wish]
    assert firsts("phase") == list(Phase)


def test_settings_that_are_named_exist() -> None:
    known = {row.name for row in config.TABLE}
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", TEXT)) - {
        "kubernetes_asyncio",
        "power_down",
        "power_down_force",
        "slurm_copilot_nodes",
    }
    assert {"poll_fast", "orphan_grace", "free_early"} < named
    assert named <= known


def test_bounds_that_are_no_settings_are_as_told() -> None:
    assert f"older than {Policy().trust_view:g} s" in TEXT.replace("\n", " ")
    assert f"within {Policy().repeat_update:g} s" in TEXT
