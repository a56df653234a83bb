"""Every command of every document is run by a test. Here: those that need nothing but the tree. What would take too long is looked at
(`make -n`), and what this machine cannot have (docker, kind) is compared with what is run in its place."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from tests.lab.images import IMAGES
from tests.unit.documents import TREE, blocks, commands, read

DOCUMENTS = ["README.md", "manifests/README.md", *sorted(f"docs/{path.name}" for path in (TREE / "docs").glob("*.md"))]
# Documents whose commands need Slurm, a copilot or a cluster, and the test that runs them.
ELSEWHERE = {
    "docs/api.md": "tests/unit/test_docs_api.py",
    "docs/operations.md": "tests/cluster/test_whole_documents.py",
    "docs/troubleshooting.md": "tests/e2e/test_troubleshooting.py",
}
ON_A_CLUSTER = "tests/cluster/test_whole_documents.py"
PROGRAMS = ("docker", "kind", "kubectl", "make", "manifests/", "scontrol", "slurmctld-copilot")
HERE = [(document, command) for document in DOCUMENTS if document not in ELSEWHERE for command in commands(read(document))]


@pytest.mark.parametrize("document", ELSEWHERE)
def test_the_commands_of_a_document_are_run_by_the_test_that_is_named(document: str) -> None:
    assert commands(read(document))
    assert f'"{document}"' in read(ELSEWHERE[document])


@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_command_hides_in_a_block_that_nobody_runs(document: str) -> None:
    lines = [
        line
        for language in ("", "sh", "bash", "shell")
        for block in blocks(read(document), language)
        for line in block.splitlines()
    ]
    assert [line for line in lines if line.startswith(PROGRAMS)] == []


@pytest.mark.parametrize(("document", "command"), HERE)
def test_a_command_is_as_it_says(document: str, command: str) -> None:
    words = shlex.split(command, comments=True)
    while re.match(r"[A-Z_]+=", words[0]):
        del words[0]
    if words[:2] == ["nice", "-n"]:
        del words[:3]
    match words:
        case ["make", "help"]:
            subprocess.run(words, cwd=TREE, check=True, capture_output=True)
        case ["make", *rest]:
            subprocess.run(["make", "-n", *rest], cwd=TREE, check=True, capture_output=True)
        case ["slurmctld-copilot", *rest]:
            _run_copilot(rest)
        case ["docker", "build", *rest]:
            _is_what_the_lab_builds(rest)
        case ["kind", "load", "docker-image", *images]:
            built = {
                one.split()[one.split().index("-t") + 1] for one in commands(read(document)) if one.startswith("docker build")
            }
            assert set(images) == built == _of_the_demo() - {"mariadb:11.8"}
        case ["kubectl" | "manifests/secrets" | "manifests/reconfigure", *_]:
            assert f'"{document}"' in read(ON_A_CLUSTER)
        case _:
            pytest.fail("no rule for this command")


def _run_copilot(rest: Sequence[str]) -> None:
    """As the package installs it; nobody is there whom `status` could ask."""
    env = {"PATH": os.environ["PATH"], "COPILOT_SOCKET": "/nonexistent/socket"}
    done = subprocess.run([sys.executable, "-m", "copilot.cli", *rest], cwd=TREE, env=env, capture_output=True)
    assert done.returncode == (2 if rest[-1] == "status" else 0)


def _is_what_the_lab_builds(rest: Sequence[str]) -> None:
    """The same Dockerfile, name, release of Debian and context as buildah gets from the lab."""
    options = dict(zip(rest[:-1:2], rest[1:-1:2], strict=True))
    image = IMAGES[options.pop("-t")]
    assert (options.pop("-f"), rest[-1]) == (f"{image.folder}/Dockerfile", ".")
    default = re.search(r"(?:^ARG DEBIAN=|debian:)(\w+)", read(f"{image.folder}/Dockerfile"), re.MULTILINE)
    assert default and options.get("--build-arg", f"DEBIAN={default[1]}") == f"DEBIAN={image.suite}"


def _of_the_demo() -> set[str]:
    images = yaml.safe_load(read("manifests/overlays/demo/kustomization.yaml"))["images"]
    return {f"{one['name']}:{one['newTag']}" for one in images}


def test_the_scripts_that_are_named_are_there() -> None:
    for _, command in HERE:
        for word in shlex.split(command, comments=True):
            name = word.partition("=")[2] if word.startswith("--from-file") else word
            assert not name.startswith(("manifests/", "scripts/", "images/")) or (TREE / Path(name)).exists(), command
