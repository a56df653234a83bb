"""The checkers, each one test. Their output is the failure's text."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.lint.tree import TREE, files, scripts

PYTHON_TOOLS = {
    "mypy": ("-m", "mypy"),
    "ruff-check": ("-m", "ruff", "check"),
    "ruff-format": ("-m", "ruff", "format", "--check"),
    # The package has no __main__.
    "import-linter": ("-c", "import sys; from importlinter.cli import lint_imports_command as main; sys.exit(main())"),
}


def check(argv: Sequence[str]) -> None:
    """Fails with what the tool said when its exit code is not 0."""
    done = subprocess.run(argv, cwd=TREE, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        pytest.fail(f"{' '.join(argv[:4])} ended with code {done.returncode}\n{done.stdout}{done.stderr}", pytrace=False)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("tool", PYTHON_TOOLS)
def test_python(tool: str) -> None:
    check([sys.executable, *PYTHON_TOOLS[tool]])


def test_shell() -> None:
    """Every shell script, with all of shellcheck's warnings."""
    installed = subprocess.run(["tests/lab/install", "lint"], cwd=TREE, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if installed.returncode == 77:
        pytest.skip(installed.stderr.strip().splitlines()[-1])
    assert installed.returncode == 0, installed.stderr
    found = scripts()
    assert "tests/lab/install" in found
    check(["shellcheck", "--external-sources", *found])


def test_dockerfiles() -> None:
    """By hadolint, which looks into the shell of RUN steps as well; what is ignored says so in its line."""
    found = [name for name in files() if Path(name).name == "Dockerfile"]
    assert "images/slurm/Dockerfile" in found
    check([str(Path(sys.executable).with_name("hadolint")), "--no-color", *found])
