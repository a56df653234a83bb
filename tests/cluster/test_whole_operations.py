"""docs/operations.md: every command in it is run, in its order, by a shell whose kubectl is the administrator's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.cluster.whole import Whole
from tests.lab.node.layout import need
from tests.unit.documents import TREE, blocks, examples, read

TEXT = read("docs/operations.md")
COMMANDS = [command for command, _ in examples(TEXT)]
WRITTEN = ("secrets.yaml", "users.ldif", "accounts.sql", "state.tar")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands run: the tree's manifests, and the file of the text."""
    folder = tmp_path_factory.mktemp("operations")
    (folder / "manifests").symlink_to(TREE / "manifests")
    (entry,) = blocks(TEXT, "ldif")
    (folder / "user.ldif").write_text(entry)
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_text_works(whole: Whole, place: Path, command: str) -> None:
    path = f"{need('kubectl').parent}:{os.environ['PATH']}"
    env = {**os.environ, "KUBECONFIG": str(whole.node.kubeconfig), "PATH": path}
    done = subprocess.run(["bash", "-c", command], cwd=place, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_backup_has_what_it_says(place: Path) -> None:
    assert {name for name in WRITTEN if (place / name).stat().st_size} == set(WRITTEN)
    assert "uid=mary" in (place / "users.ldif").read_text()
    assert "munge.key" in (place / "secrets.yaml").read_text()
    assert "CREATE TABLE `slurm_job_table`" in (place / "accounts.sql").read_text()
    listed = subprocess.run(["tar", "-tf", place / "state.tar"], capture_output=True, text=True, check=True).stdout
    assert "./node_state" in listed
