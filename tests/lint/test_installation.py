"""`pip install .` as a user does it, from the files of the tree alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from copilot import __version__
from tests.lint.tree import TREE, files


def run(argv: Sequence[str | Path], folder: Path) -> str:
    """What the command printed; fails with all it said when its exit code is not 0."""
    done = subprocess.run(argv, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, f"{argv} ended with code {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.timeout(600)
def test_pip_install_gives_the_command(tmp_path: Path) -> None:
    """Built in a copy, because building leaves files beside the sources; the libraries are those of the constraints file."""
    source = tmp_path / "source"
    for name in files():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(TREE / name, source / name)
    environment = tmp_path / "environment"
    run([sys.executable, "-m", "venv", environment], tmp_path)
    python = environment / "bin" / "python"
    pip: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check"]
    run([*pip, "install", "--quiet", "--constraint", "constraints.txt", "."], source)
    run([*pip, "check"], tmp_path)
    assert __version__ in run([environment / "bin" / "slurmctld-copilot", "--version"], tmp_path)
    packages = run([python, "-I", "-c", "import copilot; print(*copilot.__path__)"], tmp_path).strip()
    assert Path(packages).is_relative_to(environment)
    assert (Path(packages) / "py.typed").is_file()
    assert not (Path(packages).parent / "tests").exists()
