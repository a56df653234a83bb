"""`figures` collects what every benchmark measures; the table is printed at the end, also after a failure."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchmarks.figures import Figures
from tests.lab import daemon

_FIGURES: pytest.StashKey[Figures] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_FIGURES] = Figures()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Some wait for Slurm's next pass several times over."""
    for item in items:
        item.add_marker(pytest.mark.timeout(1200))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    figures = config.stash[_FIGURES]
    if not figures.by_name:
        return
    terminalreporter.section("figures")
    for line in figures.lines():
        terminalreporter.write_line(line)
    if os.environ.get("COPILOT_BENCH_WRITE") == "1":
        figures.write()
        terminalreporter.write_line("written to docs/performance.json and docs/performance.md")


@pytest.fixture(scope="session")
def figures(request: pytest.FixtureRequest) -> Figures:
    return request.config.stash[_FIGURES]


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Where SlurmUser may go, which pytest's own folders do not let him. Kept, for its logs, when the benchmark fails."""
    made = Path(tempfile.mkdtemp(prefix="copilot-bench-", dir="/tmp"))
    made.chmod(0o755)
    before = request.session.testsfailed
    yield made
    if request.session.testsfailed == before:
        shutil.rmtree(made)
    else:
        print(f"the logs of {request.node.name} are in {made}")


@pytest.fixture
def stalls(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The copilot runs with a probe in its loop, which notes stalls in this file."""
    file = folder / "stalls"
    file.touch()
    environment = daemon._environment()
    monkeypatch.setattr(daemon, "COMMAND", (sys.executable, "-m", "tests.benchmarks.probed"))
    monkeypatch.setattr(daemon, "_environment", lambda: {**environment, "COPILOT_STALLS": str(file)})
    return file
