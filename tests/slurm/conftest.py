"""The Slurm tier runs in namespaces of its own: `COPILOT_SLURM=24.11 tests/lab/isolated python -m pytest tests/slurm`."""

from __future__ import annotations

import os

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("COPILOT_ISOLATED") == "1":
        return
    for item in items:
        if "tests/slurm/" in item.path.as_posix():
            item.add_marker(pytest.mark.skip(reason="needs the namespaces of tests/lab/isolated"))
