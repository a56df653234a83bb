"""The documents' commands, run in their order by a shell whose kubectl is the administrator's: docs/operations.md from its first to its last,
and whatever README.md and others do with a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cluster.whole import Whole
from tests.lab.node.layout import need
from tests.unit.documents import TREE, blocks, commands, read

OPERATIONS = read("docs/operations.md")
OTHERS = ("README.md", "manifests/README.md", "docs/failures.md")
# overlays/ack is tried where there are SlurmClusters, in tests/manifests.
ON_A_CLUSTER = [
    command
    for command in dict.fromkeys(command for document in OTHERS for command in commands(read(document)))
    if command.startswith(("kubectl ", "manifests/")) and "overlays/ack" not in command
]
FOR_EVER = (" port-forward ", " -w")
WRITTEN = ("secrets.yaml", "users.ldif", "accounts.sql", "state.tar")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands run: the folders of the tree that they name, and the file of the text."""
    folder = tmp_path_factory.mktemp("documents")
    for name in ("manifests", "scripts"):
        (folder / name).symlink_to(TREE / name)
    (entry,) = blocks(OPERATIONS, "ldif")
    (folder / "user.ldif").write_text(entry)
    return folder


def run(whole: Whole, place: Path, command: str) -> None:
    """One that never ends by itself works when it has said something."""
    path = f"{need('kubectl').parent}:{os.environ['PATH']}"
    env = {**os.environ, "KUBECONFIG": str(whole.node.kubeconfig), "PATH": path}
    script = f"exec {command}" if any(word in f"{command} " for word in FOR_EVER) else command
    with subprocess.Popen(
        ["bash", "-c", script], cwd=place, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        if script != command:
            first = process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            assert "rror" not in first and first, first
            return
        said, _ = process.communicate(timeout=200)
    assert process.returncode == 0, said


@pytest.mark.parametrize("command", commands(OPERATIONS))
def test_a_command_of_the_operations_works(whole: Whole, place: Path, command: str) -> None:
    run(whole, place, command)


def test_the_backup_has_what_it_says(place: Path) -> None:
    assert {name for name in WRITTEN if (place / name).stat().st_size} == set(WRITTEN)
    assert "uid=mary" in (place / "users.ldif").read_text()
    assert "munge.key" in (place / "secrets.yaml").read_text()
    assert "CREATE TABLE `slurm_job_table`" in (place / "accounts.sql").read_text()
    listed = subprocess.run(["tar", "-tf", place / "state.tar"], capture_output=True, text=True, check=True).stdout
    assert "./node_state" in listed


@pytest.mark.parametrize("command", ON_A_CLUSTER)
def test_a_command_of_the_other_documents_works(whole: Whole, place: Path, command: str) -> None:
    run(whole, place, command)
